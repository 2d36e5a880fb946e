"""A process looked at from a level on, its own time stretched over what is left."""

import equinox as eqx
import jax.numpy as jnp

from unnorm.errors import require
from unnorm.noises.base import AbstractGaussianNoise, Level, Scalar


class Begun(AbstractGaussianNoise):
    """alpha(first + (1 - first) t) and sigma of the same: the process from the level `first` on.

    An integral over its levels is that over [first, 1] of the process itself, so that a loss, a bound or a walk begins
    there. Song et al. 2021 begin sub-VP at 0.01 to have likelihoods: nearer to 0 its flow is stiff.

    >>> from unnorm.noises import SubVariancePreserving
    >>> whole = SubVariancePreserving()
    >>> begun = Begun(whole, 0.01)
    >>> bool(begun.sigma(0.0) == whole.sigma(0.01)), bool(begun.sigma(1.0) == whole.sigma(1.0))
    (True, True)
    """

    noise: AbstractGaussianNoise
    first: float = eqx.field(static=True)

    def __check_init__(self):
        require(0 <= self.first < 1, f"a process begins at a level from 0 up to, but not at, 1, not at {self.first}")

    def _own(self, t: Level) -> Scalar:
        """The level of the process itself."""
        return self.first + (1 - self.first) * jnp.asarray(t, float)

    def alpha(self, t: Level) -> Scalar:
        return self.noise.alpha(self._own(t))

    def variance(self, t: Level) -> Scalar:
        return self.noise.variance(self._own(t))
