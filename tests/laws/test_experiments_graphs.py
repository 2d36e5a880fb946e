"""Of every experiment on random graphs a figure that is known."""

import math

import networkx
import numpy as np
import pytest
from harness import SIGMAS
from known_figures import figure_of

from unnorm.experiments import florentine, graph_bayes, schools
from unnorm.experiments.base import Job


@figure_of("florentine")
def test_marriages_have_the_odds_of_a_binomial():
    piece = florentine._fitted(florentine.EDGES, 0)
    # 20 of 120 pairs.
    assert piece["estimates"] == pytest.approx([math.log(1 / 5)])
    assert piece["errors"] == pytest.approx([1 / math.sqrt(120 * 1 / 6 * 5 / 6)])
    assert piece["log_likelihood"]["value"] == pytest.approx(20 * math.log(1 / 6) + 100 * math.log(5 / 6))
    assert florentine._same(florentine.EDGES, piece)
    assert not florentine._same(florentine.EDGES, {**piece, "estimates": [-1.61]})
    assert florentine._same(florentine.WEALTH, florentine._fitted(florentine.WEALTH, 0))


@figure_of("schools")
def test_friendships_within_and_across_grades_have_their_own_odds(monkeypatch, tmp_path):
    """With one factor the estimate is a difference of two log-odds."""
    graph = networkx.gnp_random_graph(30, 0.2, seed=3)
    networkx.set_node_attributes(graph, {v: v % 3 for v in graph}, "Grade")
    within = sum(a % 3 == b % 3 for a, b in graph.edges)
    across = graph.number_of_edges() - within
    pairs = 3 * 45, 435 - 3 * 45
    odds = [math.log(e / (p - e)) for e, p in zip((within, across), pairs, strict=True)]
    monkeypatch.setattr(schools, "local_network", lambda name: graph)
    monkeypatch.setattr(schools, "TERMS", "edges, nodematch(Grade)")
    monkeypatch.setattr(schools, "NAMES", ("edges", "nodematch(Grade)"))
    monkeypatch.setattr(schools, "PRINTED", ((odds[1], 0.1), (odds[0] - odds[1], 0.1)))
    result = schools.run(Job(tmp_path, progress=False))
    assert result.claims[0].holds and result.rows[1].figures[schools.OFF].value < 1e-6
    monkeypatch.setattr(schools, "PRINTED", ((odds[1], 0.1), (odds[1] - odds[0], 0.1)))
    again = schools.run(Job(tmp_path, progress=False))
    assert not again.claims[0].holds
    assert len(result.series["degree"]["observed"]) == len(result.series["degree"]["low"])


@figure_of("graph-bayes")
def test_posterior_on_five_vertices_is_that_of_all_graphs():
    piece = graph_bayes._piece(graph_bayes.SMALL, 1500, 0)
    means, deviations = graph_bayes._exact()
    for told, mean, deviation in zip(piece["coefficients"], means, deviations, strict=True):
        assert abs(told["mean"] - mean) < SIGMAS * told["error"] < 0.6
        assert abs(told["deviation"] / deviation - 1) < SIGMAS / np.sqrt(told["ess"])
        # The prior's are others.
        assert abs(mean) > SIGMAS * told["error"] or abs(1 - deviation) > SIGMAS / np.sqrt(told["ess"])
