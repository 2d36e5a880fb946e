"""Models over some graphs only: walks, estimates and likelihoods against the sum over those graphs."""

import math

import networkx
import numpy as np
import pytest
from graph_truths import chi_square, networks_of
from harness import SIGMAS

from unnorm.errors import InputError
from unnorm.graphs import Enumerated, Model, fit, likelihood, network_of, parse
from unnorm.graphs.chains import Chains
from unnorm.graphs.constraints import OnlyPairs, SameDegrees, SameEdgeCount
from unnorm.graphs.terms import EdgeCov

GRAPH = networkx.Graph([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 4), (0, 5), (2, 4)])
LOOSE = OnlyPairs(np.array([[0, 1], [0, 2], [1, 3], [2, 4], [3, 5]], np.int32))
CASES = {
    "edges": (SameEdgeCount(), "triangle, degree(1)", (0.6, -0.4)),
    "degrees": (SameDegrees(), "triangle, gwdsp(0.5)", (0.9, -0.5)),
    "pairs": (LOOSE, "edges, triangle", (-0.5, 0.7)),
}


@pytest.mark.parametrize("name", CASES)
def test_walk_has_the_law_of_the_graphs_it_is_among(name):
    constraint, terms, theta = CASES[name]
    network = network_of(GRAPH)
    bits, pairs = np.zeros((6, 6)), network.pairs()
    bits[pairs[:, 0], pairs[:, 1]] = 2.0 ** np.arange(15)
    model = Model([*parse(terms), EdgeCov(bits + bits.T)], network, constraint=constraint)
    chains = Chains(model, [network.edges], key=3)
    drawn = chains.draw(np.array([*theta, 0.0]), 20_000, 60)[0]
    assert np.allclose(model.statistics(chains.edges_of(0)), drawn[-1], atol=1e-9)
    every = Enumerated(model)

    def law(coefficients):
        weights = np.where(every.allowed, np.exp(every.every[:, :2] @ coefficients), 0.0)
        p = np.zeros(len(weights))
        p[every.every[:, 2].astype(int)] = weights / weights.sum()
        return p

    codes = np.round(drawn[:, 2]).astype(int)
    assert chi_square(codes, law(np.array(theta))) > 1e-4
    assert chi_square(codes, law(np.array(theta) * 0.7)) < 1e-6


@pytest.mark.parametrize("name", ["edges", "degrees"])
def test_estimates_are_those_over_these_graphs(name, monkeypatch):
    constraint, terms, theta = CASES[name]
    every = Enumerated(Model(parse(terms), network_of(GRAPH), constraint=constraint))
    graphs = networks_of(every.model, every.sample(np.array(theta), 30, seed=1))
    exact = fit(graphs, terms, constraint=name)
    mean, _ = every.moments(exact.theta)
    assert np.allclose(mean, exact.observed, atol=1e-7)
    assert np.all(np.abs(exact.theta - theta) < 4 * np.sqrt(np.diag(exact.covariance)))
    monkeypatch.setattr(likelihood, "SHARE", 1 / 12)
    drawn = fit(graphs, terms, constraint=name, method="mcmc", key=4)
    chance = [row.stderr * math.sqrt(row.monte_carlo_share) for row in drawn.coefficients]
    assert np.all(np.abs(drawn.theta - exact.theta) < SIGMAS * np.array(chance))
    if name == "edges":
        assert abs(drawn.log_likelihood.value - exact.log_likelihood.value) < SIGMAS * drawn.log_likelihood.stderr
        assert drawn.log_likelihood.stderr < 1
    free = fit(graphs, f"edges, {terms}" if name == "edges" else terms, method="exact")
    assert np.abs(free.theta[-2:] - exact.theta).max() > 0.02


def test_simulated_graphs_keep_what_is_held():
    fitted = fit(
        networkx.karate_club_graph().__class__(networkx.karate_club_graph().edges), "gwesp(0.5)", constraint="edges"
    )
    assert fitted.outcome.ok and {len(edges) for edges in fitted.simulated_edges(20)} == {78}


def test_what_a_constraint_holds_cannot_be_learnt():
    for terms, constraint, said in (
        ("edges, triangle", "edges", "edges is the same in all graphs"),
        ("kstar(2), triangle", "degrees", "kstar.2. is the same"),
        ("triangle", "stars", "the constraints are 'edges', 'degrees'"),
    ):
        with pytest.raises(InputError, match=said):
            fit(GRAPH, terms, constraint=constraint)
    with pytest.raises(InputError, match="without directions"):
        fit(networkx.DiGraph([(0, 1), (1, 2), (2, 3)]), "ttriple", constraint="degrees")
    with pytest.raises(InputError, match="one graph only"):
        fit(networkx.complete_graph(4), "triangle", constraint="edges")
