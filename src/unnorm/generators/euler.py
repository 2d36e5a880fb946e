"""The reverse process by Euler's method in time."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unnorm.generators.base import AbstractOneStep, Info, check_temperature, white
from unnorm.noises.base import Level, Point
from unnorm.scores import AbstractLevelledScore


class EulerMaruyama(AbstractOneStep):
    """x <- x - (f x - g^2 s(t, x)) (t - s) + g sqrt(t - s) z: dX = (f X - g^2 s) dt + g dB backwards in time.

    Of weak order 1 in the step (Song et al. 2021). A temperature below 1 shrinks all noise by its root: with a start
    that is as cold (`generate(temperature=...)`), Gaussian data come out with their covariance times the temperature.

    >>> EulerMaruyama().temperature
    1.0
    """

    temperature: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        check_temperature(self.temperature)

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        noise, time = score.noise, t - s
        mean = x - noise.reverse_drift(t, x, score(t, x)) * time
        return mean + noise.diffusion(t) * jnp.sqrt(time) * white(x, self.temperature, key=key), {}
