"""Denoising score matching: point back from a noisy copy to the clean point."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from unnorm.energies import AbstractEnergy
from unnorm.noises import AbstractGaussianNoise
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import noise_for, parted, require_gaussian
from unnorm.scores import AbstractScore, as_score

#: A score of points alone, at any level: what a condition is settled in.
Slope = Callable[[Scalar, Array], Array]


class AbstractDenoising(AbstractObjective):
    """The mean over a batch of a loss at one point x, one level t uniform on [0, 1] and one z ~ N(0, I).

    A noise that begins at sigma = 0 is met from `noises.base.LEAST_LEVEL` on. Without a noise it is the score's own
    (that of a `scores.AbstractLevelledScore`, with which no other one goes).
    """

    noise: eqx.AbstractVar[AbstractGaussianNoise | None]

    def __check_init__(self):
        if self.noise is not None:
            require_gaussian(self.noise, type(self).__name__)

    @abstractmethod
    def at(self, noise: AbstractGaussianNoise, slope: Slope, t: Scalar, x: Array, z: Array) -> Scalar:
        """The loss of one point with one noise."""

    def init(self, model: Any, data: Any, *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model without a score, or with another noise, is refused here."""
        score, who = as_score(model), type(self).__name__
        noise_for(self.noise, score, who)
        parted(data, score, who)
        return None

    def __call__(
        self, model: AbstractEnergy | AbstractScore, state: None, batch: Any, *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        score, who = as_score(model), type(self).__name__
        noise, rows = noise_for(self.noise, score, who), parted(batch, score, who)
        levels, draw = jax.random.split(key)
        least = noise.least_level().astype(rows.x.dtype)
        ts = least + (1 - least) * jax.random.uniform(levels, (len(rows.x),), rows.x.dtype)
        zs = jax.random.normal(draw, rows.x.shape, rows.x.dtype)

        def one(t, x, z, condition):
            return self.at(noise, lambda t, y: score(t, y, condition), t, x, z)

        return jnp.mean(jax.vmap(one)(ts, rows.x, zs, rows.condition)), (None, {})


class DSM(AbstractDenoising):
    """L = E_t E_x E_z | sigma(t) s(t, alpha(t) x + sigma(t) z) + z |^2 / d,  t uniform on [0, 1].

    At its minimum s is the score of the *noisy* density (Vincent 2011), here weighted by sigma^2 so that every level
    counts alike (Song and Ermon 2019). An energy is trained through s = -grad E. With one noise level t plays no part.
    `DSM()` takes the noise of the score. Rows of a conditional score are `spaces.Conditioned(x, condition)`, and what
    is learnt is then the score of p_t(x | condition).

    >>> import unnorm as un
    >>> float(DSM(un.noises.Gaussian(0.5)).noise.scale)
    0.5
    """

    comparable: ClassVar[bool] = True
    noise: AbstractGaussianNoise | None = None

    def at(self, noise: AbstractGaussianNoise, slope: Slope, t: Scalar, x: Array, z: Array) -> Scalar:
        sigma = noise.sigma(t)
        return jnp.mean((sigma * slope(t, noise.alpha(t) * x + sigma * z) + z) ** 2)
