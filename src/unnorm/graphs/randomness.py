"""Where walks on graphs get their random numbers from: a key of JAX, or a whole number."""

from typing import Any

import numpy as np

from unnorm.errors import InputError


def entropy(key: Any) -> tuple[int, ...]:
    """Whole numbers that stand for a key.

    >>> entropy(3)
    (3,)
    """
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and key >= 0:
        return (int(key),)
    if isinstance(key, tuple) and all(isinstance(part, int) for part in key):
        return key
    import jax

    if isinstance(key, jax.Array):
        data = jax.random.key_data(key) if jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key) else key
        if data.ndim == 1:
            return tuple(int(part) for part in np.asarray(data))
    raise InputError(f"a key is one of jax.random.key(...) or a whole number from 0 up, not {key!r}")


def apart(rows: np.ndarray) -> np.ndarray:
    """The same rows, 128 bytes and more between them.

    Each is written to at every proposal by a thread of its own; two cores that write to one line of the cache wait for
    one another.
    """
    rows = np.asarray(rows)
    spread = np.zeros((len(rows), rows.shape[1] + 128 // rows.itemsize), rows.dtype)
    spread[:, : rows.shape[1]] = rows
    return spread[:, : rows.shape[1]]


def generators(key: Any, stream: int, count: int) -> np.ndarray:
    """The states of `count` independent generators of a walk, for one use (`stream`) of a key."""
    sequence = np.random.SeedSequence((*entropy(key), stream))
    return apart(np.stack([child.generate_state(4, np.uint64) for child in sequence.spawn(count)]))
