"""Walks among some graphs only: those with the same degrees, or those that differ at some pairs (numba)."""

import numpy as np

from unnorm.graphs.layout import EDGES, add, compiled, has_edge, has_room, larger, part, remove
from unnorm.graphs.walking import change, uniform


@part
def _toggle(graph, edges, i, j, terms, values, delta, total):
    """Toggle a pair, with the changes added to `total`; the graph must have room."""
    present = has_edge(graph, i, j)
    change(graph, i, j, int(present), terms, values, delta)
    if present:
        remove(graph, edges, i, j)
    else:
        add(graph, edges, i, j)
    for k in range(total.size):
        total[k] += -delta[k] if present else delta[k]


@part
def _flip(graph, edges, i, j):
    """Toggle a pair."""
    if has_edge(graph, i, j):
        remove(graph, edges, i, j)
    else:
        add(graph, edges, i, j)


@part
def _weight(theta, total):
    weight = 0.0
    for k in range(theta.size):
        if total[k] != 0.0:
            weight += theta[k] * total[k]
    return weight


@compiled
def toggles(graph, edges, directed, random, theta, terms, values, stats, draws, interval, pairs):
    """Metropolis's walk that toggles one of these pairs, drawn uniformly."""
    p = theta.size
    delta, total = np.zeros(p), np.zeros(p)
    accepted = 0
    for row in range(draws.shape[0]):
        for _ in range(interval):
            r = int(uniform(random) * pairs.shape[0])
            i, j = pairs[r, 0], pairs[r, 1]
            if not has_room(graph, edges, i, j):
                graph, edges = larger(graph), larger(edges)
            total[:] = 0.0
            _toggle(graph, edges, i, j, terms, values, delta, total)
            weight = _weight(theta, total)
            if weight >= 0.0 or uniform(random) < np.exp(weight):
                accepted += 1
                for k in range(p):
                    stats[k] += total[k]
            else:
                _flip(graph, edges, i, j)
        for k in range(p):
            draws[row, k] = stats[k]
    return graph, edges, accepted, draws.shape[0]


@compiled
def exchanges(graph, edges, directed, random, theta, terms, values, stats, draws, interval):
    """Metropolis's walk without directions: edges a - b and c - d become a - d and c - b, if those are not there.

    Two edges are drawn uniformly, and which ends they exchange with equal probability, so the proposal is symmetric.
    """
    p = theta.size
    delta, total = np.zeros(p), np.zeros(p)
    pairs = np.zeros((4, 2), np.int64)
    accepted = 0
    for row in range(draws.shape[0]):
        for _ in range(interval):
            count = graph[EDGES]
            e, f = int(uniform(random) * count), int(uniform(random) * count)
            a, b, c, d = edges[2 * e], edges[2 * e + 1], edges[2 * f], edges[2 * f + 1]
            if uniform(random) < 0.5:
                c, d = d, c
            if a in (c, d) or b in (c, d) or has_edge(graph, a, d) or has_edge(graph, c, b):
                continue
            pairs[0, 0], pairs[0, 1] = a, b
            pairs[1, 0], pairs[1, 1] = min(c, d), max(c, d)
            pairs[2, 0], pairs[2, 1] = min(a, d), max(a, d)
            pairs[3, 0], pairs[3, 1] = min(b, c), max(b, c)
            total[:] = 0.0
            for r in range(4):
                while not has_room(graph, edges, pairs[r, 0], pairs[r, 1]):
                    graph, edges = larger(graph), larger(edges)
                _toggle(graph, edges, pairs[r, 0], pairs[r, 1], terms, values, delta, total)
            weight = _weight(theta, total)
            if weight >= 0.0 or uniform(random) < np.exp(weight):
                accepted += 1
                for k in range(p):
                    stats[k] += total[k]
            else:
                for r in range(4):
                    while not has_room(graph, edges, pairs[r, 0], pairs[r, 1]):
                        graph, edges = larger(graph), larger(edges)
                    _flip(graph, edges, pairs[r, 0], pairs[r, 1])
        for k in range(p):
            draws[row, k] = stats[k]
    return graph, edges, accepted, draws.shape[0]
