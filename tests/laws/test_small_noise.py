"""Laws of denoising at small noise: with its variance reduced it learns what exact score matching learns.

The model is a Gaussian, whose score matching minimum is the mean and the precision of the rows themselves.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import SIGMAS, breaks, holds

from unnorm.energies import gaussian, standard_gaussian
from unnorm.energies.gaussian import unpack_factor
from unnorm.noises import AbstractGaussianNoise, Gaussian, UniformTimes, VarianceExploding
from unnorm.noises.times import AbstractTimes
from unnorm.objectives import DSM, DSMVR, SM, Even
from unnorm.objectives.denoising import AbstractDenoising
from unnorm.objectives.weightings import AbstractWeighting
from unnorm.training import fit

ROWS, VALID = 3 + jax.random.normal(jax.random.key(0), (2, 2000, 2))


class Vanishing(AbstractDenoising):
    """The same loss as a multiple of sigma^2 added to 1."""

    comparable: ClassVar[bool] = True
    noise: AbstractGaussianNoise
    weighting: AbstractWeighting = Even()
    times: AbstractTimes = UniformTimes()

    def at(self, noise, score, t, x, z):
        sigma = noise.sigma(t)
        before, after = score(t, x), score(t, x + sigma * z)
        return jnp.mean((sigma * after) ** 2 + 2 * sigma * (after - before) * z) + 1


class Flat(AbstractDenoising):
    """The bracket of DSMVR without its weight."""

    comparable: ClassVar[bool] = True
    noise: AbstractGaussianNoise
    weighting: AbstractWeighting = Even()
    times: AbstractTimes = UniformTimes()

    def at(self, noise, score, t, x, z):
        sigma = noise.sigma(t)
        before, after = score(t, x), score(t, x + sigma * z)
        return jnp.sum(0.5 * after**2 + (after - before) * z / sigma)


def gap(objective) -> float:
    """The largest distance of the fit from the mean and covariance of the rows, in standard errors of those."""
    options = {"steps": 4000, "rate": 2e-2, "average": 0.99, "progress": False}
    found = fit(standard_gaussian(2), objective, ROWS, valid=VALID, key=jax.random.key(1), **options).model
    factor = np.asarray(unpack_factor(found.factor), np.float64)
    covariance = np.linalg.inv(factor @ factor.T)
    rows = np.asarray(ROWS, np.float64)
    offset = rows - rows.mean(0)
    squares = offset[:, :, None] * offset[:, None]
    means = (np.asarray(found.mean) - rows.mean(0)) / rows.std(0)
    return np.sqrt(len(rows)) * max(np.abs(means).max(), np.abs((covariance - squares.mean(0)) / squares.std(0)).max())


@pytest.mark.parametrize("sigma", [1e-3, 1e-4])
def test_denoising_of_reduced_variance_learns_at_small_noise(sigma):
    assert gap(DSMVR(Gaussian(sigma))) < SIGMAS


def test_a_loss_that_vanishes_with_the_noise_does_not_learn():
    """Negative control of the above."""
    assert gap(Vanishing(Gaussian(1e-4))) > 10 * SIGMAS


def repeats(objective, model, count: int = 400) -> np.ndarray:
    keys = jax.random.split(jax.random.key(2), count)
    values = jax.jit(jax.vmap(lambda k: objective(model, None, ROWS[:256], key=k)[0]))(keys)
    return np.asarray(values, np.float64)


@pytest.mark.parametrize("sigma", [1e-3, 1e-4])
def test_its_value_becomes_that_of_score_matching(sigma):
    """On the same rows, up to O(sigma^2)."""
    model = gaussian([2.5, 3.0], [[1.0, 0.3], [0.3, 0.5]])
    expected = float(SM()(model, None, ROWS[:256], key=jax.random.key(0))[0])
    assert holds(repeats(DSMVR(Gaussian(sigma)), model), expected, bias=10 * sigma**2)
    # Negative control: the constant added and taken away again, which leaves whole multiples of its last digit.
    assert breaks((repeats(Vanishing(Gaussian(1e-4)), model) - 1) / 1e-4**2, expected)


def test_over_levels_it_weighs_them_as_denoising_does():
    """DSM = 1 + (2 min(1, sigma(1))^2 / d) DSMVR in the mean over t and z."""
    model = gaussian([2.5, 3.0], [[1.0, 0.3], [0.3, 0.5]])
    noise = VarianceExploding(0.1, 0.5)
    plain, reduced, flat = (repeats(objective(noise), model) for objective in (DSM, DSMVR, Flat))
    assert holds(1 + 0.5**2 * reduced - plain, 0.0)
    # Negative control: every level with weight one.
    assert breaks(1 + 0.5**2 * flat - plain, 0.0)
