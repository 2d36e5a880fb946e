"""Goodness of fit of random graphs: what is counted against networkx, and what its p-values are worth."""

import networkx
import numpy as np
import pytest
from graph_truths import model_of, networks_of
from harness import breaks, holds

from unnorm.graphs import Enumerated, fit, florentine, goodness, network_of
from unnorm.graphs.features import TRIADS, degrees, distances, partners, triad_census
from unnorm.graphs.layout import packed


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("density", [0.05, 0.2, 0.6])
def test_counts_are_those_of_networkx(directed, density):
    graph = networkx.gnp_random_graph(14, density, seed=2, directed=directed)
    network = network_of(graph)
    laid, _ = packed(network.n, directed, network.edges)
    assert degrees(laid, False).tolist() == [d for _, d in (graph.out_degree if directed else graph.degree)]
    if directed:
        assert degrees(laid, True).tolist() == [d for _, d in graph.in_degree]
    steps = [k for _, far in networkx.all_pairs_shortest_path_length(graph) for k in far.values()]
    found = distances(laid, np.arange(14))
    assert found[:-1].tolist() == np.bincount(steps, minlength=14).tolist()
    assert found[-1] == 14 * 14 - len(steps)
    y = network.adjacency().astype(int)
    assert partners(laid, network.edges).tolist() == (y @ y)[tuple(network.edges.T)].tolist()
    census = triad_census(laid, directed, network.edges)
    if directed:
        assert dict(zip(TRIADS, census.tolist(), strict=True)) == networkx.triadic_census(graph)
        other = triad_census(packed(14, True, network.edges[:, ::-1].copy())[0], True, network.edges[:, ::-1])
        assert density == 0.05 or other.tolist() != census.tolist()
    else:
        triples = [(a, b, c) for a in range(14) for b in range(a) for c in range(b)]
        many = [y[a, b] + y[b, c] + y[a, c] for a, b, c in triples]
        assert census.tolist() == np.bincount(many, minlength=4).tolist()


def _p_values(fitted, graphs):
    """Of each feature, for each of these graphs in the place of the one that was fitted."""
    import dataclasses

    rows = []
    for key, edges in enumerate(graphs):
        found = goodness(dataclasses.replace(fitted, graphs=(edges,)), draws=40, key=key)
        rows.append([feature.p_value for feature in found.features])
    return np.array(rows)


def test_p_values_are_uniform_under_the_model_and_small_under_another():
    """The coefficients are those of the law that graphs are drawn from, or of one without what they have."""
    every = Enumerated(model_of("edges, triangle", 6))
    theta = np.array([-1.0, 0.9])
    graphs = every.sample(theta, 60, seed=2)
    fitted = fit(networks_of(every.model, every.sample(theta, 3000, seed=5)), "edges, triangle", method="exact")
    assert np.all(np.abs(fitted.theta - theta) < 0.1)
    found = _p_values(fitted, graphs)
    # Ties make p-values larger, by half the chance of a tie at most.
    assert np.all(found.mean(0) > 0.5 - 4.5 * np.sqrt(1 / 12 / 60))
    assert holds(found[:, 1:2], 0.5, bias=0.1)
    assert np.mean(found < 0.05) < 0.08
    sparse = fit(networks_of(every.model, every.sample([-2.5, 0.0], 400, seed=5)), "edges")
    assert breaks(_p_values(sparse, graphs)[:, :2], 0.5)


def test_means_of_draws_are_those_of_all_graphs():
    fitted = fit(networkx.Graph([(0, 1), (1, 2), (1, 3), (3, 4), (2, 3)]), "edges, triangle")
    every = Enumerated(fitted.model)
    drawn = goodness(fitted, draws=2000, key=3)
    pairs = fitted.model.network.pairs()
    codes = np.arange(2 ** len(pairs))
    p = np.zeros(len(codes))
    weights = np.exp(every.every @ fitted.theta)
    p[codes ^ (codes >> 1)] = weights / weights.sum()
    bits = (codes[:, None] >> np.arange(len(pairs))) & 1
    many = np.zeros((len(codes), 5), int)
    for v in range(5):
        many[:, v] = bits[:, (pairs == v).any(1)].sum(1)
    truth = np.array([(p * (many == d).sum(1)).sum() for d in range(5)])
    degree = drawn["degree"]
    # Neighbouring draws are nearly independent: the error of a mean is at most half as large again.
    batches = degree.draws.reshape(40, 50, -1).mean(1)
    assert holds(batches, truth)
    assert breaks(batches, np.roll(truth, 1))


def test_florentine_marriages_fit_and_read_well():
    found = goodness(fit(florentine(), "edges"), draws=100, key=1)
    assert min(feature.p_value for feature in found.features) > 0.02
    told = found.to_dict()
    assert sum(told["features"][1]["observed"]) == 16
    assert sum(found["distance"].observed) == 120
    assert "look like the observed one" in str(found)
    ring = fit(networkx.cycle_graph(30), "edges")
    assert goodness(ring, draws=100)["degree"].p_value < 0.02
    assert "differ" in goodness(ring, draws=100).sentence
