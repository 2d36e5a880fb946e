"""Which calls of LAPACK the programs hold that are traced: its primitives note the shapes they are given.

On processors jaxlib 0.10 shares the matrices of a batched call out over the threads of the pool that it runs on, and
waits for them; where every thread waits, the program stands still for good. A call with one matrix is done on the spot.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

#: What was going on, the primitive, and the number of matrices of every call that was traced.
CALLS: set[tuple[str, str, int]] = set()
#: What is going on.
_now = [""]


def begin(name: str) -> None:
    """From here on calls are noted under this name."""
    _now[0] = name


def _watched(primitive: Any) -> Callable[..., Any]:
    bind = primitive.bind

    def noted(*args: Any, **params: Any) -> Any:
        # Under `vmap` the call comes once for a single matrix and then, by the rule for batches, with all of them.
        CALLS.add((_now[0], primitive.name, max((math.prod(jax.numpy.shape(arg)[:-2]) for arg in args), default=1)))
        return bind(*args, **params)

    return noted


def watch() -> list[str]:
    """Watch every primitive of `jax.lax.linalg` from now on, and say which they are."""
    found = [value for name, value in vars(jax.lax.linalg).items() if name.endswith("_p")]
    for primitive in found:
        primitive.bind = _watched(primitive)
    return [primitive.name for primitive in found]


def mapped(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Trace the function mapped over two of each of its arrays, as callers map it."""

    def two(leaf: Any) -> Any:
        if eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype)
        return leaf

    pair = jax.tree.map(two, (args, kwargs))
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(pair)):
        eqx.filter_eval_shape(eqx.filter_vmap(lambda args, kwargs: function(*args, **kwargs)), *pair)
