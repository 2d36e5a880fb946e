"""Gaussian corruption: one level, or a process with a level for every t in [0, 1]."""

from math import inf

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unnorm.arguments import positive, shown
from unnorm.errors import require
from unnorm.noises.base import AbstractGaussianNoise, Level, Scalar


class Gaussian(AbstractGaussianNoise):
    """y = x + scale z at every level.

    >>> import jax.numpy as jnp
    >>> round(float(Gaussian(0.5).log_prob(0.0, jnp.zeros(1), jnp.zeros(1))), 4)
    -0.2258
    """

    # An array, so that runs at another scale share their compiled programs.
    scale: Float[Array, ""] = eqx.field(converter=lambda scale: positive(scale, "the scale of Gaussian noise"))

    def __check_init__(self):
        require(self.scale.ndim == 0, f"the scale of Gaussian noise is one number, not {shown(self.scale)}")

    def alpha(self, t: Level) -> Scalar:
        return jnp.ones_like(jnp.asarray(t, float))

    def variance(self, t: Level) -> Scalar:
        t = jnp.asarray(t, float)
        return jnp.broadcast_to(self.scale.astype(t.dtype) ** 2, t.shape)


class VarianceExploding(AbstractGaussianNoise):
    """y = x + sigma(t) z with sigma(t) = low (high/low)^t, t in [0, 1] (Song and Ermon 2019)."""

    low: float = eqx.field(static=True, default=0.01)
    high: float = eqx.field(static=True, default=10.0)

    def __check_init__(self):
        require(
            0 < self.low < self.high < inf,
            f"noise levels must grow from a positive low to a finite high, not {self.low}..{self.high}",
        )

    def alpha(self, t: Level) -> Scalar:
        return jnp.ones_like(jnp.asarray(t, float))

    def variance(self, t: Level) -> Scalar:
        return self.low**2 * (self.high / self.low) ** (2 * jnp.asarray(t, float))


class VariancePreserving(AbstractGaussianNoise):
    """alpha^2 + sigma^2 = 1 with log alpha(t) = -(high - low) t^2 / 4 - low t / 2 (Song et al. 2021, Eq. 33)."""

    low: float = eqx.field(static=True, default=0.1)
    high: float = eqx.field(static=True, default=20.0)

    def __check_init__(self):
        require(
            0 < self.low <= self.high < inf,
            f"noise rates must be positive and finite, and must not fall, not {self.low}..{self.high}",
        )

    def _log_alpha(self, t: Level) -> Scalar:
        t = jnp.asarray(t, float)
        return -0.25 * t**2 * (self.high - self.low) - 0.5 * t * self.low

    def alpha(self, t: Level) -> Scalar:
        return jnp.exp(self._log_alpha(t))

    def variance(self, t: Level) -> Scalar:
        return -jnp.expm1(2 * self._log_alpha(t))


class OrnsteinUhlenbeck(AbstractGaussianNoise):
    """dX = -X dt + sqrt(2) dB over time `horizon` t: alpha = e^-s, sigma^2 = 1 - e^-2s, s = horizon t (Zhang 2025)."""

    horizon: float = eqx.field(static=True, default=5.0)

    def __check_init__(self):
        require(0 < self.horizon < inf, f"the horizon must be positive and finite, not {self.horizon}")

    def alpha(self, t: Level) -> Scalar:
        return jnp.exp(-self.horizon * jnp.asarray(t, float))

    def variance(self, t: Level) -> Scalar:
        return -jnp.expm1(-2 * self.horizon * jnp.asarray(t, float))
