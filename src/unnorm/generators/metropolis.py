"""Langevin moves that are accepted or refused, so that they leave the density of a level exactly alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unnorm.errors import InputError, require
from unnorm.generators.base import AbstractOneStep, Info
from unnorm.noises.base import Level, Point, Scalar
from unnorm.scores import AbstractLevelledEnergy, AbstractLevelledScore


class MetropolisCorrector(AbstractOneStep):
    """y = x + a s(s, x) + sqrt(2 a) z with a = ratio sigma(s)^2, kept with probability min(1, r), `steps` times.

    r = exp(E(x) - E(y)) q(x | y) / q(y | x): Langevin with Metropolis's correction (Roberts and Tweedie 1996), at level
    s of an energy. `Then(ReverseDiffusion(), MetropolisCorrector())` samples products and negations of energies (Du et
    al. 2023), whose levels are not the noised densities that a walk by itself takes them for. Moves that are refused
    are counted.

    >>> MetropolisCorrector(ratio=0.3, steps=5).steps
    5
    """

    ratio: float = eqx.field(static=True, default=0.1)
    steps: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        require(
            self.ratio > 0 and self.steps >= 1, "Metropolis's correction needs a positive ratio and at least a step"
        )

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        if not isinstance(score, AbstractLevelledEnergy):
            raise InputError(
                f"moves are accepted or refused by an energy, and a {type(score).__name__} has none; "
                "use LangevinCorrector or SignalToNoise"
            )
        # At a level without noise nothing moves; another level is asked, and not heard.
        left = score.noise.variance(s) > 0
        level = jnp.where(left, s, t)
        size = self.ratio * score.noise.variance(level)
        both = jax.value_and_grad(score.energy, argnums=1)

        def log_step(to: Point, x: Point, slope: Point) -> Scalar:
            return -jnp.sum((to - x + size * slope) ** 2) / (4 * size)

        def once(state: tuple[Point, Scalar, Point], key: PRNGKeyArray):
            x, energy, slope = state
            draw, toss = jax.random.split(key)
            y = x - size * slope + jnp.sqrt(2 * size) * jax.random.normal(draw, x.shape, x.dtype)
            there, back = both(level, y)
            log_ratio = energy - there + log_step(x, y, back) - log_step(y, x, slope)
            kept = left & (jnp.log(jax.random.uniform(toss)) < log_ratio)
            state = jax.tree.map(lambda new, old: jnp.where(kept, new, old), (y, there, back), state)
            return state, jnp.where(left & ~kept, 1.0, 0.0)

        state, refused = jax.lax.scan(once, (x, *both(level, x)), jax.random.split(key, self.steps))
        return state[0], {"refused": jnp.sum(refused)}
