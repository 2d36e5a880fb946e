"""What a term of a model of random graphs is: a statistic, by its definition and by how one edge changes it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unnorm.errors import require
from unnorm.graphs.network import Network


@dataclass(frozen=True)
class AbstractTerm(ABC):
    """One or more statistics s(y) of a graph y, which weigh it by exp(theta . s(y)).

    A term says its statistics twice: by definition, from the adjacency matrix (slow, and the truth in tests), and by a
    change function s(y with the edge) - s(y without it), which is compiled (see `graphs.changes`).
    """

    #: What it is called in a string of terms.
    word: ClassVar[str]
    #: Whether the change from one edge is the same whatever the others are; then likelihoods are exact.
    independent: ClassVar[bool]
    #: The graphs it is a term of: True with directions, False without, None both.
    directed: ClassVar[bool | None]

    @abstractmethod
    def names(self, network: Network) -> tuple[str, ...]:
        """What each statistic is called in a table."""

    @abstractmethod
    def values(self, network: Network) -> np.ndarray:
        """The numbers that the change function reads."""

    @abstractmethod
    def change(self, network: Network) -> Callable[..., None]:
        """The change function, as plain Python that numba understands."""

    @abstractmethod
    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        """The statistics of the adjacency matrix y, by definition."""

    @abstractmethod
    def empty(self, network: Network) -> np.ndarray:
        """The statistics of the graph without edges."""


class AbstractFromZero(AbstractTerm):
    """A term whose statistics are 0 where there is no edge."""

    def empty(self, network: Network) -> np.ndarray:
        return np.zeros(len(self.names(network)))


#: What to use instead on the other kind of graph.
_INSTEAD = {
    "kstar": "use istar(k) or ostar(k)",
    "degree": "use idegree(d) or odegree(d)",
    "gwdegree": "use gwidegree(decay) or gwodegree(decay)",
    "istar": "use kstar(k)",
    "ostar": "use kstar(k)",
    "idegree": "use degree(d)",
    "odegree": "use degree(d)",
    "gwidegree": "use gwdegree(decay)",
    "gwodegree": "use gwdegree(decay)",
    "ttriple": "use triangle",
    "ctriple": "use triangle",
    "twopath": "use kstar(2)",
    "nodeicov": "use nodecov(name)",
    "nodeocov": "use nodecov(name)",
    "sender": "use nodecov(name)",
    "receiver": "use nodecov(name)",
}


def require_kind(term: AbstractTerm, network: Network) -> None:
    """Refuse a term of the other kind of graph."""
    kinds = {True: "with directions", False: "without directions"}
    if term.directed is not None:
        require(
            term.directed == network.directed,
            f"{term.word} is a term for graphs {kinds[term.directed]}, and this graph is {kinds[network.directed]}"
            f"; {_INSTEAD.get(term.word, 'leave it out')}",
        )


def powers(decay: float, n: int) -> np.ndarray:
    """(1 - e^-decay)^k for k = 0 .. n."""
    return (1.0 - np.exp(-decay)) ** np.arange(n + 1)


def weighted(counts: np.ndarray, decay: float) -> np.ndarray:
    """e^decay sum (1 - (1 - e^-decay)^count), the geometric weighting of Snijders et al. (2006)."""
    return np.array([np.exp(decay) * np.sum(1.0 - (1.0 - np.exp(-decay)) ** counts)])


def one(value: Any) -> np.ndarray:
    """A single statistic as an array."""
    return np.array([float(value)])


def no_numbers() -> np.ndarray:
    """For terms that read none."""
    return np.zeros(0)
