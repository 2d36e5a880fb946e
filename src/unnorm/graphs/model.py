"""Terms on the vertices of a network: what walks, enumeration and estimation are all handed."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from unnorm.errors import InputError, require
from unnorm.graphs.constraints import AbstractConstraint, OnlyPairs, Unconstrained
from unnorm.graphs.network import Network
from unnorm.graphs.terms.base import AbstractTerm, require_kind
from unnorm.graphs.terms.offset import Offset

#: Change functions that are compiled, by the function.
_COMPILED: "weakref.WeakKeyDictionary[Callable[..., None], Any]" = weakref.WeakKeyDictionary()
#: Terms that count what pairs have in common.
_CLUSTERED = ("triangle", "ttriple", "ctriple", "gwesp", "own")


def compiled_change(function: Callable[..., None]) -> Any:
    """The change function as machine code with an address; the library's own are kept on disk."""
    if function not in _COMPILED:
        import numba
        from numba.core.errors import NumbaError

        from unnorm.graphs.walking import CHANGE

        plain: Any = getattr(function, "py_func", function)
        own = str(function.__module__).startswith("unnorm.")
        try:
            _COMPILED[function] = numba.cfunc(CHANGE, cache=own, error_model="numpy")(plain)
        except NumbaError as error:
            name = getattr(plain, "__name__", "a change function")
            raise InputError(
                f"numba cannot compile the change function {name!r}: {str(error).splitlines()[0]}; it takes "
                "(graph, i, j, present, values, delta) and may use numbers, loops and unnorm.graphs.layout"
            ) from error
    return _COMPILED[function]


@dataclass(frozen=True, eq=False)
class Model:
    """p(y) = exp(theta . s(y)) / Z(theta) over all graphs y on the vertices of a network.

    >>> import networkx
    >>> from unnorm.graphs import Model, network_of, parse
    >>> model = Model(parse("edges, triangle"), network_of(networkx.complete_graph(4)))
    >>> model.names, model.statistics(model.network.edges).tolist()
    (('edges', 'triangle'), [6.0, 4.0])
    """

    terms: Sequence[AbstractTerm]
    network: Network
    #: Statistics held at an end of what they can be, by number: the infinite coefficient, and what the statistic is.
    pinned: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    #: Which graphs the sum goes over.
    constraint: AbstractConstraint = field(default_factory=Unconstrained)

    def __post_init__(self) -> None:
        self.constraint.check(self.network)
        for term in self.terms:
            require_kind(term.term if isinstance(term, Offset) else term, self.network)
        doubled = sorted({name for name in self.names if self.names.count(name) > 1})
        require(not doubled, f"{', '.join(doubled)} is in the model more than once; name each term once")
        require(
            len(self.pinned) > 0 or not all(self.fixed),
            "every term is an offset, so there is nothing to learn; add a term, as edges",
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each statistic."""
        return tuple(name for names in self.statistics_names for name in names)

    @cached_property
    def statistics_names(self) -> list[tuple[str, ...]]:
        """The same, apart for each term."""
        return [term.names(self.network) for term in self.terms]

    @property
    def size(self) -> int:
        """How many statistics there are."""
        return len(self.names)

    @cached_property
    def fixed(self) -> np.ndarray:
        """Which coefficients are given."""
        offsets = [isinstance(term, Offset) for term in self.terms]
        found = np.repeat(offsets, [len(names) for names in self.statistics_names])
        found[list(self.pinned)] = True
        return found

    @cached_property
    def given(self) -> np.ndarray:
        """The coefficients that are given; 0 for those that are learnt."""
        parts = []
        for term, names in zip(self.terms, self.statistics_names, strict=True):
            if isinstance(term, Offset):
                count = len(term.coefficients)
                require(
                    count in (1, len(names)),
                    f"an offset of {len(names)} statistics takes 1 or {len(names)} coefficients, not {count}",
                )
                parts.append(np.resize(np.array(term.coefficients, np.float64), len(names)))
            else:
                parts.append(np.zeros(len(names)))
        whole = np.concatenate(parts)
        for k, (coefficient, _) in self.pinned.items():
            whole[k] = coefficient
        return whole

    @property
    def learnt(self) -> tuple[str, ...]:
        """The names of the statistics whose coefficients are learnt."""
        return tuple(name for name, fixed in zip(self.names, self.fixed, strict=True) if not fixed)

    def weighed(self, theta: np.ndarray, statistics: np.ndarray) -> np.ndarray:
        """theta . s for all coefficients and rows of statistics; what is pinned does not count."""
        kept = [k for k in range(self.size) if k not in self.pinned]
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(statistics[..., kept] == 0, 0.0, statistics[..., kept] * theta[kept]).sum(-1))

    @property
    def independent(self) -> bool:
        """Whether edges are independent of each other under this model."""
        return isinstance(self.constraint, Unconstrained | OnlyPairs) and all(term.independent for term in self.terms)

    @property
    def clustered(self) -> bool:
        """Whether a statistic counts shared partners, so that a walk does well to look for two-paths."""
        return any(term.word in _CLUSTERED for term in self.terms)

    @cached_property
    def values(self) -> np.ndarray:
        """The numbers of all terms, one after the other."""
        parts = [term.values(self.network) for term in self.terms]
        return np.concatenate([*parts, np.zeros(1)]).astype(np.float64)

    @cached_property
    def table(self) -> np.ndarray:
        """For each term the address of its change function, where its values begin, and its first statistic."""
        self._functions  # noqa: B018, they must live as long as the addresses
        begins = np.cumsum([0, *(term.values(self.network).size for term in self.terms)])[:-1]
        firsts = np.cumsum([0, *(len(names) for names in self.statistics_names)])[:-1]
        addresses = [function.address for function in self._functions]
        return np.stack([addresses, begins, firsts], axis=1).astype(np.int64)

    @cached_property
    def _functions(self) -> list[Any]:
        return [compiled_change(term.change(self.network)) for term in self.terms]

    @cached_property
    def empty(self) -> np.ndarray:
        """The statistics of the graph without edges."""
        return np.concatenate([term.empty(self.network) for term in self.terms]).astype(np.float64)

    def full(self, theta: np.ndarray) -> np.ndarray:
        """All coefficients, from those that are learnt."""
        whole = self.given.copy()
        whole[~self.fixed] = theta
        return whole

    def build(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The graph with these edges as a walk needs it, its list of edges, and its statistics."""
        from unnorm.graphs import layout, walking

        graph, listed = layout.packed(self.network.n, self.network.directed, np.asarray(edges, np.int32))
        stats = self.empty.copy()
        walking.statistics(graph.copy(), listed.copy(), self.table, self.values, stats)
        return graph, listed, stats

    def statistics(self, edges: np.ndarray) -> np.ndarray:
        """The statistics of the graph with these edges, from changes."""
        return self.build(edges)[2]

    def defined(self, y: np.ndarray) -> np.ndarray:
        """The statistics of an adjacency matrix by definition."""
        return np.concatenate([term.statistic(y, self.network) for term in self.terms])

    def changes(self, edges: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each of these pairs of a graph: whether its edge is there, and the changes of all statistics."""
        from unnorm.graphs import walking

        graph, _, _ = self.build(edges)
        present, rows = np.zeros(len(pairs), np.int8), np.zeros((len(pairs), self.size))
        pairs = np.ascontiguousarray(pairs, np.int32)
        walking.changes_at(graph, pairs, self.table, self.values, present, rows)
        return present.astype(bool), rows
