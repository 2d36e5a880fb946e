"""What every space asks of rows: finite numbers of one shape, or one sentence about the first that is not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from unnorm.errors import InputError, require


def numbers(rows: Any, what: str) -> Array:
    """The rows as an array of numbers of whatever type they have, refused if they are ragged, or words.

    >>> numbers([[1, 2], [3, 4]], "training").shape
    (2, 2)
    """
    try:
        array = rows if isinstance(rows, jax.Array) else np.asarray(rows)
    except ValueError as error:
        raise InputError(f"{what} data are rows of unequal length; give n points of one shape") from error
    require(
        any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)),
        f"{what} data must be real numbers, not of type {array.dtype}; turn words into numbers first",
    )
    return jnp.asarray(array)


def finite_rows(rows: Any, what: str, point: tuple[int, ...] | None = None) -> Array:
    """The rows as an array of finite numbers of whatever type they have; of points of this shape, if one is given.

    >>> finite_rows([[1, 2], [3, float("nan")]], "training")
    Traceback (most recent call last):
    unnorm.errors.InputError: training data hold 1 value that is not finite, the first in row 1 (counted from 0); \
remove or impute them
    """
    array = numbers(rows, what)
    least = 1 if point == () else 2
    require(
        array.ndim >= least and len(array) >= 1, f"{what} data must be n points along the first axis, not {array.shape}"
    )
    require_everywhere(jnp.isfinite(array), what, "that are not finite", "remove or impute them")
    require(
        point is None or array.shape[1:] == point,
        f"points of {what} data have shape {array.shape[1:]}, and should have {point}; "
        "give data of the shape that the model is made for",
    )
    return array


def real_rows(rows: Any, what: str, point: tuple[int, ...] | None = None) -> Array:
    """The rows as real numbers, in the precision they have; whole numbers become real ones.

    Noise cast to whole numbers would be another noise, and they have no gradients.

    >>> real_rows([[1, 2], [3, 4]], "training").dtype
    dtype('float32')
    """
    array = finite_rows(rows, what, point)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)


def require_everywhere(good: Bool[Array, "n ..."], what: str, wrong: str, advice: str) -> None:
    """Refuse rows with values that are not good, by how many there are, what is wrong, where, and what to do."""
    bad = int(jnp.sum(~good))
    if bad:
        row = int(np.argmax(~np.asarray(good).reshape(len(good), -1).all(axis=1)))
        values = f"1 value {wrong.replace('that are', 'that is')}" if bad == 1 else f"{bad} values {wrong}"
        raise InputError(f"{what} data hold {values}, the first in row {row} (counted from 0); {advice}")


def zeros_and_ones(rows: Any, what: str, point: tuple[int, ...]) -> Array:
    """The rows, checked: real numbers stay real, whole numbers and truth values become whole numbers."""
    array = finite_rows(rows, what, point)
    good = (array == 0) | (array == 1)
    require_everywhere(good, what, "other than 0 and 1", "write the two states as 0 and 1")
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(int)


def is_array(point: Any, shape: tuple[int, ...], *kinds: Any) -> bool:
    """Whether a point is one array (or the struct of one) of this shape, and of one of these kinds of numbers."""
    if not isinstance(point, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct):
        return False
    return point.shape == shape and any(jnp.issubdtype(point.dtype, kind) for kind in kinds)


def struct_of(shape: tuple[int, ...], kind: type) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(kind))
