"""Change functions of counts: how many edges, or pairs, share 1, 2 ... partners (numba); see `changes`.

values: the largest count K; what shares more counts as K. delta[k - 1] is of those that share k.
"""

from unnorm.graphs.layout import has_edge, in_degree, in_neighbour, out_degree, out_neighbour, part, two_paths


@part
def _raise(delta, most, count):
    """One that shared `count` shares one more."""
    if count >= most:
        return
    if count >= 1:
        delta[count - 1] -= 1.0
    delta[count] += 1.0


@part
def _clear(delta, most):
    for k in range(most):
        delta[k] = 0.0


def edge_partners(graph, i, j, present, values, delta):
    most, shared = int(values[0]), 0
    _clear(delta, most)
    if out_degree(graph, i) > out_degree(graph, j):
        i, j = j, i
    for k in range(out_degree(graph, i)):
        h = out_neighbour(graph, i, k)
        if has_edge(graph, h, j):
            shared += 1
            _raise(delta, most, two_paths(graph, i, h) - present)
            _raise(delta, most, two_paths(graph, j, h) - present)
    if shared > 0:
        delta[min(shared, most) - 1] += 1.0


def edge_partners_directed(graph, i, j, present, values, delta):
    most = int(values[0])
    _clear(delta, most)
    for k in range(out_degree(graph, i)):
        h = out_neighbour(graph, i, k)
        if has_edge(graph, j, h):
            _raise(delta, most, two_paths(graph, i, h) - present)
    for k in range(in_degree(graph, j)):
        h = in_neighbour(graph, j, k)
        if has_edge(graph, h, i):
            _raise(delta, most, two_paths(graph, h, j) - present)
    shared = two_paths(graph, i, j)
    if shared > 0:
        delta[min(shared, most) - 1] += 1.0


def pair_partners(graph, i, j, present, values, delta):
    most = int(values[0])
    _clear(delta, most)
    for v, w in ((i, j), (j, i)):
        for k in range(out_degree(graph, w)):
            h = out_neighbour(graph, w, k)
            if h != v:
                _raise(delta, most, two_paths(graph, v, h) - present)


def pair_partners_directed(graph, i, j, present, values, delta):
    most = int(values[0])
    _clear(delta, most)
    for k in range(out_degree(graph, j)):
        h = out_neighbour(graph, j, k)
        if h != i:
            _raise(delta, most, two_paths(graph, i, h) - present)
    for k in range(in_degree(graph, i)):
        h = in_neighbour(graph, i, k)
        if h != j:
            _raise(delta, most, two_paths(graph, h, j) - present)


def degree_counts(graph, i, j, present, values, delta):
    most = int(values[0])
    _clear(delta, most)
    _raise(delta, most, out_degree(graph, i) - present)
    _raise(delta, most, out_degree(graph, j) - present)


def out_degree_counts(graph, i, j, present, values, delta):
    most = int(values[0])
    _clear(delta, most)
    _raise(delta, most, out_degree(graph, i) - present)


def in_degree_counts(graph, i, j, present, values, delta):
    most = int(values[0])
    _clear(delta, most)
    _raise(delta, most, in_degree(graph, j) - present)
