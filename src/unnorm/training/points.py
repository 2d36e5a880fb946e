"""The rows a model is trained on: of the shape and the kind that model and objective are made for."""

from typing import Any

import jax

from unnorm.errors import InputError
from unnorm.spaces import AbstractArray, AbstractSpace, Graph, numbers, real_rows


def require_shape(who: str, space: AbstractSpace | None, shape: tuple[int, ...], what: str) -> None:
    """Refuse points of another shape than the model's: broadcasting would take one number for all of them."""
    if not isinstance(space, AbstractArray | Graph):
        return
    if tuple(shape) != space.shape:
        raise InputError(
            f"a point of the {what} data has shape {tuple(shape)}, and {who} is made for {space}; "
            "give data and model the same shape"
        )


def checked_points(who: str, space: AbstractSpace | None, data: Any, what: str) -> Any:
    """The data as points of the space (its `cast` says how), or one sentence about what is wrong with them.

    Without a space they are real numbers of some shape. `who` is the model that they are for.

    >>> from unnorm.spaces import Real
    >>> checked_points("Gaussian", Real((2,)), [[1, 2], [3, 4]], "training").dtype
    dtype('float32')
    """
    if space is None:
        return real_rows(data, what)
    if isinstance(space, AbstractArray | Graph):
        array = numbers(data, what)
        if array.ndim >= 2:
            require_shape(who, space, array.shape[1:], what)
        data = array
    return space.cast(data, what)


def structs(rows: Any) -> Any:
    """What one row looks like, without its values."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), rows)
