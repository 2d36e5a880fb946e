"""More processes from data to noise, each by its alpha(t) and sigma(t)^2; all else follows from the two."""

from collections.abc import Callable
from math import inf, pi

import equinox as eqx
import jax.numpy as jnp

from unnorm.errors import require
from unnorm.noises.base import AbstractGaussianNoise, Level, Scalar
from unnorm.noises.gaussian import VariancePreserving


class SubVariancePreserving(AbstractGaussianNoise):
    """alpha = e^(-B/2), sigma = 1 - e^-B, B = low t + (high - low) t^2 / 2 (Song et al. 2021, Eq. 29).

    Its variance is at most that of `VariancePreserving` with the same rates, and falls faster towards t = 0.

    >>> bool(SubVariancePreserving().variance(0.3) < VariancePreserving().variance(0.3))
    True
    """

    low: float = eqx.field(static=True, default=0.1)
    high: float = eqx.field(static=True, default=20.0)

    def __check_init__(self):
        require(
            0 < self.low <= self.high < inf,
            f"noise rates must not fall, and be positive and finite, not {self.low}..{self.high}",
        )

    def alpha(self, t: Level) -> Scalar:
        return VariancePreserving(self.low, self.high).alpha(t)

    def variance(self, t: Level) -> Scalar:
        return VariancePreserving(self.low, self.high).variance(t) ** 2


class Cosine(AbstractGaussianNoise):
    """alpha = cos(c(t)) / cos(c(0)), c(t) = (t + s) / (1 + s) pi / 2, alpha^2 + sigma^2 = 1 (Nichol and Dhariwal 2021).

    Nothing is left of the point at t = 1, where the drift is infinite: begin walks a little below, at 0.999.

    >>> round(float(Cosine().alpha(0.5)), 4)
    0.7027
    """

    offset: float = eqx.field(static=True, default=0.008)

    def __check_init__(self):
        require(0 <= self.offset < inf, f"the offset of a cosine process must not be negative, not {self.offset}")

    def alpha(self, t: Level) -> Scalar:
        t, first = jnp.asarray(t, float), self.offset / (1 + self.offset) * pi / 2
        # The cosine as a sine of what is left, which is exactly 0 at t = 1.
        return jnp.sin((1 - t) / (1 + self.offset) * pi / 2) / jnp.cos(first)

    def variance(self, t: Level) -> Scalar:
        t, first = jnp.asarray(t, float), self.offset / (1 + self.offset) * pi / 2
        angle = (t + self.offset) / (1 + self.offset) * pi / 2
        # cos^2 a - cos^2 b = sin(b - a) sin(b + a): 1 - alpha^2 without the loss of digits near t = 0.
        return jnp.sin(t / (1 + self.offset) * pi / 2) * jnp.sin(angle + first) / jnp.cos(first) ** 2


class EDM(AbstractGaussianNoise):
    """alpha = 1, sigma = (low^(1/rho) + t (high^(1/rho) - low^(1/rho)))^rho (Karras et al. 2022, Eq. 5).

    Equal steps in t are the levels of that paper. `EDM(0.0, high, rho=1.0)` is sigma = high t, its process in its own
    time.

    >>> round(float(EDM().sigma(0.5)), 3)
    2.515
    """

    low: float = eqx.field(static=True, default=0.002)
    high: float = eqx.field(static=True, default=80.0)
    rho: float = eqx.field(static=True, default=7.0)

    def __check_init__(self):
        require(
            0 <= self.low < self.high < inf,
            f"noise levels must grow from a low that is not negative to a finite high, not {self.low}..{self.high}",
        )
        require(0 < self.rho < inf, f"the exponent rho must be positive and finite, not {self.rho}")

    def alpha(self, t: Level) -> Scalar:
        return jnp.ones_like(jnp.asarray(t, float))

    def variance(self, t: Level) -> Scalar:
        low, high = self.low ** (1 / self.rho), self.high ** (1 / self.rho)
        return (low + jnp.asarray(t, float) * (high - low)) ** (2 * self.rho)


class StraightPath(AbstractGaussianNoise):
    """alpha = 1 - t, sigma = t: a straight line from data to noise (rectified flow: Liu et al. 2023).

    Nothing is left of the point at t = 1, where the drift is infinite: begin walks a little below, at 0.999.

    >>> float(StraightPath().alpha(0.25)), float(StraightPath().sigma(0.25))
    (0.75, 0.25)
    """

    def alpha(self, t: Level) -> Scalar:
        return 1 - jnp.asarray(t, float)

    def variance(self, t: Level) -> Scalar:
        return jnp.asarray(t, float) ** 2


class Path(AbstractGaussianNoise):
    """Any alpha(t) and sigma(t) of t in [0, 1] that can be differentiated, such as alpha = cos, sigma = sin.

    alpha must not rise nor sigma / alpha fall: noise is added and never taken away.

    >>> path = Path(lambda t: jnp.cos(t), lambda t: jnp.sin(t))
    >>> round(float(path.drift(0.5) + jnp.tan(0.5)), 4)
    0.0
    """

    of_signal: Callable[[Scalar], Scalar]
    of_noise: Callable[[Scalar], Scalar]

    def __check_init__(self):
        ts = jnp.linspace(0, 0.999, 1000)
        alphas, sigmas = jnp.vectorize(self.of_signal)(ts), jnp.vectorize(self.of_noise)(ts)
        sound = jnp.all(alphas > 0) & jnp.all(sigmas >= 0) & (sigmas[-1] > 0)
        require(bool(sound), "below t = 1 the alpha of a path is positive, and sigma is not negative; mend them")
        falls = jnp.diff(sigmas / alphas) < -1e-6 * (sigmas / alphas)[1:]
        require(not bool(jnp.any(falls)), "sigma / alpha of a path never falls, as noise is not taken away; mend them")

    def alpha(self, t: Level) -> Scalar:
        return self.of_signal(jnp.asarray(t, float))

    def variance(self, t: Level) -> Scalar:
        return self.of_noise(jnp.asarray(t, float)) ** 2
