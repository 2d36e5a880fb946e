"""Values that belong to the rows of a table, found again from the row itself."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt32

#: Odd numbers spread over 32 bits (the golden ratio's, and those of murmur's last step).
_SPREAD, _FIRST, _SECOND = 0x9E3779B9, 0x85EBCA6B, 0xC2B2AE35


def _mark(row: Float[Array, " d"]) -> UInt32[Array, ""]:
    """A number made of the row's bits: equal rows have equal marks, different rows nearly always different ones."""
    bits = jax.lax.bitcast_convert_type(row, jnp.uint32).ravel()
    bits = (bits ^ (bits >> 16)) * jnp.uint32(_FIRST)
    place = jnp.arange(1, bits.size + 1, dtype=jnp.uint32) * jnp.uint32(_SPREAD)
    mixed = (bits ^ place) * jnp.uint32(_SECOND)
    return jnp.sum(mixed ^ (mixed >> 13), dtype=jnp.uint32)


@eqx.filter_jit
def _values(function: Callable, rows: Float[Array, "n d"], block: int) -> Float[Array, " n"]:
    """One program for all tables of a shape; `function` may be the method of a module, whose arrays are inputs."""
    return jax.lax.map(function, rows, batch_size=block)


class Rows(eqx.Module):
    """A function's values at the n rows of a table, so that it need not be computed there again.

    Rows are found by bisection among n numbers made of their bits, and what is found counts only if the row itself is
    equal, bit for bit. So a row that is not there, or two rows with one number, cost time and never a wrong value.

    >>> import jax.numpy as jnp
    >>> square = lambda x: x[0] ** 2
    >>> table = Rows(jnp.array([[3.0], [1.0], [2.0]]), square)
    >>> table.values_at(jnp.array([[2.0], [3.0]]), square).tolist()
    [4.0, 9.0]
    """

    rows: Float[Array, "n d"]
    marks: UInt32[Array, " n"]
    values: Float[Array, " n"]

    def __init__(self, rows: Float[Array, "n d"], function: Callable, *, block: int = 256):
        """`function` takes one row; `block` of them are computed together."""
        marks = jax.vmap(_mark)(rows)
        order = jnp.argsort(marks)
        self.rows = rows[order]
        self.marks = marks[order]
        self.values = _values(function, self.rows, block)

    def find(self, xs: Float[Array, "m d"]) -> tuple[Float[Array, " m"], Bool[Array, " m"]]:
        """The values at these points, and which of them are rows (the values at the others mean nothing)."""
        places = jnp.minimum(jnp.searchsorted(self.marks, jax.vmap(_mark)(xs)), len(self.marks) - 1)
        return self.values[places], jnp.all(self.rows[places] == xs, axis=1)

    def values_at(self, xs: Float[Array, "m d"], function: Callable) -> Float[Array, " m"]:
        """The function at these points: looked up if all of them are rows, otherwise computed."""
        values, found = self.find(xs)
        return jax.lax.cond(jnp.all(found), lambda: values, lambda: jax.vmap(function)(xs))
