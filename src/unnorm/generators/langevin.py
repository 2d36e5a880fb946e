"""Langevin moves at the level just reached: annealed Langevin, and the corrector of predictor-corrector."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unnorm.errors import require
from unnorm.generators.base import AbstractOneStep, Info
from unnorm.noises.base import Level, Point
from unnorm.scores import AbstractLevelledScore


class LangevinCorrector(AbstractOneStep):
    """x <- x + a s(s, x) + sqrt(2 a) z, `steps` times, with a = ratio * sigma(s)^2.

    Song and Ermon 2019; Zhang et al. 2023, Alg. 1.

    >>> LangevinCorrector(ratio=0.1, steps=5).steps
    5
    """

    ratio: float = eqx.field(static=True, default=0.1)
    steps: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        require(self.ratio > 0 and self.steps >= 1, "a Langevin corrector needs a positive ratio and at least one step")

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        step = self.ratio * score.noise.sigma(s) ** 2

        def once(x, key):
            return x + step * score(s, x) + jnp.sqrt(2 * step) * jax.random.normal(key, x.shape, x.dtype), None

        return jax.lax.scan(once, x, jax.random.split(key, self.steps))[0], {}
