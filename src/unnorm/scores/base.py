"""The score of one point at one noise level."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax

from unnorm.energies.base import AbstractEnergy, Point
from unnorm.errors import InputError
from unnorm.noises.base import Level


class AbstractScore(eqx.Module):
    """s(t, x), meant to be grad_x log p_t(x)."""

    @abstractmethod
    def __call__(self, t: Level, x: Point) -> Point:
        """The score at level t of one point."""


class EnergyScore(AbstractScore):
    """s(t, x) = -grad E(x), the same at every level.

    >>> import jax.numpy as jnp, unnorm as un
    >>> EnergyScore(un.energies.standard_gaussian(2))(0.0, jnp.ones(2)).tolist()
    [-1.0, -1.0]
    """

    energy: AbstractEnergy

    def __call__(self, t: Level, x: Point) -> Point:
        return -jax.grad(self.energy)(x)


class FunctionScore(AbstractScore):
    """Any callable (t, x) -> score; arrays inside it (if it is a pytree) are its parameters."""

    function: Callable[[Level, Point], Point]

    def __call__(self, t: Level, x: Point) -> Point:
        return self.function(t, x)


def as_score(model: AbstractEnergy | AbstractScore) -> AbstractScore:
    """The score of an energy, or the score itself."""
    if isinstance(model, AbstractScore):
        return model
    if isinstance(model, AbstractEnergy):
        if not model.space.continuous:
            raise InputError(f"a score needs a Real space, and this energy lives on {model.space}")
        return EnergyScore(model)
    raise InputError(f"a score comes from an energy or a score, not from {type(model).__name__}")
