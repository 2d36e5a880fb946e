"""Langevin moves whose step is set by the size of the score: the corrector of predictor-corrector."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unnorm.errors import require
from unnorm.generators.base import WALKERS, AbstractTransition, Info, Walker
from unnorm.noises.base import Level, Point
from unnorm.scores import AbstractLevelledScore


class SignalToNoise(AbstractTransition):
    """x <- x + e s(s, x) + sqrt(2 e) z, `steps` times, with e = 2 a^2 (ratio |z| / |s|)^2 (Song et al. 2021, Alg. 4).

    |z| and |s| are means over all points that walk, and a^2 = (alpha_t / alpha_s)^2, which is 1 where variance explodes
    and 1 - beta in a DDPM. With `together=False` each point has a step of its own, by its |s| and the root of its
    dimension: right for images, where |s| is much the same everywhere, and biased where there are few dimensions.

    `Then(ReverseDiffusion(), SignalToNoise(0.16))` is predictor-corrector. At a level without noise it does nothing.

    >>> SignalToNoise(0.16, together=False).together
    False
    """

    ratio: float = eqx.field(static=True, default=0.16)
    steps: int = eqx.field(static=True, default=1)
    together: bool = eqx.field(static=True, default=True)

    def __check_init__(self):
        require(
            self.ratio > 0 and self.steps >= 1,
            f"a corrector needs a positive ratio and at least one step, not {self.ratio} and {self.steps}",
        )

    def init(self, score: AbstractLevelledScore, t: Level, x: Point) -> Walker:
        return Walker(x)

    def step(
        self, score: AbstractLevelledScore, t: Level, s: Level, state: Walker, *, key: PRNGKeyArray
    ) -> tuple[Walker, Info]:
        noise = score.noise
        left = noise.variance(s) > 0
        level = jnp.where(left, s, t)
        share = (noise.alpha(t) / noise.alpha(s)) ** 2

        def once(x, key):
            slope, z = score(level, x), jax.random.normal(key, x.shape, x.dtype)
            steep, loud = jnp.linalg.norm(slope), jnp.linalg.norm(z)
            if self.together:
                steep, loud = jax.lax.pmean((steep, loud), WALKERS)
            else:
                loud = jnp.sqrt(jnp.asarray(x.size, x.dtype))
            step = jnp.where(left, 2 * share * (self.ratio * loud / steep) ** 2, 0.0)
            return x + step * slope + jnp.sqrt(2 * step) * z, None

        return Walker(jax.lax.scan(once, state.x, jax.random.split(key, self.steps))[0]), {}
