"""Estimates at infinity and models that are degenerate: said, with the answer that there is."""

import time

import networkx
import numpy as np
import pytest
from graph_truths import model_of

from unnorm.estimate import OutcomeCode
from unnorm.graphs import Enumerated, fit, florentine


def _chance(terms, theta, statistic, held, n):
    """Of a statistic being what it is, by all graphs."""
    every = Enumerated(model_of(terms, n))
    k = every.model.names.index(statistic)
    rows = every.table[0]
    return float(every.probabilities(np.asarray(theta))[np.abs(rows[:, k] - held) < 1e-9].sum())


def test_end_of_a_one_sided_interval_has_the_chance_of_five_percent():
    fitted = fit(networkx.path_graph(6), "edges, triangle", key=1)
    row = fitted.coefficients[1]
    assert row.kind == "infinite" and row.estimate == -np.inf
    assert any("-inf" in note for note in fitted.notes)
    at = _chance("edges, triangle", [fitted.theta[0], row.bound], "triangle", 0, 6)
    # Read off 2048 draws, which are worth 500 at least, after halvings of the range.
    assert abs(at - 0.05) < 4.5 * np.sqrt(0.05 * 0.95 / 500)
    assert abs(_chance("edges, triangle", [fitted.theta[0], row.bound - 1], "triangle", 0, 6) - 0.05) > 0.05


def test_independent_edges_have_the_end_of_a_binomial():
    for graph, sign in ((networkx.empty_graph(6), -1), (networkx.complete_graph(6), 1)):
        row = fit(graph, "edges").coefficients[0]
        assert row.estimate == sign * np.inf
        # The chance that none of 15 pairs has an edge, (1 - p)^15, is 0.05.
        p = 1 - 0.05 ** (1 / 15)
        assert np.isclose(row.bound, -sign * np.log(p / (1 - p)), atol=1e-6)


def test_others_are_estimated_as_in_the_graphs_that_hold_the_statistic():
    """Without triangles, the mean of the edges is what was seen; with the chance of triangles it is not."""
    fitted = fit(networkx.path_graph(6), "edges, triangle", key=1)
    every = Enumerated(model_of("edges, triangle", 6))
    rows, counts = every.table
    weights = counts * np.exp(rows[:, 0] * fitted.theta[0])
    free = rows[:, 1] == 0
    assert np.isclose((weights * free) @ rows[:, 0] / (weights @ free), 5.0, atol=1e-6)
    assert abs(weights @ rows[:, 0] / weights.sum() - 5.0) > 0.5


@pytest.mark.parametrize("terms", ["edges, triangle", "edges, kstar(2)"])
def test_degenerate_models_are_recognised_in_seconds(terms):
    karate = networkx.Graph(networkx.karate_club_graph().edges)
    begin = time.process_time()
    fitted = fit(karate, terms)
    assert time.process_time() - begin < 20
    assert fitted.outcome.code == OutcomeCode.DIVERGED
    assert "degenerate" in fitted.outcome.message and "gwesp" in fitted.outcome.advice
    assert np.all(np.isnan(fitted.theta)) and not np.isfinite(fitted.log_likelihood.value)
    assert "No estimate" in str(fitted)
    # The evidence: the statistic jumps over what was observed, for walks from the complete graph first.
    shown = fitted.evidence
    assert shown is not None and shown.name == fitted.model.names[1]
    assert shown.sparse[0, 1] < shown.observed < shown.dense[-1, 0]
    jump = np.flatnonzero(shown.dense[:, 1] > 5 * shown.observed)
    assert jump.size and np.all(shown.dense[: jump[0], 2] < shown.observed * 1.5)
    assert fit(florentine(), terms, log_likelihood=False).outcome.ok
