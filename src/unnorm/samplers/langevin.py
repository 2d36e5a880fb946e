"""Unadjusted Langevin: the simplest walk, and a biased one."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import positive
from unnorm.energies.base import Point
from unnorm.samplers.base import AbstractScoreSampler, Info, Target
from unnorm.samplers.slopes import slope


class Langevin(AbstractScoreSampler):
    """x <- x + h s(x) + sqrt(2 h) z, s = -grad E or a score at one level (`score.at(t)`): no correction for the step h.

    Its stationary law differs from the target: on N(0, s^2) the variance is s^2 / (1 - h / (2 s^2)), and the walk
    explodes at h >= 2 s^2. Half of the literature writes x <- x - (e / 2) grad E(x) + sqrt(e) z for the same walk at
    h = e / 2 (Song 2022, Eq. 4.19): `Langevin.halved(e)` is that one.

    Nothing rejects a step over a wall of the target: one from where the energy (or the score) is not finite, or to a
    point that is not finite, counts as divergent.

    >>> float(Langevin(0.5).step_size), float(Langevin.halved(0.5).step_size)
    (0.5, 0.25)
    """

    step_size: Float[Array, ""] = eqx.field(converter=lambda h: positive(h, "the step size of Langevin"))

    @staticmethod
    def halved(step_size: float | Array) -> "Langevin":
        """x <- x - (e / 2) grad E(x) + sqrt(e) z: half the step in the drift, the whole of it as the noise's variance.

        >>> float(Langevin.halved(0.02).step_size) == float(Langevin(0.01).step_size)
        True
        """
        return Langevin(0.5 * positive(step_size, "the step size of Langevin"))

    def init(self, target: Target, x: Point) -> Point:
        return x

    def step(self, target: Target, state: Point, *, key: PRNGKeyArray) -> tuple[Point, Info]:
        noise = jax.random.normal(key, state.shape, state.dtype)
        step = self.step_size.astype(state.dtype)
        # Whether the target is finite comes free with the slope here; that of the new point would cost a second one.
        finite, score = slope(target, state)
        moved = state + step * score + jnp.sqrt(2 * step) * noise
        return moved, Info(jnp.ones(()), ~(finite & jnp.all(jnp.isfinite(moved))))

    def position(self, state: Point) -> Point:
        return state
