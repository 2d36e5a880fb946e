"""The Gaussian that objectives are to recover, and noises with a mistake in them, which their laws must see."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from unnorm.noises import (
    AbstractKernel,
    AbstractNoise,
    AbstractNoiseFromData,
)
from unnorm.noises import Gaussian as Local


class Spoilt(AbstractNoise):
    """A noise whose log ratio is multiplied by a factor: forgotten at 0, of the wrong sign at -1."""

    noise: AbstractNoise
    factor: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    @property
    def makes_real_numbers(self) -> bool:
        return self.noise.makes_real_numbers

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

    @property
    def makes_real_numbers(self) -> bool:
        return True

    def sample(self, t, x, *, key):
        return 0.5 * x + 0.5 * jax.random.normal(key, x.shape)

    def log_prob(self, t, y, x):
        return Local(0.5).log_prob(t, y, 0.5 * x)


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


THOROUGH = pytest.mark.thorough
