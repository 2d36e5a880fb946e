"""Tables of a report, as its templates take them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Cells of a table, the first of which names the row."""

    cells: tuple[str, ...]
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A header and rows of numbers."""

    header: tuple[str, ...]
    rows: tuple[Row, ...]
    #: Whether the last column is text rather than numbers.
    words: bool = False
