"""Laws of the objectives: each learns the parameters it should, and its gradient vanishes exactly there.

Gaussians and mixtures are their own truth. What an objective cannot see is a law too: local noise and scores do not
see the weights of far-apart modes, denoising sees the noisy density, unadjusted Langevin chains shift the optimum by a
known amount, and jumps without a bandwidth teach that all data are equally likely.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from harness import breaks, deviation, holds
from jaxtyping import Array, Float

from unnorm.energies import AbstractEnergy, Gaussian, GaussianMixture, gaussian, gaussian_mixture, standard_gaussian
from unnorm.noises import (
    KDE,
    AbstractKernel,
    AbstractNoise,
    AbstractNoiseFromData,
    Blend,
    BlendedJumps,
    Choice,
    DataJump,
    GlobalJumps,
    Independent,
    Jumps,
    OrnsteinUhlenbeck,
    VarianceExploding,
    VariancePreserving,
    propose,
)
from unnorm.noises import Gaussian as Local
from unnorm.objectives import CNCE, DSM, PCD
from unnorm.samplers import MALA, Langevin
from unnorm.scores import AbstractScore
from unnorm.spaces import Real
from unnorm.training import fit_repeats

# ------------------------------------------------------------------------------------------------- wrong variants


class Spoilt(AbstractNoise):
    """A noise whose log ratio is multiplied by a factor: forgotten at 0, of the wrong sign at -1."""

    noise: AbstractNoise
    factor: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def sample(self, t, x, *, key):
        return self.noise.sample(t, x, key=key)

    def log_prob(self, t, y, x):
        return self.noise.log_prob(t, y, x)

    def propose(self, t, x, *, key):
        y, ratio = self.noise.propose(t, x, key=key)
        return y, self.factor * ratio


class SpoiltFromData(AbstractNoiseFromData):
    recipe: AbstractNoiseFromData
    factor: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def fit(self, data):
        return Spoilt(self.recipe.fit(data), self.factor)


class Shrinking(AbstractKernel):
    """y = x/2 + z/2: a local noise that is not symmetric, so that its ratio matters."""

    def sample(self, t, x, *, key):
        return 0.5 * x + 0.5 * jax.random.normal(key, x.shape)

    def log_prob(self, t, y, x):
        return Local(0.5).log_prob(t, y, 0.5 * x)


# ------------------------------------------------------------------------------------------------- Gaussians

MEAN = np.array([1.0, -0.5])
COVARIANCE = np.array([[1.2, 0.4], [0.4, 0.6]])
REPEATS = 16
STEP = 0.15


def langevin_optimum(covariance: np.ndarray, h: float) -> np.ndarray:
    """The covariance whose unadjusted Langevin chains have the data's.

    Chains on variance s^2 have variance s^2 / (1 - h / (2 s^2)), along each eigenvector; solved for s^2.
    """
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * (values + np.sqrt(values**2 - 2 * h * values)) / 2) @ vectors.T


def parameters(covariance: np.ndarray) -> np.ndarray:
    return np.concatenate([MEAN, covariance[[0, 0, 1], [0, 1, 1]]])


def fitted(objective, **options) -> np.ndarray:
    """Mean and covariance of a Gaussian learnt from each of 16 data sets of 1000 points."""
    data = gaussian(MEAN, COVARIANCE).samples(REPEATS * 1000, key=jax.random.key(0)).reshape(REPEATS, 1000, 2)
    options = {"steps": 500, "batch": 100, "rate": 0.05, "key": jax.random.key(1)} | options
    fits = fit_repeats(standard_gaussian(2), objective, data, **options)
    covariances = jax.vmap(lambda fit: fit.covariance)(fits)
    return np.concatenate([fits.mean, covariances[:, [0, 0, 1], [0, 1, 1]]], axis=1)


THOROUGH = pytest.mark.thorough


@pytest.mark.parametrize(
    "objective",
    [
        pytest.param(CNCE(Local(0.7)), id="local"),
        pytest.param(CNCE(GlobalJumps(1.0)), id="global"),
        pytest.param(CNCE(Jumps(0.7, 1.0)), id="jumps"),
        pytest.param(CNCE(BlendedJumps(0.7, 1.0)), id="blended", marks=THOROUGH),
        pytest.param(CNCE(Shrinking()), id="shrinking", marks=THOROUGH),
        pytest.param(CNCE(Jumps(0.7, 1.0), draws=8), id="many draws", marks=THOROUGH),
    ],
)
def test_cnce_recovers_a_gaussian(objective):
    # The estimator's own bias is of order 1/1000, a tenth of the standard error of 16 repeats.
    found = fitted(objective)
    assert holds(found, parameters(COVARIANCE))
    # Negative control: the density of data and noise together, which a noisy copy taken for data would give.
    assert breaks(found, parameters(COVARIANCE + 0.49 * np.eye(2)))


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(SpoiltFromData(GlobalJumps(1.0), 0.0), id="global"),
        pytest.param(Spoilt(Shrinking(), 0.0), id="shrinking", marks=THOROUGH),
    ],
)
def test_cnce_without_its_log_ratio_does_not(noise):
    """Negative control."""
    assert breaks(fitted(CNCE(noise)), parameters(COVARIANCE))


def test_dsm_recovers_the_noisy_gaussian():
    """The covariance is that of the data plus sigma^2 I, exactly."""
    found = fitted(DSM(Local(0.5)))
    assert holds(found, parameters(COVARIANCE + 0.25 * np.eye(2)))
    assert breaks(found, parameters(COVARIANCE))


def test_pcd_recovers_a_gaussian_with_chains_that_follow_it():
    found = fitted(PCD(MALA(0.5), chains=128, moves=4))
    assert holds(found, parameters(COVARIANCE))
    # Negative control: chains that are not corrected for their step would lead elsewhere (next law).
    assert breaks(found, parameters(langevin_optimum(COVARIANCE, STEP)))


def test_pcd_with_unadjusted_chains_recovers_the_shifted_gaussian():
    found = fitted(PCD(Langevin(STEP), chains=128, moves=4))
    assert holds(found, parameters(langevin_optimum(COVARIANCE, STEP)))
    assert breaks(found, parameters(COVARIANCE))


# ------------------------------------------------------------------------------------------------- mode weights

WEIGHTS = np.array([0.3, 0.7])
MODES = np.array([[-3.0, 0.0], [3.0, 0.0]])
SPREAD = 0.5


def fitted_mixture(objective) -> tuple[np.ndarray, np.ndarray]:
    """The first weight and the other parameters (means, variances), learnt from equal weights and means 0.3 off."""
    truth = gaussian_mixture(WEIGHTS, MODES, SPREAD)
    data = truth.samples(REPEATS * 500, key=jax.random.key(2)).reshape(REPEATS, 500, 2)
    start = gaussian_mixture([0.5, 0.5], 0.9 * MODES + 0.1, 1.1 * SPREAD)
    # A large epsilon: Adam's usual one would turn gradients that vanish to rounding into steps of full size.
    optimiser = optax.scale_by_adam(eps=1e-4)
    fits = fit_repeats(
        start, objective, data, steps=500, batch=100, rate=0.03, optimiser=optimiser, key=jax.random.key(3)
    )
    variances = jax.vmap(jax.vmap(lambda part: jnp.diagonal(part.covariance)))(fits.components)
    others = [fits.components.mean.reshape(REPEATS, -1), variances.reshape(REPEATS, -1)]
    return np.asarray(jax.nn.softmax(fits.logits, axis=1)[:, 0]), np.concatenate(others, axis=1)


def shape(variance: float) -> np.ndarray:
    return np.concatenate([MODES.reshape(-1), np.full(4, variance)])


@pytest.mark.parametrize(
    "noise",
    [pytest.param(GlobalJumps(0.5), id="global", marks=THOROUGH), pytest.param(Jumps(0.4, 0.5), id="jumps")],
)
def test_jumps_recover_the_weights_of_far_modes(noise):
    weights, others = fitted_mixture(CNCE(noise))
    assert holds(weights, WEIGHTS[0])
    assert holds(others, shape(SPREAD**2))


@pytest.mark.parametrize(
    ("objective", "variance"),
    [
        pytest.param(CNCE(Local(0.4)), SPREAD**2, id="local"),
        pytest.param(DSM(Local(0.2)), SPREAD**2 + 0.04, id="dsm", marks=THOROUGH),
    ],
)
def test_local_objectives_do_not_see_the_weights_of_far_modes(objective, variance):
    """Negative control: the shape of each mode is learnt, its weight stays where it began."""
    weights, others = fitted_mixture(objective)
    assert holds(others, shape(variance))
    assert breaks(weights, WEIGHTS[0])
    assert np.abs(weights - 0.5).max() < 0.02


@THOROUGH
def test_jumps_without_a_bandwidth_make_all_data_equally_likely():
    """F = E(y) - E(x) with x and y exchangeable is least contradicted by F = 0: one energy at every data point.

    So the modes come out equally heavy and far too wide. This is what bandwidth 0 means, not a density estimate.
    """
    weights, others = fitted_mixture(CNCE(GlobalJumps(0.0)))
    assert breaks(weights, WEIGHTS[0])
    assert np.all(others[:, 4:].mean(0) > 4 * SPREAD**2)


# ------------------------------------------------------------------------------------------------- gradients

TRUTH_WEIGHTS = np.array([0.2, 0.5, 0.3])
TRUTH_MEANS = np.array([[-1.5, 0.0], [1.0, 1.5], [1.5, -1.5]])
TRUTH_COVARIANCES = np.array([[[0.5, 0.2], [0.2, 0.4]], [[0.3, 0.0], [0.0, 0.9]], [[0.6, -0.3], [-0.3, 0.5]]])
BATCHES = 500


def truth() -> GaussianMixture:
    return gaussian_mixture(TRUTH_WEIGHTS, TRUTH_MEANS, TRUTH_COVARIANCES)


@pytest.fixture(scope="module")
def batches() -> Array:
    """Independent batches of 64 points."""
    return truth().samples(BATCHES * 64, key=jax.random.key(4)).reshape(BATCHES, 64, 2)


@eqx.filter_jit
def _gradients(objective, model, state, batches, keys):
    def one(batch, key):
        gradient = eqx.filter_grad(lambda m: objective(m, state, batch, key=key)[0])(model)
        return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(gradient)])

    return jax.vmap(one)(batches, keys)


def gradients(objective, model, batches, state=None) -> np.ndarray:
    """The gradient of the loss on each batch, flattened."""
    keys = jax.random.split(jax.random.key(5), len(batches))
    return np.asarray(_gradients(objective, model, state, batches, keys))


def independent_kde(bandwidth: float) -> KDE:
    return KDE(truth().samples(200, key=jax.random.key(6)), bandwidth)


def wide() -> Independent:
    return Independent(standard_gaussian(2, 2.0))


def shifted() -> GaussianMixture:
    return eqx.tree_at(lambda m: m.components.mean, truth(), truth().means + 0.2)


@pytest.mark.parametrize(
    "make",
    [lambda: Local(0.5), lambda: Choice((Local(0.5), Shrinking(), wide()), (0.5, 0.25, 0.25))],
    ids=["local", "choice"],
)
def test_the_cnce_gradient_vanishes_at_the_truth(make, batches):
    noise = make()
    objective = CNCE(noise)
    assert holds(gradients(objective, truth(), batches, noise), 0.0)
    # Away from the truth it does not: the law can see.
    assert breaks(gradients(objective, shifted(), batches, noise), 0.0)


@pytest.mark.parametrize(
    "make",
    [Shrinking, lambda: independent_kde(0.4), lambda: Blend((Local(0.5), wide()), (0.5, 0.5))],
    ids=["shrinking", "kde", "blend"],
)
def test_the_cnce_gradient_vanishes_at_the_truth_with_the_right_log_ratio_only(make, batches):
    def found(factor: float, model=None) -> np.ndarray:
        noise = Spoilt(make(), factor)
        return gradients(CNCE(noise), truth() if model is None else model, batches, noise)

    assert holds(found(1.0), 0.0)
    # Negative controls: the ratio forgotten, its sign flipped, another model.
    assert breaks(found(0.0), 0.0)
    assert breaks(found(-1.0), 0.0)
    assert breaks(found(1.0, shifted()), 0.0)


def test_the_cnce_gradient_with_jumps_to_data_does_not_vanish_at_the_truth(batches):
    """Negative control: at bandwidth 0 the optimum is one energy for all data, not the density."""
    noise = DataJump(truth().samples(200, key=jax.random.key(6)))
    assert breaks(gradients(CNCE(noise), truth(), batches, noise), 0.0)


def test_a_kde_around_the_very_points_it_judges_is_biased(batches):
    """A KDE overrates its own centres: by 1 / (n (2 pi h^2)^(d/2)) in density, which vanishes as n h^d grows.

    So the law needs centres apart from the data, or enough of them; this is the bias of a small, narrow estimate.
    """

    def own(model, state, batch, *, key):
        noise = KDE(batch, 0.15)
        return CNCE(noise)(model, noise, batch, key=key)

    assert breaks(gradients(own, truth(), batches), 0.0)


def noisy_truth(sigma: float) -> GaussianMixture:
    return gaussian_mixture(TRUTH_WEIGHTS, TRUTH_MEANS, TRUTH_COVARIANCES + sigma**2 * np.eye(2))


def inverted(model, state, batch, *, key):
    """DSM with the target +z in place of -z: the energy it learns is upside down."""
    z = jax.random.normal(key, batch.shape)
    scores = -jax.vmap(jax.grad(model))(batch + 0.5 * z)
    return jnp.mean((0.5 * scores - z) ** 2), (None, {})


def test_the_dsm_gradient_vanishes_at_the_noisy_truth(batches):
    objective = DSM(Local(0.5))
    assert holds(gradients(objective, noisy_truth(0.5), batches), 0.0)
    assert breaks(gradients(objective, truth(), batches), 0.0)
    assert breaks(gradients(inverted, noisy_truth(0.5), batches), 0.0)


class GaussianScore(AbstractScore):
    """The exact score of N(mean, exp(log_variance) I) after a noise with alpha(t) and sigma(t)."""

    mean: Float[Array, " d"]
    log_variance: Float[Array, " d"]
    noise: VariancePreserving | VarianceExploding | OrnsteinUhlenbeck

    def __call__(self, t, x):
        alpha, sigma = self.noise.alpha(t), self.noise.sigma(t)
        return (alpha * self.mean - x) / (alpha**2 * jnp.exp(self.log_variance) + sigma**2)


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(VariancePreserving(), id="preserving"),
        pytest.param(VarianceExploding(0.05, 3.0), id="exploding", marks=THOROUGH),
        pytest.param(OrnsteinUhlenbeck(2.0), id="ornstein", marks=THOROUGH),
    ],
)
def test_the_dsm_gradient_vanishes_at_the_score_of_a_process(noise):
    data = gaussian([1.0, -0.5], np.diag([1.2, 0.6])).samples(BATCHES * 64, key=jax.random.key(7))
    score = GaussianScore(jnp.array([1.0, -0.5]), jnp.log(jnp.array([1.2, 0.6])), noise)
    batches = data.reshape(BATCHES, 64, 2)
    assert holds(gradients(DSM(noise), score, batches), 0.0)
    # Negative control: a variance 20 % too large.
    late = eqx.tree_at(lambda s: s.log_variance, score, score.log_variance + math.log(1.2))
    assert breaks(gradients(DSM(noise), late, batches), 0.0)


# ------------------------------------------------------------------------------------------------- likelihood


class Quadratic(AbstractEnergy):
    """|P'(x - mean)|^2 / 2 without its constant, so that the gradient of log Z has to come from the chains."""

    gaussian: Gaussian
    space: Real = eqx.field(static=True, default=Real((2,)))

    def __call__(self, x):
        return self.gaussian(x) - self.gaussian(self.gaussian.mean)


@pytest.mark.parametrize(
    "sampler",
    [pytest.param(MALA(0.4), id="mala"), pytest.param(Langevin(1e-3), id="langevin", marks=THOROUGH)],
)
def test_the_pcd_gradient_is_that_of_the_likelihood(sampler):
    """Chains that begin as draws of the model stay so, and then E_data[dE] - E_chains[dE] is d(-log-likelihood).

    For the Gaussian -log p averages to tr(P P' (S + (m - mean)(m - mean)')) / 2 - log det P over data N(m, S).
    (Langevin moves the chains by O(h) only: four steps of 1e-3 change the gradient by less than its standard error.)
    """
    model = Quadratic(gaussian([0.3, 0.2], [[0.8, -0.2], [-0.2, 1.1]]))

    def negative_log_likelihood(energy: Quadratic):
        lower = jnp.tril(energy.gaussian.factor, -1) + jnp.diag(jnp.exp(jnp.diagonal(energy.gaussian.factor)))
        offset = jnp.asarray(MEAN) - energy.gaussian.mean
        scatter = jnp.asarray(COVARIANCE) + jnp.outer(offset, offset)
        return 0.5 * jnp.trace(lower @ lower.T @ scatter) - jnp.trace(energy.gaussian.factor)

    exact = jax.tree.leaves(eqx.filter_grad(negative_log_likelihood)(model))
    exact = np.concatenate([np.asarray(leaf).reshape(-1) for leaf in exact])
    data = gaussian(MEAN, COVARIANCE).samples(BATCHES * 64, key=jax.random.key(8)).reshape(BATCHES, 64, 2)
    draws = model.gaussian.samples(BATCHES * 64, key=jax.random.key(9)).reshape(BATCHES, 64, 2)

    objective = PCD(sampler, chains=64, moves=4)

    def with_chains(model, state, pair, *, key):
        batch, chains = pair
        return objective(model, chains, batch, key=key)

    assert holds(gradients(with_chains, model, jnp.stack([data, draws], axis=1)), exact)
    # Negative control: chains that begin at the data and have no time to leave them.
    assert breaks(gradients(with_chains, model, jnp.stack([data, data], axis=1)), exact)


def test_pcd_restarts_its_share_of_chains():
    """With tiny moves a restarted chain is found at a batch point, the others where they were."""
    batch, chains = jnp.ones((10, 2)), jnp.full((2000, 2), 5.0)
    model = standard_gaussian(2)
    objective = PCD(Langevin(1e-8), chains=2000, moves=1, restart=0.25)
    _, (moved, _) = eqx.filter_jit(objective)(model, chains, batch, key=jax.random.key(10))
    moved = np.asarray(moved)
    restarted = moved[:, 0] < 3
    np.testing.assert_allclose(moved[:, 1], np.where(restarted, 1.0, 5.0), atol=1e-2)
    assert holds(restarted, 0.25)
    assert breaks(restarted, 0.3)


def test_pcd_magnitude_pulls_the_constant_of_the_energy_to_zero():
    """d/dc [contrast + m (mean E_data^2 + mean E_chains^2)] of E + c is 2 m (mean E_data + mean E_chains + 2 c)."""
    data, chains = np.random.default_rng(11).normal(size=(2, 50, 2)).astype(np.float32)
    objective = PCD(Langevin(1e-12), chains=50, moves=1, magnitude=0.1)

    def loss(c, objective):
        class Shifted(AbstractEnergy):
            space: Real = eqx.field(static=True, default=Real((2,)))

            def __call__(self, x):
                return 0.5 * jnp.sum(x**2) + c

        return objective(Shifted(), jnp.asarray(chains), jnp.asarray(data), key=jax.random.key(12))[0]

    means = [0.5 * np.sum(points**2, axis=1).mean() for points in (data, chains)]
    slope = eqx.filter_jit(jax.grad(loss))
    found = float(slope(0.7, objective))
    assert found == pytest.approx(0.2 * (means[0] + means[1] + 1.4), rel=1e-3)
    # Negative control: without the penalty the constant is free.
    assert float(slope(0.7, PCD(Langevin(1e-12), chains=50, moves=1))) == pytest.approx(0.0, abs=1e-6)


# ------------------------------------------------------------------------------------------------- values


class Constant(AbstractEnergy):
    value: float
    space: Real = eqx.field(static=True, default=Real((2,)))

    def __call__(self, x):
        return jnp.asarray(self.value)


@eqx.filter_jit
def loss(objective, model, batch) -> Float[Array, ""]:
    state = objective.init(model, batch, key=jax.random.key(13))
    return objective(model, state, batch, key=jax.random.key(13))[0]


def test_oracle_noise_cannot_be_told_from_data(batches):
    """With q = p the log odds of the true model are 0 and the loss is 2 log 2, on every batch.

    Whatever the free constant of the energy, here 3.
    """
    oracle = CNCE(Spoilt(Independent(truth()), 1.0), draws=2)
    for batch in batches[:5]:
        assert float(loss(oracle, truth() + Constant(3.0), batch)) == pytest.approx(2 * math.log(2), abs=1e-5)
    # Negative controls: another model, the ratio forgotten.
    assert abs(float(loss(oracle, shifted() + Constant(3.0), batches[0])) - 2 * math.log(2)) > 1e-3
    forgetful = CNCE(Spoilt(Independent(truth()), 0.0), draws=2)
    assert abs(float(loss(forgetful, truth() + Constant(3.0), batches[0])) - 2 * math.log(2)) > 1e-2


def test_the_cnce_value_is_the_formula(batches):
    """(2 / (N K)) sum softplus(-F) in double precision, from the proposals the objective makes."""
    noise, model = Shrinking(), truth()
    batch, key = batches[0], jax.random.key(15)
    value, (_, info) = eqx.filter_jit(CNCE(noise, 3))(model, noise, batch, key=key)
    xs = jnp.tile(batch, (3, 1))
    ys, ratios = eqx.filter_jit(propose)(noise, jnp.zeros(()), xs, key=key)
    of_data, of_noise = jax.vmap(model)(batch), jax.vmap(model)(ys)
    log_odds = np.asarray(of_noise - jnp.tile(of_data, 3) + ratios, np.float64)
    assert float(value) == pytest.approx(2 * np.mean(np.logaddexp(0, -log_odds)), rel=1e-5)
    assert float(info["accuracy"]) == pytest.approx(np.mean(log_odds > 0))
    # Negative control: the rows paired with each other's noise.
    mispaired = np.asarray(of_noise - jnp.repeat(of_data, 3) + ratios, np.float64)
    assert float(value) != pytest.approx(2 * np.mean(np.logaddexp(0, -mispaired)), rel=1e-3)


@THOROUGH
@pytest.mark.parametrize(
    ("objective", "covariance", "steps"),
    [
        # Local noise says least per draw: more of it, or the noise of the draws hides that of the data.
        (CNCE(Local(0.7)), COVARIANCE, 10_000),
        (CNCE(GlobalJumps(1.0)), COVARIANCE, 1500),
        (CNCE(Jumps(0.7, 1.0, share=0.5, wide=0.25)), COVARIANCE, 1500),
        (CNCE(BlendedJumps(0.7, 1.0)), COVARIANCE, 1500),
        (DSM(Local(0.5)), COVARIANCE + 0.25 * np.eye(2), 1500),
        (PCD(MALA(0.5), chains=256, moves=5), COVARIANCE, 1500),
        (PCD(Langevin(STEP), chains=256, moves=5), langevin_optimum(COVARIANCE, STEP), 1500),
    ],
    ids=["local", "global", "jumps", "blended", "dsm", "mala", "langevin"],
)
def test_the_error_falls_with_the_data(objective, covariance, steps):
    """Four times the data halve the spread of the estimates, around the same truth."""
    spreads = []
    for n in (500, 2000):
        data = gaussian(MEAN, COVARIANCE).samples(32 * n, key=jax.random.key(16)).reshape(32, n, 2)
        options = {"steps": steps, "batch": 100, "rate": 0.03, "key": jax.random.key(17)}
        fits = fit_repeats(standard_gaussian(2), objective, data, **options)
        covariances = jax.vmap(lambda fit: fit.covariance)(fits)
        found = np.concatenate([fits.mean, covariances[:, [0, 0, 1], [0, 1, 1]]], axis=1)
        # Bias of order 1/n, documented: at most 5/n.
        assert deviation(found, parameters(covariance), bias=5 / n) < 4.5
        spreads.append(found.std(axis=0, ddof=1))
    # A standard deviation from 32 repeats has a relative error of 1/8, and there are five of each.
    assert 1.5 < np.exp(np.mean(np.log(spreads[0] / spreads[1]))) < 2.6
