"""Change functions of the terms for graphs with directions (numba); see `changes`."""

from unnorm.graphs.layout import (
    common_sources,
    common_targets,
    has_edge,
    in_degree,
    in_neighbour,
    out_degree,
    out_neighbour,
    two_paths,
)


def mutual(graph, i, j, present, values, delta):
    delta[0] = has_edge(graph, j, i)


def sender(graph, i, j, present, values, delta):
    """values: statistics, then the statistic of each vertex (-1: none)."""
    for k in range(int(values[0])):
        delta[k] = 0.0
    if values[1 + i] >= 0.0:
        delta[int(values[1 + i])] = 1.0


def receiver(graph, i, j, present, values, delta):
    for k in range(int(values[0])):
        delta[k] = 0.0
    if values[1 + j] >= 0.0:
        delta[int(values[1 + j])] = 1.0


def node_out_sum(graph, i, j, present, values, delta):
    delta[0] = values[i]


def node_in_sum(graph, i, j, present, values, delta):
    delta[0] = values[j]


def transitive(graph, i, j, present, values, delta):
    """Triples a -> b -> c with a -> c: the edge may be the long one, the first, or the second."""
    delta[0] = two_paths(graph, i, j) + common_targets(graph, i, j) + common_sources(graph, i, j)


def cyclic(graph, i, j, present, values, delta):
    """Triples a -> b -> c -> a."""
    delta[0] = two_paths(graph, j, i)


def triangle_directed(graph, i, j, present, values, delta):
    total = two_paths(graph, i, j) + common_targets(graph, i, j) + common_sources(graph, i, j)
    delta[0] = total + two_paths(graph, j, i)


def two_path(graph, i, j, present, values, delta):
    """a -> b -> c with a, b and c different."""
    delta[0] = in_degree(graph, i) + out_degree(graph, j) - 2 * has_edge(graph, j, i)


def out_stars(graph, i, j, present, values, delta):
    for s in range(int(values[0])):
        star = 1.0
        for m in range(int(values[1 + s]) - 1):
            star *= (out_degree(graph, i) - present - m) / (m + 1.0)
        delta[s] = star


def in_stars(graph, i, j, present, values, delta):
    for s in range(int(values[0])):
        star = 1.0
        for m in range(int(values[1 + s]) - 1):
            star *= (in_degree(graph, j) - present - m) / (m + 1.0)
        delta[s] = star


def out_degrees(graph, i, j, present, values, delta):
    degree = out_degree(graph, i) - present
    for s in range(int(values[0])):
        delta[s] = int(degree + 1 == int(values[1 + s])) - int(degree == int(values[1 + s]))


def in_degrees(graph, i, j, present, values, delta):
    degree = in_degree(graph, j) - present
    for s in range(int(values[0])):
        delta[s] = int(degree + 1 == int(values[1 + s])) - int(degree == int(values[1 + s]))


def gw_out_degree(graph, i, j, present, values, delta):
    """values: powers (1 - e^-decay)^k."""
    delta[0] = values[out_degree(graph, i) - present]


def gw_in_degree(graph, i, j, present, values, delta):
    delta[0] = values[in_degree(graph, j) - present]


def gw_esp_directed(graph, i, j, present, values, delta):
    """values: e^decay, then the powers (1 - e^-decay)^k. The partners of a -> b are the k with a -> k -> b."""
    total = 0.0
    for k in range(out_degree(graph, i)):
        h = out_neighbour(graph, i, k)
        if has_edge(graph, j, h):
            total += values[1 + two_paths(graph, i, h) - present]
    for k in range(in_degree(graph, j)):
        h = in_neighbour(graph, j, k)
        if has_edge(graph, h, i):
            total += values[1 + two_paths(graph, h, j) - present]
    delta[0] = total + values[0] * (1.0 - values[1 + two_paths(graph, i, j)])


def gw_dsp_directed(graph, i, j, present, values, delta):
    """values: powers (1 - e^-decay)^k. Ordered pairs (a, b) by the number of k with a -> k -> b."""
    total = 0.0
    for k in range(out_degree(graph, j)):
        h = out_neighbour(graph, j, k)
        if h != i:
            total += values[two_paths(graph, i, h) - present]
    for k in range(in_degree(graph, i)):
        h = in_neighbour(graph, i, k)
        if h != j:
            total += values[two_paths(graph, h, j) - present]
    delta[0] = total
