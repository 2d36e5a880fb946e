"""Decays that are estimated: counts against definitions, and estimates against the sum over all graphs."""

import networkx
import numpy as np
import pytest
from graph_truths import model_of, networks_of
from harness import SIGMAS
from scipy.optimize import minimize

from unnorm.errors import InputError
from unnorm.graphs import Enumerated, check_term, curved, fit, network_of, parse, scoring
from unnorm.graphs.terms.counts import CURVED, weights


@pytest.mark.parametrize("word", CURVED)
def test_counts_are_those_of_the_definition_and_weigh_as_the_term(word):
    kind = CURVED[word]()
    for directed in (False, True) if kind.directed is None else (kind.directed,):
        graph = networkx.gnp_random_graph(9, 0.4, seed=1, directed=directed)
        check_term(kind, graph, graphs=4, pairs=20)
        network = network_of(graph)
        y = network.adjacency()
        for decay in (0.2, 0.9):
            w, change = weights(decay, kind.most(network))
            fixed = kind.fixed(decay).statistic(y, network)[0]
            assert np.isclose(w @ kind.statistic(y, network), fixed)
            numeric = (weights(decay + 1e-6, len(w))[0] - weights(decay - 1e-6, len(w))[0]) / 2e-6
            assert np.allclose(change, numeric, atol=1e-6)


def test_a_wrong_count_is_found():
    class Shifted(CURVED["gwdegree"]):
        def counted(self, y, directed):
            return y.sum(1) + 1

    with pytest.raises(InputError, match="by definition"):
        check_term(Shifted(), networkx.gnp_random_graph(9, 0.4, seed=1))


def test_decay_and_coefficients_are_those_of_all_graphs(monkeypatch):
    terms, planted = "edges, gwesp(free)", np.array([-1.0, 0.6, 0.8])
    model = model_of(terms, 6)
    every = Enumerated(model)
    scored = curved.Curved(model, [np.zeros((0, 2), np.int32)], key=0)
    graphs = every.sample(scored.weighed(planted)[0], 300, seed=3)
    observed = np.mean([model.statistics(edges) for edges in graphs], axis=0)

    def lost(place):
        eta = scored.weighed(place)[0]
        return every.log_partition(eta) - observed @ eta

    solved = minimize(lost, planted, method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-10, "maxiter": 400})
    monkeypatch.setattr(scoring, "SHARE", 1 / 8)
    fitted = fit(networks_of(model, graphs), terms, key=2)
    assert fitted.outcome.ok, fitted.outcome.message
    found = np.array([row.estimate for row in fitted.coefficients])
    errors = np.array([row.stderr for row in fitted.coefficients])
    chance = errors * np.sqrt([row.monte_carlo_share for row in fitted.coefficients])
    assert np.all(np.abs(found - solved.x) < SIGMAS * chance), (found, solved.x, chance)
    assert np.all(chance < errors / 4)
    assert np.all(np.abs(found - planted) < 4 * errors)
    # The stated errors are those of the information by enumeration.
    eta, slope = scored.weighed(solved.x)
    information = slope.T @ every.moments(eta)[1] @ slope * len(graphs)
    assert np.allclose(np.sqrt(np.diag(np.linalg.inv(information))), errors, rtol=0.2)
    # With a decay held far from it, the likelihood is lower.
    assert lost(np.array([*found[:2], 0.05])) > lost(found) + 2 / len(graphs)
    assert [row.name for row in fitted.coefficients] == ["edges", "gwesp", "gwesp decay"]
    assert len(fitted.theta) == 2 and "gwesp decay" in str(fitted)
    assert parse("gwesp(0.5, fixed=FALSE)") == parse("gwesp(free)")
