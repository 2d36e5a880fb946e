"""The reverse process by Euler's method in time."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp

from unnorm.generators.base import AbstractWhiteStep
from unnorm.noises.base import Level, Point, Scalar
from unnorm.scores import AbstractLevelledScore


class EulerMaruyama(AbstractWhiteStep):
    """x <- x - (f x - g^2 s(t, x)) (t - s) + g sqrt(t - s) z: dX = (f X - g^2 s) dt + g dB backwards in time.

    Of weak order 1 in the step (Song et al. 2021). A temperature below 1 shrinks all noise by its root: with a start
    that is as cold (`generate(temperature=...)`), Gaussian data come out with their covariance times the temperature.

    >>> EulerMaruyama().temperature
    1.0
    """

    temperature: float = eqx.field(static=True, default=1.0)
    steps: ClassVar[int] = 1

    def parts(self, score: AbstractLevelledScore, t: Level, s: Level, x: Point) -> tuple[Point, Scalar]:
        noise, time = score.noise, t - s
        return x - noise.reverse_drift(t, x, score(t, x)) * time, noise.diffusion(t) * jnp.sqrt(time)
