"""Networks written as text: a list of edges, two labels in a line, or the matrix of zeros and ones."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unnorm.data.delimited import DELIMITERS, MISSING
from unnorm.data.network_matrices import from_matrix
from unnorm.data.network_raw import RawNetwork, require_text, some, whole_or_words
from unnorm.errors import InputError, require

#: What stands above a column of a list of edges.
ENDS = frozenset(
    ("from", "to", "source", "target", "tail", "head", "sender", "receiver", "ego", "alter", "node1", "node2", "i", "j",
     "start", "end", "v1", "v2", "vertex1", "vertex2", "node_1", "node_2", "id1", "id2", "src", "dst", "a", "b")
)  # fmt: skip
COMMENTS = ("#", "%")


def read_delimited_network(path: Path) -> RawNetwork:
    """A list of edges or a matrix, separated by commas, semicolons, tabs or blanks; lines after # or % are remarks."""
    shown = repr(str(path))
    rows, lines = _cells(require_text(path.read_bytes(), shown), shown)
    require(len(rows) > 0, f"{shown} is empty; write the network to it again")
    matrix = _matrix(rows, shown)
    if matrix is not None:
        return matrix
    rows, ends_named = _ends_first(rows, shown)
    if _is_header(rows):
        rows, lines = rows[1:], lines[1:]
        require(len(rows) > 0, f"{shown} has a header but no edges; add some")
    width = len(rows[0])
    for row, line in zip(rows, lines, strict=True):
        require(
            len(row) >= 2 and row[0] != "" and row[1] != "",
            f"line {line} of {shown} is no edge: it needs the two vertices that the edge joins",
        )
        require(
            len(row) == width,
            f"line {line} of {shown} has {len(row)} fields, but line {lines[0]} has {width}; give every line the same "
            "number",
        )
    remarks: list[str] = []
    if width > 2:
        remarks.append(
            f"Of the {width} columns of {shown} {ends_named} are the ends of edges; the others are not used."
        )
    ends = whole_or_words([cell for row in rows for cell in row[:2]])
    labels = list(dict.fromkeys(ends))
    if all(isinstance(label, int) for label in labels):
        labels.sort()
        remarks += _gaps(labels, shown)
    return RawNetwork(labels, list(zip(ends[::2], ends[1::2], strict=True)), None, {}, remarks=tuple(remarks))


def _ends_first(rows: list[list[str]], shown: str) -> tuple[list[list[str]], str]:
    """Rows with the ends of edges in front, where the header names two ends among other columns, and which they are."""
    header = [cell.casefold() for cell in rows[0]]
    ends = [k for k, cell in enumerate(header) if cell in ENDS]
    if len(header) < 3 or len(ends) != 2 or ends == [0, 1] or any(len(row) != len(header) for row in rows):
        return rows, "the first two"
    if "graph" in header:
        graphs = {row[header.index("graph")] for row in rows[1:]}
        require(len(graphs) < 2, f"{shown} holds {len(graphs)} graphs, and a fit takes one; keep the rows of one")
    others = [k for k in range(len(header)) if k not in ends]
    return [[row[k] for k in (*ends, *others)] for row in rows], " and ".join(rows[0][k] for k in ends)


def _gaps(labels: Sequence[int], shown: str) -> list[str]:
    """Numbers between the first and the last that no edge has: they may be vertices without edges."""
    absent = sorted(set(range(labels[0], labels[-1] + 1)) - set(labels)) if labels[-1] - labels[0] < 10**6 else []
    if not absent or len(absent) > len(labels):
        return []
    return [
        f"No edge of {shown} has the number{'s' * (len(absent) > 1)} {some(absent)}, between {labels[0]} and "
        f"{labels[-1]}; vertices without edges are known only from a table of nodes (--nodes)."
    ]


def _cells(text: str, shown: str) -> tuple[list[list[str]], list[int]]:
    """The fields of the lines that say something, and which lines these are."""
    kept = [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith(COMMENTS)
    ]
    counts = {mark: sum(mark in line for _, line in kept) for mark in DELIMITERS}
    mark = next((mark for mark in DELIMITERS if 2 * counts[mark] >= len(kept)), None)
    rows = []
    for number, line in kept:
        text = line if mark else " ".join(line.split())
        try:
            fields = next(csv.reader(io.StringIO(text), delimiter=mark or " ", skipinitialspace=True))
            rows.append([cell.strip() for cell in fields])
        except (csv.Error, StopIteration) as error:
            raise InputError(
                f"line {number} of {shown} cannot be split into fields ({error}); check its quotes"
            ) from error
    return rows, [number for number, _ in kept]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _is_number(cell: str) -> bool:
    return _number(cell) is not None


def _is_header(rows: list[list[str]]) -> bool:
    """Names of ends, or words above numbers."""
    if len(rows[0]) < 2:
        return False
    first, below = rows[0][:2], {cell for row in rows[1:] for cell in row[:2]}
    if any(map(_is_number, first)) or set(first) & below:
        return False
    return all(cell.casefold() in ENDS for cell in first) or (len(below) > 0 and all(map(_is_number, below)))


def _matrix(rows: list[list[str]], shown: str) -> RawNetwork | None:
    """The matrix, if the lines are one: square, with or without names above and beside."""
    names: list[str] | None = None
    body = rows
    if len(rows) >= 3 and len({len(row) for row in rows}) == 1 and len(rows[0]) == len(rows):
        beside = [row[0] for row in rows[1:]]
        above = rows[0][1:]
        if (beside == above and not all(map(_is_number, rows[0]))) or (
            rows[0][0] == "" and len(set(above)) == len(above)
        ):
            names, body = above, [row[1:] for row in rows[1:]]
    elif (
        len(rows) >= 3
        and len(rows) == len(rows[0]) + 1
        and all(len(row) == len(rows[0]) for row in rows)
        and not all(map(_is_number, rows[0]))
    ):
        names, body = rows[0], rows[1:]
    n = len(body)
    if n < 3 or any(len(row) != n for row in body):
        _require_square(body, shown)
        return None
    values = [[math.nan if cell.casefold() in MISSING else _number(cell) for cell in row] for row in body]
    wrong = [
        cell for row, cells in zip(values, body, strict=True) for x, cell in zip(row, cells, strict=True) if x is None
    ]
    if 2 * len(wrong) > n * n or (wrong and n == 3):
        return None  # as many words as numbers: a list of edges that happens to be square
    require(
        not wrong,
        f"the matrix in {shown} has {some(dict.fromkeys(map(repr, wrong)))} in it; write 0, 1, or NA if nobody knows",
    )
    if n == 3 and names is None and not all(cell in ("0", "1", "0.0", "1.0") for row in body for cell in row):
        return None  # three edges with a weight beside each
    return from_matrix(np.array(values, np.float64), names, shown)


def _require_square(body: list[list[str]], shown: str) -> None:
    """Refuse rows of zeros and ones that are not as many as they are long; they are no list of edges."""
    widths = {len(row) for row in body}
    if len(widths) == 1 and len(body[0]) > 3 and all(cell in ("0", "1") for row in body for cell in row):
        require(
            False, f"{shown} has {len(body)} rows of {len(body[0])} zeros and ones; a matrix of a network is square"
        )
