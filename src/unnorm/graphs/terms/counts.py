"""The counts behind geometrically weighted terms, for a decay that is estimated too (Hunter and Handcock 2006).

Such a term weighs the counts c_k of what has k edges or partners by theta w_k(a), w_k(a) = e^a (1 - (1 - e^-a)^k): a
curved family in (theta, a).
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unnorm.graphs.network import Network
from unnorm.graphs.terms.base import AbstractFromZero, AbstractTerm, one
from unnorm.graphs.terms.directed import GWIDegree, GWODegree
from unnorm.graphs.terms.structure import GWDSP, GWESP, GWDegree, shared_partners

#: The largest count that is told apart; what has more counts as so many.
MOST = 40


class AbstractCurved(AbstractFromZero):
    """Counts c_1 ... c_K that stand for a geometrically weighted term whose decay is estimated."""

    independent: ClassVar[bool] = False

    @abstractmethod
    def fixed(self, decay: float) -> AbstractTerm:
        """The term with this decay."""

    @abstractmethod
    def counted(self, y: np.ndarray, directed: bool) -> np.ndarray:
        """What is counted: the number of edges or partners of each vertex, edge or pair."""

    def most(self, network: Network) -> int:
        """K."""
        return min(MOST, network.n - 1)

    def names(self, network: Network) -> tuple[str, ...]:
        return tuple(f"{self.word}:{k}" for k in range(1, self.most(network) + 1))

    def values(self, network: Network) -> np.ndarray:
        return one(self.most(network))

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        most = self.most(network)
        counts = np.minimum(self.counted(y, network.directed).astype(int), most)
        return np.bincount(counts, minlength=most + 1)[1:].astype(np.float64)


@dataclass(frozen=True)
class CurvedESP(AbstractCurved):
    """Edges by the partners that their ends share: gwesp with a decay that is estimated."""

    word: ClassVar[str] = "gwesp"
    directed: ClassVar[bool | None] = None

    def fixed(self, decay: float) -> AbstractTerm:
        return GWESP(decay)

    def counted(self, y: np.ndarray, directed: bool) -> np.ndarray:
        return shared_partners(y)[(y if directed else np.triu(y)).astype(bool)]

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_counts

        return changes_counts.edge_partners_directed if network.directed else changes_counts.edge_partners


@dataclass(frozen=True)
class CurvedDSP(AbstractCurved):
    """Pairs by the partners that they share: gwdsp with a decay that is estimated."""

    word: ClassVar[str] = "gwdsp"
    directed: ClassVar[bool | None] = None

    def fixed(self, decay: float) -> AbstractTerm:
        return GWDSP(decay)

    def counted(self, y: np.ndarray, directed: bool) -> np.ndarray:
        pairs = ~np.eye(len(y), dtype=bool) if directed else np.triu(np.ones_like(y, bool), 1)
        return shared_partners(y)[pairs]

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_counts

        return changes_counts.pair_partners_directed if network.directed else changes_counts.pair_partners


@dataclass(frozen=True)
class CurvedDegree(AbstractCurved):
    """Vertices by their degrees: gwdegree with a decay that is estimated."""

    word: ClassVar[str] = "gwdegree"
    directed: ClassVar[bool | None] = False

    def fixed(self, decay: float) -> AbstractTerm:
        return GWDegree(decay)

    def counted(self, y: np.ndarray, directed: bool) -> np.ndarray:
        return y.sum(1)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_counts

        return changes_counts.degree_counts


@dataclass(frozen=True)
class CurvedODegree(AbstractCurved):
    """Vertices by the edges that leave them: gwodegree with a decay that is estimated."""

    word: ClassVar[str] = "gwodegree"
    directed: ClassVar[bool | None] = True

    def fixed(self, decay: float) -> AbstractTerm:
        return GWODegree(decay)

    def counted(self, y: np.ndarray, directed: bool) -> np.ndarray:
        return y.sum(1)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_counts

        return changes_counts.out_degree_counts


@dataclass(frozen=True)
class CurvedIDegree(AbstractCurved):
    """Vertices by the edges that arrive at them: gwidegree with a decay that is estimated."""

    word: ClassVar[str] = "gwidegree"
    directed: ClassVar[bool | None] = True

    def fixed(self, decay: float) -> AbstractTerm:
        return GWIDegree(decay)

    def counted(self, y: np.ndarray, directed: bool) -> np.ndarray:
        return y.sum(0)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_counts

        return changes_counts.in_degree_counts


#: By the word of the term with a fixed decay.
CURVED: dict[str, type[AbstractCurved]] = {
    kind.word: kind for kind in (CurvedESP, CurvedDSP, CurvedDegree, CurvedODegree, CurvedIDegree)
}


def weights(decay: float, most: int) -> tuple[np.ndarray, np.ndarray]:
    """w_k(a) and its derivative, k = 1 .. K."""
    k, base = np.arange(1, most + 1), 1.0 - np.exp(-decay)
    w = np.exp(decay) * (1.0 - base**k)
    return w, w - k * base ** (k - 1)
