"""Simple graphs on labelled vertices."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from unnorm.errors import require
from unnorm.spaces.base import AbstractSpace
from unnorm.spaces.rows import is_array, require_everywhere, struct_of, zeros_and_ones


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
        return struct_of(self.shape, float)

    def cast(self, rows: Any, what: str) -> Array:
        array = zeros_and_ones(rows, what, self.shape)
        loops = jnp.diagonal(array, axis1=1, axis2=2)
        require_everywhere(loops == 0, what, "of edges from a vertex to itself", "remove them")
        if not self.directed:
            advice = f"make the matrices symmetric, or use Graph({self.n}, directed=True)"
            require_everywhere(array == array.mT, what, "of edges in one direction only", advice)
        return array

    def start(self, n: int, key: PRNGKeyArray) -> Array:
        coins = jax.random.bernoulli(key, 0.5, (n, *self.shape)).astype(float)
        above = jnp.triu(coins, 1)
        return above + (jnp.tril(coins, -1) if self.directed else jnp.swapaxes(above, 1, 2))

    def accepts(self, point: Any) -> bool:
        return is_array(point, self.shape, jnp.floating, jnp.integer)
