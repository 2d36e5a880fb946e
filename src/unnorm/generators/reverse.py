"""The reverse of the chain that noise makes between two levels, x_t = a x_s + sqrt(v) z."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unnorm.errors import require
from unnorm.generators.base import AbstractOneStep, Info, check_temperature, white
from unnorm.noises.base import Level, Point
from unnorm.scores import AbstractLevelledScore
from unnorm.scores.posterior import posterior_mean


class ReverseDiffusion(AbstractOneStep):
    """x <- (2 - a) x + v s(t, x) + sqrt(v) z: the reverse process, discretised as the process itself is.

    With the levels of a DDPM a = sqrt(1 - beta) and v = beta; where variance explodes a = 1, v = sigma_t^2 - sigma_s^2
    (Song et al. 2021, App. E).
    """

    temperature: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        check_temperature(self.temperature)

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        kept, variance = score.noise.between(s, t)
        mean = (2 - kept) * x + variance * score(t, x)
        return mean + jnp.sqrt(variance) * white(x, self.temperature, key=key), {}


class ReverseFlow(AbstractOneStep):
    """x <- (2 - a) x + v s(t, x) / 2: the probability flow in the same steps (Song et al. 2021, App. E)."""

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        kept, variance = score.noise.between(s, t)
        return (2 - kept) * x + 0.5 * variance * score(t, x), {}


class Ancestral(AbstractOneStep):
    """x <- (x + v s(t, x)) / a + sqrt(w) z: a draw of x_s as if the data were the one point that x_t is likely to be.

    The variance w lies between the posterior's, v sigma_s^2 / sigma_t^2, right where the data are one point, and v,
    right where they are N(0, I) and variance is preserved: `upper` 0 and 1, in between on a logarithmic scale (Nichol
    and Dhariwal 2021). Ho et al. 2020 print v for a DDPM; where variance explodes Song et al. 2021 have the lower one.

    >>> Ancestral(upper=1.0).upper
    1.0
    """

    upper: float = eqx.field(static=True, default=0.0)
    temperature: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        require(0 <= self.upper <= 1, f"the upper share of an ancestral step lies between 0 and 1, not at {self.upper}")
        check_temperature(self.temperature)

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        noise = score.noise
        kept, variance = noise.between(s, t)
        spread = variance * (noise.variance(s) / noise.variance(t)) ** (1 - self.upper)
        mean = posterior_mean(x, score(t, x), variance) / kept
        return mean + jnp.sqrt(spread) * white(x, self.temperature, key=key), {}
