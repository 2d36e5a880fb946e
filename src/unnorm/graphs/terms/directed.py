"""Terms for graphs with directions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unnorm.arguments import at_least, require_weight
from unnorm.graphs.network import Network
from unnorm.graphs.terms.base import AbstractFromZero, AbstractTerm, no_numbers, one, powers, weighted
from unnorm.graphs.terms.structure import choose, shared_partners, sizes


@dataclass(frozen=True)
class Mutual(AbstractFromZero):
    """Pairs with edges both ways."""

    word: ClassVar[str] = "mutual"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = True

    def names(self, network: Network) -> tuple[str, ...]:
        return ("mutual",)

    def values(self, network: Network) -> np.ndarray:
        return no_numbers()

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.mutual

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return one((y * y.T).sum() / 2)


@dataclass(frozen=True)
class TTriple(AbstractFromZero):
    """Transitive triples, a -> b -> c with a -> c."""

    word: ClassVar[str] = "ttriple"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = True

    def names(self, network: Network) -> tuple[str, ...]:
        return ("ttriple",)

    def values(self, network: Network) -> np.ndarray:
        return no_numbers()

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.transitive

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return one((shared_partners(y) * y).sum())


@dataclass(frozen=True)
class CTriple(AbstractFromZero):
    """Cyclic triples, a -> b -> c -> a."""

    word: ClassVar[str] = "ctriple"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = True

    def names(self, network: Network) -> tuple[str, ...]:
        return ("ctriple",)

    def values(self, network: Network) -> np.ndarray:
        return no_numbers()

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.cyclic

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return one((shared_partners(y) * y.T).sum() / 3)


@dataclass(frozen=True)
class TwoPath(AbstractFromZero):
    """Paths a -> b -> c between different vertices."""

    word: ClassVar[str] = "twopath"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = True

    def names(self, network: Network) -> tuple[str, ...]:
        return ("twopath",)

    def values(self, network: Network) -> np.ndarray:
        return no_numbers()

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.two_path

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        paths = shared_partners(y)
        return one(paths.sum() - np.trace(paths))


@dataclass(frozen=True)
class OStar(AbstractFromZero):
    """Vertices with k of the edges that leave them, sum_v C(out-degree_v, k)."""

    k: tuple[int, ...] = (2,)
    word: ClassVar[str] = "ostar"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = True

    def __post_init__(self) -> None:
        for k in self.k:
            at_least(1, k, "a star has at least one edge")

    def names(self, network: Network) -> tuple[str, ...]:
        return tuple(f"ostar({k})" for k in self.k)

    def values(self, network: Network) -> np.ndarray:
        return sizes(self.k)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.out_stars

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return np.array([choose(y.sum(1), k) for k in self.k])


@dataclass(frozen=True)
class IStar(AbstractFromZero):
    """Vertices with k of the edges that arrive at them, sum_v C(in-degree_v, k)."""

    k: tuple[int, ...] = (2,)
    word: ClassVar[str] = "istar"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = True

    def __post_init__(self) -> None:
        for k in self.k:
            at_least(1, k, "a star has at least one edge")

    def names(self, network: Network) -> tuple[str, ...]:
        return tuple(f"istar({k})" for k in self.k)

    def values(self, network: Network) -> np.ndarray:
        return sizes(self.k)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.in_stars

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return np.array([choose(y.sum(0), k) for k in self.k])


@dataclass(frozen=True)
class ODegree(AbstractTerm):
    """The number of vertices that d edges leave, for each of the given d."""

    d: tuple[int, ...] = (0,)
    word: ClassVar[str] = "odegree"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = True

    def __post_init__(self) -> None:
        for d in self.d:
            at_least(0, d, "a degree is not negative")

    def names(self, network: Network) -> tuple[str, ...]:
        return tuple(f"odegree({d})" for d in self.d)

    def values(self, network: Network) -> np.ndarray:
        return sizes(self.d)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.out_degrees

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return np.array([float((y.sum(1) == d).sum()) for d in self.d])

    def empty(self, network: Network) -> np.ndarray:
        return np.array([float(network.n if d == 0 else 0) for d in self.d])


@dataclass(frozen=True)
class IDegree(AbstractTerm):
    """The number of vertices at which d edges arrive, for each of the given d."""

    d: tuple[int, ...] = (0,)
    word: ClassVar[str] = "idegree"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = True

    def __post_init__(self) -> None:
        for d in self.d:
            at_least(0, d, "a degree is not negative")

    def names(self, network: Network) -> tuple[str, ...]:
        return tuple(f"idegree({d})" for d in self.d)

    def values(self, network: Network) -> np.ndarray:
        return sizes(self.d)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.in_degrees

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return np.array([float((y.sum(0) == d).sum()) for d in self.d])

    def empty(self, network: Network) -> np.ndarray:
        return np.array([float(network.n if d == 0 else 0) for d in self.d])


@dataclass(frozen=True)
class GWODegree(AbstractFromZero):
    """Geometrically weighted out-degrees, as `GWDegree`."""

    decay: float
    word: ClassVar[str] = "gwodegree"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = True

    def __post_init__(self) -> None:
        require_weight(self.decay, "the decay of gwodegree")

    def names(self, network: Network) -> tuple[str, ...]:
        return (f"gwodegree({self.decay:g})",)

    def values(self, network: Network) -> np.ndarray:
        return powers(self.decay, network.n)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.gw_out_degree

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return weighted(y.sum(1), self.decay)


@dataclass(frozen=True)
class GWIDegree(AbstractFromZero):
    """Geometrically weighted in-degrees, as `GWDegree`."""

    decay: float
    word: ClassVar[str] = "gwidegree"
    independent: ClassVar[bool] = False
    directed: ClassVar[bool | None] = True

    def __post_init__(self) -> None:
        require_weight(self.decay, "the decay of gwidegree")

    def names(self, network: Network) -> tuple[str, ...]:
        return (f"gwidegree({self.decay:g})",)

    def values(self, network: Network) -> np.ndarray:
        return powers(self.decay, network.n)

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.gw_in_degree

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return weighted(y.sum(0), self.decay)


@dataclass(frozen=True)
class Sender(AbstractFromZero):
    """For each vertex but the first, the number of edges that leave it."""

    word: ClassVar[str] = "sender"
    independent: ClassVar[bool] = True
    directed: ClassVar[bool | None] = True

    def names(self, network: Network) -> tuple[str, ...]:
        return tuple(f"sender({label})" for label in network.labels[1:])

    def values(self, network: Network) -> np.ndarray:
        return np.concatenate([[network.n - 1.0], np.arange(network.n) - 1.0])

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.sender

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return y.sum(1)[1:].astype(np.float64)


@dataclass(frozen=True)
class Receiver(AbstractFromZero):
    """For each vertex but the first, the number of edges that arrive at it."""

    word: ClassVar[str] = "receiver"
    independent: ClassVar[bool] = True
    directed: ClassVar[bool | None] = True

    def names(self, network: Network) -> tuple[str, ...]:
        return tuple(f"receiver({label})" for label in network.labels[1:])

    def values(self, network: Network) -> np.ndarray:
        return np.concatenate([[network.n - 1.0], np.arange(network.n) - 1.0])

    def change(self, network: Network) -> Callable[..., None]:
        from unnorm.graphs import changes_directed

        return changes_directed.receiver

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return y.sum(0)[1:].astype(np.float64)
