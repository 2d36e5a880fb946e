"""Graphs of which some pairs are not known, against the sum over all graphs that agree with the others."""

import networkx
import numpy as np
import pytest
from harness import SIGMAS
from scipy.optimize import minimize

from unnorm.errors import InputError
from unnorm.graphs import Enumerated, Model, fit, network_of, parse, scoring
from unnorm.graphs.constraints import OnlyPairs

GRAPH = networkx.Graph([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (1, 5), (0, 4)])
MISSING = [(0, 4), (3, 5), (3, 1)]


def _by_enumeration(terms, graph, missing):
    """The maximum of the likelihood of the known pairs, its value, and its errors."""
    network = network_of(graph)
    rows = np.array([sorted(pair) for pair in missing], np.int32)
    whole = Enumerated(Model(parse(terms), network))
    agreeing = Enumerated(Model(parse(terms), network, constraint=OnlyPairs(rows)))

    def lost(theta):
        return whole.log_partition(theta) - agreeing.log_partition(theta)

    solved = minimize(lost, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12})
    information = whole.moments(solved.x)[1] - agreeing.moments(solved.x)[1]
    return solved.x, -solved.fun, np.sqrt(np.diag(np.linalg.inv(information)))


def test_estimate_is_that_of_the_known_pairs(monkeypatch):
    monkeypatch.setattr(scoring, "SHARE", 1 / 40)
    theta, value, errors = _by_enumeration("edges, triangle", GRAPH, MISSING)
    fitted = fit(GRAPH, "edges, triangle", missing=MISSING, key=1)
    assert fitted.outcome.ok, fitted.outcome.message
    stated = np.array([row.stderr for row in fitted.coefficients])
    chance = stated * np.sqrt([row.monte_carlo_share for row in fitted.coefficients])
    assert np.all(np.abs(fitted.theta - theta) < SIGMAS * chance), (fitted.theta, theta, chance)
    assert np.all(chance < errors / 30) and np.allclose(stated, errors, rtol=0.1)
    told = fitted.log_likelihood
    assert abs(told.value - value) < SIGMAS * told.stderr and told.stderr < 0.05
    # Missing pairs are not pairs without an edge, nor does it matter whether the file has an edge there.
    filled = GRAPH.copy()
    filled.remove_edges_from(MISSING)
    assert np.any(np.abs(fit(filled, "edges, triangle").theta - theta) > SIGMAS * chance)
    assert fit(filled, "edges, triangle", missing=MISSING, key=1).theta.tolist() == fitted.theta.tolist()


def test_pairs_that_are_independent_are_left_out():
    fitted = fit(GRAPH, "edges", missing=MISSING)
    known, edges = 15 - len(MISSING), 7 - 1
    assert np.isclose(fitted.theta[0], np.log(edges / (known - edges)))
    assert "3 of 15 pairs are not known" in str(fitted)


def test_pairs_that_are_none_are_refused():
    for missing, said in (([(0, 9)], "no vertex"), ([(1, 1)], "is one vertex"), ([], "no pair")):
        with pytest.raises(InputError, match=said):
            fit(GRAPH, "edges", missing=missing)
