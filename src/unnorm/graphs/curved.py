"""Models with a decay that is estimated: curved exponential families (Hunter and Handcock 2006).

The walk keeps counts c of edges or pairs by their partners, or of vertices by their degrees, and weighs them by
eta(theta, a). With J the slope of eta, that of the log-likelihood is J' (c_observed - E c), its information J' V J.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unnorm.errors import require
from unnorm.estimate import Estimate
from unnorm.graphs import likelihood, logistic, pseudo, scoring
from unnorm.graphs.chains import Chains, mean_covariance
from unnorm.graphs.fitted import Coefficient, FittedGraph
from unnorm.graphs.likelihood import CHAINS, far_too_many
from unnorm.graphs.model import Model
from unnorm.graphs.terms import AbstractTerm
from unnorm.graphs.terms.counts import AbstractCurved, weights

#: Decays from which the steps may begin: the one with the largest pseudo-likelihood. They stay between the last two.
STARTS = (0.1, 0.25, 0.5, 0.8, 1.2, 1.8)
LEAST, LARGEST = 1e-3, 5.0


class Curved(scoring.AbstractScored):
    """The coefficients of all terms in their order, then a decay for each curved one."""

    def __init__(self, model: Model, graphs: Sequence[np.ndarray], *, key: Any) -> None:
        self.model, self.count = model, len(graphs)
        self.curved = [isinstance(term, AbstractCurved) for term in model.terms]
        self.sizes = [len(names) for names in model.statistics_names]
        most = far_too_many(max(len(g) for g in graphs), model.network.dyads)
        self.chains = Chains(model, [graphs[c % len(graphs)] for c in range(CHAINS)], key=key, most=most, closing=0.25)
        self.observed = np.mean([model.statistics(edges) for edges in graphs], axis=0)
        self.interval = max(16, int(2 * np.mean([len(g) for g in graphs])))

    @property
    def coefficients(self) -> int:
        """How many coefficients there are, without decays."""
        return sum(1 if curved else size for curved, size in zip(self.curved, self.sizes, strict=True))

    def weighed(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """eta of all statistics, and its slope (statistics, coefficients and decays)."""
        eta, slope = np.zeros(self.model.size), np.zeros((self.model.size, len(place)))
        row = column = 0
        decay = self.coefficients
        for curved, size in zip(self.curved, self.sizes, strict=True):
            rows = slice(row, row + size)
            if curved:
                w, change = weights(float(place[decay]), size)
                eta[rows], slope[rows, column], slope[rows, decay] = place[column] * w, w, place[column] * change
                column, decay = column + 1, decay + 1
            else:
                eta[rows] = place[column : column + size]
                slope[rows, column : column + size] = np.eye(size)
                column += size
            row += size
        return eta, slope

    def at(self, place: np.ndarray, draws: int) -> scoring.Slope | None:
        eta, slope = self.weighed(place)
        self.chains.draw(eta, draws // 8, self.interval)
        drawn = self.chains.draw(eta, draws, self.interval)
        if self.chains.lost:
            self.chains.restart()
            return None
        projected = (drawn - self.observed) @ slope
        points = projected.reshape(-1, len(place))
        covariance = np.atleast_2d(np.cov(points.T)) * self.count
        return scoring.Slope(-points.mean(0) * self.count, covariance, mean_covariance(projected) * self.count**2)

    def limit(self, place: np.ndarray, step: np.ndarray) -> np.ndarray:
        decays = slice(self.coefficients, None)
        there = np.clip(place[decays] + np.clip(step[decays], -0.5, 0.5), LEAST, LARGEST)
        step = step.copy()
        step[decays] = there - place[decays]
        return step


def with_decays(terms: Sequence[AbstractTerm], decays: Sequence[float]) -> list[AbstractTerm]:
    """The terms, those whose decay is learnt with these decays."""
    given = iter(decays)
    return [term.fixed(next(given)) if isinstance(term, AbstractCurved) else term for term in terms]


def _start(model: Model, graphs: Sequence[np.ndarray]) -> np.ndarray:
    """The maximum of the pseudo-likelihood over a few decays, the same for all terms."""
    curved = sum(isinstance(term, AbstractCurved) for term in model.terms)
    best, found = -math.inf, np.zeros(0)
    for decay in STARTS:
        plain = Model(with_decays(model.terms, [decay] * curved), model.network)
        solved = logistic.maximise(logistic.design(plain, graphs))
        if solved.log_likelihood > best:
            best, found = solved.log_likelihood, np.concatenate([solved.theta, np.full(curved, decay)])
    return found


def _settled(model: Model, graphs: Sequence[np.ndarray], begin: np.ndarray, count: int, key: Any) -> np.ndarray:
    """The estimate with the first decays held, for a start from which the walk does not run away."""
    plain = Model(with_decays(model.terms, begin[count:].tolist()), model.network)
    observed = np.mean([plain.statistics(edges) for edges in graphs], axis=0)
    reference = pseudo.independence(plain, graphs)[0]
    found = likelihood.maximise(plain, graphs, observed, begin[:count], reference, key=key, share=0.2)
    return np.concatenate([found.theta, begin[count:]]) if found.outcome.ok else begin


def fitted(model: Model, graphs: Sequence[np.ndarray], *, key: Any) -> FittedGraph:
    """Coefficients and decays by maximum likelihood; the log-likelihood is not estimated."""
    require(not np.any(model.fixed), "an offset beside a decay that is estimated is not known; give the decay")
    scored, begin = Curved(model, graphs, key=key), _start(model, graphs)
    climbed = scoring.climb(scored, begin)
    if not climbed.outcome.ok and climbed.steps == 0:
        climbed = scoring.climb(scored, _settled(model, graphs, begin, scored.coefficients, key))
    count = scored.coefficients
    decays = np.clip(climbed.place[count:], LEAST, LARGEST)
    plain = Model(with_decays(model.terms, decays.tolist()), model.network)
    covariance = np.linalg.pinv(climbed.information, hermitian=True) if climbed.outcome.ok else climbed.information
    covariance = covariance + climbed.monte_carlo
    words = [term.word for term in model.terms if isinstance(term, AbstractCurved)]
    names = []
    for term, each in zip(model.terms, plain.statistics_names, strict=True):
        names += [term.word] if isinstance(term, AbstractCurved) else each
    names += [f"{word} decay" for word in words]
    rows, notes = [], list(model.network.notes)
    for k, name in enumerate(names):
        variance, chance = covariance[k, k], climbed.monte_carlo[k, k]
        value = float(climbed.place[k]) if climbed.outcome.ok else math.nan
        kind = "learnt" if k < count else "decay"
        rows.append(Coefficient(name, value, float(np.sqrt(variance)), float(chance / variance), kind))
    for word, decay in zip(words, decays, strict=True):
        if climbed.outcome.ok and not LEAST < decay < LARGEST:
            notes.append(
                f"The decay of {word} is at an end of what is tried, {decay:g}; give it, as {word}({decay:g})."
            )
    diagnostics = {"steps": float(climbed.steps), "proposals": float(scored.chains.proposals)}
    return FittedGraph(
        plain,
        tuple(graphs),
        tuple(rows),
        covariance,
        "maximum likelihood, by Markov chain Monte Carlo, with the decay",
        climbed.outcome,
        Estimate(math.nan, math.nan, "not estimated"),
        key,
        tuple(notes),
        diagnostics,
    )
