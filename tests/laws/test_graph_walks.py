"""The walks on graphs against the law of all graphs on few vertices, graph by graph."""

import numpy as np
import pytest
from graph_truths import chi_square

from unnorm.graphs import Enumerated, Model, network_of, parse, walking
from unnorm.graphs.layout import EDGES
from unnorm.graphs.randomness import generators
from unnorm.graphs.terms import EdgeCov

#: Terms and coefficients; the last statistic writes down which graph it is, and weighs nothing.
CASES = {
    "triangles": (4, False, "edges, triangle", (-0.4, 0.6), 40),
    "partners of five": (5, False, "edges, gwesp(0.5), isolates", (-0.5, 0.4, 0.3), 40),
    "directed": (3, True, "edges, mutual, ctriple", (-0.3, 0.8, -0.7), 40),
}
DRAWS = 40_000


def _model(n, directed, terms):
    """With a statistic that numbers the graphs."""
    bits = np.zeros((n, n))
    pairs = network_of(np.zeros((n, n), int)).pairs() if not directed else np.argwhere(~np.eye(n, dtype=bool))
    bits[pairs[:, 0], pairs[:, 1]] = 2.0 ** np.arange(len(pairs))
    bits = bits if directed else bits + bits.T
    network = network_of(np.zeros((n, n), int))
    network = type(network)(n, directed, network.edges, network.labels, {})
    return Model([*parse(terms), EdgeCov(bits)], network)


def _truth(model, theta):
    """The probability of each graph by its number."""
    every = Enumerated(model)
    weights = np.exp(model.weighed(theta, every.every))
    p = np.zeros(len(weights))
    p[every.every[:, -1].astype(int)] = weights / weights.sum()
    return p


def _drawn(model, theta, interval, closing=0.0, corrected=True):
    """Numbers of the graphs of a walk, and whether its statistics were kept right."""
    graph, edges, stats = model.build(np.zeros((0, 2), np.int32))
    draws = np.zeros((DRAWS, model.size))
    random = generators(4, 0, 1)[0]
    given = (graph, edges, model.network.directed, random, theta, model.table, model.values, stats, draws, interval)
    graph, edges, _, _ = walking.walk(*given, 10**6, closing, corrected)
    again = model.statistics(edges[: 2 * graph[EDGES]].reshape(-1, 2))
    assert np.allclose(again, draws[-1], atol=1e-9)
    return np.round(draws[:, -1]).astype(int)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("closing", [0.0, 0.25])
def test_walk_has_the_law_of_the_model(name, closing):
    n, directed, terms, theta, interval = CASES[name]
    model, theta = _model(n, directed, terms), np.array([*theta, 0.0])
    truth = _truth(model, theta)
    assert chi_square(_drawn(model, theta, interval, closing), truth) > 1e-4
    assert chi_square(_drawn(model, theta, interval, closing, corrected=False), truth) < 1e-9


def test_walk_that_keeps_the_edges_has_the_law_of_those_graphs():
    model, theta = _model(5, False, "triangle, degree(1)"), np.array([0.7, -0.4, 0.0])
    start, count = np.array([[0, 1], [1, 2], [2, 3], [3, 4]], np.int32), 4
    graph, edges, stats = model.build(start)
    draws = np.zeros((DRAWS, 3))
    given = (graph, edges, False, generators(3, 0, 1)[0], theta, model.table, model.values, stats, draws, 40)
    walking.swaps(*given)
    codes = np.round(draws[:, -1]).astype(int)
    truth = _truth(model, theta)
    bits = np.array([int(code).bit_count() for code in range(len(truth))])
    kept = np.where(bits == count, truth, 0.0)
    assert chi_square(codes, kept / kept.sum()) > 1e-4
    uniform = np.where(bits == count, 1.0, 0.0)
    assert chi_square(codes, uniform / uniform.sum()) < 1e-9
