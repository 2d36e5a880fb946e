"""Rows to the compiled loop: the block that a step belongs to, the next one read while the loop runs."""

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from unnorm.data.sources import AbstractSource, InMemory


class Feed:
    """Blocks of a source by the steps that take their batches from them.

    Rows in memory are one block, which serves every step. Otherwise a block serves as many steps as it has batches,
    and while they are made the next one is read by a thread.
    """

    def __init__(self, source: AbstractSource, cast: Callable[[Any], Any], batch: int, key: PRNGKeyArray):
        self.source = source
        self.cast = cast
        self.whole = isinstance(source, InMemory)
        self.steps = math.inf if self.whole else source.block_length // batch
        # The order of blocks is decided on the host, before anything is traced.
        self.seed = int(np.asarray(jax.random.key_data(key)).astype(np.uint64).reshape(-1) @ np.array([2**31, 1], "u8"))
        self.number, self.rows = -1, None
        self.ahead: tuple[int, Future] | None = None
        self.reader = None if self.whole else ThreadPoolExecutor(1)

    def at(self, step: int) -> tuple[Any, float]:
        """The rows that this step is taken from, and the first step for which they no longer serve."""
        number = 0 if self.whole else int(step // self.steps)
        if number != self.number:
            self.rows, self.number = self.cast(self._read(number)), number
        return self.rows, (number + 1) * self.steps

    def _read(self, number: int) -> Any:
        if self.reader is None:
            return self.source.block(number, self.seed)
        ahead, self.ahead = self.ahead, None
        found = ahead[1].result() if ahead is not None and ahead[0] == number else None
        rows = self.source.block(number, self.seed) if found is None else found
        self.ahead = (number + 1, self.reader.submit(self.source.block, number + 1, self.seed))
        return rows

    def close(self) -> None:
        """No more blocks are wanted."""
        if self.reader is not None:
            self.reader.shutdown(wait=False, cancel_futures=True)


def as_source(data: Any) -> AbstractSource:
    """A source as it is; anything else is rows in memory."""
    return data if isinstance(data, AbstractSource) else InMemory(data)
