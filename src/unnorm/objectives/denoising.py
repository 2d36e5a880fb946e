"""Denoising score matching: point back from a noisy copy to the clean point."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies import AbstractEnergy
from unnorm.noises import AbstractGaussianNoise
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_gaussian
from unnorm.scores import AbstractScore, as_score


class AbstractDenoising(AbstractObjective):
    """The mean over a batch of a loss at one point x, one level t uniform on [0, 1] and one z ~ N(0, I).

    A noise that begins at sigma = 0 is met from `noises.base.LEAST_LEVEL` on.
    """

    noise: eqx.AbstractVar[AbstractGaussianNoise]

    def __check_init__(self):
        require_gaussian(self.noise, type(self).__name__)

    @abstractmethod
    def at(self, score: AbstractScore, t: Scalar, x: Array, z: Array) -> Scalar:
        """The loss of one point with one noise."""

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model without a score is refused here."""
        as_score(model)
        return None

    def __call__(
        self, model: AbstractEnergy | AbstractScore, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        score = as_score(model)
        levels, noise = jax.random.split(key)
        least = self.noise.least_level().astype(batch.dtype)
        ts = least + (1 - least) * jax.random.uniform(levels, (len(batch),), batch.dtype)
        zs = jax.random.normal(noise, batch.shape, batch.dtype)
        return jnp.mean(jax.vmap(lambda t, x, z: self.at(score, t, x, z))(ts, batch, zs)), (None, {})


class DSM(AbstractDenoising):
    """L = E_t E_x E_z | sigma(t) s(t, alpha(t) x + sigma(t) z) + z |^2 / d,  t uniform on [0, 1].

    At its minimum s is the score of the *noisy* density (Vincent 2011), here weighted by sigma^2 so that every level
    counts alike (Song and Ermon 2019). An energy is trained through s = -grad E. With one noise level t plays no part.

    >>> import unnorm as un
    >>> float(DSM(un.noises.Gaussian(0.5)).noise.scale)
    0.5
    """

    comparable: ClassVar[bool] = True
    noise: AbstractGaussianNoise

    def at(self, score: AbstractScore, t: Scalar, x: Array, z: Array) -> Scalar:
        sigma = self.noise.sigma(t)
        return jnp.mean((sigma * score(t, self.noise.alpha(t) * x + sigma * z) + z) ** 2)
