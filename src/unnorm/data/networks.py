"""One network from a file: vertices with attributes, and edges.

A network is a single point, not a set of rows that could be split, so it is no `AbstractKind`; what reads it stands
here, beside the kinds, and hands on plain values. Loops and repeated edges are left out and said; what cannot be mended
without guessing is refused in one sentence.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unnorm.data.network_matrices import read_npy, read_npz
from unnorm.data.network_nodes import NodeTable, read_nodes
from unnorm.data.network_raw import RawNetwork, some
from unnorm.data.network_text import read_delimited_network
from unnorm.data.network_trees import read_gml, read_graphml, read_json
from unnorm.errors import InputError, require

if TYPE_CHECKING:
    import networkx

#: How each format is read, by the ending of its name.
READERS: Mapping[str, Callable[[Path], RawNetwork]] = {
    ".graphml": read_graphml,
    ".gml": read_gml,
    ".json": read_json,
    ".csv": read_delimited_network,
    ".tsv": read_delimited_network,
    ".txt": read_delimited_network,
    ".edges": read_delimited_network,
    ".edgelist": read_delimited_network,
    ".npy": read_npy,
    ".npz": read_npz,
}
#: Endings of files that are nothing but networks; the others may also be tables.
SURELY = (".graphml", ".gml", ".json", ".txt", ".edges", ".edgelist")
#: Vertices that a file of one network may have.
MOST_VERTICES = 1_000_000


@dataclass(frozen=True, eq=False)
class NetworkData:
    """A simple graph as it came: labels, edges by the numbers of their ends, attributes with None where one is missing.

    Without directions the smaller number stands first in each edge. `remarks` say what was done to make it so.
    """

    labels: tuple[Any, ...]
    directed: bool
    edges: np.ndarray
    attributes: Mapping[str, list[Any]]
    source: str
    remarks: tuple[str, ...] = ()
    #: Pairs of which it is not known whether they have an edge, by numbers, in rows.
    missing: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int32))

    def to_networkx(self) -> "networkx.Graph":
        """As a graph of networkx; what is missing is not set."""
        import networkx

        graph: Any = networkx.DiGraph() if self.directed else networkx.Graph()
        for v, label in enumerate(self.labels):
            known = {name: values[v] for name, values in self.attributes.items()}
            graph.add_node(label)
            graph.nodes[label].update({name: value for name, value in known.items() if value is not None})
        graph.add_edges_from((self.labels[i], self.labels[j]) for i, j in self.edges.tolist())
        return graph


def read_network(path: Path | str, *, nodes: Path | str | None = None, directed: bool | None = None) -> NetworkData:
    """The network in a file, with the attributes of a table of nodes; `directed` says what the file leaves open.

    >>> read_network("absent.graphml")
    Traceback (most recent call last):
    unnorm.errors.InputError: there is no file 'absent.graphml'; check its name and folder
    """
    path = Path(path)
    shown = repr(str(path))
    require(path.exists(), f"there is no file {shown}; check its name and folder")
    require(path.is_file(), f"{shown} is a folder; a network is one file")
    require(
        path.suffix.lower() in READERS,
        f"{shown} has no ending that networks are read from; those are {', '.join(READERS)}",
    )
    try:
        raw = READERS[path.suffix.lower()](path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{shown} cannot be read ({reason}); check the file and its permissions") from error
    return network_from(raw, str(path), None if nodes is None else read_nodes(Path(nodes)), directed)


def from_networkx(graph: Any, source: str) -> NetworkData:
    """A graph of networkx as if it had come from a file."""
    names = dict.fromkeys(str(name) for _, data in graph.nodes(data=True) for name in data)
    attributes = {name: [data.get(name) for _, data in graph.nodes(data=True)] for name in names}
    raw = RawNetwork(list(graph.nodes), list(graph.edges()), bool(graph.is_directed()), attributes, complete=True)
    return network_from(raw, source, None, None)


def network_from(raw: RawNetwork, source: str, table: NodeTable | None, directed: bool | None) -> NetworkData:
    """A simple graph of what a file holds: directions settled, loops and repeats left out, attributes joined."""
    shown = repr(source)
    if table is not None:
        raw = table.joined(raw, shown)
    require(len(raw.labels) >= 2, f"{shown} has {len(raw.labels)} vertices, and a random graph needs at least 2")
    require(len(raw.labels) <= MOST_VERTICES, f"{shown} has more than {MOST_VERTICES:,} vertices; take a part of it")
    number = {label: v for v, label in enumerate(raw.labels)}
    require(
        len(number) == len(raw.labels), f"{shown} names a vertex twice: {_twice(raw.labels)}; give each its own name"
    )
    remarks = list(raw.remarks)
    loops = [a for a, b in raw.pairs if a == b]
    if loops:
        owners = list(dict.fromkeys(loops))
        said = (
            "1 vertex has an edge to itself"
            if len(owners) == 1
            else f"{len(owners)} vertices have an edge to themselves"
        )
        remarks.append(f"{said} ({some(owners)}); these models know no such edges, so they are left out.")
    pairs = [(i, j) for i, j in _numbered(raw.pairs, number) if i != j]
    settled, said = _settled(raw, pairs, directed, shown)
    remarks += said
    kept = pairs if settled else [(min(pair), max(pair)) for pair in pairs]
    edges = sorted(set(kept))
    # Of edges that stand there both ways the settling has told.
    repeats = len(kept) - len(edges) if raw.directed is False else len(pairs) - len(set(pairs))
    if repeats:
        remarks.append(f"{repeats} of {len(kept)} edges repeat another; each counts once.")
    absent = sorted({(i, j) if settled else (min(i, j), max(i, j)) for i, j in _numbered(raw.missing, number)})
    for name, values in raw.attributes.items():
        missing = [label for label, value in zip(raw.labels, values, strict=True) if value is None]
        if missing and len(missing) < len(values):
            remarks.append(
                f"The attribute {name} is missing for {len(missing)} of {len(values)} vertices ({some(missing)})."
            )
    kept_attributes = {name: values for name, values in raw.attributes.items() if any(v is not None for v in values)}
    array = np.array(edges, np.int32).reshape(-1, 2)
    unknown = np.array(absent, np.int32).reshape(-1, 2)
    return NetworkData(tuple(raw.labels), settled, array, kept_attributes, source, tuple(remarks), unknown)


def _numbered(pairs: list[tuple[Any, Any]], number: dict[Any, int]) -> list[tuple[int, int]]:
    return [(number[a], number[b]) for a, b in pairs]


def _twice(labels: list[Any]) -> str:
    seen: set[Any] = set()
    return some(dict.fromkeys(label for label in labels if label in seen or seen.add(label)))


def _settled(raw: RawNetwork, pairs: list[tuple[int, int]], asked: bool | None, shown: str) -> tuple[bool, list[str]]:
    """Whether edges have directions, and what is to be said about it."""
    there = set(pairs)
    both = sum((b, a) in there for a, b in there)
    if raw.directed is False:
        require(asked is not True, f"{shown} says that its edges have no directions; leave out --directed")
        return False, []
    if raw.directed is True and asked is not False:
        return True, []
    if asked is not None:
        if asked:
            return True, []
        said = f"The {len(there)} edges with directions became {len({(min(p), max(p)) for p in there})} without."
        return False, [said] if raw.directed or both else []
    if there and both == len(there):
        return False, [
            f"Every edge stands in {shown} in both directions: they are read as {len(there) // 2} edges without."
        ]
    require(
        both == 0,
        f"{both} of {len(there)} edges of {shown} stand there in both directions and the others in one; say --directed "
        "if directions matter, or --undirected to join them",
    )
    return False, [f"{shown} does not say whether edges have directions; they are read without (--directed: with)."]
