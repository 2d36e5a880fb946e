"""The exchange algorithm against posteriors that are known: of graphs by enumeration, of a Gaussian in closed form."""

import functools

import networkx
import numpy as np
import pytest
from graph_truths import model_of, networks_of
from harness import SIGMAS

from unnorm.graphs import Enumerated, posterior
from unnorm.samplers import AbstractIntractable, exchange


class Spread(AbstractIntractable):
    """y ~ N(0, e^theta) with theta ~ N(0, 1), its normaliser e^(theta / 2) taken for unknown."""

    def __init__(self, y, forgets=False):
        self.squares, self.count, self.forgets = float(np.sum(np.square(y))), len(y), forgets

    @property
    def names(self):
        return ("log variance",)

    def log_prior(self, theta):
        return -0.5 * theta[:, 0] ** 2

    def begin(self, chains, *, seed):
        random = np.random.default_rng(seed)
        return random.normal(size=(chains, 1)), random

    def exchange(self, state, theta, proposed):
        there, here = np.exp(-proposed[:, 0]), np.exp(-theta[:, 0])
        drawn = (state.normal(size=(len(theta), self.count)) ** 2).sum(1) / there
        ratio = -0.5 * self.squares * (there - here)
        return ratio + (0.0 if self.forgets else 0.5 * drawn * (there - here)), state

    def scale(self):
        return np.eye(1)


def _known(log_density, grid):
    """Mean and standard deviation by quadrature."""
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ grid
    return mean, np.sqrt(weights @ (grid - mean) ** 2)


def _off(found, mean, deviation):
    """How many Monte Carlo errors means and deviations are from what is known."""
    ess = found.diagnostics.ess_bulk
    first = np.abs(found.mean - mean) / (deviation / np.sqrt(ess))
    second = np.abs(found.deviation / deviation - 1) / np.sqrt(1 / ess)
    return np.maximum(first, second)


def test_posterior_of_a_spread_is_that_by_quadrature():
    y = np.array([0.3, -1.2, 2.0, 0.4])
    grid = np.linspace(-6, 6, 4001)
    truth = _known(-0.5 * grid**2 - 2 * grid - 0.5 * np.sum(y**2) * np.exp(-grid), grid)
    found = exchange(Spread(y), chains=8, steps=2000, warmup=500, seed=1)
    assert not found.warnings and 0.15 < found.acceptance < 0.6
    assert _off(found, *truth).max() < SIGMAS
    wrong = exchange(Spread(y, forgets=True), chains=8, steps=2000, warmup=500, seed=1)
    assert _off(wrong, *truth).max() > 3 * SIGMAS


@functools.cache
def _every(terms):
    return Enumerated(model_of(terms, 5))


def _posterior_by_enumeration(every, observed, count, deviation):
    """Means and standard deviations of two coefficients on a grid."""
    grid = np.linspace(-4.5, 4.5, 73) * deviation
    values = (
        np.array([[np.dot(observed, (a, b)) - count * every.log_partition([a, b]) for b in grid] for a in grid])
        - 0.5 * (grid[:, None] ** 2 + grid**2) / deviation**2
    )
    weights = np.exp(values - values.max())
    ends = [_known(np.log(weights.sum(1 - k)), grid) for k in range(2)]
    return np.array(ends).T


@pytest.mark.parametrize("count", [1, 3])
def test_posterior_of_graphs_is_that_of_all_graphs(count):
    every = _every("edges, triangle")
    graphs = every.sample([-0.5, 0.5], count, seed=4)
    observed = np.sum([every.model.statistics(edges) for edges in graphs], axis=0)
    truth = _posterior_by_enumeration(every, observed, count, 1.0)
    networks = networks_of(every.model, graphs)
    found = posterior(networks, "edges, triangle", prior=(0, 1), steps=2500, warmup=500, proposals=150, key=2)
    assert _off(found, *truth).max() < SIGMAS
    # A walk of two proposals has not left the observed graph, and the posterior knows too little.
    short = posterior(networks, "edges, triangle", prior=(0, 1), steps=2500, warmup=500, proposals=2, key=2)
    assert _off(short, *truth).max() > SIGMAS


@pytest.mark.thorough
def test_intervals_cover_coefficients_drawn_from_the_prior():
    every, random = _every("edges, triangle"), np.random.default_rng(8)
    held, narrow = np.zeros(2), np.zeros(2)
    for k in range(200):
        theta = random.normal(size=2)
        graphs = networks_of(every.model, every.sample(theta, 2, seed=k))
        found = posterior(graphs, "edges, triangle", prior=(0, 1), steps=800, warmup=300, proposals=120, key=k)
        for level, count in ((0.95, held), (0.7, narrow)):
            low, high = found.interval(level)
            count += (low <= theta) & (theta <= high)
    assert np.all((held / 200 >= 0.90) & (held / 200 <= 0.99)), held
    assert np.all(narrow / 200 < 0.9), narrow


def test_posterior_of_edges_alone_and_what_it_says():
    """With independent edges the likelihood is a binomial's; an infinite estimate has a posterior too."""
    grid = np.linspace(-10, 4, 4001)
    for graph in (networkx.path_graph(6), networkx.empty_graph(6)):
        edges = graph.number_of_edges()
        truth = _known(edges * grid - 15 * np.logaddexp(0, grid) - 0.5 * (grid / 2) ** 2, grid)
        found = posterior(graph, "edges", prior=(0, 2), steps=2000, warmup=300, key=1)
        assert _off(found, *truth).max() < SIGMAS
    told = found.to_dict()
    assert told["coefficients"][0]["name"] == "edges" and "R-hat" in str(found)


def test_arviz_gets_one_variable_for_each_coefficient():
    pytest.importorskip("arviz")
    found = posterior(networkx.path_graph(6), "edges, triangle", prior=(0, 1), steps=50, warmup=20)
    data = found.to_arviz()
    assert np.allclose(data["posterior"]["triangle"].values, found.draws[..., 1])
