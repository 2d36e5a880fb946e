"""A table of nodes: a row for each vertex, with its name and what is known of it."""

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unnorm.data.delimited import DELIMITERS, MISSING
from unnorm.data.network_raw import RawNetwork, require_text, some, values_of
from unnorm.errors import InputError, require

#: What the column of names is called; else it is the first.
IDS = ("id", "name", "node", "vertex", "label", "vertex.names", "node_id", "vertex_id")


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Names of vertices and columns of attributes, None where one is missing."""

    names: list[str]
    attributes: dict[str, list[Any]]
    source: str

    def joined(self, raw: RawNetwork, shown: str) -> RawNetwork:
        """The network with these attributes; vertices that only the table knows have no edge."""
        row = {name: i for i, name in enumerate(self.names)}
        absent = [label for label in raw.labels if str(label) not in row]
        require(
            not absent,
            f"{len(absent)} of {len(raw.labels)} vertices of {shown} have no row in {self.source!r} ({some(absent)}); "
            f"add them, or check the column of names, which begins {some(self.names, 3)}",
        )
        known = {str(label): label for label in raw.labels}
        only = [name for name in self.names if name not in known]
        require(
            not only or not raw.complete,
            f"{len(only)} rows of {self.source!r} are of no vertex of {shown} ({some(only)}); remove them",
        )
        remarks = list(raw.remarks)
        if raw.complete:
            labels, order = raw.labels, [row[str(label)] for label in raw.labels]
        else:
            whole = bool(raw.labels) and all(isinstance(label, int) for label in raw.labels)
            whole = whole and all(name.lstrip("-").isdigit() for name in only)
            labels = [known.get(name, int(name) if whole else name) for name in self.names]
            order = list(range(len(labels)))
            remarks = [remark for remark in remarks if "--nodes" not in remark]
        own = {name: [values[i] for i in order] for name, values in self.attributes.items()}
        both = sorted(set(own) & set(raw.attributes))
        if both:
            remarks.append(
                f"{', '.join(both)} of {shown} gave way to the column{'s' * (len(both) > 1)} of {self.source!r}."
            )
        attributes = {**raw.attributes, **own}
        return replace(raw, labels=labels, attributes=attributes, remarks=tuple(remarks))


def read_nodes(path: Path) -> NodeTable:
    """A .csv or .tsv file with a header: the names of vertices in a column called id or name, or in the first."""
    shown = repr(str(path))
    require(path.is_file(), f"there is no file {shown}; check its name and folder")
    require(path.suffix.lower() in (".csv", ".tsv", ".txt"), f"a table of nodes is a .csv or .tsv file, not {shown}")
    text = require_text(path.read_bytes(), shown)
    first = text.split("\n", 1)[0]
    mark = max(DELIMITERS, key=first.count)
    try:
        rows = [
            [cell.strip() for cell in row]
            for row in csv.reader(io.StringIO(text, newline=""), delimiter=mark, skipinitialspace=True)
            if any(cell.strip() for cell in row)
        ]
    except csv.Error as error:
        raise InputError(f"{shown} cannot be split into fields ({error}); check its quotes") from error
    require(len(rows) >= 2, f"{shown} needs a header and a row for each vertex")
    header = rows[0]
    require(len(set(header)) == len(header), f"{shown} has two columns of one name; rename one")
    for number, row in enumerate(rows[1:], 2):
        require(len(row) == len(header), f"row {number} of {shown} has {len(row)} fields, and its header {len(header)}")
    columns = {name: [row[k] for row in rows[1:]] for k, name in enumerate(header)}
    ids = next((name for name in header if name.casefold() in IDS), header[0])
    names = columns.pop(ids)
    require("" not in names, f"the column {ids!r} of {shown}, which names the vertices, has empty fields")
    twice = list(dict.fromkeys(name for name in names if names.count(name) > 1)) if len(set(names)) < len(names) else []
    require(not twice, f"the column {ids!r} of {shown} names a vertex twice: {some(twice)}; give each one row")
    require("" not in columns, f"a column of {shown} has no name; name it in the first line")
    return NodeTable(names, {name: values_of(cells, MISSING) for name, cells in columns.items()}, str(path))
