"""A network made ready to be fitted: from a file or a name, with the covariates of its pairs."""

import difflib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unnorm.data.network_matrices import read_values
from unnorm.data.networks import READERS, SURELY, NetworkData, from_networkx, read_network
from unnorm.errors import require
from unnorm.graphs import Network, florentine, network_of


def _karate() -> Any:
    """Friendships in a karate club that split in two, Zachary 1977; the weights of networkx are left out."""
    import networkx

    return networkx.karate_club_graph()


#: Networks that come with the library: how each is made, and what it is.
EMBEDDED: Mapping[str, tuple[Callable[[], Any], str]] = {
    "florentine": (florentine, "marriages of 16 families of Florence, with their wealth; Padgett and Ansell 1993"),
    "karate": (_karate, "friendships of 34 members of a karate club, and the club each joined; Zachary 1977"),
}
#: What is fitted when nothing is said, without directions and with.
USUAL = {False: "edges, gwesp(0.5)", True: "edges, mutual"}


@dataclass(frozen=True, eq=False)
class PreparedGraph:
    """A network and what is known of its pairs; `remarks` says what was found on the way."""

    network: Network
    covariates: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: str = ""
    nodes: str | None = None
    covariate_sources: Mapping[str, str] = field(default_factory=dict)
    asked_directed: bool | None = None
    remarks: tuple[str, ...] = ()
    #: Pairs of which it is not known whether they have an edge, by numbers, in rows.
    missing: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int32))

    @property
    def fingerprint(self) -> str:
        """A hash of all that was read, so that a resumed run knows its network."""
        known = {name: [_plain(v) for v in values.tolist()] for name, values in self.network.attributes.items()}
        digest = hashlib.sha256(json.dumps([self.network.directed, list(self.network.labels), known]).encode())
        digest.update(np.ascontiguousarray(self.network.edges, np.int32).tobytes())
        if len(self.missing):
            digest.update(b"missing" + np.ascontiguousarray(self.missing, np.int32).tobytes())
        for name in sorted(self.covariates):
            digest.update(name.encode() + np.ascontiguousarray(self.covariates[name], np.float64).tobytes())
        return digest.hexdigest()


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def is_network(data: str) -> bool:
    """Whether this is a network and nothing else: by its name, or by the ending of its file.

    >>> is_network("florentine"), is_network("net.graphml"), is_network("table.csv")
    (True, True, False)
    """
    return data in EMBEDDED or Path(data).suffix.lower() in SURELY


def prepare_graph(
    data: str,
    *,
    nodes: str | None = None,
    directed: bool | None = None,
    covariates: Mapping[str, str] | None = None,
) -> PreparedGraph:
    """The network of this name or in this file.

    >>> prepare_graph("florentine").network.n
    16
    """
    if data in EMBEDDED:
        require(nodes is None, f"{data} comes with its attributes; leave out --nodes")
        require(directed is None, f"{data} has no directions; leave out --directed and --undirected")
        found = from_networkx(EMBEDDED[data][0](), data)
    else:
        if not Path(data).exists() and Path(data).suffix.lower() not in READERS:
            near = difflib.get_close_matches(data.lower(), EMBEDDED, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}? Give" if near else "give"
            require(False, f"there is no network {data!r}; {hint} a file, or one of {', '.join(EMBEDDED)}")
        found = read_network(data, nodes=nodes, directed=directed)
    # The remark about vertices without edges is the network's own.
    network = network_of(found.to_networkx())
    matrices = {name: _covariate(Path(file), found) for name, file in (covariates or {}).items()}
    sources = dict(covariates or {})
    return PreparedGraph(network, matrices, data, nodes, sources, directed, found.remarks, found.missing)


def _covariate(path: Path, network: NetworkData) -> np.ndarray:
    """A number for each pair: from a matrix of numbers, or 1 for each edge of another network on the same vertices."""
    n = len(network.labels)
    if path.suffix.lower() in (".npy", ".csv", ".tsv"):
        values = read_values(path, n)
        if values is not None:
            return values
    other = read_network(path)
    number = {str(label): v for v, label in enumerate(network.labels)}
    strange = [str(label) for label in other.labels if str(label) not in number]
    require(
        not strange,
        f"{str(path)!r} has {len(strange)} vertices that the network does not have ({', '.join(strange[:5])}); a "
        "covariate is a matrix of numbers in the order of the vertices, or a network on the same vertices",
    )
    matrix = np.zeros((n, n))
    for i, j in other.edges.tolist():
        a, b = number[str(other.labels[i])], number[str(other.labels[j])]
        matrix[a, b] = 1.0
        if not other.directed:
            matrix[b, a] = 1.0
    return matrix
