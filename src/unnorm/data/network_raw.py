"""What a reader of a network's file hands on, before directions are settled and loops are left out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from unnorm.errors import require


@dataclass(frozen=True, eq=False)
class RawNetwork:
    """Labels in their order, edges as pairs of labels, and whether the file says that they have directions.

    `complete` says whether the file lists all vertices; a list of edges knows only those that have one.
    """

    labels: list[Any]
    pairs: list[tuple[Any, Any]]
    directed: bool | None
    attributes: dict[str, list[Any]] = field(default_factory=dict)
    complete: bool = False
    remarks: tuple[str, ...] = ()
    #: Pairs of which the file says that it is not known whether they have an edge.
    missing: list[tuple[Any, Any]] = field(default_factory=list)


def some(labels: Iterable[Any], most: int = 5) -> str:
    """The first few of them.

    >>> some(range(7))
    '0, 1, 2, 3, 4 ...'
    """
    found = [str(label) for label in labels]
    return ", ".join(found[:most]) + (" ..." if len(found) > most else "")


def whole_or_words(cells: Sequence[str]) -> list[Any]:
    """Labels as whole numbers if all are, or else as they stand: 01 and 1 are two words, and one number.

    >>> whole_or_words(["2", "10"]), whole_or_words(["2", "b"])
    ([2, 10], ['2', 'b'])
    """
    if all(cell.lstrip("-").isdigit() and str(int(cell)) == cell for cell in cells):
        return [int(cell) for cell in cells]
    return list(cells)


def values_of(cells: Sequence[str], missing: frozenset[str]) -> list[Any]:
    """A column as numbers if all that is there are, else as words; None where nothing stands."""
    present = [None if cell.casefold() in missing else cell for cell in cells]
    try:
        numbers = [None if cell is None else float(cell) for cell in present]
    except ValueError:
        return list(present)
    return [None if x is None else int(x) if x.is_integer() else x for x in numbers]


def require_text(raw: bytes, shown: str) -> str:
    """The bytes as UTF-8 text."""
    require(b"\0" not in raw, f"{shown} is not text (it has zero bytes); save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        require(False, f"{shown} is not UTF-8 text (byte 0x{raw[error.start]:02x} in line {line}); save it as UTF-8")
        raise
