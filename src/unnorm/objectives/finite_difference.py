"""Sliced score matching without a second derivative: differences of the energy along a short line."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_positive
from unnorm.energies import AbstractEnergy
from unnorm.errors import InputError
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_real
from unnorm.objectives.slices import AbstractSlices, RademacherSlices, require_directions


class FDSSM(AbstractObjective):
    """L = E[ (l(x+v) + l(x-v) - 2 l(x)) / h^2 + (l(x+v) - l(x-v))^2 / (8 h^2) ],  l = -E,  v = h u,  u a slice.

    By Taylor the first term is u'Hu + O(h^2) and the second (u's)^2 / 2 + O(h^2), so the limit h -> 0 is `SSM` with the
    same slices and the bias shrinks as `step`^2. The energy is evaluated three times and never differentiated in x, so
    training needs one backward pass only. With `SphereSlices(radius=1.0)` |v| = h, as in the source. In single
    precision a step below about 0.01 of the data's length loses the second difference to rounding.
    Pang, Xu, Li, Song, Ermon and Zhu 2020.

    >>> FDSSM(step=0.1).step
    0.1
    """

    comparable: ClassVar[bool] = True
    step: float = eqx.field(static=True, default=0.1)
    slices: AbstractSlices = RademacherSlices()
    draws: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        require_positive(self.step, "the step of a finite difference")
        require_directions(self.slices, self.draws)

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model that is no energy is refused here."""
        if not isinstance(model, AbstractEnergy):
            raise InputError(f"FDSSM takes differences of an energy, and {type(model).__name__} is not one; use SSM")
        require_real(model.space, "FDSSM", "steps off the points")
        return None

    def __call__(
        self, model: AbstractEnergy, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        xs = jnp.tile(batch, (self.draws,) + (1,) * (batch.ndim - 1))
        vs = self.step * jax.vmap(lambda x, k: self.slices(x, key=k))(xs, jax.random.split(key, len(xs)))
        # One pass over all three points: one large matrix product instead of three.
        energies = jax.vmap(model)(jnp.concatenate([batch, xs + vs, xs - vs]))
        here, ahead, behind = jnp.split(-energies, [len(batch), len(batch) + len(xs)])
        here = jnp.tile(here, self.draws)
        # Differences of neighbours first: the large common part of the energies cancels before it is rounded.
        curvature = jnp.mean((ahead - here) + (behind - here)) / self.step**2
        square = jnp.mean((ahead - behind) ** 2) / (8 * self.step**2)
        return curvature + square, (None, {"trace": curvature})
