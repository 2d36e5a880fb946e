"""Objectives recover what they should: a Gaussian's parameters, and the weights of modes if they can see them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from harness import breaks, holds
from spoilt import (
    COVARIANCE,
    MEAN,
    REPEATS,
    STEP,
    THOROUGH,
    Shrinking,
    Spoilt,
    SpoiltFromData,
    langevin_optimum,
    parameters,
)

from unnorm.energies import gaussian, gaussian_mixture, standard_gaussian
from unnorm.noises import (
    BlendedJumps,
    GlobalJumps,
    Jumps,
)
from unnorm.noises import Gaussian as Local
from unnorm.objectives import CNCE, DSM, PCD
from unnorm.samplers import MALA, Langevin
from unnorm.training import cosine, fit_repeats

pytestmark = pytest.mark.optimised

# ------------------------------------------------------------------------------------------------- Gaussians


def fitted(objective, **options) -> np.ndarray:
    """Mean and covariance of a Gaussian learnt from each of 16 data sets of 1000 points."""
    data = gaussian(MEAN, COVARIANCE).samples(REPEATS * 1000, key=jax.random.key(0)).reshape(REPEATS, 1000, 2)
    options = {"steps": 500, "batch": 100, "rate": 0.05, "key": jax.random.key(1)} | options
    fits = fit_repeats(standard_gaussian(2), objective, data, **options)
    covariances = jax.vmap(lambda fit: fit.covariance)(fits)
    return np.concatenate([fits.mean, covariances[:, [0, 0, 1], [0, 1, 1]]], axis=1)


@pytest.mark.parametrize(
    "objective",
    [
        pytest.param(CNCE(Local(0.7)), id="local"),
        pytest.param(CNCE(GlobalJumps(1.0)), id="global", marks=THOROUGH),
        pytest.param(CNCE(Jumps(0.7, 1.0)), id="jumps"),
        pytest.param(CNCE(BlendedJumps(0.7, 1.0)), id="blended", marks=THOROUGH),
        pytest.param(CNCE(BlendedJumps(0.7, 1.0, leave_one_out=True)), id="blended, left out", marks=THOROUGH),
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
    optimiser = optax.adam(lambda step: 0.03 * cosine(step / 500), eps=1e-4)
    fits = fit_repeats(start, objective, data, steps=500, batch=100, optimiser=optimiser, key=jax.random.key(3))
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
    # On average over fits: less than a tenth of the way to the truth.
    assert np.abs(weights - 0.5).mean() < 0.02


@THOROUGH
def test_jumps_without_a_bandwidth_make_all_data_equally_likely():
    """F = E(y) - E(x) with x and y exchangeable is least contradicted by F = 0: one energy at every data point.

    So the modes come out equally heavy and far too wide. This is what bandwidth 0 means, not a density estimate.
    """
    weights, others = fitted_mixture(CNCE(GlobalJumps(0.0)))
    assert breaks(weights, WEIGHTS[0])
    assert np.all(others[:, 4:].mean(0) > 4 * SPREAD**2)
