"""Several spaces side by side, and points with a condition beside them."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
from jaxtyping import PRNGKeyArray

from unnorm.arguments import shown
from unnorm.errors import InputError, require
from unnorm.spaces.base import AbstractSpace
from unnorm.spaces.rows import finite_rows, numbers


@dataclass(frozen=True)
class Mixed(AbstractSpace):
    """Several spaces side by side; a point is a tuple with one entry from each, and so are rows. Each starts its own.

    >>> from unnorm.spaces import Binary, Real
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


class Conditioned(NamedTuple):
    """A point with its condition beside it: a picture and its label, parameters and an observation."""

    x: Any
    condition: Any


@dataclass(frozen=True)
class WithCondition(AbstractSpace):
    """Rows of a conditional model: a point of `space` and, beside it, one of `condition`. Rows are `Conditioned` pairs.

    >>> import jax, jax.numpy as jnp
    >>> from unnorm.spaces import Categorical, Real
    >>> rows = WithCondition(Real((2,)), Categorical((), 3)).cast((jnp.zeros((4, 2)), [0, 1, 2, 0]), "training")
    >>> rows.x.shape, rows.condition.tolist()
    ((4, 2), [0, 1, 2, 0])
    """

    space: AbstractSpace
    condition: AbstractSpace
    continuous: ClassVar[bool] = False

    @property
    def size(self) -> int:
        return self.space.size + self.condition.size

    def struct(self) -> Conditioned:
        return Conditioned(self.space.struct(), self.condition.struct())

    def cast(self, rows: Any, what: str) -> Conditioned:
        require(
            isinstance(rows, tuple | list) and len(rows) == 2,
            f"{what} data are points and a condition beside each, as in (points, labels), not {_described(rows)}",
        )
        x, condition = self.space.cast(rows[0], what), self.condition.cast(rows[1], f"the conditions of {what}")
        n, m = len(jax.tree.leaves(x)[0]), len(jax.tree.leaves(condition)[0])
        require(n == m, f"{what} data have {n} points and {m} conditions; give every point its own")
        return Conditioned(x, condition)

    def start(self, n: int, key: PRNGKeyArray) -> Conditioned:
        one, two = jax.random.split(key)
        return Conditioned(self.space.start(n, one), self.condition.start(n, two))

    def accepts(self, point: Any) -> bool:
        return (
            isinstance(point, tuple)
            and len(point) == 2
            and self.space.accepts(point[0])
            and self.condition.accepts(point[1])
        )


@dataclass(frozen=True)
class AnyNumbers(AbstractSpace):
    """Arrays of finite numbers, one or many, of which no more is known: the rows of a model that says nothing of them.

    >>> AnyNumbers().cast({"weight": [[1.0], [2.0]]}, "training")["weight"].shape
    (2, 1)
    """

    continuous: ClassVar[bool] = False

    @property
    def size(self) -> int:
        raise InputError("nobody knows how many numbers a point of AnyNumbers has; use a space that says so")

    def struct(self) -> Any:
        raise InputError("nobody knows what a point of AnyNumbers looks like; use a space that says so")

    def cast(self, rows: Any, what: str) -> Any:
        leaves, structure = jax.tree.flatten(rows, is_leaf=lambda leaf: isinstance(leaf, list))
        if len(leaves) == 1:
            return structure.unflatten([finite_rows(leaves[0], what)])
        # Beside other columns a column may be one number a row; alone it is more likely to be one point.
        shapes = [() if numbers(leaf, what).ndim == 1 else None for leaf in leaves]
        return structure.unflatten([finite_rows(leaf, what, shape) for leaf, shape in zip(leaves, shapes, strict=True)])

    def start(self, n: int, key: PRNGKeyArray) -> Any:
        raise InputError("chains cannot start on AnyNumbers, whose points nobody knows; give start=")

    def accepts(self, point: Any) -> bool:
        return True


def _described(rows: Any) -> str:
    return f"a {type(rows).__name__} of {len(rows)}" if isinstance(rows, tuple | list) else shown(rows)
