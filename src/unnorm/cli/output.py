"""What commands print: one JSON document, or tables for people; never both."""

import csv
import io
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unnorm.errors import InputError, require


def json_text(content: Any) -> str:
    """JSON for people and programs. A number that is not finite becomes null, since JSON has no name for it."""
    return json.dumps(_plain(content), indent=2, allow_nan=False)


def emit_json(content: Any) -> None:
    """The one JSON document on stdout."""
    print(json_text(content))


def write_json(path: Path, content: Any) -> None:
    """The same in a file."""
    from unnorm.files import write_atomically

    write_atomically(path, (json_text(content) + "\n").encode())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def emit_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for people on stdout: words to the left, columns of figures to the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", header_style="bold")
    for i, name in enumerate(header):
        figures = sum(bool(re.match(r"[+-]?[.\d]", row[i])) for row in rows)
        table.add_column(name, justify="right" if i > 0 and 2 * figures > len(rows) else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120, markup=False, highlight=False).print(table)


def note(text: str, *, quiet: bool) -> None:
    """A remark on stderr."""
    if not quiet:
        print(text, file=sys.stderr)


def warn(sentences: Sequence[str]) -> None:
    """Warnings on stderr, quiet or not."""
    for sentence in sentences:
        print(f"warning: {sentence}", file=sys.stderr)


def require_new(path: Path, *, force: bool) -> None:
    """Refuse to overwrite a file, before any work is done."""
    require(not path.is_dir(), f"{path} is a folder; name a file")
    require(path.parent.is_dir(), f"the folder {path.parent} does not exist; make it first")
    require(force or not path.exists(), f"{path} already exists; choose another name or add --force")


FORMATS = (".csv", ".npy", ".npz", ".parquet")


def require_format(path: Path) -> None:
    """Refuse a file ending that cannot be written."""
    require(path.suffix in FORMATS, f"{path} should end in one of {', '.join(FORMATS)}")


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
