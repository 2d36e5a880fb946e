"""Estimates of random graphs against the sum over all graphs on few vertices."""

import functools

import numpy as np
import pytest
from graph_truths import model_of, networks_of
from harness import SIGMAS

from unnorm.graphs import Enumerated, bridge, convergence, fit, likelihood, parse
from unnorm.graphs.chains import Chains

#: Vertices, directions, terms, coefficients that were planted, and how many graphs.
CASES = {
    "triangles": (6, False, "edges, triangle", (-0.8, 0.35), 30),
    "partners and groups": (6, False, "edges, gwesp(0.5), nodematch(group)", (-1.0, 0.3, 0.6), 30),
    "directed": (4, True, "edges, mutual, ttriple", (-0.6, 0.7, 0.2), 40),
}


@functools.cache
def _planted(name):
    n, directed, terms, theta, count = CASES[name]
    model = model_of(terms, n, directed)
    every = Enumerated(model)
    graphs = every.sample(theta, count, seed=3)
    observed = np.mean([model.statistics(edges) for edges in graphs], axis=0)
    return every, graphs, observed


@pytest.mark.parametrize("name", CASES)
def test_exact_estimate_has_the_observed_means_and_is_near_what_was_planted(name):
    every, graphs, observed = _planted(name)
    fitted = fit(networks_of(every.model, graphs), parse(CASES[name][2]), method="exact")
    mean, information = every.moments(fitted.theta)
    assert np.allclose(mean, observed, atol=1e-7)
    assert np.allclose(fitted.covariance, np.linalg.inv(information * len(graphs)), rtol=1e-6)
    # The information is the curvature of the likelihood, which is a sum over the graphs.
    value = sum(every.model.statistics(edges) @ fitted.theta for edges in graphs)
    assert np.isclose(fitted.log_likelihood.value, value - len(graphs) * every.log_partition(fitted.theta))
    planted = np.array(CASES[name][3])
    assert np.all(np.abs(fitted.theta - planted) < 4 * np.sqrt(np.diag(fitted.covariance)))
    assert np.any(np.abs(fitted.theta + planted) > 4 * np.sqrt(np.diag(fitted.covariance)))


def _deviations(name, keys):
    """By how many of the stated Monte Carlo errors the estimates are off, and whether those are as small as asked."""
    every, graphs, observed = _planted(name)
    truth, information = every.maximise(observed)
    stderr = np.sqrt(np.diag(np.linalg.inv(information * len(graphs))))
    found = []
    for key in range(keys):
        start, fallback = truth * 0.0, truth * 0.0
        solved = likelihood.maximise(every.model, graphs, observed, start, fallback, key=key)
        assert solved.outcome.ok
        chance = np.sqrt(np.diag(solved.monte_carlo))
        assert np.all(chance < 1.5 * likelihood.SHARE * stderr)
        assert np.allclose(np.sqrt(np.diag(np.linalg.inv(solved.information))), stderr, rtol=0.15)
        found.append((solved.theta - truth) / chance)
    return np.array(found)


@pytest.mark.parametrize("name", CASES)
def test_monte_carlo_estimate_is_the_exact_one_within_its_stated_error(name, monkeypatch):
    monkeypatch.setattr(likelihood, "SHARE", 1 / 12)  # the law is that of any share; this one is had in less time
    off = _deviations(name, 16)
    # Deviations in units of what is stated have a mean square of 1; sixteen repeats tell 1 from 4.
    assert np.all(np.abs(off) < SIGMAS)
    square = (off**2).mean(0)
    assert np.all((square > 0.25) & (square < 2.6)), square
    assert np.any((2 * off) ** 2 > 2.6)


@pytest.mark.parametrize("name", CASES)
def test_bridged_log_partition_is_that_of_all_graphs(name):
    every = _planted(name)[0]
    model, end = every.model, np.array(CASES[name][3])
    begin = np.zeros_like(end)
    truth = every.log_partition(end) - every.log_partition(begin)
    off = []
    for key in range(16):
        chains = Chains(model, [np.zeros((0, 2), np.int32)] * 4, key=key)
        crossed = bridge.bridge(chains, begin, end, 20)
        assert crossed.stderr < 0.05
        off.append((crossed.value - truth) / crossed.stderr)
    assert np.max(np.abs(off)) < SIGMAS
    assert 0.25 < np.mean(np.square(off)) < 2.6
    assert abs(np.mean(np.array(off)) + 1.0) > 0.5  # a shift of one stated error would be seen


def test_convergence_is_tested_fairly():
    """p-values of estimates that are the maximum are uniform; those of estimates an error off are small."""
    every, graphs, observed = _planted("triangles")
    truth, information = every.maximise(observed)
    information = information * len(graphs)
    off = np.array([1.0, 0.0]) * np.sqrt(np.linalg.inv(information)[0, 0])
    chance = np.linalg.inv(information) * 1e-3
    random, right, wrong = np.random.default_rng(5), [], []
    for key in range(40):
        estimate = truth + np.linalg.cholesky(chance) @ random.normal(size=2)
        for found, theta in ((right, estimate), (wrong, estimate + off)):
            chains = Chains(every.model, graphs[:4], key=key)
            told = (theta, observed, information, chance, 30, len(graphs))
            found.append(convergence.converged(every.model, chains, *told).p_value)
    assert abs(np.mean(right) - 0.5) < SIGMAS / np.sqrt(12 * 40) and np.mean(np.array(right) < 0.05) <= 0.175
    assert np.median(wrong) < 0.05
