"""Graphs of which some pairs are not known: the likelihood of what is (Handcock and Gile 2010).

The likelihood of the known pairs is Z_c(theta) / Z(theta), where Z_c goes over the graphs that agree with them. Its
slope is E[s | known] - E[s], its information Cov[s] - Cov[s | known]: two walks, one over all graphs, one over the
pairs that are not known. What is not known is taken to be so for reasons that do not depend on it.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from unnorm.errors import require
from unnorm.estimate import Estimate, Outcome, OutcomeCode
from unnorm.graphs import bridge, logistic, pseudo, scoring
from unnorm.graphs.chains import Chains, autocovariance_time, mean_covariance
from unnorm.graphs.constraints import OnlyPairs
from unnorm.graphs.fitted import FittedGraph
from unnorm.graphs.likelihood import CHAINS, far_too_many
from unnorm.graphs.model import Model
from unnorm.graphs.network import Network
from unnorm.graphs.terms import AbstractTerm

#: The least share of the information in any direction with which errors are stated.
LITTLE = 0.1


def pairs_of(network: Network, missing: Iterable[tuple[Any, Any]]) -> np.ndarray:
    """Pairs of labels as rows of vertex numbers, each once."""
    number = {label: v for v, label in enumerate(network.labels)}
    found = set()
    for pair in missing:
        require(len(tuple(pair)) == 2, f"a pair that is missing is two vertices, not {pair!r}")
        a, b = pair
        for end in (a, b):
            require(end in number, f"the pair {a!r} - {b!r} that is missing names {end!r}, which is no vertex")
        require(a != b, f"the pair {a!r} - {b!r} that is missing is one vertex")
        i, j = number[a], number[b]
        found.add((i, j) if network.directed or i < j else (j, i))
    require(len(found) > 0, "missing names no pair; leave it out")
    require(len(found) < network.dyads, "every pair is missing; there is nothing to learn from")
    return np.array(sorted(found), np.int32)


class Missing(scoring.AbstractScored):
    """Both walks; `model` is over all graphs, `known` over those that agree with what is known."""

    def __init__(self, model: Model, known: Model, edges: np.ndarray, *, key: Any) -> None:
        self.model, self.known, self.free = model, known, ~model.fixed
        most = far_too_many(len(edges) + len(known.network.edges), model.network.dyads)
        self.chains = Chains(model, [edges] * CHAINS, key=key, stream=51, most=most)
        self.held = Chains(known, [edges] * CHAINS, key=key, stream=52)
        self.interval = max(16, 2 * len(edges))
        self.little = False

    def at(self, place: np.ndarray, draws: int) -> scoring.Slope | None:
        theta = self.model.full(place)
        found = []
        for chains in (self.chains, self.held):
            chains.draw(theta, draws // 8, self.interval)
            found.append(chains.draw(theta, draws, self.interval)[..., self.free])
        if self.chains.lost:
            self.chains.restart()
            return None
        slow = float(autocovariance_time(found[0]).max())
        if slow > 12:
            self.interval = int(min(40 * self.model.network.dyads, self.interval * min(8.0, slow / 6)))
        every, held = (each.reshape(-1, each.shape[-1]) for each in found)
        whole = np.atleast_2d(np.cov(every.T))
        information = whole - np.atleast_2d(np.cov(held.T))
        scale = np.sqrt(np.maximum(np.diag(whole), 1e-300))
        known = np.linalg.eigvals(
            np.linalg.pinv(whole / np.outer(scale, scale)) @ (information / np.outer(scale, scale))
        )
        # Where little is known the likelihood may not be concave; a step as if all were known leads up (Dempster 1977).
        self.little = bool(known.real.min() < LITTLE)
        if self.little:
            information = whole
        noise = mean_covariance(found[0]) + mean_covariance(found[1])
        return scoring.Slope(held.mean(0) - every.mean(0), information, noise)

    def limit(self, place: np.ndarray, step: np.ndarray) -> np.ndarray:
        return step


def fitted(
    network: Network, terms: list[AbstractTerm], missing: Iterable[tuple[Any, Any]], log_likelihood: bool, key: Any
) -> FittedGraph:
    """Maximum likelihood of the pairs that are known; an edge among the others is not looked at."""
    pairs = pairs_of(network, missing)
    taken = {(int(i), int(j)) for i, j in pairs}
    edges = np.array([e for e in network.edges.tolist() if tuple(e) not in taken], np.int32).reshape(-1, 2)
    network = dataclasses.replace(network, edges=edges)
    model = Model(terms, network)
    known = Model(terms, network, constraint=OnlyPairs(pairs))
    design = logistic.design(model, [edges], without=pairs)
    note = (
        f"{len(pairs)} of {network.dyads} pairs {'is' if len(pairs) == 1 else 'are'} not known; the estimate is the "
        "maximum of the likelihood of the others, if what is not known is so for reasons that do not depend on it."
    )
    if model.independent:
        found = pseudo.fitted(model, [edges], design, key=key)
        return dataclasses.replace(found, notes=(*found.notes, note), missing=pairs)
    reference, value = pseudo.independence(model, [edges], without=pairs)
    scored = Missing(model, known, edges, key=key)
    climbed = scoring.climb(scored, logistic.maximise(design).theta)
    if not climbed.outcome.ok and climbed.steps == 0:
        climbed = scoring.climb(scored, reference[~model.fixed])
    outcome = climbed.outcome
    if outcome.ok and scored.little:
        message = f"with {len(pairs)} pairs not known too little is: less than a tenth of what all would say"
        outcome = Outcome(OutcomeCode.DIVERGED, climbed.steps, message, "Use fewer terms.")
    likelihood = Estimate(math.nan, math.nan, "not estimated")
    covariance, place = climbed.information, climbed.place * math.nan
    if outcome.ok:
        covariance, place = np.linalg.pinv(climbed.information, hermitian=True) + climbed.monte_carlo, climbed.place
        if log_likelihood:
            crossed = [
                bridge.bridge(
                    Chains(each, [edges] * CHAINS, key=key, stream=s), reference, model.full(place), scored.interval
                )
                for s, each in ((53, known), (54, model))
            ]
            error = math.hypot(*(each.stderr for each in crossed))
            likelihood = Estimate(value + crossed[0].value - crossed[1].value, error, "bridge sampling, twice")
    rows = pseudo.coefficients(model, place, covariance, climbed.monte_carlo)
    diagnostics = {"steps": float(climbed.steps), "missing": float(len(pairs))}
    method = "maximum likelihood of the known pairs, by Markov chain Monte Carlo"
    told = (method, outcome, likelihood, key, (*network.notes, note), diagnostics)
    return FittedGraph(model, (edges,), rows, covariance, *told, missing=pairs)
