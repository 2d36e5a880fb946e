"""Tables as files: .csv, .npy, .npz and .parquet."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unnorm.errors import InputError, require
from unnorm.files import write_atomically

FORMATS = (".csv", ".npy", ".npz", ".parquet")


def require_format(path: Path) -> None:
    """Refuse a file ending that cannot be written."""
    require(path.suffix in FORMATS, f"{path} should end in one of {', '.join(FORMATS)}")


def write_table(
    path: Path, columns: Sequence[str], values: np.ndarray, decimals: Sequence[int | None] | None = None
) -> None:
    """A table as a file; whole or not there."""
    write_atomically(path, table_bytes(columns, values, path.suffix, decimals))


def table_bytes(
    columns: Sequence[str], values: np.ndarray, suffix: str, decimals: Sequence[int | None] | None = None
) -> bytes:
    """A table as the content of a .csv, .npy, .npz or .parquet file."""
    buffer = io.BytesIO()
    if suffix == ".npy":
        np.save(buffer, values)
    elif suffix == ".npz":
        np.savez(buffer, x=values, columns=np.asarray(columns))
    elif suffix == ".parquet":
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise InputError('writing .parquet needs pyarrow: pip install "unnorm[tables]"') from None
        table = pyarrow.table({name: values[:, i] for i, name in enumerate(columns)})
        pyarrow.parquet.write_table(table, buffer)
    else:
        return csv_text(columns, values, decimals).encode()
    return buffer.getvalue()


def csv_text(columns: Sequence[str], values: np.ndarray, decimals: Sequence[int | None] | None = None) -> str:
    """A table as CSV, with so many decimals for each column, or with every digit that matters (None)."""
    places = decimals or (None,) * len(columns)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in values:
        writer.writerow([repr(float(v)) if k is None else f"{v:.{k}f}" for v, k in zip(row, places, strict=True)])
    return text.getvalue()
