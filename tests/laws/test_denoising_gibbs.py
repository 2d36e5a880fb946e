"""Laws of denoising Gibbs: exact where posteriors are Gaussian, wrong by a known amount where the covariance is.

Data N(m, C) with noise sigma have x given x~ ~ N(m + A (x~ - m), sigma^2 A) with A = C (C + sigma^2 I)^-1, so every
chain here is linear: x' = m + A (x + sigma z - m) + e. Its mean and covariance after any number of steps, and where
they settle, are solutions of linear equations.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from jax.extend.core import ClosedJaxpr, Jaxpr

import unnorm as un
from unnorm.energies import gaussian
from unnorm.networks import MLP
from unnorm.samplers import (
    DenoisingGibbs,
    DiagonalCovariance,
    FullCovariance,
    IsotropicCovariance,
    LearnedCovariance,
    hessian_diagonal,
    isotropic_covariance,
    isotropic_variance,
    learned_posterior,
)
from unnorm.scores import FreeScore, FromScore, GaussianDenoiser, as_score

MEAN = np.array([1.0, -0.5, 0.3])
ROOT = np.array([[1.0, 0.0, 0.0], [0.7, 0.6, 0.0], [-0.4, 0.5, 0.8]])
COVARIANCE = ROOT @ ROOT.T
SIGMAS = (0.6, 1.0, 2.0)


def noisy(sigma: float):
    """The energy of the data with noise."""
    return gaussian(MEAN, COVARIANCE + sigma**2 * np.eye(3))


def gain(sigma: float) -> np.ndarray:
    """A."""
    return COVARIANCE @ np.linalg.inv(COVARIANCE + sigma**2 * np.eye(3))


def settled(sigma: float, posterior: np.ndarray) -> np.ndarray:
    """S = A (S + sigma^2 I) A' + posterior: the covariance of the chain that uses this posterior covariance."""
    a = gain(sigma)
    right = sigma**2 * a @ a.T + posterior
    return np.linalg.solve(np.eye(9) - np.kron(a, a), right.reshape(-1)).reshape(3, 3)


def moments(x: np.ndarray) -> np.ndarray:
    """x_i, and (x - m)_i (x - m)_j for i <= j."""
    rows, columns = np.triu_indices(3)
    offset = np.asarray(x, np.float64) - MEAN
    return np.concatenate([offset + MEAN, offset[..., rows] * offset[..., columns]], axis=-1)


def truth(covariance: np.ndarray, mean: np.ndarray = MEAN) -> np.ndarray:
    """What `moments` should be for draws of this mean and covariance."""
    about = covariance + np.outer(mean - MEAN, mean - MEAN)
    return np.concatenate([mean, about[np.triu_indices(3)]])


@eqx.filter_jit
def walk(sampler, target, xs, steps: int, key):
    """chains x steps x point, and the counts of raised variances."""

    def one(x, key):
        def move(state, key):
            state, info = sampler.step(target, state, key=key)
            return state, (sampler.position(state), info.clipped)

        return jax.lax.scan(move, sampler.init(target, x), jax.random.split(key, steps))[1]

    return jax.vmap(one)(xs, jax.random.split(key, len(xs)))


def exact_draws(covariance: np.ndarray, n: int) -> np.ndarray:
    return np.random.default_rng(0).multivariate_normal(MEAN, covariance, n).astype(np.float32)


# ---------------------------------------------------------------------------------------------- full covariance


@pytest.mark.parametrize("sigma", SIGMAS)
def test_full_covariance_keeps_the_moments_of_gaussian_data(sigma):
    """E x and E (x - m)(x - m)' stay m and C; E (x' - m)(x - m)' is A C."""
    start = exact_draws(COVARIANCE, 4000)
    draws, clipped = walk(DenoisingGibbs(sigma), noisy(sigma), start, 20, jax.random.key(1))
    assert holds(moments(draws).mean(axis=1), truth(COVARIANCE))
    assert float(np.sum(clipped)) == 0
    offset = np.asarray(draws, np.float64) - MEAN
    lag = np.einsum("cti,ctj->cij", offset[:, 1:], offset[:, :-1]) / (offset.shape[1] - 1)
    assert holds(lag, gain(sigma) @ COVARIANCE)
    assert breaks(lag, COVARIANCE)
    # Negative controls: the noise the model was not trained with, and the model of the clean density itself.
    for wrong in ((DenoisingGibbs(1.2 * sigma), noisy(sigma)), (DenoisingGibbs(sigma), gaussian(MEAN, COVARIANCE))):
        wrong_draws, _ = walk(*wrong, start, 20, jax.random.key(1))
        assert breaks(moments(wrong_draws).mean(axis=1), truth(COVARIANCE))


@pytest.mark.parametrize("steps", [1, 3])
def test_full_covariance_approaches_at_the_known_rate(steps):
    """From one point x_0: mean m + A^n (x_0 - m), covariance C - A^n C A^n'."""
    sigma, x0 = 0.7, MEAN + np.array([3.0, -2.0, 1.0])
    start = np.tile(x0, (20_000, 1)).astype(np.float32)
    draws, _ = walk(DenoisingGibbs(sigma), noisy(sigma), start, steps, jax.random.key(2))
    last = moments(np.asarray(draws)[:, -1])

    def after(n):
        power = np.linalg.matrix_power(gain(sigma), n)
        return truth(COVARIANCE - power @ COVARIANCE @ power.T, MEAN + power @ (x0 - MEAN))

    assert holds(last, after(steps)) and breaks(last, after(steps + 1))


def test_sample_runs_it_and_its_draws_are_those_of_the_clean_density():
    start = exact_draws(COVARIANCE, 64)
    trace = un.sample(
        noisy(1.0), DenoisingGibbs(1.0), chains=64, steps=400, start=start, key=jax.random.key(3), progress=False
    )
    averages = moments(trace.draws).mean(axis=1)
    assert holds(averages, truth(COVARIANCE)) and breaks(averages, truth(COVARIANCE + np.eye(3)))
    binary = un.energies.FunctionEnergy(jnp.sum, un.spaces.Binary((3,)))
    with pytest.raises(un.InputError, match=r"DenoisingGibbs follows gradients.*use samplers\.Gibbs"):
        un.sample(binary, DenoisingGibbs(1.0), key=jax.random.key(0))


# ------------------------------------------------------------------------------------------ cheaper covariances


@pytest.mark.parametrize("sigma", SIGMAS)
def test_isotropic_covariance_settles_at_a_known_wrong_covariance(sigma):
    """tau^2 = sigma^2 - sigma^4 tr((C + sigma^2 I)^-1) / d, and S solves S = A (S + sigma^2 I) A' + tau^2 I."""
    tau2 = sigma**2 - sigma**4 * np.trace(np.linalg.inv(COVARIANCE + sigma**2 * np.eye(3))) / 3
    assert np.isclose(tau2, sigma**2 * np.trace(gain(sigma)) / 3)
    wrong = settled(sigma, tau2 * np.eye(3))
    assert np.allclose(settled(sigma, sigma**2 * gain(sigma)), COVARIANCE)
    draws, _ = walk(
        DenoisingGibbs(sigma, IsotropicCovariance(tau2)), noisy(sigma), exact_draws(wrong, 4000), 20, jax.random.key(4)
    )
    averages = moments(draws).mean(axis=1)
    assert holds(averages, truth(wrong))
    # The law of the full covariance rejects it: its stationary covariance is not that of the data.
    assert breaks(averages, truth(COVARIANCE))


def test_the_isotropic_variance_is_the_mean_posterior_variance():
    sigma = 1.0
    data = exact_draws(COVARIANCE, 16 * 500).reshape(16, 500, 3)
    repeats = [isotropic_variance(noisy(sigma), sigma, part, key=jax.random.key(i)) for i, part in enumerate(data)]
    tau2 = sigma**2 * np.trace(gain(sigma)) / 3
    values = [estimate.value for estimate in repeats]
    assert holds(values, tau2) and breaks(values, sigma**2)
    # Its stated error is the spread of repeats, to within the error of a spread over 16 of them.
    assert 0.5 < np.mean([estimate.stderr for estimate in repeats]) / np.std(values, ddof=1) < 2
    with pytest.raises(un.InputError, match="larger than noise"):
        isotropic_covariance(gaussian(MEAN, 0.01 * COVARIANCE), 1.0, data[0], key=jax.random.key(0))


@pytest.mark.parametrize("probes", [1, 4])
def test_diagonal_covariance_settles_at_a_known_wrong_covariance(probes):
    """Unbiased variances, however few the probes, give S = A (S + sigma^2 I) A' + diag(sigma^2 A): none is clipped."""
    sigma = 0.5
    wrong = settled(sigma, np.diag(np.diag(sigma**2 * gain(sigma))))
    sampler = DenoisingGibbs(sigma, DiagonalCovariance(probes))
    draws, clipped = walk(sampler, noisy(sigma), exact_draws(wrong, 4000), 20, jax.random.key(5))
    averages = moments(draws).mean(axis=1)
    assert float(np.sum(clipped)) == 0
    assert holds(averages, truth(wrong)) and breaks(averages, truth(COVARIANCE))


def test_learned_covariance_is_what_the_network_says():
    """A denoiser of the true posterior mean and of its true variances draws as the diagonal covariance does."""
    sigma = 0.5
    a, deviations = jnp.asarray(gain(sigma)), jnp.sqrt(jnp.asarray(np.diag(sigma**2 * gain(sigma))))
    denoiser = GaussianDenoiser(lambda y: jnp.concatenate([MEAN + a @ (y - MEAN), jnp.log(deviations)]))
    target, covariance = learned_posterior(denoiser, sigma)
    wrong = settled(sigma, np.diag(np.diag(sigma**2 * gain(sigma))))
    draws, _ = walk(DenoisingGibbs(sigma, covariance), target, exact_draws(wrong, 4000), 20, jax.random.key(6))
    averages = moments(draws).mean(axis=1)
    assert holds(averages, truth(wrong)) and breaks(averages, truth(COVARIANCE))
    # Deviations in place of variances are caught.
    confused = LearnedCovariance(lambda y: deviations)
    draws, _ = walk(DenoisingGibbs(sigma, confused), target, exact_draws(wrong, 4000), 20, jax.random.key(6))
    assert breaks(moments(draws).mean(axis=1), truth(wrong))


# ------------------------------------------------------------------------------------------------------ Hessians


def test_the_diagonal_estimate_is_unbiased_and_exact_for_diagonal_matrices():
    matrix = np.random.default_rng(1).normal(size=(6, 6))  # not symmetric: a free score's need not be
    x = jnp.zeros(6)

    def estimates(score, probes, n):
        keys = jax.random.split(jax.random.key(7), n)
        return np.asarray(jax.jit(jax.vmap(lambda k: hessian_diagonal(score, x, probes=probes, key=k)))(keys))

    for probes in (1, 5):
        found = estimates(lambda y: jnp.asarray(matrix) @ y, probes, 4000)
        assert holds(found, np.diag(matrix)) and breaks(found, matrix.sum(axis=1))
        # Its variance is the sum of the squared off-diagonal entries, over the number of probes.
        spread = ((matrix**2).sum(axis=1) - np.diag(matrix) ** 2) / probes
        assert holds((found - np.diag(matrix)) ** 2, spread) and breaks((found - np.diag(matrix)) ** 2, 2 * spread)
    exact = estimates(lambda y: jnp.arange(6.0) * y - y**3, 1, 8)
    assert np.array_equal(exact, np.tile(np.arange(6.0), (8, 1)))


def arrays_of(jaxpr):
    """Every array of a jaxpr and of those inside it."""
    for equation in jaxpr.eqns:
        yield from (v.aval for v in (*equation.invars, *equation.outvars) if hasattr(v.aval, "shape"))
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda p: isinstance(p, ClosedJaxpr)):
            if isinstance(parameter, ClosedJaxpr):
                yield from arrays_of(parameter.jaxpr)
            elif isinstance(parameter, Jaxpr):
                yield from arrays_of(parameter)


def test_a_diagonal_step_in_784_dimensions_forms_no_hessian():
    d = 784
    target = FreeScore(MLP(d, d, width=16, depth=2, key=jax.random.key(0)))

    def largest(covariance):
        sampler = DenoisingGibbs(0.5, covariance)
        jaxpr = jax.make_jaxpr(lambda x, key: sampler.step(target, x, key=key))(jnp.zeros(d), jax.random.key(1))
        return max(int(np.prod(aval.shape)) for aval in arrays_of(jaxpr.jaxpr))

    # Probes and weights are the largest arrays; the full covariance shows that a Hessian would be seen.
    assert largest(DiagonalCovariance(probes=10)) == 16 * d
    assert largest(FullCovariance()) >= d * d


def test_a_thousand_hessians_in_one_compiled_call():
    points = jax.random.normal(jax.random.key(8), (1000, 2))
    mixture = un.energies.gaussian_mixture([0.4, 0.6], [[-1.0, 0.0], [1.0, 1.0]], 0.5)
    compilations = []

    @jax.jit
    def all_of_them(points):
        compilations.append(points.shape)
        return jax.vmap(FromScore(as_score(mixture)).matrix)(points)

    found = np.asarray(jax.block_until_ready(all_of_them(points)), np.float64)
    # In closed form: sum_k r_k (u_k u_k' - I / s^2) - s s', with u_k = (m_k - x) / s^2 and s = sum_k r_k u_k.
    x, centres = np.asarray(points, np.float64), np.array([[-1.0, 0.0], [1.0, 1.0]])
    u = (centres - x[:, None]) / 0.25
    logits = np.log([0.4, 0.6]) - 0.5 * 0.25 * np.sum(u**2, axis=-1)
    r = np.exp(logits - logits.max(axis=1, keepdims=True))
    r /= r.sum(axis=1, keepdims=True)
    s = np.einsum("nk,nki->ni", r, u)
    exact = np.einsum("nk,nki,nkj->nij", r, u, u) - np.eye(2) / 0.25 - np.einsum("ni,nj->nij", s, s)
    assert np.max(np.abs(found - exact)) < 1e-3 * np.max(np.abs(exact))
    assert np.max(np.abs(np.swapaxes(found, 1, 2) - found)) < 1e-3
    assert len(compilations) == 1


# --------------------------------------------------------------------------------------------------- nothing hidden


def test_eigenvalues_that_no_covariance_has_are_counted():
    """A score steeper than noise allows, -x / v with v < sigma^2, leaves no posterior variance in its directions."""
    too_sharp = gaussian(np.zeros(3), np.diag([0.5, 2.0, 0.2]))  # against sigma^2 = 1
    for covariance in (FullCovariance(), DiagonalCovariance(probes=1)):
        draws, clipped = walk(DenoisingGibbs(1.0, covariance), too_sharp, jnp.zeros((50, 3)), 4, jax.random.key(9))
        assert np.array_equal(np.asarray(clipped), np.full((50, 4), 2.0))
        assert bool(np.all(np.isfinite(draws)))
    _, clipped = walk(DenoisingGibbs(0.3), too_sharp, jnp.zeros((50, 3)), 4, jax.random.key(9))
    assert float(np.sum(clipped)) == 0


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: DenoisingGibbs(0.0), "must be positive"),
        (lambda: FullCovariance(floor=-1.0), "share of the noise's variance"),
        (lambda: DiagonalCovariance(probes=0), "at least one probe"),
        (lambda: IsotropicCovariance(-0.1), "must be positive"),
    ],
)
def test_bad_options_are_refused(build, words):
    with pytest.raises(un.InputError, match=words):
        build()


def test_sample_walks_a_free_score_and_says_how_often_a_variance_was_raised():
    """A score and its energy give the same draws; a density too sharp for the noise is told of in words."""
    start = jnp.zeros((4, 3))
    options = {"chains": 4, "steps": 5, "start": start, "key": jax.random.key(10), "progress": False}
    energy = noisy(1.0)
    of_energy = un.sample(energy, DenoisingGibbs(1.0), **options)
    of_score = un.sample(as_score(energy), DenoisingGibbs(1.0), **options)
    np.testing.assert_array_equal(of_energy.draws, of_score.draws)
    assert of_energy.clipped == 0
    too_sharp = gaussian(np.zeros(3), np.diag([0.5, 0.5, 4.0]))
    raised = un.sample(too_sharp, DenoisingGibbs(1.0), **options)
    assert raised.clipped == 2 * 4 * 5
    assert any("40 variances or curvatures were clipped" in warning for warning in raised.warnings)


@pytest.mark.parametrize("sampler", [un.samplers.NUTS(), un.samplers.Gibbs(1)])
def test_samplers_that_need_an_energy_refuse_a_score(sampler):
    with pytest.raises(un.errors.InputError, match="needs an energy, not a score"):
        un.sample(as_score(noisy(1.0)), sampler, chains=2, steps=2, start=jnp.zeros((2, 3)), key=jax.random.key(0))


def test_a_score_without_starting_points_is_refused():
    with pytest.raises(un.errors.InputError, match="pass start="):
        un.sample(as_score(noisy(1.0)), DenoisingGibbs(1.0), chains=2, steps=2, key=jax.random.key(0))
