"""The reverse of the chain that noise makes between two levels, x_t = a x_s + sqrt(v) z."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unnorm.errors import require
from unnorm.generators.base import AbstractOneStep, AbstractWhiteStep, Info
from unnorm.noises.base import Level, Point, Scalar
from unnorm.scores import AbstractLevelledScore
from unnorm.scores.posterior import posterior_mean


class ReverseDiffusion(AbstractWhiteStep):
    """x <- (2 - a) x + v s(t, x) + sqrt(v) z: the reverse process, discretised as the process itself is.

    With the levels of a DDPM a = sqrt(1 - beta) and v = beta; where variance explodes a = 1, v = sigma_t^2 - sigma_s^2
    (Song et al. 2021, App. E).
    """

    temperature: float = eqx.field(static=True, default=1.0)
    steps: ClassVar[int] = 1

    def parts(self, score: AbstractLevelledScore, t: Level, s: Level, x: Point) -> tuple[Point, Scalar]:
        kept, variance = score.noise.between(s, t)
        return (2 - kept) * x + variance * score(t, x), jnp.sqrt(variance)


class ReverseFlow(AbstractOneStep):
    """x <- (2 - a) x + v s(t, x) / 2: the probability flow in the same steps (Song et al. 2021, App. E)."""

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        kept, variance = score.noise.between(s, t)
        return (2 - kept) * x + 0.5 * variance * score(t, x), {}


class Ancestral(AbstractWhiteStep):
    """x <- (x + v s(t, x)) / a + sqrt(w) z: a draw of x_s as if the data were the one point that x_t is likely to be.

    The variance w lies between the posterior's, v sigma_s^2 / sigma_t^2, right where the data are one point, and v,
    right where they are N(0, I) and variance is preserved: `upper` 0 and 1, in between on a logarithmic scale (Nichol
    and Dhariwal 2021). Ho et al. 2020 print v for a DDPM; where variance explodes Song et al. 2021 have the lower one.

    >>> Ancestral(upper=1.0).upper
    1.0
    """

    upper: float = eqx.field(static=True, default=0.0)
    temperature: float = eqx.field(static=True, default=1.0)
    steps: ClassVar[int] = 1

    def __check_init__(self):
        require(0 <= self.upper <= 1, f"the upper share of an ancestral step lies between 0 and 1, not at {self.upper}")

    def parts(self, score: AbstractLevelledScore, t: Level, s: Level, x: Point) -> tuple[Point, Scalar]:
        noise = score.noise
        kept, variance = noise.between(s, t)
        spread = variance * (noise.variance(s) / noise.variance(t)) ** (1 - self.upper)
        return posterior_mean(x, score(t, x), variance) / kept, jnp.sqrt(spread)
