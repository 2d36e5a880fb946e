"""What log Z may be asked of: an energy, and a base density on the same space."""

from typing import Any

import jax

from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.errors import InputError, require
from unnorm.scores import AbstractScore


def require_energy(target: Any) -> None:
    """Refuse a target that is no energy."""
    if isinstance(target, AbstractScore):
        raise InputError("log Z needs an energy, and a score has lost its constant; pass the energy it came from")
    if not isinstance(target, AbstractEnergy):
        raise InputError(
            f"log Z needs an energy, not {type(target).__name__}; a function becomes one by "
            "energies.FunctionEnergy(function, space)"
        )


def point_of(base: AbstractNormalised) -> Any:
    """Shape and type of a point of the base, without drawing one.

    >>> import unnorm as un
    >>> point_of(un.energies.standard_gaussian(2)).shape
    (2,)
    """
    return jax.eval_shape(lambda key: base.sample(key=key), jax.random.key(0))


def require_number(target: AbstractEnergy, point: Any) -> None:
    """Refuse an energy that does not give one number for a point of this shape and type."""
    found: Any = jax.eval_shape(target, point)
    require(found.shape == (), f"an energy returns one number per point, but this one returned shape {found.shape}")


def require_pair(target: Any, base: Any) -> None:
    """Refuse, in one sentence, a target and a base from which log Z cannot be had.

    The target is an energy that gives one number per point, the base a density that is normalised, and both are on one
    space. Energies that do not look at the shape of a point would otherwise take the points of another space, and give
    a wrong number with a small error.
    """
    require_energy(target)
    if not isinstance(base, AbstractNormalised):
        raise InputError(
            f"the base must be a normalised density that can be drawn from, such as energies.standard_gaussian, "
            f"not {type(base).__name__}"
        )
    require(target.space == base.space, f"the base is on {base.space} and the target on {target.space}")
    require_number(target, point_of(base))
