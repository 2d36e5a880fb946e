"""Points that are one array: real numbers, coins, categories."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from unnorm.errors import require
from unnorm.spaces.base import AbstractSpace
from unnorm.spaces.rows import finite_rows, is_array, real_rows, require_everywhere, struct_of, zeros_and_ones


@dataclass(frozen=True)
class AbstractArray(AbstractSpace):
    """Points that are one array, of coordinates that are all of one kind and may take their values freely."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        require(
            all(isinstance(n, int) and n > 0 for n in self.shape),
            f"a shape must be a tuple of positive whole numbers, not {self.shape}",
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
        return struct_of(self.shape, float)

    def cast(self, rows: Any, what: str) -> Array:
        return real_rows(rows, what, self.shape)

    def start(self, n: int, key: PRNGKeyArray) -> Array:
        return jax.random.normal(key, (n, *self.shape))

    def accepts(self, point: Any) -> bool:
        return is_array(point, self.shape, jnp.floating)


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
        return struct_of(self.shape, float)

    def cast(self, rows: Any, what: str) -> Array:
        return zeros_and_ones(rows, what, self.shape)

    def start(self, n: int, key: PRNGKeyArray) -> Array:
        return jax.random.bernoulli(key, 0.5, (n, *self.shape)).astype(float)

    def accepts(self, point: Any) -> bool:
        return is_array(point, self.shape, jnp.floating, jnp.integer)


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
        return struct_of(self.shape, int)

    def cast(self, rows: Any, what: str) -> Array:
        array, last = finite_rows(rows, what, self.shape), self.categories - 1
        inside = (array >= 0) & (array <= last)
        # Not before: 256 as a number of eight bits is 0.
        whole = array.astype(int)
        advice = f"number the categories from 0 to {last}"
        require_everywhere(inside & (whole == array), what, f"other than 0 to {last}", advice)
        return whole

    def start(self, n: int, key: PRNGKeyArray) -> Array:
        return jax.random.randint(key, (n, *self.shape), 0, self.categories, dtype=int)

    def accepts(self, point: Any) -> bool:
        return is_array(point, self.shape, jnp.integer)
