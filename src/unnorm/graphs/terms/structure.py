"""Terms of how edges hang together: in any graph, and in graphs without directions."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unnorm.arguments import at_least, require_weight
from unnorm.graphs.network import Network
from unnorm.graphs.terms.base import AbstractFromZero, AbstractTerm, no_numbers, one, powers, weighted


def shared_partners(y: np.ndarray) -> np.ndarray:
    """For every pair (a, b) how many k there are with a -> k -> b."""
    whole = y.astype(np.int64)
    return whole @ whole


def choose(counts: np.ndarray, k: int) -> float:
    """The sum of count over k."""
    return float(sum(math.comb(int(count), k) for count in counts))


def sizes(numbers: tuple[int, ...]) -> np.ndarray:
    """How many numbers, then the numbers: what change functions of several sizes read."""
    return np.array([len(numbers), *numbers], np.float64)


@dataclass(frozen=True)
class Edges(AbstractFromZero):
    """The number of edges."""

    word: ClassVar[str] = "edges"
    independent: ClassVar[bool] = True
    directed: ClassVar[bool | None] = None

    def names(self, network: Network) -> tuple[str, ...]:
        return ("edges",)

    def values(self, network: Network) -> np.ndarray:
        return no_numbers()

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes

        return changes.edges

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return one(y.sum() / (1 if network.directed else 2))


@dataclass(frozen=True)
class Triangle(AbstractFromZero):
    """The number of triangles; with directions, of transitive and of cyclic triples together."""

    word: ClassVar[str] = "triangle"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = None

    def names(self, network: Network) -> tuple[str, ...]:
        return ("triangle",)

    def values(self, network: Network) -> np.ndarray:
        return no_numbers()

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes, changes_directed

        return changes_directed.triangle_directed if network.directed else changes.triangle

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        closed = shared_partners(y) * y
        if not network.directed:
            return one(closed.sum() / 6)
        return one(closed.sum() + (shared_partners(y) * y.T).sum() / 3)


@dataclass(frozen=True)
class Isolates(AbstractTerm):
    """The number of vertices without an edge."""

    word: ClassVar[str] = "isolates"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = None

    def names(self, network: Network) -> tuple[str, ...]:
        return ("isolates",)

    def values(self, network: Network) -> np.ndarray:
        return one(network.directed)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes

        return changes.isolates

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return one(((y.sum(0) + y.sum(1)) == 0).sum())

    def empty(self, network: Network) -> np.ndarray:
        return one(network.n)


@dataclass(frozen=True)
class KStar(AbstractFromZero):
    """Vertices with k of their edges, sum_v C(degree_v, k), for each of the given k."""

    k: tuple[int, ...] = (2,)
    word: ClassVar[str] = "kstar"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = False

    def __post_init__(self) -> None:
        for k in self.k:
            at_least(1, k, "a star has at least one edge")

    def names(self, network: Network) -> tuple[str, ...]:
        return tuple(f"kstar({k})" for k in self.k)

    def values(self, network: Network) -> np.ndarray:
        return sizes(self.k)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes

        return changes.stars

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return np.array([choose(y.sum(1), k) for k in self.k])


@dataclass(frozen=True)
class Degree(AbstractTerm):
    """The number of vertices with d edges, for each of the given d."""

    d: tuple[int, ...] = (0,)
    word: ClassVar[str] = "degree"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = False

    def __post_init__(self) -> None:
        for d in self.d:
            at_least(0, d, "a degree is not negative")

    def names(self, network: Network) -> tuple[str, ...]:
        return tuple(f"degree({d})" for d in self.d)

    def values(self, network: Network) -> np.ndarray:
        return sizes(self.d)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes

        return changes.degrees

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return np.array([float((y.sum(1) == d).sum()) for d in self.d])

    def empty(self, network: Network) -> np.ndarray:
        return np.array([float(network.n if d == 0 else 0) for d in self.d])


@dataclass(frozen=True)
class GWDegree(AbstractFromZero):
    """Geometrically weighted degrees, e^a sum_v (1 - (1 - e^-a)^degree_v) with a fixed decay a (Hunter 2007)."""

    decay: float
    word: ClassVar[str] = "gwdegree"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = False

    def __post_init__(self) -> None:
        require_weight(self.decay, "the decay of gwdegree")

    def names(self, network: Network) -> tuple[str, ...]:
        return (f"gwdegree({self.decay:g})",)

    def values(self, network: Network) -> np.ndarray:
        return powers(self.decay, network.n)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes

        return changes.gw_degree

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return weighted(y.sum(1), self.decay)


@dataclass(frozen=True)
class GWESP(AbstractFromZero):
    """Geometrically weighted edgewise shared partners (Snijders et al. 2006; Hunter 2007), with a fixed decay a.

    e^a sum_edges (1 - (1 - e^-a)^p), where p counts the k with a -> k -> b for the edge a -> b.
    """

    decay: float
    word: ClassVar[str] = "gwesp"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = None

    def __post_init__(self) -> None:
        require_weight(self.decay, "the decay of gwesp")

    def names(self, network: Network) -> tuple[str, ...]:
        return (f"gwesp({self.decay:g})",)

    def values(self, network: Network) -> np.ndarray:
        return np.concatenate([[np.exp(self.decay)], powers(self.decay, network.n)])

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes, changes_directed

        return changes_directed.gw_esp_directed if network.directed else changes.gw_esp

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        found = y if network.directed else np.triu(y)
        return weighted(shared_partners(y)[found.astype(bool)], self.decay)


@dataclass(frozen=True)
class GWDSP(AbstractFromZero):
    """Geometrically weighted dyadwise shared partners: as `GWESP`, over all pairs."""

    decay: float
    word: ClassVar[str] = "gwdsp"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = None

    def __post_init__(self) -> None:
        require_weight(self.decay, "the decay of gwdsp")

    def names(self, network: Network) -> tuple[str, ...]:
        return (f"gwdsp({self.decay:g})",)

    def values(self, network: Network) -> np.ndarray:
        return powers(self.decay, network.n)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes, changes_directed

        return changes_directed.gw_dsp_directed if network.directed else changes.gw_dsp

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        pairs = ~np.eye(network.n, dtype=bool) if network.directed else np.triu(np.ones_like(y, bool), 1)
        return weighted(shared_partners(y)[pairs], self.decay)


@dataclass(frozen=True)
class Own(AbstractTerm):
    """A term of your own: a change function that numba can compile, and the numbers it reads.

    `function(graph, i, j, present, values, delta)` writes s(with the edge i -> j) - s(without it) into `delta[0]`, and
    into `delta[1]` ... if there are several `labels`. What it may ask of the graph is in `unnorm.graphs.layout`
    (`has_edge`, `out_degree`, `out_neighbour`, `two_paths` ...). `definition(y)` gives the statistics of an adjacency
    matrix; without it they are only known from changes, and nothing can check them.
    """

    function: Callable[..., None]
    labels: tuple[str, ...]
    numbers: tuple[float, ...] = ()
    definition: Callable[[np.ndarray], Any] | None = None
    at_no_edges: tuple[float, ...] | None = None
    edges_are_independent: bool = False
    word: ClassVar[str] = "own"
    directed: ClassVar[bool | None] = None

    @property
    def independent(self) -> bool:
        return self.edges_are_independent

    def names(self, network: Network) -> tuple[str, ...]:
        return self.labels

    def values(self, network: Network) -> np.ndarray:
        return np.array(self.numbers, np.float64)

    def change(self, network: Network) -> Callable[..., None]:
        return self.function

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        if self.definition is None:
            return np.full(len(self.labels), np.nan)
        return np.atleast_1d(np.asarray(self.definition(y), np.float64))

    def empty(self, network: Network) -> np.ndarray:
        return np.zeros(len(self.labels)) if self.at_no_edges is None else np.array(self.at_no_edges, np.float64)
