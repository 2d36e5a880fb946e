"""The walk from graph to graph, and the other loops that ask for the change of all statistics (numba).

A change function has the signature `CHANGE`: it is handed the graph, the pair (i, j), whether the edge is there, the
numbers of its term and the place for its answer, s(with the edge) - s(without it). Loops call it by its address, so a
model of any terms needs no compiling beyond that of its terms.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from unnorm.graphs.layout import (
    EDGES,
    HEADER,
    INTO,
    LENGTH,
    RECORD,
    add,
    compiled,
    has_edge,
    has_room,
    larger,
    nodes,
    out_degree,
    out_neighbour,
    part,
    remove,
)

_WHOLE, _REAL = types.CPointer(types.int32), types.CPointer(types.float64)
#: change(graph, i, j, present, values, delta)
CHANGE: Any = types.void(_WHOLE, types.int64, types.int64, types.int64, _REAL, _REAL)


_intrinsic: Any = intrinsic


@_intrinsic
def _call(typing, address, graph, i, j, present, values, begin, delta, to):
    """Call the change function at this address; `values` from `begin` on, the answer into `delta` from `to` on."""
    whole = types.int64
    signature = types.void(whole, graph, whole, whole, whole, values, whole, delta, whole)

    def generate(context, builder, signature, arguments):
        address, graph, i, j, present, values, begin, delta, to = arguments

        def data(which, array, offset=None):
            pointer = context.make_array(signature.args[which])(context, builder, array).data
            return pointer if offset is None else builder.gep(pointer, [offset])

        handed = [data(1, graph), i, j, present, data(5, values, begin), data(7, delta, to)]
        function = ir.FunctionType(ir.VoidType(), [value.type for value in handed])
        builder.call(builder.inttoptr(address, function.as_pointer()), handed)
        return context.get_dummy_value()

    return signature, generate


@part
def uniform(state):
    """A number in [0, 1): xoshiro256+ (Blackman and Vigna 2018), the upper 53 bits."""
    drawn = state[0] + state[3]
    shifted = state[1] << np.uint64(17)
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= shifted
    state[3] = (state[3] << np.uint64(45)) | (state[3] >> np.uint64(19))
    return float(drawn >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@part
def change(graph, i, j, present, terms, values, delta):
    """The changes of all statistics; `terms` has a row (address, begin of its values, first statistic) for each."""
    for t in range(terms.shape[0]):
        _call(terms[t, 0], graph, i, j, present, values, terms[t, 1], delta, terms[t, 2])


@part
def some_pair(graph, directed, random):
    """Two different vertices, uniformly; without directions the smaller first."""
    n = nodes(graph)
    i, j = int(uniform(random) * n), int(uniform(random) * (n - 1))
    if j >= i:
        j += 1
    if not directed and i > j:
        i, j = j, i
    return i, j


@part
def _closings(graph, i, j):
    """sum over two-paths i -> k -> j of 1 / (out-degree of k): how easily i -> j is drawn as the end of a two-path."""
    total = 0.0
    tail, head = HEADER + RECORD * i, graph[INTO] + RECORD * j
    if graph[tail + LENGTH] <= graph[head + LENGTH]:
        for m in range(graph[tail + LENGTH]):
            k = graph[graph[tail] + m]
            if has_edge(graph, k, j):
                total += 1.0 / out_degree(graph, k)
    else:
        for m in range(graph[head + LENGTH]):
            k = graph[graph[head] + m]
            if has_edge(graph, i, k):
                total += 1.0 / out_degree(graph, k)
    return total


@compiled
def walk(graph, edges, directed, random, theta, terms, values, stats, draws, interval, most, closing, corrected):
    """Metropolis's walk with the tie-no-tie proposal (Morris, Handcock and Hunter 2008), and one that closes two-paths.

    What is drawn is toggled: with probability c = `closing` the ends of a two-path (an edge i -> k, then an edge from
    k), and else with equal probability an edge or a pair. With E edges, D pairs and s = sum_k 1 / (out-degree of k)
    over the two-paths i -> k -> j, the pair (i, j) comes up with probability
        c s / E + (1 - c) / 2 (1 / D + [the edge is there] / E),
    and from the empty graph with 1 / D. After every `interval` proposals `stats`, which is kept up to date, is
    written into the next row of `draws`. A walk that gets more than `most` edges ends there. `corrected` false forgets
    the ratio of the proposals: a wrong walk, for tests. Returns graph, edges, how many toggles were accepted, how many
    rows were written.
    """
    n, p = nodes(graph), theta.size
    pairs = n * (n - 1.0) if directed else n * (n - 1.0) / 2.0
    half = 0.5 * (1.0 - closing)
    delta = np.zeros(p)
    accepted = 0
    for row in range(draws.shape[0]):
        for _ in range(interval):
            count = graph[EDGES]
            way = uniform(random)
            if count == 0 or way < half:
                i, j = some_pair(graph, directed, random)
                present = has_edge(graph, i, j)
            elif way < 2.0 * half:
                e = int(uniform(random) * count)
                i, j, present = edges[2 * e], edges[2 * e + 1], True
            else:
                e = int(uniform(random) * count)
                i, k = edges[2 * e], edges[2 * e + 1]
                if not directed and uniform(random) < 0.5:
                    i, k = k, i
                ways = out_degree(graph, k)
                if ways == 0:
                    continue
                j = out_neighbour(graph, k, int(uniform(random) * ways))
                if i == j:
                    continue
                if not directed and i > j:
                    i, j = j, i
                present = has_edge(graph, i, j)
            change(graph, i, j, int(present), terms, values, delta)
            weight = 0.0
            for k in range(p):
                if delta[k] != 0.0:
                    weight += theta[k] * delta[k]
            if present:
                weight = -weight
            if corrected:
                s = closing * _closings(graph, i, j) if closing > 0.0 else 0.0
                # With the edge there are m edges, without it m - 1.
                m = count if present else count + 1
                there = half / pairs + (half + s) / m
                gone = half / pairs + s / (m - 1.0) if m > 1 else 1.0 / pairs
                ratio = gone / there if present else there / gone
            else:
                ratio = 1.0
            chance = np.exp(weight) * ratio
            if chance >= 1.0 or uniform(random) < chance:
                accepted += 1
                if present:
                    remove(graph, edges, i, j)
                    for k in range(p):
                        stats[k] -= delta[k]
                else:
                    if not has_room(graph, edges, i, j):
                        graph, edges = larger(graph), larger(edges)
                    add(graph, edges, i, j)
                    for k in range(p):
                        stats[k] += delta[k]
                    if count >= most:
                        return graph, edges, accepted, row
        for k in range(p):
            draws[row, k] = stats[k]
    return graph, edges, accepted, draws.shape[0]


@compiled
def swaps(graph, edges, directed, random, theta, terms, values, stats, draws, interval):
    """Metropolis's walk over graphs with as many edges as this one: an edge goes, and a pair without one gets it.

    The edge is drawn uniformly, and pairs until one is without an edge, so the proposal is symmetric.
    """
    n, p = nodes(graph), theta.size
    pairs = n * (n - 1.0) if directed else n * (n - 1.0) / 2.0
    gone, come = np.zeros(p), np.zeros(p)
    accepted = 0
    for row in range(draws.shape[0]):
        for _ in range(interval):
            count = graph[EDGES]
            if count == 0 or count == pairs:
                break
            e = int(uniform(random) * count)
            a, b = edges[2 * e], edges[2 * e + 1]
            i, j = some_pair(graph, directed, random)
            while has_edge(graph, i, j):
                i, j = some_pair(graph, directed, random)
            change(graph, a, b, 1, terms, values, gone)
            remove(graph, edges, a, b)
            if not has_room(graph, edges, i, j):
                graph, edges = larger(graph), larger(edges)
            change(graph, i, j, 0, terms, values, come)
            weight = 0.0
            for k in range(p):
                if come[k] != gone[k]:
                    weight += theta[k] * (come[k] - gone[k])
            if weight >= 0.0 or uniform(random) < np.exp(weight):
                accepted += 1
                add(graph, edges, i, j)
                for k in range(p):
                    stats[k] += come[k] - gone[k]
            else:
                add(graph, edges, a, b)
        for k in range(p):
            draws[row, k] = stats[k]
    return graph, edges, accepted, draws.shape[0]


@compiled
def statistics(graph, edges, terms, values, stats):
    """Take all edges out of the graph, one by one, and add the changes to `stats`, which holds the empty graph's."""
    delta = np.zeros(stats.size)
    while graph[EDGES] > 0:
        i, j = edges[0], edges[1]
        change(graph, i, j, 1, terms, values, delta)
        remove(graph, edges, i, j)
        for k in range(stats.size):
            stats[k] += delta[k]


@compiled
def changes_at(graph, pairs, terms, values, present, rows):
    """For each of these pairs whether the edge is there, and the changes of all statistics."""
    for r in range(pairs.shape[0]):
        i, j = pairs[r, 0], pairs[r, 1]
        here = int(has_edge(graph, i, j))
        present[r] = here
        change(graph, i, j, here, terms, values, rows[r])


@compiled
def enumerated(graph, edges, pairs, terms, values, stats, rows):
    """The statistics of all 2^D graphs, in the order of Gray's code: one toggle leads from each to the next."""
    delta = np.zeros(stats.size)
    for code in range(rows.shape[0]):
        for k in range(stats.size):
            rows[code, k] = stats[k]
        bit, rest = 0, code + 1
        while rest % 2 == 0:
            rest //= 2
            bit += 1
        if bit == pairs.shape[0]:
            break
        i, j = pairs[bit, 0], pairs[bit, 1]
        here = has_edge(graph, i, j)
        change(graph, i, j, int(here), terms, values, delta)
        if here:
            remove(graph, edges, i, j)
        else:
            if not has_room(graph, edges, i, j):
                graph, edges = larger(graph), larger(edges)
            add(graph, edges, i, j)
        for k in range(stats.size):
            stats[k] += -delta[k] if here else delta[k]
