"""Terms of what is known of the vertices, or of pairs of them. Each edge counts by itself: likelihoods are exact."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unnorm.arguments import require_positive
from unnorm.errors import require
from unnorm.graphs.network import Network
from unnorm.graphs.terms.base import AbstractFromZero, one


def _ends(y: np.ndarray, network: Network) -> tuple[np.ndarray, np.ndarray]:
    """Tails and heads of the edges."""
    tails, heads = np.nonzero(y if network.directed else np.triu(y))
    return tails, heads


@dataclass(frozen=True)
class NodeCov(AbstractFromZero):
    """sum over edges of x_i + x_j, for a number x of each vertex."""

    name: str
    word: ClassVar[str] = "nodecov"
    independent: ClassVar[bool] = True
    directed: ClassVar[bool | None] = None

    def names(self, network: Network) -> tuple[str, ...]:
        return (f"nodecov({self.name})",)

    def values(self, network: Network) -> np.ndarray:
        return network.numbers(self.name, self.word)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes

        return changes.node_sum

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        x, (tails, heads) = self.values(network), _ends(y, network)
        return one((x[tails] + x[heads]).sum())


@dataclass(frozen=True)
class NodeOCov(AbstractFromZero):
    """sum over edges i -> j of x_i."""

    name: str
    word: ClassVar[str] = "nodeocov"
    independent: ClassVar[bool] = True
    directed: ClassVar[bool | None] = True

    def names(self, network: Network) -> tuple[str, ...]:
        return (f"nodeocov({self.name})",)

    def values(self, network: Network) -> np.ndarray:
        return network.numbers(self.name, self.word)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.node_out_sum

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return one(y.sum(1) @ self.values(network))


@dataclass(frozen=True)
class NodeICov(AbstractFromZero):
    """sum over edges i -> j of x_j."""

    name: str
    word: ClassVar[str] = "nodeicov"
    independent: ClassVar[bool] = True
    directed: ClassVar[bool | None] = True

    def names(self, network: Network) -> tuple[str, ...]:
        return (f"nodeicov({self.name})",)

    def values(self, network: Network) -> np.ndarray:
        return network.numbers(self.name, self.word)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.node_in_sum

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return one(y.sum(0) @ self.values(network))


@dataclass(frozen=True)
class NodeFactor(AbstractFromZero):
    """For each group but the first, how many ends of edges are in it."""

    name: str
    word: ClassVar[str] = "nodefactor"
    independent: ClassVar[bool] = True
    directed: ClassVar[bool | None] = None

    def names(self, network: Network) -> tuple[str, ...]:
        levels, _ = network.levels(self.name, self.word)
        return tuple(f"nodefactor({self.name}={_shown(level)})" for level in levels[1:])

    def values(self, network: Network) -> np.ndarray:
        levels, which = network.levels(self.name, self.word)
        return np.concatenate([[len(levels) - 1.0], which - 1.0])

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes

        return changes.node_factor

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        levels, which = network.levels(self.name, self.word)
        tails, heads = _ends(y, network)
        ends = which[np.concatenate([tails, heads])]
        return np.array([float((ends == k).sum()) for k in range(1, len(levels))])


@dataclass(frozen=True)
class NodeMatch(AbstractFromZero):
    """Edges within groups: together, or with `each` (in a string: nodematch(name, each)) one number per group."""

    name: str
    each: bool = False
    word: ClassVar[str] = "nodematch"
    independent: ClassVar[bool] = True
    directed: ClassVar[bool | None] = None

    def names(self, network: Network) -> tuple[str, ...]:
        levels, _ = network.levels(self.name, self.word)
        if not self.each:
            return (f"nodematch({self.name})",)
        return tuple(f"nodematch({self.name}={_shown(level)})" for level in levels)

    def values(self, network: Network) -> np.ndarray:
        levels, which = network.levels(self.name, self.word)
        return np.concatenate([[float(len(levels))], which]) if self.each else which

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes

        return changes.node_match_each if self.each else changes.node_match

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        levels, which = network.levels(self.name, self.word)
        tails, heads = _ends(y, network)
        within = which[tails][which[tails] == which[heads]]
        return np.array([float((within == k).sum()) for k in range(len(levels))]) if self.each else one(len(within))


@dataclass(frozen=True)
class NodeMix(AbstractFromZero):
    """Edges by the groups of their two ends, for each pair of groups but the first."""

    name: str
    word: ClassVar[str] = "nodemix"
    independent: ClassVar[bool] = True
    directed: ClassVar[bool | None] = None

    def _cells(self, network: Network) -> tuple[list[Any], np.ndarray, np.ndarray]:
        """The levels, each vertex's, and the number of the statistic for each pair of levels (-1: the first pair)."""
        levels, which = network.levels(self.name, self.word)
        cells, count = np.zeros((len(levels), len(levels)), int), -1
        for b in range(len(levels)):
            for a in range(len(levels) if network.directed else b + 1):
                cells[a, b] = count
                if not network.directed:
                    cells[b, a] = count
                count += 1
        return levels, which, cells

    def names(self, network: Network) -> tuple[str, ...]:
        levels, _, cells = self._cells(network)
        places = [np.argwhere(cells == k)[0] for k in range(cells.max() + 1)]
        return tuple(f"nodemix({self.name}={_shown(levels[a])}, {_shown(levels[b])})" for a, b in places)

    def values(self, network: Network) -> np.ndarray:
        levels, which, cells = self._cells(network)
        return np.concatenate([[float(cells.max() + 1), float(len(levels))], cells.ravel(), which])

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes

        return changes.node_mix

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        _, which, cells = self._cells(network)
        tails, heads = _ends(y, network)
        found = cells[which[tails].astype(int), which[heads].astype(int)]
        return np.array([float((found == k).sum()) for k in range(cells.max() + 1)])


@dataclass(frozen=True)
class AbsDiff(AbstractFromZero):
    """sum over edges of |x_i - x_j|^power."""

    name: str
    power: float = 1.0
    word: ClassVar[str] = "absdiff"
    independent: ClassVar[bool] = True
    directed: ClassVar[bool | None] = None

    def __post_init__(self) -> None:
        require_positive(self.power, "the power of absdiff")

    def names(self, network: Network) -> tuple[str, ...]:
        return (f"absdiff({self.name})" if self.power == 1 else f"absdiff({self.name}, {self.power:g})",)

    def values(self, network: Network) -> np.ndarray:
        return np.concatenate([[float(self.power)], network.numbers(self.name, self.word)])

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes

        return changes.abs_difference

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        x, (tails, heads) = network.numbers(self.name, self.word), _ends(y, network)
        return one((np.abs(x[tails] - x[heads]) ** self.power).sum())


@dataclass(frozen=True, eq=False)
class EdgeCov(AbstractFromZero):
    """sum over edges i -> j of x_ij, for a matrix x with a row and a column for each vertex in their order."""

    matrix: np.ndarray
    name: str = "edgecov"
    word: ClassVar[str] = "edgecov"
    independent: ClassVar[bool] = True
    directed: ClassVar[bool | None] = None

    def names(self, network: Network) -> tuple[str, ...]:
        return (self.name if self.name == "edgecov" else f"edgecov({self.name})",)

    def values(self, network: Network) -> np.ndarray:
        matrix, n = np.asarray(self.matrix, np.float64), network.n
        require(matrix.shape == (n, n), f"edgecov needs a matrix of shape ({n}, {n}), not of shape {matrix.shape}")
        require(
            network.directed or np.array_equal(matrix, matrix.T),
            "edgecov of a graph without directions needs a symmetric matrix; pass (x + x.T) / 2",
        )
        require(bool(np.isfinite(matrix).all()), "edgecov needs a matrix of finite numbers")
        return matrix.ravel()

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes

        return changes.edge_covariate

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return one((y * self.matrix).sum() / (1 if network.directed else 2))


def _shown(level: Any) -> str:
    """A level for a name: 3 and not 3.0."""
    return f"{level:g}" if isinstance(level, float) else str(level)
