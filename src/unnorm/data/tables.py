"""A user's table as numbers, or one sentence about why it cannot be.

A file is read by its ending, then the same checks serve every format: nothing missing, nothing infinite,
enough rows, no constant column. A sentence names the file, the place in it and the remedy.
"""

import os
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from unnorm.arguments import real_numbers
from unnorm.data.delimited import clip, read_delimited
from unnorm.errors import InputError, require

MINIMUM_ROWS = 20  # fewer cannot be split into train, valid and test so that any of the three says much
ENDINGS = (".csv", ".tsv", ".npy", ".npz", ".parquet")
KEYS = ("x", "X", "data", "train")  # which array of several in an .npz is the table


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers in rows and named columns, and the file they came from.

    >>> Table(np.zeros((3, 2)), ("x1", "x2"), "zeros.csv").values.shape
    (3, 2)
    """

    values: np.ndarray
    columns: tuple[str, ...]
    source: str


def read_table(path: str | os.PathLike[str], *, to_fit: bool = True) -> Table:
    """The table in a .csv (separated by commas, semicolons or tabs), .tsv, .npy, .npz or .parquet file.

    Without a header columns are called x1, x2, ... A table `to_fit` a model to needs 20 rows and no constant
    column; one that is only to be scored (`to_fit=False`) does not. Whatever is wrong is an `InputError`.

    >>> read_table("absent.csv")
    Traceback (most recent call last):
    unnorm.errors.InputError: there is no file 'absent.csv'; check its name and folder
    """
    path = Path(path)
    shown = repr(str(path))
    try:
        _require_file(path, shown)
        values, columns, place = _READERS[path.suffix.lower()](path, shown)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{shown} cannot be read ({reason}); check the file and its permissions") from error
    except MemoryError as error:
        raise InputError(f"{shown} does not fit into memory; pass fewer rows or columns") from error
    _require_names(columns, shown)
    _require_numbers(values, columns, place, shown)
    table = Table(values, columns, str(path))
    return require_to_fit(table) if to_fit else table


def require_to_fit(table: Table, *, constant: bool = False) -> Table:
    """The table, refused unless a model can be fitted to it: enough rows, and no constant column unless one may be."""
    _require_enough(table.values, table.columns, repr(table.source), constant)
    return table


@runtime_checkable
class Columned(Protocol):
    """What has columns by name: a frame of pandas or polars."""

    columns: Any

    def __getitem__(self, name: Any, /) -> Any: ...


def table_of(rows: Any, wanted: Sequence[str]) -> Table:
    """The wanted columns of rows given in Python: an array of them in their order, or anything with named columns.

    >>> table_of({"b": [1, 2], "a": [3.5, 4.5]}, ("a", "b")).values.tolist()
    [[3.5, 1.0], [4.5, 2.0]]
    >>> table_of({"b": [1, 2]}, ("a", "b"))
    Traceback (most recent call last):
    unnorm.errors.InputError: the table lacks the column 'a' that the model was fitted to; its columns are 'b'
    """
    shown = "the table"
    if isinstance(rows, np.ndarray) and rows.dtype.names is not None:
        rows = {name: rows[name] for name in rows.dtype.names}
    names = list(rows) if isinstance(rows, Mapping) else list(rows.columns) if isinstance(rows, Columned) else None
    # A frame made of an array without names numbers its columns.
    if names is None or (names and names == list(range(len(names)))):
        values = _numbers_in(rows, shown)
        require(
            values.ndim == 2 and values.shape[1] == len(wanted),
            f"{shown} should have rows and {len(wanted)} columns ({_some(wanted, quoted=False)}), but this one has "
            f"shape {values.shape}",
        )
    else:
        for name in wanted:
            require(
                name in names,
                f"{shown} lacks the column {name!r} that the model was fitted to; its columns are {_some(names)}",
            )
        parts = [_numbers_in(rows[name], f"column {name!r} of {shown}") for name in wanted]
        for name, part in zip(wanted, parts, strict=True):
            require(
                part.ndim == 1 and len(part) == len(parts[0]),
                f"column {name!r} of {shown} has shape {part.shape}, but {wanted[0]!r} has {parts[0].shape}; a table "
                "has as many values in every column",
            )
        values = np.stack(parts, axis=1)
    values = values.astype(np.float64)
    _require_numbers(values, tuple(wanted), lambda index: f"row {index}, counted from 0", shown)
    return Table(values, tuple(wanted), shown)


def _numbers_in(values: Any, shown: str) -> np.ndarray:
    found = real_numbers(values)
    if found is None:
        raise InputError(f"{shown} holds something that is not a number; pass real numbers without NaN")
    return np.asarray(found)


def _require_file(path: Path, shown: str) -> None:
    kinds = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
    require(not path.is_dir(), f"{shown} is a folder, not a table; name one {kinds} file in it")
    require(path.exists(), f"there is no file {shown}; check its name and folder")
    require(path.is_file(), f"{shown} is not a regular file; save the table as a {kinds} file")
    ending = path.suffix.lower()
    found = f"ends in {ending!r}" if ending else "has no ending"
    require(ending in _READERS, f"{shown} {found}, which is not a table format that unnorm reads; save it as {kinds}")
    require(path.stat().st_size > 0, f"{shown} is empty; write the table to it again")


# ------------------------------------------------------------------------------------------------ formats

Place = Callable[[int], str]  # from the index of a row to where a person finds it
Read = tuple[np.ndarray, tuple[str, ...], Place]


def _row(index: int) -> str:
    return f"row {index + 1}"


def _read_delimited(path: Path, shown: str) -> Read:
    values, columns, lines = read_delimited(path, shown)
    return values, columns, lambda index: f"line {lines[index]}"


#: What NumPy's, zipfile's and Arrow's decoders raise on damaged bytes: a header that is not a literal, a length beyond
#: the end, an unknown compression, a password where there was none.
DECODING = (
    ValueError, TypeError, KeyError, IndexError, OverflowError, SyntaxError, EOFError, OSError, MemoryError,
    RuntimeError, tokenize.TokenError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def _read_npy(path: Path, shown: str) -> Read:
    with path.open("rb") as file:
        try:
            # Unlike np.load, this never takes a file of another kind for a pickle.
            array = np.lib.format.read_array(file, allow_pickle=False)
        except DECODING as error:
            raise _damaged(error, shown, "np.save") from error
    return _from_array(array, shown)


def _read_npz(path: Path, shown: str) -> Read:
    with path.open("rb") as file:
        # Asked of the open file: asked of a path, this takes one that may not be read for damaged.
        whole = zipfile.is_zipfile(file)
        require(whole, f"{shown} is not a whole .npz archive; write it again with np.savez")
        file.seek(0)
        try:
            archive = np.load(file, allow_pickle=False)
            keys = archive.files
            chosen = keys[0] if len(keys) == 1 else next((key for key in KEYS if key in keys), None)
            array = None if chosen is None else archive[chosen]
        except DECODING as error:
            raise _damaged(error, shown, "np.savez") from error
    require(len(keys) > 0, f"{shown} holds no array; write it again with np.savez(file, x=table)")
    if array is None:
        names = f"{', '.join(KEYS[:-1])} or {KEYS[-1]}"
        raise InputError(f"{shown} holds the arrays {_some(keys)}; call the one that is the table {names}")
    return _from_array(array, f"array {chosen!r} in {shown}")


def _damaged(error: Exception, shown: str, writer: str) -> Exception:
    """What to raise when a decoder failed."""
    if isinstance(error, PermissionError | MemoryError):
        return error
    if "Object arrays" in str(error):
        return InputError(f"{shown} holds Python objects, not numbers; convert it with .astype(float)")
    return InputError(f"{shown} is damaged or cut short ({_reason(error)}); write it again with {writer}")


def _from_array(array: np.ndarray, shown: str) -> Read:
    require(
        array.dtype.names is None,
        f"{shown} holds records with fields {_some(array.dtype.names or ())}; save one 2-D array of numbers",
    )
    require(
        array.dtype.kind in "fiub",
        f"{shown} has type {array.dtype}, which is not real numbers; save real numbers, rows by columns",
    )
    require(
        array.ndim in (1, 2),
        f"{shown} has {array.ndim} dimensions (shape {array.shape}), but a table has rows and columns; "
        "reshape it to 2-D",
    )
    values = array[:, None] if array.ndim == 1 else array
    require(values.shape[1] > 0, f"{shown} has no columns (shape {array.shape}); save at least one")
    columns = tuple(f"x{j + 1}" for j in range(values.shape[1]))
    return values.astype(np.float64), columns, _row


def _read_parquet(path: Path, shown: str) -> Read:
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError as error:
        sentence = f'reading {shown} needs pyarrow; install it with: pip install "unnorm[tables]"'
        raise InputError(sentence) from error
    try:
        with path.open("rb") as file:
            table = parquet.ParquetFile(file).read()
    except (*DECODING, pa.ArrowException) as error:
        raise _damaged(error, shown, "the program that made it") from error
    require(table.num_columns > 0, f"{shown} has no columns; write it again with at least one")
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        if not (numeric or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            index = next((i for i, cell in enumerate(column) if cell.is_valid), None)
            found = "" if index is None else f", first {clip(column[index])} in {_row(index)}"
            raise InputError(
                f"column {name!r} of {shown} has type {kind}{found}, which is not a number; "
                "remove the column or encode it as numbers"
            )
    # A null becomes NaN here, to be counted with the other missing values.
    columns = [column.cast(pa.float64(), safe=False).to_numpy() for column in table.columns]
    return np.stack(columns, axis=1).astype(np.float64), tuple(table.column_names), _row


_READERS: dict[str, Callable[[Path, str], Read]] = {
    ".csv": _read_delimited,
    ".tsv": _read_delimited,
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}


# ------------------------------------------------------------------------------------------------ checks


def _require_names(columns: tuple[str, ...], shown: str) -> None:
    for j, name in enumerate(columns):
        first = columns.index(name)
        require(first == j, f"columns {first + 1} and {j + 1} of {shown} are both called {name!r}; rename one")


def _require_numbers(values: np.ndarray, columns: tuple[str, ...], place: Place, shown: str) -> None:
    require(len(values) > 0, f"{shown} has no rows; add some data")
    missing = np.isnan(values)
    if missing.any():
        counts = [f"{n} in {name!r}" for name, n in zip(columns, missing.sum(axis=0), strict=True) if n]
        raise InputError(
            f"{shown} has missing values: {_some(counts, quoted=False)} (the first in "
            f"{place(int(missing.any(axis=1).argmax()))}); drop those rows or fill them in"
        )
    infinite = np.isinf(values)
    if infinite.any():
        i, j = np.argwhere(infinite)[0]
        raise InputError(
            f"column {columns[j]!r} of {shown} has an infinite value in {place(int(i))} "
            f"({infinite.sum()} in the table); drop such rows or cap the values"
        )


def _require_enough(values: np.ndarray, columns: tuple[str, ...], shown: str, may_be_constant: bool) -> None:
    n = len(values)
    require(
        n >= MINIMUM_ROWS,
        f"{shown} has {n} row{'s' * (n > 1)}, but training, validation and test together need at least "
        f"{MINIMUM_ROWS}; add data",
    )
    if may_be_constant:
        return
    constant = [f"{columns[j]!r} (always {values[0, j]:g})" for j in np.flatnonzero((values == values[0]).all(axis=0))]
    require(
        not constant,
        f"{shown} has constant columns: {_some(constant, quoted=False)}; remove them",
    )


def _some(names: Sequence[str], quoted: bool = True, limit: int = 5) -> str:
    """The first few of a list, and how many more."""
    shown = [repr(name) if quoted else name for name in names[:limit]]
    more = len(names) - limit
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _reason(error: Exception) -> str:
    """The reason a decoder gave, short enough to stand inside a sentence."""
    reason = re.split(r"\n|\. ", str(error).strip())[0].rstrip(".")
    return reason[:120] or type(error).__name__
