"""Which graphs a model is over, and the walk among them: all, those with as many edges, with the same degrees, or those
that differ at some pairs only."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from unnorm.errors import require
from unnorm.graphs.network import Network


class Walker(NamedTuple):
    """What a walk is handed: the graph as it lies in memory, its random numbers, and the model."""

    graph: np.ndarray
    edges: np.ndarray
    directed: bool
    random: np.ndarray
    theta: np.ndarray
    table: np.ndarray
    values: np.ndarray
    stats: np.ndarray


class AbstractConstraint(ABC):
    """A set of graphs on given vertices, with a walk on it."""

    @abstractmethod
    def check(self, network: Network) -> None:
        """Refuse networks it is not for."""

    @abstractmethod
    def log_count(self, network: Network) -> float:
        """The logarithm of how many graphs there are; nan if nobody knows."""

    @abstractmethod
    def keeps(self, present: np.ndarray, network: Network) -> np.ndarray:
        """Which of these graphs are in the set; a graph is a row, with a column for each of `network.pairs()`."""

    @abstractmethod
    def walk(self, walker: Walker, draws: np.ndarray, interval: int, most: int, closing: float) -> Any:
        """Walk on, statistics into `draws`; gives the graph, its edges, how many moves were accepted, rows written."""

    @abstractmethod
    def compiled(self) -> bool:
        """Whether the walk is machine code already, so that threads may begin it together."""


@dataclass(frozen=True)
class Unconstrained(AbstractConstraint):
    """All graphs."""

    def check(self, network: Network) -> None:
        pass

    def log_count(self, network: Network) -> float:
        return network.dyads * math.log(2)

    def keeps(self, present: np.ndarray, network: Network) -> np.ndarray:
        return np.ones(len(present), bool)

    def walk(self, walker: Walker, draws: np.ndarray, interval: int, most: int, closing: float) -> Any:
        from unnorm.graphs import walking

        return walking.walk(*walker, draws, interval, most, closing, True)

    def compiled(self) -> bool:
        from unnorm.graphs import walking

        return bool(walking.walk.signatures)


@dataclass(frozen=True)
class SameEdgeCount(AbstractConstraint):
    """Graphs with as many edges as the observed one: an edge goes, and another comes."""

    def check(self, network: Network) -> None:
        require(
            0 < len(network.edges) < network.dyads,
            f"with {len(network.edges)} of {network.dyads} edges there is one graph only; there is nothing to learn",
        )

    def log_count(self, network: Network) -> float:
        m, d = len(network.edges), network.dyads
        return math.lgamma(d + 1) - math.lgamma(m + 1) - math.lgamma(d - m + 1)

    def keeps(self, present: np.ndarray, network: Network) -> np.ndarray:
        return present.sum(1) == len(network.edges)

    def walk(self, walker: Walker, draws: np.ndarray, interval: int, most: int, closing: float) -> Any:
        from unnorm.graphs import walking

        return walking.swaps(*walker, draws, interval)

    def compiled(self) -> bool:
        from unnorm.graphs import walking

        return bool(walking.swaps.signatures)


@dataclass(frozen=True)
class SameDegrees(AbstractConstraint):
    """Graphs in which every vertex has as many edges as in the observed one: two edges exchange an end."""

    def check(self, network: Network) -> None:
        require(
            not network.directed,
            "constraint='degrees' is for graphs without directions; with them use constraint='edges'",
        )
        require(len(network.edges) >= 2, "with fewer than two edges no other graph has these degrees")

    def log_count(self, network: Network) -> float:
        return math.nan

    def keeps(self, present: np.ndarray, network: Network) -> np.ndarray:
        pairs, wanted = network.pairs(), np.bincount(network.edges.ravel(), minlength=network.n)
        ends = np.zeros((len(pairs), network.n), np.int64)
        ends[np.arange(len(pairs)), pairs[:, 0]] = ends[np.arange(len(pairs)), pairs[:, 1]] = 1
        return (present @ ends == wanted).all(1)

    def walk(self, walker: Walker, draws: np.ndarray, interval: int, most: int, closing: float) -> Any:
        from unnorm.graphs import walking_constrained

        return walking_constrained.exchanges(*walker, draws, interval)

    def compiled(self) -> bool:
        from unnorm.graphs import walking_constrained

        return bool(walking_constrained.exchanges.signatures)


@dataclass(frozen=True, eq=False)
class OnlyPairs(AbstractConstraint):
    """Graphs that are the observed one but for these pairs (rows of vertices, the smaller first without directions)."""

    pairs: np.ndarray

    def check(self, network: Network) -> None:
        require(len(self.pairs) > 0, "there is no pair that may have an edge or none")

    def log_count(self, network: Network) -> float:
        return len(self.pairs) * math.log(2)

    def keeps(self, present: np.ndarray, network: Network) -> np.ndarray:
        every, y = network.pairs(), network.adjacency()
        loose = {(int(i), int(j)) for i, j in self.pairs}
        held = np.array([(int(i), int(j)) not in loose for i, j in every])
        return (present[:, held] == y[every[held, 0], every[held, 1]]).all(1)

    def walk(self, walker: Walker, draws: np.ndarray, interval: int, most: int, closing: float) -> Any:
        from unnorm.graphs import walking_constrained

        return walking_constrained.toggles(*walker, draws, interval, np.ascontiguousarray(self.pairs, np.int32))

    def compiled(self) -> bool:
        from unnorm.graphs import walking_constrained

        return bool(walking_constrained.toggles.signatures)


#: What they are called in `fit`.
CONSTRAINTS: dict[str, AbstractConstraint] = {"edges": SameEdgeCount(), "degrees": SameDegrees()}
