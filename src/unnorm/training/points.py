"""The points a model is trained on: numbers, of the shape and the kind that the model is made for."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from unnorm.errors import InputError
from unnorm.spaces import AbstractOnRows, finite_rows, numbers, real_rows


def require_shape(model: eqx.Module, shape: tuple[int, ...], what: str) -> None:
    """Refuse points of another shape than the model's: broadcasting would take one number for all of them."""
    space = model.rows_space() if isinstance(model, AbstractOnRows) else None
    if space is None:
        return
    expected = space.struct()
    if not isinstance(expected, jax.ShapeDtypeStruct):
        raise InputError(
            f"{type(model).__name__} is made for {space}, whose points have parts, and training takes points that are "
            "one array; make the parts one array of numbers"
        )
    if tuple(shape) != expected.shape:
        raise InputError(
            f"a point of the {what} data has shape {tuple(shape)}, and {type(model).__name__} is made for {space}; "
            "give data and model the same shape"
        )


def checked_points(model: eqx.Module, data: Any, what: str) -> Array:
    """The data as points of the model's space (its `cast` says how), or one sentence about what is wrong with them.

    Where a model does not know its space they are real numbers of some shape, and where it says nothing of its rows
    (it is no `AbstractOnRows`) finite numbers as they are.

    >>> import unnorm as un
    >>> checked_points(un.energies.standard_gaussian(2), [[1, 2], [3, 4]], "training").dtype
    dtype('float32')
    """
    if not isinstance(model, AbstractOnRows):
        return finite_rows(data, what)
    space = model.rows_space()
    if space is None:
        return real_rows(data, what)
    array = numbers(data, what)
    if array.ndim >= 2:
        require_shape(model, array.shape[1:], what)
    return space.cast(array, what)
