"""Change functions of the terms that come with the library, compiled when a model first needs them (numba).

Each writes s(graph with the edge i -> j) - s(graph without it) into `delta`; `present` says whether the edge is in the
graph now. `values` are the numbers of the term: parameters first, then what it reads of the vertices.
"""

from unnorm.graphs.layout import (
    has_edge,
    in_degree,
    nodes,
    out_degree,
    out_neighbour,
    two_paths,
)

# ------------------------------------------------------------------------------------------------- any graph


def edges(graph, i, j, present, values, delta):
    delta[0] = 1.0


def node_sum(graph, i, j, present, values, delta):
    delta[0] = values[i] + values[j]


def node_factor(graph, i, j, present, values, delta):
    """values: levels that are counted, then the level of each vertex (-1: not counted)."""
    levels = int(values[0])
    for k in range(levels):
        delta[k] = 0.0
    for v in (i, j):
        level = int(values[1 + v])
        if level >= 0:
            delta[level] += 1.0


def node_match(graph, i, j, present, values, delta):
    delta[0] = 1.0 if values[i] == values[j] else 0.0


def node_match_each(graph, i, j, present, values, delta):
    levels = int(values[0])
    for k in range(levels):
        delta[k] = 0.0
    if values[1 + i] == values[1 + j]:
        delta[int(values[1 + i])] = 1.0


def node_mix(graph, i, j, present, values, delta):
    """values: statistics, levels, the statistic of each pair of levels (-1: none), then the level of each vertex."""
    statistics, levels = int(values[0]), int(values[1])
    for k in range(statistics):
        delta[k] = 0.0
    of = 2 + levels * levels
    which = int(values[2 + levels * int(values[of + i]) + int(values[of + j])])
    if which >= 0:
        delta[which] = 1.0


def abs_difference(graph, i, j, present, values, delta):
    delta[0] = abs(values[1 + i] - values[1 + j]) ** values[0]


def edge_covariate(graph, i, j, present, values, delta):
    delta[0] = values[i * nodes(graph) + j]


# ------------------------------------------------------------------------------------------------- without directions


def triangle(graph, i, j, present, values, delta):
    delta[0] = two_paths(graph, i, j)


def stars(graph, i, j, present, values, delta):
    """values: how many sizes, then the sizes. A k-star at v is v with k of its neighbours."""
    for s in range(int(values[0])):
        k = int(values[1 + s]) - 1
        total = 0.0
        for v in (i, j):
            degree, star = out_degree(graph, v) - present, 1.0
            for m in range(k):
                star *= (degree - m) / (m + 1.0)
            total += star
        delta[s] = total


def degrees(graph, i, j, present, values, delta):
    """values: how many degrees, then the degrees: vertices that have so many edges."""
    for s in range(int(values[0])):
        d, total = int(values[1 + s]), 0.0
        for v in (i, j):
            degree = out_degree(graph, v) - present
            total += (degree + 1 == d) - (degree == d)
        delta[s] = total


def gw_degree(graph, i, j, present, values, delta):
    """values: powers (1 - e^-decay)^k."""
    delta[0] = values[out_degree(graph, i) - present] + values[out_degree(graph, j) - present]


def gw_esp(graph, i, j, present, values, delta):
    """values: e^decay, then the powers (1 - e^-decay)^k."""
    if out_degree(graph, i) > out_degree(graph, j):
        i, j = j, i
    shared, total = 0, 0.0
    for k in range(out_degree(graph, i)):
        h = out_neighbour(graph, i, k)
        if has_edge(graph, h, j):
            shared += 1
            total += values[1 + two_paths(graph, i, h) - present]
            total += values[1 + two_paths(graph, j, h) - present]
    delta[0] = total + values[0] * (1.0 - values[1 + shared])


def gw_dsp(graph, i, j, present, values, delta):
    """values: powers (1 - e^-decay)^k. The paths through the edge make i meet j's neighbours, and j those of i."""
    total = 0.0
    for v, w in ((i, j), (j, i)):
        for k in range(out_degree(graph, w)):
            h = out_neighbour(graph, w, k)
            if h != v:
                total += values[two_paths(graph, v, h) - present]
    delta[0] = total


def isolates(graph, i, j, present, values, delta):
    """Vertices without an edge; with directions, without one in either."""
    total = 0.0
    directed = int(values[0])
    for v in (i, j):
        degree = out_degree(graph, v) - present
        if directed:
            degree += in_degree(graph, v)
        total -= degree == 0
    delta[0] = total
