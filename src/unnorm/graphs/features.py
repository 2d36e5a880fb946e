"""What the fit of a random graph is judged by: degrees, shared partners, distances, triads, counted (numba)."""

import numpy as np

from unnorm.graphs.layout import (
    HEADER,
    INTO,
    LENGTH,
    RECORD,
    compiled,
    has_edge,
    in_neighbour,
    nodes,
    out_degree,
    out_neighbour,
    part,
    two_paths,
)

#: The sixteen kinds of triads with directions, as they are named (Davis and Leinhardt 1972).
TRIADS = (
    *("003", "012", "102", "021D", "021U", "021C", "111D", "111U"),
    *("030T", "030C", "201", "120D", "120U", "120C", "210", "300"),
)
#: The number of the kind for each of the 64 ways three ordered vertices may be joined (Batagelj and Mrvar 2001).
_KINDS = np.array(
    [
        [1, 2, 2, 3, 2, 4, 6, 8, 2, 6, 5, 7, 3, 8, 7, 11],
        [2, 6, 4, 8, 5, 9, 9, 13, 6, 10, 9, 14, 7, 14, 12, 15],
        [2, 5, 6, 7, 6, 9, 10, 14, 4, 9, 9, 12, 8, 13, 14, 15],
        [3, 7, 8, 11, 7, 12, 14, 15, 8, 14, 13, 15, 11, 15, 15, 16],
    ],
    np.int64,
).ravel()


@compiled
def degrees(graph, arriving):
    """The degree of each vertex: of edges that leave, or of those that arrive."""
    found = np.zeros(nodes(graph), np.int64)
    for v in range(nodes(graph)):
        found[v] = graph[(graph[INTO] if arriving else HEADER) + RECORD * v + LENGTH]
    return found


@compiled
def partners(graph, edges):
    """For each edge i -> j, how many k there are with i -> k -> j."""
    found = np.zeros(edges.shape[0], np.int64)
    for e in range(edges.shape[0]):
        found[e] = two_paths(graph, edges[e, 0], edges[e, 1])
    return found


@compiled
def distances(graph, sources):
    """How many vertices are k steps from these, summed over them, for k = 0 .. n - 1; those out of reach stand last."""
    n = nodes(graph)
    counts, far, queue = np.zeros(n + 1, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for source in sources:
        far[:] = -1
        far[source] = 0
        queue[0] = source
        first, last = 0, 1
        while first < last:
            v = queue[first]
            first += 1
            counts[far[v]] += 1
            for k in range(out_degree(graph, v)):
                w = out_neighbour(graph, v, k)
                if far[w] < 0:
                    far[w] = far[v] + 1
                    queue[last] = w
                    last += 1
        counts[n] += n - last
    return counts


@part
def _joined(graph, v, u):
    return has_edge(graph, v, u) or has_edge(graph, u, v)


@part
def _code(graph, v, u, w):
    code = has_edge(graph, v, u) + 2 * has_edge(graph, u, v) + 4 * has_edge(graph, v, w)
    return code + 8 * has_edge(graph, w, v) + 16 * has_edge(graph, u, w) + 32 * has_edge(graph, w, u)


@compiled
def triads(graph, kinds):
    """How many triads there are of each kind, in a graph with directions (Batagelj and Mrvar 2001)."""
    n = nodes(graph)
    counts = np.zeros(16, np.int64)
    seen, near = np.full(n, -1, np.int64), np.empty(n, np.int64)
    mark = 0
    for v in range(n):
        for way in range(2):
            begin = HEADER if way == 0 else graph[INTO]
            for a in range(graph[begin + RECORD * v + LENGTH]):
                u = out_neighbour(graph, v, a) if way == 0 else in_neighbour(graph, v, a)
                # A pair joined both ways is met twice, and counts once.
                if u < v or (way == 1 and has_edge(graph, v, u)):
                    continue
                mark += 1
                seen[v] = seen[u] = mark
                count = 0
                for x in (v, u):
                    for side in range(2):
                        of = HEADER if side == 0 else graph[INTO]
                        for b in range(graph[of + RECORD * x + LENGTH]):
                            w = out_neighbour(graph, x, b) if side == 0 else in_neighbour(graph, x, b)
                            if seen[w] != mark:
                                seen[w] = mark
                                near[count] = w
                                count += 1
                both = has_edge(graph, v, u) and has_edge(graph, u, v)
                counts[2 if both else 1] += n - count - 2
                for b in range(count):
                    w = near[b]
                    if u < w or (v < w and w < u and not _joined(graph, v, w)):
                        counts[kinds[_code(graph, v, u, w)] - 1] += 1
    total = n * (n - 1) * (n - 2) // 6
    counts[0] = total - counts.sum()
    return counts


def triad_census(graph: np.ndarray, directed: bool, edges: np.ndarray) -> np.ndarray:
    """The sixteen kinds with directions; without, triads of 0, 1, 2 and 3 edges."""
    if directed:
        return triads(graph, _KINDS)
    n, many = int(graph[0]), degrees(graph, False)
    three = int(partners(graph, edges).sum()) // 3
    two = int((many * (many - 1)).sum()) // 2 - 3 * three
    one = len(edges) * (n - 2) - 2 * two - 3 * three
    return np.array([n * (n - 1) * (n - 2) // 6 - one - two - three, one, two, three])
