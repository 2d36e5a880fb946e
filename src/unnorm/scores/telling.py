"""How a network is told the noise level: by time as it is, or by the logarithm of the noise."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float

from unnorm.errors import require
from unnorm.noises.base import AbstractGaussianNoise
from unnorm.scores.preconditioning import AbstractPreconditioning, Reading

Scalar = Float[Array, ""]


class AbstractClock(eqx.Module):
    """A number that stands for a level."""

    @abstractmethod
    def __call__(self, noise: AbstractGaussianNoise, t: Scalar) -> Scalar:
        """That number."""


class LogSigma(AbstractClock):
    """scale log(sigma / alpha): with scale 1 what NCSN++ is told (Song et al. 2021).

    >>> import jax.numpy as jnp
    >>> from unnorm.noises import VarianceExploding
    >>> round(float(LogSigma()(VarianceExploding(0.01, 1.0), jnp.asarray(0.5))), 4)  # log 0.1
    -2.3026
    """

    scale: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        require(self.scale > 0, f"the logarithm of the noise is scaled by a positive number, not {self.scale}")

    def __call__(self, noise: AbstractGaussianNoise, t: Scalar) -> Scalar:
        return -self.scale * noise.log_ratio(t)


class Steps(AbstractClock):
    """count t: the number of a step of a chain (Ho et al. 2020), for a network made for such numbers."""

    count: float = eqx.field(static=True, default=999.0)

    def __call__(self, noise: AbstractGaussianNoise, t: Scalar) -> Scalar:
        return self.count * t


def edm_clock() -> LogSigma:
    """c_noise = log(sigma) / 4 (Karras et al. 2022)."""
    return LogSigma(0.25)


class Telling(AbstractPreconditioning):
    """Another preconditioning whose network is told the level by a clock and not by time.

    What the answer means, and so the score of a network that does not look at the level, is unchanged.

    >>> import jax.numpy as jnp
    >>> from unnorm.noises import VarianceExploding
    >>> from unnorm.scores import Scaled
    >>> reading = Telling(Scaled(), LogSigma()).read(VarianceExploding(0.01, 1.0), jnp.asarray(0.0))
    >>> round(float(reading.level), 4)
    -4.6052
    """

    preconditioning: AbstractPreconditioning
    clock: AbstractClock

    def read(self, noise: AbstractGaussianNoise, t: Scalar) -> Reading:
        return self.preconditioning.read(noise, t)._replace(level=self.clock(noise, t))
