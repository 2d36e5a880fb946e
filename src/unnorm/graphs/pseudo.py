"""Estimates from logistic regression: exact where edges are independent, else of the pseudo-likelihood, with errors
that say how far its maximum scatters.

Graphs drawn from the model give the covariance J of the slope of the log pseudo-likelihood, and with its curvature H
the coefficients scatter with H^-1 J H^-1 (Godambe 1960; Schmid and Hunter 2023); H^-1 alone is too small, as if pairs
were independent.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unnorm.estimate import Estimate, Outcome, OutcomeCode
from unnorm.graphs import logistic
from unnorm.graphs.fitted import Coefficient, FittedGraph
from unnorm.graphs.model import Model

#: Graphs that are drawn for the errors of the pseudo-likelihood.
DRAWN = 200


def fitted(model: Model, graphs: Sequence[np.ndarray], design: logistic.Design, *, key: Any) -> FittedGraph:
    """The maximum of the (pseudo-)likelihood."""
    solved = logistic.maximise(design)
    covariance = np.linalg.pinv(solved.information, hermitian=True)
    done = Outcome(OutcomeCode.COMPLETED, 0, "exact" if model.independent else "a maximum was found")
    notes = model.network.notes
    if model.independent:
        method, value = "logistic regression, exact", Estimate(solved.log_likelihood, 0.0, "exact")
    else:
        method = f"maximum pseudo-likelihood, errors from {DRAWN} graphs drawn from the model"
        value = Estimate(np.nan, np.nan, "not estimated")
        first = _made(model, graphs, solved.theta, covariance, method, done, value, key, notes)
        drawn = first.simulated_edges(DRAWN)
        slopes = []
        for edges in drawn:
            each = logistic.design(model, [edges])
            slopes.append(logistic.log_odds_terms(each, solved.theta)[1])
        scatter = np.atleast_2d(np.cov(np.array(slopes).T)) * len(graphs)
        covariance = covariance @ scatter @ covariance
        notes = (*notes, "A pseudo-likelihood takes pairs for independent given the rest; the likelihood is better.")
    return _made(model, graphs, solved.theta, covariance, method, done, value, key, notes)


def _made(
    model: Model,
    graphs: Sequence[np.ndarray],
    theta: np.ndarray,
    covariance: np.ndarray,
    method: str,
    outcome: Outcome,
    value: Estimate,
    key: Any,
    notes: tuple[str, ...],
) -> FittedGraph:
    rows = coefficients(model, theta, covariance, np.zeros_like(covariance))
    return FittedGraph(model, tuple(graphs), rows, covariance, method, outcome, value, key, notes)


def coefficients(
    model: Model, theta: np.ndarray, covariance: np.ndarray, monte_carlo: np.ndarray
) -> tuple[Coefficient, ...]:
    """A row for each statistic, from what was learnt; the covariance holds what Monte Carlo adds."""
    rows, at = [], 0
    for k, name in enumerate(model.names):
        if model.fixed[k]:
            kind = "infinite" if k in model.pinned else "given"
            rows.append(Coefficient(name, float(model.given[k]), 0.0, 0.0, kind))
            continue
        variance, chance = float(covariance[at, at]), float(monte_carlo[at, at])
        share = chance / variance if variance > 0 else 0.0
        rows.append(Coefficient(name, float(theta[at]), float(np.sqrt(variance)), share))
        at += 1
    return tuple(rows)


def independence(
    model: Model, graphs: Sequence[np.ndarray], without: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """All coefficients of the best model without dependence among these terms, and its log-likelihood."""
    which = np.repeat([term.independent for term in model.terms], [len(names) for names in model.statistics_names])
    terms = [term for term in model.terms if term.independent]
    whole = np.where(which, model.given, 0.0)
    if not terms:
        pairs = model.network.dyads - (0 if without is None else len(without))
        return whole, -len(graphs) * pairs * math.log(2)
    numbers = {old: new for new, old in enumerate(np.flatnonzero(which).tolist())}
    pinned = {numbers[k]: held for k, held in model.pinned.items() if k in numbers}
    part = Model(terms, model.network, pinned)
    solved = logistic.maximise(logistic.design(part, graphs, without=without))
    whole[np.flatnonzero(which)] = part.full(solved.theta)
    return whole, solved.log_likelihood
