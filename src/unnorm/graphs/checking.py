"""Whether a term's change function is that of its definition, on random graphs: for terms that somebody wrote."""

from typing import Any

import numpy as np

from unnorm.errors import InputError, require
from unnorm.graphs.model import Model
from unnorm.graphs.network import network_of
from unnorm.graphs.terms import AbstractTerm


def check_term(term: AbstractTerm, graph: Any, *, graphs: int = 5, pairs: int = 50, seed: int = 0) -> None:
    """Compare changes with differences of the definition, on this graph and on random ones on its vertices.

    A term that is wrong is refused with the first pair of vertices at which it is; one that is right is let pass.

    >>> import networkx
    >>> from unnorm.graphs.terms import Triangle
    >>> check_term(Triangle(), networkx.path_graph(6))
    """
    network, random = network_of(graph), np.random.default_rng(seed)
    model = Model([term], network)
    require(
        bool(np.all(np.isfinite(model.defined(network.adjacency())))),
        f"{model.names[0]} has no definition to be checked by; give one, Own(..., definition=function of the matrix)",
    )
    for k in range(graphs):
        edges = network.edges
        if k > 0:
            every = network.pairs()
            edges = every[random.random(len(every)) < 0.1 + 0.8 * random.random()]
        y = network.with_edges(edges).adjacency()
        chosen = random.permutation(network.pairs())[:pairs]
        present, rows = model.changes(edges, chosen)
        for (i, j), here, row in zip(chosen.tolist(), present, rows, strict=True):
            ends = []
            for there in (False, True):
                y[i, j] = there
                y[j, i] = y[j, i] if network.directed else there
                ends.append(model.defined(y))
            y[i, j] = here
            y[j, i] = y[j, i] if network.directed else here
            _require_same(model.names, row, ends[1] - ends[0], f"changes with the edge {i} - {j} by")
        _require_same(model.names, model.statistics(edges), model.defined(y), "of a whole graph is")


def _require_same(names: tuple[str, ...], found: np.ndarray, truth: np.ndarray, what: str) -> None:
    wrong = np.flatnonzero(np.abs(found - truth) > 1e-6 * (1 + np.abs(truth)))
    if wrong.size:
        k = wrong[0]
        raise InputError(f"{names[k]} {what} {found[k]:g}, where it is {truth[k]:g} by definition")
