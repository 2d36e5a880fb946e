"""Langevin moves at the level just reached: annealed Langevin, and the corrector of predictor-corrector."""

import equinox as eqx
import jax.numpy as jnp

from unnorm.errors import require
from unnorm.generators.base import AbstractWhiteStep
from unnorm.noises.base import Level, Point, Scalar
from unnorm.scores import AbstractLevelledScore


class LangevinCorrector(AbstractWhiteStep):
    """x <- x + a s(s, x) + sqrt(2 a) z, `steps` times, with a = ratio * sigma(s)^2.

    Song and Ermon 2019; Zhang et al. 2023, Alg. 1. A temperature c other than 1 makes it a walk on the density to the
    power 1 / c, by sqrt(2 a c) z.

    >>> LangevinCorrector(ratio=0.1, steps=5).steps
    5
    """

    ratio: float = eqx.field(static=True, default=0.1)
    steps: int = eqx.field(static=True, default=1)
    temperature: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        require(self.ratio > 0 and self.steps >= 1, "a Langevin corrector needs a positive ratio and at least one step")

    def parts(self, score: AbstractLevelledScore, t: Level, s: Level, x: Point) -> tuple[Point, Scalar]:
        step = self.ratio * score.noise.sigma(s) ** 2
        return x + step * score(s, x), jnp.sqrt(2 * step)
