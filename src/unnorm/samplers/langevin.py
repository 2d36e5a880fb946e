"""Unadjusted Langevin: the simplest walk, and a biased one."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Point
from unnorm.samplers.base import AbstractGradientSampler, Info
from unnorm.values import positive


class Langevin(AbstractGradientSampler):
    """x <- x - h grad E(x) + sqrt(2 h) z, with no correction for the step h.

    Its stationary law differs from the target: on N(0, s^2) the variance is s^2 / (1 - h / (2 s^2)), and the walk
    explodes at h >= 2 s^2. Half of the literature writes x <- x - (e / 2) grad E(x) + sqrt(e) z for the same walk at
    h = e / 2 (thesis Eq. 4.19): `Langevin.halved(e)` is that one.

    Nothing rejects a step over a wall of the target: one from where the energy is not finite, or to a point that is not
    finite, counts as divergent.

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

    def init(self, target: AbstractEnergy, x: Point) -> Point:
        return x

    def step(self, target: AbstractEnergy, state: Point, *, key: PRNGKeyArray) -> tuple[Point, Info]:
        noise = jax.random.normal(key, state.shape, state.dtype)
        step = self.step_size.astype(state.dtype)
        # The energy comes free with its gradient here; that of the new point would cost a second evaluation.
        energy, gradient = jax.value_and_grad(target)(state)
        moved = state - step * gradient + jnp.sqrt(2 * step) * noise
        return moved, Info(jnp.ones(()), ~(jnp.isfinite(energy) & jnp.all(jnp.isfinite(moved))))

    def position(self, state: Point) -> Point:
        return state
