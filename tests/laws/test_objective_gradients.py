"""Gradients of objectives vanish at the truth, that of chains is the likelihood's, and values are the formula's."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import gradients
from harness import breaks, deviation, holds
from jaxtyping import Array, Float
from spoilt import COVARIANCE, MEAN, STEP, THOROUGH, Shrinking, Spoilt, langevin_optimum, parameters

from unnorm.energies import (
    AbstractEnergy,
    GaussianDensity,
    GaussianMixture,
    gaussian,
    gaussian_mixture,
    standard_gaussian,
)
from unnorm.noises import (
    BlendedJumps,
    BlendedKernel,
    Choice,
    DataJump,
    GlobalJumps,
    Independent,
    Jumps,
    KDEJump,
    OrnsteinUhlenbeck,
    VarianceExploding,
    VariancePreserving,
)
from unnorm.noises import Gaussian as Local
from unnorm.objectives import CNCE, DSM, PCD
from unnorm.samplers import MALA, Langevin
from unnorm.scores import AbstractPlainScore
from unnorm.spaces import Real
from unnorm.training import fit_repeats

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


def independent_kde(bandwidth: float) -> KDEJump:
    return KDEJump(truth().samples(200, key=jax.random.key(6)), bandwidth)


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
    [Shrinking, lambda: independent_kde(0.4), lambda: BlendedKernel((Local(0.5), wide()), (0.5, 0.5))],
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
        noise = KDEJump(batch, 0.15)
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


class GaussianScore(AbstractPlainScore):
    """The exact score of N(mean, exp(log_variance) I) after a noise with alpha(t) and sigma(t)."""

    mean: Float[Array, " d"]
    log_variance: Float[Array, " d"]
    noise: VariancePreserving | VarianceExploding | OrnsteinUhlenbeck

    def __call__(self, t, x, condition=None):
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

    gaussian: GaussianDensity
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
    ys, ratios = eqx.filter_jit(noise.propose_each)(jnp.zeros(()), xs, key=key)
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
