"""How a graph lies in memory while a walk changes it, and what change functions may ask of it (numba).

One array of whole numbers holds the graph: a header, then for every vertex where its list of neighbours begins, how
many there are and how many fit, then the lists. A list that is full moves to the end with twice the room, so memory
grows with the edges. Beside each neighbour stands the number of the edge in the list of edges, from which the walk
draws. Without directions `out` and `into` are the same lists.

numba's cache looks at the date of a function's own file only: after an edit here, delete the compiled files beside it.
"""

from typing import Any

import numpy as np
from numba import njit

#: Where what stands in the header: vertices, edges, the end of what is used, where the lists of arriving edges begin.
NODES, EDGES, USED, INTO = 0, 1, 2, 3
HEADER = 8
#: For every vertex: where its list begins, how long it is, how much fits.
BEGIN, LENGTH, ROOM = 0, 1, 2
RECORD = 3

_OPTIONS: Any = {"cache": True, "error_model": "numpy", "nogil": True}
#: What Python calls.
_njit: Any = njit
compiled: Any = _njit(**_OPTIONS)
#: What only compiled functions call; without a door to Python it is compiled in half the time.
part: Any = _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)


@part
def nodes(graph):
    """How many vertices there are."""
    return graph[NODES]


@part
def out_degree(graph, v):
    """How many edges leave v; without directions, how many edges v has."""
    return graph[HEADER + RECORD * v + LENGTH]


@part
def in_degree(graph, v):
    """How many edges arrive at v."""
    return graph[graph[INTO] + RECORD * v + LENGTH]


@part
def out_neighbour(graph, v, k):
    """The k-th vertex that an edge leads to from v."""
    return graph[graph[HEADER + RECORD * v] + k]


@part
def in_neighbour(graph, v, k):
    """The k-th vertex from which an edge leads to v."""
    return graph[graph[graph[INTO] + RECORD * v] + k]


@part
def place(graph, record, other):
    """Where in the list of this record the other vertex stands; -1: nowhere."""
    begin = graph[record]
    for k in range(graph[record + LENGTH]):
        if graph[begin + k] == other:
            return k
    return -1


@part
def has_edge(graph, i, j):
    """Whether an edge leads from i to j; the shorter of the two lists is searched."""
    tail, head = HEADER + RECORD * i, graph[INTO] + RECORD * j
    if graph[tail + LENGTH] <= graph[head + LENGTH]:
        return place(graph, tail, j) >= 0
    return place(graph, head, i) >= 0


@part
def two_paths(graph, i, j):
    """How many k there are with edges i -> k -> j; without directions, the common neighbours of i and j."""
    count = 0
    tail, head = HEADER + RECORD * i, graph[INTO] + RECORD * j
    if graph[tail + LENGTH] <= graph[head + LENGTH]:
        for k in range(graph[tail + LENGTH]):
            count += has_edge(graph, graph[graph[tail] + k], j)
    else:
        for k in range(graph[head + LENGTH]):
            count += has_edge(graph, i, graph[graph[head] + k])
    return count


@part
def common_targets(graph, i, j):
    """How many k there are with edges i -> k and j -> k."""
    count = 0
    if out_degree(graph, i) > out_degree(graph, j):
        i, j = j, i
    for k in range(out_degree(graph, i)):
        count += has_edge(graph, j, out_neighbour(graph, i, k))
    return count


@part
def common_sources(graph, i, j):
    """How many k there are with edges k -> i and k -> j."""
    count = 0
    if in_degree(graph, i) > in_degree(graph, j):
        i, j = j, i
    for k in range(in_degree(graph, i)):
        count += has_edge(graph, in_neighbour(graph, i, k), j)
    return count


# ------------------------------------------------------------------------------------------------- changing it


@part
def has_room(graph, edges, i, j):
    """Whether the edge i -> j fits without `larger`."""
    record, other = HEADER + RECORD * i, graph[INTO] + RECORD * j
    wanted = 4 * (graph[record + ROOM] + graph[other + ROOM])
    return graph[USED] + wanted <= graph.size and 2 * graph[EDGES] + 2 <= edges.size


@part
def larger(array):
    """A copy with more than twice the room."""
    copy = np.empty(2 * array.size + 64, np.int32)
    for k in range(array.size):
        copy[k] = array[k]
    return copy


@part
def _append(graph, record, other, edge):
    """Write a neighbour and its edge's number into a list; a full list moves to the end."""
    begin, length, room = graph[record], graph[record + LENGTH], graph[record + ROOM]
    if length == room:
        used = graph[USED]
        for k in range(length):
            graph[used + k] = graph[begin + k]
            graph[used + 2 * room + k] = graph[begin + room + k]
        begin, room = used, 2 * room
        graph[record], graph[record + ROOM], graph[USED] = begin, room, used + 2 * room
    graph[begin + length] = other
    graph[begin + room + length] = edge
    graph[record + LENGTH] = length + 1


@part
def add(graph, edges, i, j):
    """Add the edge i -> j, which must not be there and must fit."""
    edge = graph[EDGES]
    edges[2 * edge], edges[2 * edge + 1] = i, j
    _append(graph, HEADER + RECORD * i, j, edge)
    _append(graph, graph[INTO] + RECORD * j, i, edge)
    graph[EDGES] = edge + 1


@part
def _take(graph, record, other):
    """Take a neighbour out of a list; the number of its edge."""
    k = place(graph, record, other)
    begin, last, room = graph[record], graph[record + LENGTH] - 1, graph[record + ROOM]
    edge = graph[begin + room + k]
    graph[begin + k] = graph[begin + last]
    graph[begin + room + k] = graph[begin + room + last]
    graph[record + LENGTH] = last
    return edge


@part
def _renumber(graph, record, other, edge):
    graph[graph[record] + graph[record + ROOM] + place(graph, record, other)] = edge


@part
def remove(graph, edges, i, j):
    """Remove the edge i -> j, which must be there; the last edge takes its number."""
    edge = _take(graph, HEADER + RECORD * i, j)
    _take(graph, graph[INTO] + RECORD * j, i)
    last = graph[EDGES] - 1
    if edge != last:
        a, b = edges[2 * last], edges[2 * last + 1]
        edges[2 * edge], edges[2 * edge + 1] = a, b
        _renumber(graph, HEADER + RECORD * a, b, edge)
        _renumber(graph, graph[INTO] + RECORD * b, a, edge)
    graph[EDGES] = last


# ------------------------------------------------------------------------------------------------- building it


def packed(n: int, directed: bool, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The graph with these edges (rows of tail and head), and its list of edges, with room for as many again."""
    count, kinds = len(pairs), 2 if directed else 1
    tails, heads = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    # One list for each vertex, or two: of edges that leave, then of those that arrive.
    owners = np.concatenate([tails, heads + n * (kinds - 1)])
    others, numbers = np.concatenate([heads, tails]), np.tile(np.arange(count), 2)
    order = np.argsort(owners, kind="stable")
    owners, others, numbers = owners[order], others[order], numbers[order]
    lengths = np.bincount(owners, minlength=n * kinds)
    rooms = np.maximum(2, lengths + 1)
    begins = HEADER + RECORD * n * kinds + np.concatenate([[0], np.cumsum(2 * rooms)])
    graph = np.zeros(int(begins[-1]) + 8 * count + 64, np.int32)
    graph[[NODES, EDGES, USED, INTO]] = n, count, begins[-1], HEADER + RECORD * n * (kinds - 1)
    graph[HEADER : HEADER + RECORD * n * kinds] = np.stack([begins[:-1], lengths, rooms], axis=1).ravel()
    first = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    places = begins[owners] + np.arange(2 * count) - first[owners]
    graph[places] = others
    graph[places + rooms[owners]] = numbers
    edges = np.zeros(4 * count + 64, np.int32)
    edges[: 2 * count] = pairs.ravel()
    return graph, edges
