"""Text tables: fields separated by commas, semicolons or tabs, with or without a header."""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from unnorm.errors import InputError, require

# What people write where a number is missing.
MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-", "."})
# Tabs and semicolons first: a comma also occurs as a decimal sign, they hardly ever occur inside numbers.
DELIMITERS = ("\t", ";", ",")
DECIMAL_COMMA = re.compile(r"[+-]?[\d.]*,\d+")


def read_delimited(path: Path, shown: str) -> tuple[np.ndarray, tuple[str, ...], list[int]]:
    """The numbers (NaN where missing), the column names, and the line each row stands on."""
    text = _decode(path.read_bytes(), shown)
    rows, lines = _rows(text, shown)
    require(len(rows) > 0, f"{shown} is empty; write the table to it again")
    _require_equal_lengths(rows, lines, shown)
    names = tuple(f"x{j + 1}" for j in range(len(rows[0])))
    if _is_header(rows):
        require(len(rows) > 1, f"{shown} has a header but no rows; add some data")
        # np.savetxt puts a '#' before its header, pandas writes no name above its index.
        header = [rows[0][0].removeprefix("#").strip(), *rows[0][1:]]
        require(
            header[0] != "" or [row[0] for row in rows[1:]] != [str(i) for i in range(len(rows) - 1)],
            f"the first column of {shown} has no name and only counts the rows; remove it; pandas leaves it out by "
            "to_csv(..., index=False)",
        )
        names = tuple(cell or name for cell, name in zip(header, names, strict=True))
        rows, lines = rows[1:], lines[1:]
    columns = [_numbers(cells) for cells in zip(*rows, strict=True)]
    if any(isinstance(column, int) for column in columns):
        raise InputError(_about_text(columns, names, rows, lines, shown))
    return np.stack(columns, axis=1), names, lines


def _decode(raw: bytes, shown: str) -> str:
    if b"\0" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        raise InputError(f"{shown} is not UTF-8 text (zero byte in line {line}); save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{shown} is not UTF-8 text (byte 0x{raw[error.start]:02x} in line {line}); save it as UTF-8"
        ) from error


def _rows(text: str, shown: str) -> tuple[list[list[str]], list[int]]:
    """The rows that are not blank, and the line each begins on (a quoted field may hold line ends)."""
    rows, lines, line = [], [], 1
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), skipinitialspace=True)
    try:
        for row in reader:
            if any(cell.strip() for cell in row) or len(row) > 1:
                rows.append([cell.strip() for cell in row])
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"line {line} of {shown} cannot be split into fields ({error}); check its quotes") from error
    return rows, lines


def _delimiter(text: str) -> str:
    """The delimiter that parts most of the first lines into the same number of fields, more than one."""
    best, most = ",", 0
    for delimiter in DELIMITERS:
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
            sample = list(islice((len(row) for row in reader if row), 50))
        except csv.Error:
            continue  # the same line is met again, and reported, when the rows are read
        fields, agreeing = Counter(sample).most_common(1)[0] if sample else (0, 0)
        if fields > 1 and agreeing > most:
            best, most = delimiter, agreeing
    return best


def _is_header(rows: list[list[str]]) -> bool:
    """Whether the first row holds names: words only, or 0, 1, 2, ... above numbers that are not whole.

    A row of numbers and words is data with a slip in it; taken for a header, it would be lost in silence.
    """
    words = [cell for cell in rows[0] if cell.casefold() not in MISSING]
    if words and not any(_is_number(cell) or DECIMAL_COMMA.fullmatch(cell) for cell in words):
        return True
    # What pandas writes above columns without names.
    counted = len(words) > 1 and words == [str(j) for j in range(len(words))]
    return counted and len(rows) > 1 and not all(cell.isdigit() for cell in rows[1])


def _require_equal_lengths(rows: list[list[str]], lines: list[int], shown: str) -> None:
    width = len(rows[0])
    for row, line in zip(rows, lines, strict=True):
        require(
            len(row) == width,
            f"line {line} of {shown} has {len(row)} field{'s' * (len(row) != 1)}, but line {lines[0]} has "
            f"{width}; give every line the same number",
        )


def _numbers(cells: Sequence[str]) -> np.ndarray | int:
    """The cells as numbers with NaN where missing, or the index of the first that is text."""
    numbers = np.empty(len(cells))
    for i, cell in enumerate(cells):
        if _is_number(cell):
            numbers[i] = float(cell)
        elif cell.casefold() in MISSING:
            numbers[i] = np.nan
        else:
            return i
    return numbers


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python reads 1_000 as a number, but in a table it is a name


def _about_text(
    columns: list[np.ndarray | int],
    names: tuple[str, ...],
    rows: list[list[str]],
    lines: list[int],
    shown: str,
) -> str:
    """One sentence about the columns that hold text: the first in full, the others by name."""
    first, *rest = [(j, i) for j, i in enumerate(columns) if isinstance(i, int)]
    j, i = first
    cell = rows[i][j]
    others = ""
    if rest:
        more = f" and {len(rest) - 5} more" if len(rest) > 5 else ""
        others = f" (also text: {', '.join(repr(names[k]) for k, _ in rest[:5])}{more})"
    remedy = "remove the column or encode it as numbers"
    if DECIMAL_COMMA.fullmatch(cell):
        remedy = "write decimals with a point"
    elif lines[i] == 1:
        remedy = "mend it, or if line 1 is a header, give every column a name that is not a number"
    place = f"line {lines[i]}, not a number{others}"
    return f"column {names[j]!r} of {shown} holds {clip(cell)} in {place}; {remedy}"


def clip(value: object, limit: int = 40) -> str:
    """A value in quotes, short enough to stand inside a sentence."""
    text = str(value)
    return repr(text if len(text) <= limit else f"{text[: limit - 3]}...")
