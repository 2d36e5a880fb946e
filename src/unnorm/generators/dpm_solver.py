"""The probability flow by a method that remembers what it saw at the steps before."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from unnorm.errors import require
from unnorm.generators.base import AbstractTransition, Info, Walker
from unnorm.noises.base import AbstractGaussianNoise, Level, Point, Scalar
from unnorm.scores import AbstractLevelledScore


class Seen(NamedTuple):
    """The data that x was likely to be at the last levels, newest first, the log ratios there, and how many."""

    data: tuple[Point, ...]
    ratios: tuple[Scalar, ...]
    steps: Scalar


def nothing_seen(noise: AbstractGaussianNoise, t: Level, x: Point, kept: int) -> Seen:
    """The memory of a walker that begins, with room for so many."""
    ratio = noise.log_ratio(jnp.asarray(t, x.dtype))
    return Seen((jnp.zeros_like(x),) * kept, (ratio,) * kept, jnp.zeros((), x.dtype))


def seen_also(seen: Seen, data: Point, ratio: Scalar, moved: Bool[Array, ""]) -> Seen:
    """The memory with one more, unless the walker did not move, the same level being named twice."""
    room = len(seen.data)
    shifted = Seen((data, *seen.data)[:room], (ratio, *seen.ratios)[:room], seen.steps + 1)
    return jax.tree.map(lambda new, old: jnp.where(moved, new, old), shifted, seen)


def denoised(score: AbstractLevelledScore, t: Level, x: Point) -> Point:
    """E[x_0 | x] = (x + sigma^2 s) / alpha."""
    return (x + score.noise.variance(t) * score(t, x)) / score.noise.alpha(t)


class DPMSolver(AbstractTransition):
    """DPM-Solver++ in several steps (Lu et al. 2022, Algorithm 2, and its third order): one score a step.

    With l = log(alpha / sigma), h = l_s - l_t and D the data that x is likely to be, the flow is

        x_s = (sigma_s / sigma_t) x_t + sigma_s (integral of e^l D dl),

    and D is a polynomial in l through the last `order` levels. (The authors' program and those after it count the
    curvature at order 3 half, and are of order 2.) First steps have the orders that there are levels for. A
    last step to a level without noise is of order 1, x = alpha D.

    >>> DPMSolver(order=3).order
    3
    """

    together: ClassVar[bool] = False
    order: int = eqx.field(static=True, default=2)

    def __check_init__(self):
        require(self.order in (1, 2, 3), f"DPMSolver has the orders 1, 2 and 3, not {self.order}")

    def init(self, score: AbstractLevelledScore, t: Level, x: Point) -> Walker:
        return Walker(x, nothing_seen(score.noise, t, x, self.order - 1))

    def step(
        self, score: AbstractLevelledScore, t: Level, s: Level, state: Walker, *, key: PRNGKeyArray
    ) -> tuple[Walker, Info]:
        noise, x, seen = score.noise, state.x, state.memory
        data, here, left = denoised(score, t, x), noise.log_ratio(t), noise.variance(s) > 0
        h = jnp.where(left, noise.log_ratio(jnp.where(left, s, t)) - here, jnp.inf)
        moved = h > 0
        h = jnp.where(moved & left, h, 1.0)
        first = jnp.where(left, -jnp.expm1(-h), 1.0)
        rest = jnp.where(left, noise.sigma(s) / noise.sigma(t), 0.0) * x + noise.alpha(s) * first * data
        if self.order > 1:
            bend = self._bend(data, here, h, seen)
            rest += jnp.where(left, noise.alpha(s), 0.0) * bend
        moved_x = jnp.where(moved, rest, x)
        return Walker(moved_x, seen_also(seen, data, here, moved)), {}

    def _bend(self, data: Point, here: Scalar, h: Scalar, seen: Seen) -> Point:
        """What slope and curvature of D add: phi_2 D' + phi_3 D'' by the differences of what was seen."""
        first = -jnp.expm1(-h)
        before = _apart(here - seen.ratios[0], h)
        slope = (data - seen.data[0]) * (h / before)
        straight = 0.5 * first * slope
        if self.order == 2:
            return jnp.where(seen.steps >= 1, straight, 0.0)
        earlier = _apart(seen.ratios[0] - seen.ratios[1], h)
        older = (seen.data[0] - seen.data[1]) * (h / earlier)
        share, whole = before / (before + earlier), h / (before + earlier)
        second = 1 - first / h
        third = second / h - 0.5
        curved = second * (slope + share * (slope - older)) - 2 * third * whole * (slope - older)
        return jnp.where(seen.steps >= 2, curved, jnp.where(seen.steps >= 1, straight, 0.0))


def _apart(distance: Scalar, otherwise: Scalar) -> Scalar:
    """A distance to divide by; where there is none yet the quotient is not used."""
    return jnp.where(distance > 0, distance, otherwise)
