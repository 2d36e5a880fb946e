"""A network as the models of this package see it: vertices, edges, and what is known of the vertices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unnorm.errors import InputError, require

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True, eq=False)
class Network:
    """A simple graph on n labelled vertices, with or without directions, and attributes of the vertices.

    `edges` has a row (tail, head) of vertex numbers for each edge; without directions the smaller stands first.

    >>> import networkx
    >>> network_of(networkx.path_graph(3)).edges.tolist()
    [[0, 1], [1, 2]]
    """

    n: int
    directed: bool
    edges: np.ndarray
    labels: tuple[Any, ...]
    attributes: Mapping[str, np.ndarray]
    notes: tuple[str, ...] = ()

    @property
    def dyads(self) -> int:
        """How many pairs may have an edge; ordered pairs in a graph with directions."""
        return self.n * (self.n - 1) // (1 if self.directed else 2)

    def pairs(self) -> np.ndarray:
        """All pairs that may have an edge, in rows."""
        if not self.directed:
            return np.stack(np.triu_indices(self.n, 1), axis=1).astype(np.int32)
        return np.argwhere(~np.eye(self.n, dtype=bool)).astype(np.int32)

    def portions(self, size: int) -> Iterator[np.ndarray]:
        """All pairs, about `size` at a time."""
        if self.dyads <= size:
            yield self.pairs()
            return
        tails = max(1, size // self.n)
        for begin in range(0, self.n, tails):
            i, j = np.divmod(np.arange(begin * self.n, min(begin + tails, self.n) * self.n), self.n)
            kept = i != j if self.directed else i < j
            yield np.stack([i[kept], j[kept]], axis=1).astype(np.int32)

    def adjacency(self) -> np.ndarray:
        """The matrix of zeros and ones."""
        matrix = np.zeros((self.n, self.n), bool)
        matrix[self.edges[:, 0], self.edges[:, 1]] = True
        return matrix if self.directed else matrix | matrix.T

    def with_edges(self, edges: np.ndarray) -> "Network":
        """The same vertices with other edges."""
        return Network(self.n, self.directed, edges, self.labels, self.attributes, self.notes)

    def numbers(self, name: str, term: str) -> np.ndarray:
        """A numeric attribute of all vertices, or one sentence about why there is none."""
        values = self.attribute(name, term)
        require(
            values.dtype.kind in "fiub",
            f"{term} needs a number for each vertex, and the attribute {name!r} has {values[0]!r}; "
            f"use nodefactor({name}) or nodematch({name}) for groups",
        )
        return values.astype(np.float64)

    def attribute(self, name: str, term: str) -> np.ndarray:
        """An attribute of all vertices, whatever its values are."""
        known = ", ".join(sorted(self.attributes)) or "none"
        require(
            name in self.attributes, f"{term} needs the vertex attribute {name!r}; the attributes there are: {known}"
        )
        values = self.attributes[name]
        missing = [label for label, value in zip(self.labels, values, strict=True) if _is_missing(value)]
        require(
            not missing,
            f"{term} needs {name!r} of every vertex; it is missing for {len(missing)} of {self.n}"
            f" ({_some(missing)}); fill it in or remove these vertices",
        )
        return values

    def levels(self, name: str, term: str) -> tuple[list[Any], np.ndarray]:
        """The different values of an attribute in their order, and the number of each vertex's."""
        values = self.attribute(name, term)
        levels = sorted(set(values.tolist()), key=lambda v: (isinstance(v, str), v if isinstance(v, str) else float(v)))
        number = {level: k for k, level in enumerate(levels)}
        require(len(levels) > 1, f"{term} needs at least two groups, and {name!r} is {levels[0]!r} for every vertex")
        return levels, np.array([number[v] for v in values.tolist()], np.float64)

    def to_networkx(self) -> "networkx.Graph":
        """As a graph of networkx, with the labels and attributes it came with."""
        import networkx

        graph: Any = networkx.DiGraph() if self.directed else networkx.Graph()
        for v, label in enumerate(self.labels):
            known = {name: values[v] for name, values in self.attributes.items()}
            graph.add_node(label)
            graph.nodes[label].update({k: _plain(value) for k, value in known.items() if not _is_missing(value)})
        graph.add_edges_from((self.labels[i], self.labels[j]) for i, j in self.edges.tolist())
        return graph


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _some(labels: Sequence[Any], most: int = 5) -> str:
    return ", ".join(str(label) for label in labels[:most]) + (" ..." if len(labels) > most else "")


def _column(values: list[Any]) -> np.ndarray:
    """Numbers as numbers, anything else as it is; None and NaN stand for what is missing."""
    present = [value for value in values if not _is_missing(value)]
    if present and all(isinstance(v, bool | int | float | np.number | np.bool_) for v in present):
        return np.array([np.nan if _is_missing(v) else float(v) for v in values])
    column = np.empty(len(values), object)
    column[:] = [None if _is_missing(v) else str(v) if not isinstance(v, str) else v for v in values]
    return column


def network_of(graph: Any) -> Network:
    """A graph of networkx (or a square matrix of zeros and ones) as a network, or one sentence about why it is none.

    Vertices keep their order and labels. Loops and repeated edges are refused: they are in none of these models.
    """
    if isinstance(graph, Network):
        return graph
    if isinstance(graph, np.ndarray):
        return _from_matrix(graph)
    import networkx

    require(
        isinstance(graph, networkx.Graph),
        f"a network is a graph of networkx or a square array of zeros and ones, not {type(graph).__name__}",
    )
    labels = tuple(graph.nodes)
    require(len(labels) >= 2, f"a random graph needs at least 2 vertices, not {len(labels)}")
    number = {label: v for v, label in enumerate(labels)}
    loops = sorted({a for a, b in graph.edges() if a == b}, key=number.__getitem__)
    require(
        not loops,
        f"{len(loops)} vertices have an edge to themselves ({_some(loops)}), which these models do not know; "
        "remove them: G.remove_edges_from(list(networkx.selfloop_edges(G)))",
    )
    directed = bool(graph.is_directed())
    pairs = [(number[a], number[b]) for a, b in graph.edges()]
    pairs = pairs if directed else [(min(pair), max(pair)) for pair in pairs]
    distinct = sorted(set(pairs))
    require(
        len(distinct) == len(pairs),
        f"{len(pairs) - len(distinct)} of {len(pairs)} edges repeat another; these models have one edge or none: "
        f"networkx.{'DiGraph' if directed else 'Graph'}(G) keeps one of each",
    )
    edges = np.array(distinct, np.int32).reshape(-1, 2)
    names = dict.fromkeys(name for _, data in graph.nodes(data=True) for name in data)
    attributes = {str(name): _column([data.get(name) for _, data in graph.nodes(data=True)]) for name in names}
    return Network(len(labels), directed, edges, labels, attributes, _notes(labels, edges))


def _from_matrix(matrix: np.ndarray) -> Network:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"an array that is a network is square, not of shape {matrix.shape}")
    require(bool(np.isin(matrix, (0, 1)).all()), "a matrix that is a network holds zeros and ones only")
    require(len(matrix) >= 2, f"a random graph needs at least 2 vertices, not {len(matrix)}")
    require(
        not np.diagonal(matrix).any(),
        f"{int(np.diagonal(matrix).sum())} vertices have an edge to themselves, which these models do not know; "
        "set the diagonal to 0",
    )
    directed = not np.array_equal(matrix, matrix.T)
    edges = np.argwhere(matrix if directed else np.triu(matrix)).astype(np.int32)
    labels = tuple(range(len(matrix)))
    return Network(len(matrix), directed, edges, labels, {}, _notes(labels, edges))


def _notes(labels: tuple[Any, ...], edges: np.ndarray) -> tuple[str, ...]:
    """What is said beside a fit: vertices without an edge count."""
    alone = np.setdiff1d(np.arange(len(labels)), edges)
    if not alone.size:
        return ()
    few = alone.size == 1
    count = f"{alone.size} of {len(labels)} vertices {'has' if few else 'have'} no edge"
    advice = (
        "counts like the others; remove it if it should not"
        if few
        else "count like the others; remove them if they should not"
    )
    return (f"{count} ({_some([labels[v] for v in alone])}) and {advice}.",)


def networks_of(graph: Any) -> list[Network]:
    """One graph, or several on the same vertices."""
    given = list(graph) if isinstance(graph, list | tuple) else [graph]
    require(len(given) > 0, "there is no graph in the list; pass at least one")
    networks = [network_of(each) for each in given]
    first = networks[0]
    for number, other in enumerate(networks):
        require(
            other.labels == first.labels and other.directed == first.directed,
            f"graph {number} of the list has other vertices, in another order, or other directions than the first; "
            "graphs that are fitted together are on the same vertices",
        )
    return networks
