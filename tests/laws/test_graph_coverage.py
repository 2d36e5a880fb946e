"""What the stated errors of random graphs are worth, over many data sets drawn from planted coefficients."""

import functools
import math

import numpy as np
import pytest
from graph_truths import model_of, networks_of
from harness import coverage, covers, halved
from scipy.stats import binom

from unnorm.estimate import Estimate
from unnorm.graphs import Enumerated, fit, likelihood, logistic

TERMS, THETA, GRAPHS = "edges, gwdegree(0.5)", np.array([-0.8, 0.9]), 30


@functools.cache
def _truth():
    return Enumerated(model_of(TERMS, 5))


def _data(count):
    every = _truth()
    graphs = every.sample(THETA, count * GRAPHS, seed=11)
    return [graphs[GRAPHS * k : GRAPHS * (k + 1)] for k in range(count)]


def _fits(count, method):
    model = _truth().model
    return [
        fit(networks_of(model, graphs), TERMS, method=method, key=k, log_likelihood=False)
        for k, graphs in enumerate(_data(count))
    ]


def _naive(graphs):
    """The maximum of the pseudo-likelihood, and errors as if pairs were independent."""
    solved = logistic.maximise(logistic.design(_truth().model, graphs))
    return solved.theta, np.sqrt(np.diag(np.linalg.inv(solved.information)))


def test_errors_of_the_pseudo_likelihood_are_its_scatter():
    found = [_naive(graphs) for graphs in _data(300)]
    scatter = np.std([theta for theta, _ in found], axis=0, ddof=1)
    stated = np.mean([[row.stderr for row in each.coefficients] for each in _fits(6, "mple")], axis=0)
    naive = np.mean([stderr for _, stderr in found], axis=0)
    # The relative error of a standard deviation is 1 / sqrt(2 n): of 300 data sets, and of 200 graphs in each fit.
    error = math.sqrt(1 / 600 + 1 / (400 * 6))
    assert np.all(np.abs(np.log(stated / scatter)) < 4.5 * error), stated / scatter
    assert np.all(np.log(naive / scatter) < -4.5 * error), naive / scatter


def test_intervals_of_the_likelihood_hold_what_was_planted(monkeypatch):
    monkeypatch.setattr(likelihood, "SHARE", 1 / 8)  # the part of the error that is Monte Carlo counts too
    fits = _fits(60, "mcmc")
    for k, name in enumerate(_truth().model.names):
        held = round(60 * coverage([each[name] for each in fits], THETA[k]))
        low, high = binom.ppf([1e-4, 1 - 1e-4], 60, 0.95)
        assert low <= held <= high
        assert round(60 * coverage(halved([each[name] for each in fits]), THETA[k])) < low


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["mcmc", "mple"])
def test_intervals_cover_over_200_data_sets(method, monkeypatch):
    monkeypatch.setattr(likelihood, "SHARE", 1 / 8)
    fits = _fits(200, method)
    for k, name in enumerate(_truth().model.names):
        estimates = [each[name] for each in fits]
        assert covers(estimates, THETA[k]), coverage(estimates, THETA[k])
        assert not covers(halved(estimates), THETA[k])
    if method == "mple":
        for k in range(2):
            found = [_naive(graphs) for graphs in _data(200)]
            naive = [Estimate(float(theta[k]), float(stderr[k]), "naive") for theta, stderr in found]
            assert coverage(naive, THETA[k]) < 0.90
