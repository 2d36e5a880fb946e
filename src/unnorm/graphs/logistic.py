"""Logistic regression on changes of statistics: the likelihood where edges are independent, else the pseudo-likelihood.

log PL(theta) = sum over pairs of log P(y_ij | all other edges), whose odds are exp(theta . change_ij) (Strauss and
Ikeda 1990).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from unnorm.errors import InputError
from unnorm.graphs.model import Model

#: Up to so many pairs all are used; beyond, where edges depend on each other and this is only a start, all edges and a
#: random part of the other pairs, weighted. Pairs are looked at in portions of the second number.
MOST_PAIRS, PORTION = 3_000_000, 1_000_000


@dataclass(frozen=True, eq=False)
class Design:
    """Different rows of changes, what offsets add to their log-odds, and how many edges and gaps have each."""

    rows: np.ndarray
    offset: np.ndarray
    ones: np.ndarray
    zeros: np.ndarray
    sampled: bool

    @property
    def weights(self) -> np.ndarray:
        return self.ones + self.zeros


def design(model: Model, graphs: Sequence[np.ndarray], seed: int = 0, without: np.ndarray | None = None) -> Design:
    """The changes at all pairs of these graphs (lists of edges on the model's vertices), `without` some."""
    sampled = model.network.dyads > MOST_PAIRS and not model.independent
    parts = [part for edges in graphs for part in (_sampled if sampled else _whole)(model, edges, seed)]
    if without is not None:
        for edges in graphs:
            present, left = model.changes(edges, without)
            parts.append((left, -present.astype(float), present.astype(float) - 1.0))
    rows, ones, zeros = _merged([_merged([part]) for part in parts])
    seen = ones + zeros > 0
    rows, ones, zeros = rows[seen], ones[seen], zeros[seen]
    given = model.weighed(np.where(model.fixed, model.given, 0.0), rows)
    for k, (coefficient, _) in model.pinned.items():
        moved = rows[:, k] != 0
        given[moved] += rows[moved, k] * coefficient
    if np.any(zeros[given == np.inf]) or np.any(ones[given == -np.inf]):
        raise InputError("the graph has an edge that an offset forbids, or lacks one that it demands; mend the offset")
    possible = np.isfinite(given)
    return Design(rows[possible][:, ~model.fixed], given[possible], ones[possible], zeros[possible], sampled)


Counted = tuple[np.ndarray, np.ndarray, np.ndarray]


def _merged(parts: Sequence[Counted]) -> Counted:
    """Equal rows as one, with their counts added."""
    rows, ones, zeros = (np.concatenate([part[k] for part in parts]) for k in range(3))
    # Equal rows have equal projections; others have not, with probability one.
    projected = rows @ np.random.default_rng(1).normal(size=rows.shape[1])
    _, first, which = np.unique(projected, return_index=True, return_inverse=True)
    which = which.ravel()
    ones, zeros = (np.bincount(which, weights=counts, minlength=len(first)) for counts in (ones, zeros))
    return rows[first], ones, zeros


def _whole(model: Model, edges: np.ndarray, seed: int) -> Iterator[Counted]:
    for pairs in model.network.portions(PORTION):
        present, rows = model.changes(edges, pairs)
        yield rows, present.astype(float), (~present).astype(float)


def _sampled(model: Model, edges: np.ndarray, seed: int) -> Iterator[Counted]:
    """All edges, and a million other pairs that stand for the rest."""
    random, n, network = np.random.default_rng(seed), model.network.n, model.network
    i = random.integers(n, size=1_000_000)
    j = (i + random.integers(1, n, size=i.size)) % n
    pairs = np.stack([i, j], axis=1) if network.directed else np.sort(np.stack([i, j], axis=1), axis=1)
    present, rows = model.changes(edges, pairs)
    rows, gaps = rows[~present], int((~present).sum())
    there, changes = model.changes(edges, edges)
    ones = np.concatenate([there.astype(float), np.zeros(gaps)])
    each = (network.dyads - len(edges)) / gaps
    zeros = np.concatenate([np.zeros(len(edges)), np.full(gaps, each)])
    yield np.concatenate([changes, rows]), ones, zeros


@dataclass(frozen=True, eq=False)
class Logistic:
    """The maximum: coefficients, information matrix, log-likelihood."""

    theta: np.ndarray
    information: np.ndarray
    log_likelihood: float


def log_odds_terms(design: Design, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The log-likelihood, its slope and the information at theta."""
    odds = design.offset + design.rows @ theta
    value = -np.sum(design.ones * np.logaddexp(0.0, -odds) + design.zeros * np.logaddexp(0.0, odds))
    p = 0.5 * (1.0 + np.tanh(0.5 * odds))
    slope = design.rows.T @ (design.ones - design.weights * p)
    information = (design.rows * (design.weights * p * (1 - p))[:, None]).T @ design.rows
    return float(value), slope, information


def maximise(design: Design, start: np.ndarray | None = None) -> Logistic:
    """Newton's steps, halved while they lead down, until the slope is nothing beside its error."""
    theta = np.zeros(design.rows.shape[1]) if start is None else start.copy()
    value, slope, information = log_odds_terms(design, theta)
    for _ in range(100):
        step = np.linalg.lstsq(information, slope, rcond=None)[0]
        rise, share = float(slope @ step), 1.0
        if rise < 1e-12:
            break
        while True:
            tried = log_odds_terms(design, theta + share * step)
            if tried[0] >= value - 1e-9 * abs(value) or share < 1e-6:
                break
            share /= 2
        theta = theta + share * step
        value, slope, information = tried
    return Logistic(theta, information, value)


# ------------------------------------------------------------------------------------------------- what has no estimate


def collinear(rows: np.ndarray) -> np.ndarray | None:
    """Coefficients of a sum of columns that is zero everywhere, or None."""
    if not rows.shape[1]:
        return None
    scale = np.sqrt((rows**2).mean(0))
    scaled = rows / np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(rows))
    if values[0] > 1e-10 * max(values[-1], 1.0):
        return None
    found = vectors[:, 0] / np.where(scale > 0, scale, 1.0)
    return found / np.abs(found).max()


def escaping(design: Design) -> np.ndarray | None:
    """A direction along which the likelihood never falls, or None: sum of (2y - 1) change . z >= 0 everywhere.

    First along single coefficients; then by a linear program.
    """
    rows, ones, zeros = design.rows, design.ones > 0, design.zeros > 0
    for k in range(rows.shape[1]):
        for sign in (-1.0, 1.0):
            x = sign * rows[:, k]
            if np.any(x) and not np.any(x[ones] < 0) and not np.any(x[zeros] > 0):
                direction = np.zeros(rows.shape[1])
                direction[k] = sign
                return direction
    if not _stuck(design):
        return None
    from scipy.optimize import linprog

    scale = np.maximum(np.abs(rows).max(0), 1e-300)
    signed = np.concatenate([rows[ones], -rows[zeros]]) / scale
    weights = signed.sum(0)
    # The largest sum of margins that are all at least 0, with coefficients between -1 and 1.
    solved = linprog(-weights, A_ub=-signed, b_ub=np.zeros(len(signed)), bounds=(-1, 1), method="highs")
    if solved.status != 0 or -solved.fun < 1e-9 * len(signed):
        return None
    direction = solved.x / scale
    return direction / np.abs(direction).max()


def _stuck(design: Design) -> bool:
    """Whether Newton's steps run away: some pair that is predicted with all but certainty."""
    odds = design.offset + design.rows @ maximise(design).theta
    return bool(np.abs(odds).max() > 15)
