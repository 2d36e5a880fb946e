"""What kind of thing x is, and what that alone decides.

A space says what one point looks like, which rows are points of it, and where chains on it may begin; whoever needs to
know asks the space and no list of classes. Spaces are plain frozen values: two spaces with the same fields are the same
space, so they ride as static data through compiled programs.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray

from unnorm.arguments import shown
from unnorm.errors import InputError, require


@dataclass(frozen=True)
class AbstractSpace(ABC):
    """The kind of thing one point x is."""

    continuous: ClassVar[bool]

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers make up one point."""

    @abstractmethod
    def struct(self) -> Any:
        """What `start` draws one of: shapes and types of a point, as a PyTree of `jax.ShapeDtypeStruct`."""

    @abstractmethod
    def cast(self, rows: Any, what: str) -> Any:
        """The rows (points along a leading axis) as arrays of points, refused in one sentence if they are none.

        `what` names the rows in that sentence: "training".
        """

    @abstractmethod
    def start(self, n: int, key: PRNGKeyArray) -> Any:
        """n points to start chains from, along a leading axis."""

    @abstractmethod
    def accepts(self, point: Any) -> bool:
        """Whether this point, or its struct, is made like a point of this space; values are not looked at."""


class AbstractOnRows(eqx.Module):
    """A model that says what the rows are that it is trained on."""

    @abstractmethod
    def rows_space(self) -> AbstractSpace | None:
        """The space whose points the rows are; None: real numbers, of a shape that the model does not know."""


class AbstractOnRealRows(AbstractOnRows):
    """A model on rows of real numbers that does not know their shape."""

    def rows_space(self) -> None:
        return None


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
        array.ndim >= least and len(array) >= 1, f"{what} data are n points along the first axis, not {array.shape}"
    )
    _require_everywhere(jnp.isfinite(array), what, "that are not finite", "remove or impute them")
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


def _require_everywhere(good: Bool[Array, "n ..."], what: str, wrong: str, advice: str) -> None:
    """Refuse rows with values that are not good, by how many there are, what is wrong, where, and what to do."""
    bad = int(jnp.sum(~good))
    if bad:
        row = int(np.argmax(~np.asarray(good).reshape(len(good), -1).all(axis=1)))
        values = f"1 value {wrong.replace('that are', 'that is')}" if bad == 1 else f"{bad} values {wrong}"
        raise InputError(f"{what} data hold {values}, the first in row {row} (counted from 0); {advice}")


def _zeros_and_ones(rows: Any, what: str, point: tuple[int, ...]) -> Array:
    """The rows, checked: real numbers stay real, whole numbers and truth values become whole numbers."""
    array = finite_rows(rows, what, point)
    good = (array == 0) | (array == 1)
    _require_everywhere(good, what, "other than 0 and 1", "write the two states as 0 and 1")
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(int)


def _is_array(point: Any, shape: tuple[int, ...], *kinds: Any) -> bool:
    """Whether a point is one array (or the struct of one) of this shape, and of one of these kinds of numbers."""
    if not isinstance(point, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct):
        return False
    return point.shape == shape and any(jnp.issubdtype(point.dtype, kind) for kind in kinds)


def _numbers(shape: tuple[int, ...], kind: type) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(kind))


@dataclass(frozen=True)
class AbstractArray(AbstractSpace):
    """Points that are one array, of coordinates that are all of one kind and may take their values freely."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        require(
            all(isinstance(n, int) and n > 0 for n in self.shape),
            f"a shape is a tuple of positive whole numbers, not {self.shape}",
        )

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def of_shape(self, shape: tuple[int, ...]) -> "AbstractArray":
        """The space of arrays of another shape, with coordinates of the same kind.

        >>> Categorical((4,), 3).of_shape((2,))
        Categorical(shape=(2,), categories=3)
        """
        return replace(self, shape=shape)


@dataclass(frozen=True)
class Real(AbstractArray):
    """Points of R^shape: vectors, images, fields. Chains start at standard normal points.

    >>> Real((2,)).size
    2
    """

    continuous: ClassVar[bool] = True

    def struct(self) -> jax.ShapeDtypeStruct:
        return _numbers(self.shape, float)

    def cast(self, rows: Any, what: str) -> Array:
        return real_rows(rows, what, self.shape)

    def start(self, n: int, key: PRNGKeyArray) -> Array:
        return jax.random.normal(key, (n, *self.shape))

    def accepts(self, point: Any) -> bool:
        return _is_array(point, self.shape, jnp.floating)


@dataclass(frozen=True)
class Binary(AbstractArray):
    """Arrays of zeros and ones, written as real or as whole numbers. Chains start at fair coins.

    >>> Binary((3,)).cast([[0.0, 2.0, 1.0]], "training")
    Traceback (most recent call last):
    unnorm.errors.InputError: training data hold 1 value other than 0 and 1, the first in row 0 (counted from 0); \
write the two states as 0 and 1
    """

    continuous: ClassVar[bool] = False

    def struct(self) -> jax.ShapeDtypeStruct:
        return _numbers(self.shape, float)

    def cast(self, rows: Any, what: str) -> Array:
        return _zeros_and_ones(rows, what, self.shape)

    def start(self, n: int, key: PRNGKeyArray) -> Array:
        return jax.random.bernoulli(key, 0.5, (n, *self.shape)).astype(float)

    def accepts(self, point: Any) -> bool:
        return _is_array(point, self.shape, jnp.floating, jnp.integer)


@dataclass(frozen=True)
class Categorical(AbstractArray):
    """Arrays of whole numbers 0 .. categories - 1. Chains start at uniform ones.

    >>> Categorical((2,), 3).cast([[0.0, 2.0]], "training").dtype
    dtype('int32')
    """

    categories: int = 2
    continuous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.categories >= 2, f"a categorical space needs at least 2 categories, not {self.categories}")

    def struct(self) -> jax.ShapeDtypeStruct:
        return _numbers(self.shape, int)

    def cast(self, rows: Any, what: str) -> Array:
        array, last = finite_rows(rows, what, self.shape), self.categories - 1
        inside = (array >= 0) & (array <= last)
        # Not before: 256 as a number of eight bits is 0.
        whole = array.astype(int)
        advice = f"number the categories from 0 to {last}"
        _require_everywhere(inside & (whole == array), what, f"other than 0 to {last}", advice)
        return whole

    def start(self, n: int, key: PRNGKeyArray) -> Array:
        return jax.random.randint(key, (n, *self.shape), 0, self.categories, dtype=int)

    def accepts(self, point: Any) -> bool:
        return _is_array(point, self.shape, jnp.integer)


@dataclass(frozen=True)
class Graph(AbstractSpace):
    """Adjacency matrices of simple graphs on n labelled vertices. Chains start at graphs with each edge by a fair coin.

    An entry (i, j) is 1 if an edge leads from i to j; without directions the matrix is symmetric.

    >>> Graph(2).cast([[[0, 1], [0, 0]]], "training")
    Traceback (most recent call last):
    unnorm.errors.InputError: training data hold 2 values of edges in one direction only, the first in row 0 \
(counted from 0); make the matrices symmetric, or use Graph(2, directed=True)
    """

    n: int
    directed: bool = False
    continuous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self.n >= 2, f"a graph needs at least 2 vertices, not {self.n}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n, self.n)

    @property
    def size(self) -> int:
        pairs = self.n * (self.n - 1)
        return pairs if self.directed else pairs // 2

    def struct(self) -> jax.ShapeDtypeStruct:
        return _numbers(self.shape, float)

    def cast(self, rows: Any, what: str) -> Array:
        array = _zeros_and_ones(rows, what, self.shape)
        loops = jnp.diagonal(array, axis1=1, axis2=2)
        _require_everywhere(loops == 0, what, "of edges from a vertex to itself", "remove them")
        if not self.directed:
            advice = f"make the matrices symmetric, or use Graph({self.n}, directed=True)"
            _require_everywhere(array == array.mT, what, "of edges in one direction only", advice)
        return array

    def start(self, n: int, key: PRNGKeyArray) -> Array:
        coins = jax.random.bernoulli(key, 0.5, (n, *self.shape)).astype(float)
        above = jnp.triu(coins, 1)
        return above + (jnp.tril(coins, -1) if self.directed else jnp.swapaxes(above, 1, 2))

    def accepts(self, point: Any) -> bool:
        return _is_array(point, self.shape, jnp.floating, jnp.integer)


@dataclass(frozen=True)
class Mixed(AbstractSpace):
    """Several spaces side by side; a point is a tuple with one entry from each, and so are rows. Each starts its own.

    >>> reals, coins = Mixed((Real((2,)), Binary((3,)))).start(4, jax.random.key(0))
    >>> reals.shape, coins.shape
    ((4, 2), (4, 3))
    """

    parts: tuple[AbstractSpace, ...]
    continuous: ClassVar[bool] = False

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def struct(self) -> tuple[Any, ...]:
        return tuple(part.struct() for part in self.parts)

    def cast(self, rows: Any, what: str) -> tuple[Any, ...]:
        k = len(self.parts)
        require(
            isinstance(rows, tuple | list) and len(rows) == k,
            f"{what} data are a tuple of {k} parts, each with all the rows, not {_described(rows)}",
        )
        whole = what if what.startswith("part ") else f"the {what}"
        found = tuple(
            part.cast(given, f"part {i} of {whole}")
            for i, (part, given) in enumerate(zip(self.parts, rows, strict=True))
        )
        counts = [len(leaf) for leaf in jax.tree.leaves(found)]
        require(len(set(counts)) <= 1, f"the parts of {what} data have {counts} rows; give every part of every point")
        return found

    def start(self, n: int, key: PRNGKeyArray) -> tuple[Any, ...]:
        return tuple(
            part.start(n, k) for part, k in zip(self.parts, jax.random.split(key, len(self.parts)), strict=True)
        )

    def accepts(self, point: Any) -> bool:
        return (
            isinstance(point, tuple)
            and len(point) == len(self.parts)
            and all(part.accepts(entry) for part, entry in zip(self.parts, point, strict=True))
        )


def _described(rows: Any) -> str:
    return f"a {type(rows).__name__} of {len(rows)}" if isinstance(rows, tuple | list) else shown(rows)
