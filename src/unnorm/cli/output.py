"""What commands print: one JSON document, or tables for people; never both."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unnorm.errors import require


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
