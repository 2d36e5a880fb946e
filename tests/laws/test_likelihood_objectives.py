"""Laws of likelihood by chains: contrastive divergence, short runs, replay buffers, and reweighted draws of an anchor.

On N(mean, 1/lambda) with data N(m, s^2) and unadjusted Langevin moves every expectation is a formula.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from jaxtyping import Array

from unnorm.energies import AbstractEnergy
from unnorm.errors import InputError
from unnorm.noises import Gaussian as Local
from unnorm.objectives import CD, DSM, PCD, DenoisingKL, Geyer, ShortRun, WeightedSum
from unnorm.objectives.geyer import GeyerState, effective_share
from unnorm.samplers import MALA, Langevin
from unnorm.scores import GaussianDenoiser
from unnorm.spaces import Real
from unnorm.training import fit_repeats

pytestmark = pytest.mark.optimised

M, S = 0.7, 1.3
BATCHES = 400


class Normal(AbstractEnergy):
    """exp(a) (x - mean)^2 / 2, without its constant: what it knows of log Z comes from the chains."""

    mean: Array = eqx.field(converter=jnp.asarray)
    log_precision: Array = eqx.field(converter=jnp.asarray)
    space: Real = eqx.field(static=True, default=Real((1,)))

    def __call__(self, x):
        return 0.5 * jnp.exp(self.log_precision) * (x[0] - self.mean) ** 2


@pytest.fixture(scope="module")
def batches() -> Array:
    return M + S * jax.random.normal(jax.random.key(0), (BATCHES, 256, 1))


@eqx.filter_jit
def _gradients(objective, model, states, batches, keys):
    def one(state, batch, key):
        gradient = eqx.filter_grad(lambda m: objective(m, state, batch, key=key)[0])(model)
        return jnp.stack([gradient.mean, gradient.log_precision])

    return jax.vmap(one)(states, batches, keys)


def gradients(objective, model, batches, states=None) -> np.ndarray:
    keys = jax.random.split(jax.random.key(1), len(batches))
    return np.asarray(_gradients(objective, model, states, batches, keys))


def contrast(mean: float, precision: float, chain_mean: float, chain_variance: float) -> np.ndarray:
    """E_data[dE] - E_chains[dE] in (mean, log precision)."""
    data, chains = S**2 + (M - mean) ** 2, chain_variance + (chain_mean - mean) ** 2
    return np.array([precision * (chain_mean - M), 0.5 * precision * (data - chains)])


MODEL = Normal(0.2, math.log(0.8))


def after_langevin(h: float, moves: int, mean: float, variance: float) -> tuple[float, float]:
    """Moments of chains after some steps x <- x - h lambda (x - mean) + sqrt(2 h) z."""
    for _ in range(moves):
        mean, variance = mean - h * 0.8 * (mean - 0.2), (1 - h * 0.8) ** 2 * variance + 2 * h
    return mean, variance


# ------------------------------------------------------------------------------------------------- divergence


def test_the_cd_gradient_is_one_term_of_its_objective(batches):
    """KL(p_d||p) - KL(Pi p_d||p) has one more: -d/d theta through Pi of KL(Pi p_d || p), which CD drops."""
    h = 0.3
    found = gradients(CD(Langevin(h), moves=1), MODEL, batches)
    chain = after_langevin(h, 1, M, S**2)
    kept = contrast(0.2, 0.8, *chain)
    assert holds(found, kept)

    def hidden(theta):
        """The whole objective in closed form."""
        mean, precision = theta[0], jnp.exp(theta[1])

        def divergence(m, v):
            return 0.5 * (precision * (v + (m - mean) ** 2) - 1 - jnp.log(precision * v))

        moved = M - h * precision * (M - mean), (1 - h * precision) ** 2 * S**2 + 2 * h
        return divergence(M, S**2) - divergence(*moved)

    whole = np.asarray(jax.grad(hidden)(jnp.array([0.2, math.log(0.8)])))
    dropped = whole - kept
    assert np.abs(dropped).max() > 0.05
    assert breaks(found, whole)
    # Nor is it the likelihood's, and its sign matters.
    assert breaks(found, contrast(0.2, 0.8, 0.2, 1 / 0.8))
    assert breaks(-found, kept)


def test_the_cd_gradient_is_the_gradient_of_nothing(batches):
    """Its Jacobian is not symmetric: d g_mean / d a - d g_a / d mean = -h^2 lambda^3 (m - mean) here."""
    h, step = 0.3, 0.05

    def at(mean, a):
        return gradients(CD(Langevin(h), moves=1), Normal(mean, a), batches)

    mean, a = 0.2, math.log(0.8)
    across = (at(mean, a + step)[:, 0] - at(mean, a - step)[:, 0]) / (2 * step)
    down = (at(mean + step, a)[:, 1] - at(mean - step, a)[:, 1]) / (2 * step)
    twist = -(h**2) * 0.8**3 * (M - mean)
    assert holds(across - down, twist, bias=2e-3 * abs(2 * h * 0.8**2 * (M - mean)))
    assert breaks(across - down, 0.0)


def test_cd_vanishes_at_the_truth_if_its_sampler_is_exact(batches):
    truth = Normal(M, -2 * math.log(S))
    assert holds(gradients(CD(MALA(0.8), moves=2), truth, batches), 0.0)
    # Negative control: moves without correction make the chains too wide.
    assert breaks(gradients(CD(Langevin(0.8), moves=2), truth, batches), 0.0)


def test_short_runs_contrast_with_where_their_walk_arrives(batches):
    h, moves, scale = 0.2, 5, 0.5
    found = gradients(ShortRun(Langevin(h), moves=moves, chains=256, scale=scale), MODEL, batches)
    assert holds(found, contrast(0.2, 0.8, *after_langevin(h, moves, 0.0, scale**2)))
    # Negative controls: the walk not taken, and one that arrives at the model.
    assert breaks(found, contrast(0.2, 0.8, 0.0, scale**2))
    assert breaks(found, contrast(0.2, 0.8, 0.2, 1 / 0.8))


# ------------------------------------------------------------------------------------------------- replay


def test_a_buffer_moves_only_the_chains_it_drew():
    objective = PCD(Langevin(1e-8), chains=100, moves=1, buffer=1000, restart=0.5, restart_scale=0.01)
    batch = jnp.ones((10, 1))
    state = objective.init(MODEL, batch + 4.0, key=jax.random.key(2))
    assert state.shape == (1000, 1)
    step = eqx.filter_jit(objective)
    restarted, moved = [], []
    for i in range(40):
        _, (after, _) = step(MODEL, state, batch, key=jax.random.key(3 + i))
        changed = np.asarray(after != state)[:, 0]
        restarted.append(np.sum(np.abs(after) < 1))
        moved.append(changed)
    # At most the chains drawn change (a tiny move may round to none), and half of them begin again at zero.
    assert np.max(np.sum(moved, axis=1)) <= 100
    assert holds(np.array(restarted), 50.0)
    # Each place is drawn alike: the first hundred as often as the rest. Negative control: always the first.
    shares = np.array([m[:100].mean() for m in moved])
    assert holds(shares, np.mean(moved))
    assert breaks(shares, 1.0)


# ------------------------------------------------------------------------------------------------- Geyer


def anchored(offset: float, sign: float = 1.0):
    """States with exact draws of an anchor near the model, and the model's likelihood gradient there."""
    anchor = Normal(0.2 + offset, math.log(0.8) + offset)
    scale = math.exp(-0.5 * (math.log(0.8) + sign * offset))
    draws = 0.2 + sign * offset + scale * jax.random.normal(jax.random.key(5), (BATCHES, 2048, 1))
    zeros = jnp.zeros(BATCHES, jnp.int32)
    weights = jax.tree.map(lambda a: jnp.broadcast_to(a, (BATCHES,)), eqx.filter(anchor, eqx.is_inexact_array))
    return GeyerState(weights, draws, zeros, zeros)


def test_the_geyer_gradient_is_that_of_the_likelihood(batches):
    """d/d theta of -mean log p = E_data[dE] - E_p[dE], from draws of another model, reweighted."""
    objective = Geyer(Langevin(0.1), chains=2048, every=10)
    exact = contrast(0.2, 0.8, 0.2, 1 / 0.8)
    found = gradients(objective, MODEL, batches, anchored(0.15))
    # The weights' ratio has a bias of order 1/2048.
    assert holds(found, exact, bias=2 / 2048)
    # Negative controls: draws of something else than the anchor, draws not reweighted.
    assert breaks(gradients(objective, MODEL, batches, anchored(0.15, sign=-1.0)), exact, bias=2 / 2048)
    assert breaks(found, contrast(0.2, 0.8, 0.35, 1 / (0.8 * math.exp(0.15))), bias=2 / 2048)


def test_the_anchor_is_renewed_when_due_and_when_weights_collapse(batches):
    objective = Geyer(Langevin(1e-6), chains=500, moves=1, every=3, least=0.5, burn_in=1)
    state = objective.init(MODEL, batches[0], key=jax.random.key(6))
    step = eqx.filter_jit(objective)
    near, far = Normal(0.25, math.log(0.8)), Normal(3.0, math.log(8.0))
    anchors, shares = [], []
    for model in (near, near, near, near, far):
        _, (state, info) = step(model, state, batches[0], key=jax.random.key(7))
        anchors.append(float(state.anchor.mean))
        shares.append(float(info["effective_share"]))
    # Three steps with the first anchor, then the model becomes it; a model far away forces it at once.
    np.testing.assert_allclose(anchors, [0.2, 0.2, 0.2, 0.25, 3.0], atol=1e-6)
    assert int(state.collapses) == 1 and int(state.age) == 1
    assert all(0.5 < share < 1 for share in shares[:3]) and shares[3:] == pytest.approx([1.0, 1.0])
    assert float(effective_share(jnp.array([0.0, -50.0]))) == pytest.approx(0.5)


def test_geyer_learns_a_gaussian():
    data = M + S * jax.random.normal(jax.random.key(8), (16, 500, 1))
    objective = Geyer(MALA(0.8), chains=256, moves=4, every=10, burn_in=50)
    fits = fit_repeats(
        Normal(0.0, 0.0), objective, data, steps=400, batch=100, rate=0.05, average=0.98, key=jax.random.key(9)
    )
    found = np.stack([fits.mean, fits.log_precision], axis=1)
    assert holds(found, [M, -2 * math.log(S)], bias=2 / 500)
    assert breaks(found, [0.0, 0.0], bias=2 / 500)


# ------------------------------------------------------------------------------------------------- posteriors, sums


def test_the_denoising_kl_is_least_at_the_posterior(batches):
    """For data N(m, s^2) and noise sigma: mean (s^2 x~ + sigma^2 m) / (s^2 + sigma^2), variance s^2 sigma^2 / (..)."""
    sigma, total = 0.8, S**2 + 0.8**2
    blank = eqx.nn.Linear(1, 2, key=jax.random.key(11))
    keys = jax.random.split(jax.random.key(12), BATCHES)

    @jax.jit
    def slopes(weight, bias):
        def one(batch, key):
            def loss(weight, bias):
                network = eqx.tree_at(lambda n: (n.weight, n.bias), blank, (weight, bias))
                return DenoisingKL(Local(sigma))(GaussianDenoiser(network), None, batch, key=key)[0]

            return jnp.concatenate([g.reshape(-1) for g in jax.grad(loss, (0, 1))(weight, bias)])

        return jax.vmap(one)(batches, keys)

    weight = jnp.array([[S**2 / total], [0.0]])
    bias = jnp.array([sigma**2 * M / total, 0.5 * math.log(S**2 * sigma**2 / total)])
    assert holds(slopes(weight, bias), 0.0)
    # Negative controls: no shrinking towards the mean, the noise's variance for the posterior's.
    assert breaks(slopes(jnp.array([[1.0], [0.0]]), bias), 0.0)
    assert breaks(slopes(weight, bias.at[1].set(math.log(sigma))), 0.0)
    denoiser = GaussianDenoiser(eqx.tree_at(lambda n: (n.weight, n.bias), blank, (weight, bias)))
    draws = jax.vmap(lambda k: denoiser.sample(jnp.array([1.5]), key=k))(keys)
    assert holds(draws, (S**2 * 1.5 + sigma**2 * M) / total)
    assert holds((draws - draws.mean()) ** 2, S**2 * sigma**2 / total, bias=0.01)


def test_sums_of_objectives_add_losses_and_keep_states(batches):
    a, b = DSM(Local(0.5)), PCD(Langevin(0.1), chains=64, moves=2)
    both = 0.5 * a + 2.0 * (b + a)
    assert isinstance(both, WeightedSum) and both.weights == (0.5, 2.0, 2.0)
    assert not both.comparable and (a + a).comparable
    key = jax.random.key(13)
    state = both.init(MODEL, batches[0], key=key)
    value, (moved, info) = eqx.filter_jit(both)(MODEL, state, batches[0], key=key)
    parts = [
        float(eqx.filter_jit(part)(MODEL, s, batches[0], key=k)[0])
        for part, s, k in zip((a, b, a), state, jax.random.split(key, 3), strict=True)
    ]
    assert float(value) == pytest.approx(0.5 * parts[0] + 2 * parts[1] + 2 * parts[2], rel=1e-5)
    # Negative control: the weights forgotten.
    assert float(value) != pytest.approx(sum(parts), rel=1e-2)
    assert moved[0] is None and moved[1].shape == (64, 1) and "1.contrast" in info


BAD = [
    lambda: CD(moves=0),
    lambda: ShortRun(scale=0.0),
    lambda: ShortRun(chains=0),
    lambda: PCD(chains=10, buffer=5),
    lambda: PCD(restart_scale=-1.0),
    lambda: Geyer(every=0),
    lambda: Geyer(least=1.0),
    lambda: Geyer(burn_in=0),
    lambda: -1.0 * CD(),
    lambda: WeightedSum((), ()),
    lambda: GaussianDenoiser(eqx.nn.Linear(2, 3, key=jax.random.key(0)))(jnp.zeros(2)),
]


@pytest.mark.parametrize("make", BAD)
def test_bad_options_are_refused_in_one_sentence(make):
    with pytest.raises(InputError) as refusal:
        make()
    assert "\n" not in str(refusal.value)
