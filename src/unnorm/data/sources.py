"""Where training rows come from: arrays in memory, or blocks on disk of which one at a time is in memory.

A compiled loop takes many batches before it returns, so what a source hands over is a *block*: rows enough for many
steps. Within a block the loop draws its batches in an order of its own; a step knows its block by its number alone, so
that a resumed run sees the same rows.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from unnorm.arguments import require_count
from unnorm.errors import InputError, require

#: Rows of a block, unless told otherwise.
BLOCK = 65_536
#: Rows looked at to tell data on disk from other data.
LOOKED_AT = 4_096


class Sliceable(Protocol):
    """An array that need not be in memory: `numpy.memmap`, `ParquetRows`, HDF5 and zarr arrays."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


class AbstractSource(ABC):
    """Rows in blocks of one length."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many rows there are."""

    @property
    @abstractmethod
    def block_length(self) -> int:
        """How many rows a block has."""

    @abstractmethod
    def block(self, number: int, seed: int) -> Any:
        """The rows of a block, in memory: a PyTree with a leading axis. Equal numbers and seeds give equal rows."""

    @property
    @abstractmethod
    def identity(self) -> Any:
        """What tells these data from others when a run is taken up again."""


@dataclass(frozen=True, eq=False)
class InMemory(AbstractSource):
    """Rows that are in memory, all in one block.

    >>> InMemory((np.zeros((5, 2)), np.arange(5))).rows
    5
    """

    data: Any

    @property
    def rows(self) -> int:
        return row_count(self.data)

    @property
    def block_length(self) -> int:
        return self.rows

    def block(self, number: int, seed: int) -> Any:
        return self.data

    @property
    def identity(self) -> Any:
        return self.data


@dataclass(frozen=True, eq=False)
class Blocks(AbstractSource):
    """Rows on disk, read `block_rows` at a time: a PyTree of arrays that can be sliced, such as memory maps.

    Each pass over the data takes the blocks in an order of its own. What is left over when the rows are no multiple of
    a block is left out at another end every pass, so that over the passes every row is met. Objectives that look at
    the data before training (a noise fitted to them) see the first block.

    >>> blocks = Blocks(np.arange(10.0)[:, None], block_rows=4)
    >>> blocks.block(0, seed=0).shape, blocks.rows
    ((4, 1), 10)
    """

    data: Any
    block_rows: int = BLOCK

    def __post_init__(self) -> None:
        leaves = jax.tree.leaves(self.data)
        require(len(leaves) > 0, "blocks are made of arrays, and there are none")
        for leaf in leaves:
            if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype") and hasattr(leaf, "__getitem__")):
                raise InputError(
                    "blocks are slices of arrays such as numpy.load(path, mmap_mode='r'), and a "
                    f"{type(leaf).__name__} cannot be sliced"
                )
        counts = sorted({leaf.shape[0] for leaf in leaves})
        require(
            len(counts) == 1, f"the parts of the rows have {' and '.join(map(str, counts))} rows; give all the same"
        )
        require_count(self.block_rows, 1, "the rows of a block")

    @property
    def block_length(self) -> int:
        return min(int(self.block_rows), self.rows)

    @property
    def rows(self) -> int:
        return jax.tree.leaves(self.data)[0].shape[0]

    def block(self, number: int, seed: int) -> Any:
        length = self.block_length
        there, left_over = divmod(self.rows, length)
        passed, place = divmod(number, there)
        chance = np.random.default_rng([seed, passed])
        begin = int(chance.integers(left_over + 1)) + int(chance.permutation(there)[place]) * length
        return jax.tree.map(lambda leaf: np.asarray(leaf[begin : begin + length]), self.data)

    @property
    def identity(self) -> Any:
        """Shapes, types, and the values of rows spread evenly over the data: all of them would take a pass."""
        digest = hashlib.sha256()
        places = np.unique(np.linspace(0, self.rows - 1, min(self.rows, LOOKED_AT)).astype(int))
        for leaf in jax.tree.leaves(self.data):
            digest.update(f"{leaf.dtype}{tuple(leaf.shape)}".encode())
            for at in places:
                digest.update(np.ascontiguousarray(leaf[at : at + 1]).tobytes())
        return (digest.hexdigest(), self.block_length)


class ParquetRows:
    """The columns of a Parquet file as an array of rows, read as far as it is sliced. Needs pyarrow.

    `Blocks(ParquetRows("rides.parquet"))` trains on a table that is larger than memory.
    """

    def __init__(self, path: str | Path, columns: tuple[str, ...] | None = None, dtype: Any = np.float32):
        try:
            import pyarrow.parquet as parquet
        except ImportError as error:
            raise InputError("reading .parquet files needs pyarrow: pip install 'unnorm[tables]'") from error
        try:
            self._file = parquet.ParquetFile(path)
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read as Parquet: {error}") from error
        there = tuple(self._file.schema_arrow.names)
        self.columns = there if columns is None else tuple(columns)
        for name in self.columns:
            require(name in there, f"{path} has no column {name!r}; its columns are {', '.join(there[:12])}")
        self.dtype = np.dtype(dtype)
        groups = [self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)]
        self._ends = np.cumsum(groups)
        self.shape = (int(self._ends[-1]) if groups else 0, len(self.columns))

    def __getitem__(self, rows: slice) -> np.ndarray:
        begin, end, _ = rows.indices(self.shape[0])
        first, last = np.searchsorted(self._ends, [begin, max(end - 1, begin)], side="right")
        offset = int(self._ends[first - 1]) if first > 0 else 0
        table = self._file.read_row_groups(list(range(int(first), int(last) + 1)), columns=list(self.columns))
        part = table.slice(begin - offset, end - begin)
        return np.stack([part[name].to_numpy().astype(self.dtype) for name in self.columns], axis=1)


def row_count(rows: Any) -> int:
    """How many rows a PyTree of arrays with a leading axis has.

    >>> row_count((np.zeros((3, 2)), np.zeros(3)))
    3
    """
    return len(jax.tree.leaves(rows)[0])
