"""One mesh over all devices, along which batches and chains are split; and the cores of a single processor.

With a single device what concerns the mesh is the identity, so the same program runs on a laptop and on eight cards.
Random numbers do not depend on how arrays are split (JAX's partitionable Threefry), so neither do results, to rounding.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import ArrayLike

from unnorm.errors import require

T = TypeVar("T")
Piece = TypeVar("Piece")

#: Chains that a core is given at the least: with fewer its vector units are idle.
LEAST_SHARE = 16


def device_mesh() -> Mesh:
    """The one mesh: every device along one axis called `batch`."""
    return jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))


def split_over_devices(tree: T, axis: int = 0) -> T:
    """Ask the compiler to split one axis of every array, the leading one unless told, over the devices."""
    if jax.device_count() == 1:
        return tree
    sharding = NamedSharding(device_mesh(), PartitionSpec(*[None] * axis, "batch"))
    return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, sharding), tree)


def require_divisible(count: int, what: str) -> None:
    """Refuse a batch or a number of chains that the devices cannot share equally."""
    devices = jax.device_count()
    require(
        count % devices == 0,
        f"{count} {what} cannot be shared equally by {devices} devices; use a multiple of {devices}",
    )


def whole(number: int) -> np.ndarray:
    """A whole number as an array, so that the compiler does not bake it in and one program serves all.

    >>> whole(3)
    array(3, dtype=int32)
    """
    return np.asarray(number, np.int32)


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parts_of(count: int) -> int:
    """In how many equal parts the cores of one processor run `count` chains side by side.

    Within one program the cores share every product of matrices and wait for each other after each of them; chains need
    not wait for other chains. There is one part on an accelerator, on several devices, and where cores would have few
    chains.

    >>> parts_of(1)
    1
    """
    if jax.device_count() > 1 or jax.default_backend() != "cpu":
        return 1
    return max(n for n in range(1, _cores() + 1) if n == 1 or (count % n == 0 and count // n >= LEAST_SHARE))


def shares(count: int, parts: int) -> tuple[list[np.ndarray], int]:
    """The number of the first chain of each of so many parts, and how many chains each has.

    >>> firsts, size = shares(6, 2)
    >>> [int(first) for first in firsts], size
    ([0, 3], 3)
    """
    size = count // parts
    return [whole(first) for first in range(0, count, size)], size


def share(tree: T, first: ArrayLike, size: int) -> T:
    """`size` chains from number `first` on: that part of every array.

    >>> share(jax.numpy.arange(6.0), 2, 3).tolist()
    [2.0, 3.0, 4.0]
    """
    return jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, first, size) if eqx.is_array(a) else a, tree)


def side_by_side(call: Callable[[Piece], T], pieces: Sequence[Piece]) -> list[T]:
    """call(piece) of every piece, each in a thread of its own; what is compiled is compiled once.

    JAX keeps some settings for each thread, and these have those of the one that asks. An interrupt is not held up by
    them: they go on to the end of their pieces by themselves.

    >>> side_by_side(lambda n: n * n, [2, 3])
    [4, 9]
    """
    if len(pieces) == 1:
        return [call(pieces[0])]
    asked: Any = jax.config
    wide, precision = asked.jax_enable_x64, asked.jax_default_matmul_precision
    nans, device = asked.jax_debug_nans, asked.jax_default_device
    partitionable = asked.jax_threefry_partitionable

    def one(piece: Piece) -> T:
        with (
            jax.enable_x64(wide),
            jax.default_matmul_precision(precision),
            jax.debug_nans(nans),
            jax.default_device(device),
            jax.threefry_partitionable(partitionable),
        ):
            return jax.block_until_ready(call(piece))

    threads = ThreadPoolExecutor(len(pieces))
    try:
        return list(threads.map(one, pieces))
    finally:
        # They are done by then, or there was an interrupt, which compiled code does not hear and need not hold up.
        threads.shutdown(wait=False, cancel_futures=True)
