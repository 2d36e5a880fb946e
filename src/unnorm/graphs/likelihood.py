"""Maximum likelihood by Markov chain Monte Carlo (Geyer and Thompson 1992), and what it owes to chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unnorm.estimate import Outcome
from unnorm.graphs.chains import Chains, autocovariance_time, mean_covariance
from unnorm.graphs.model import Model
from unnorm.graphs.steps import approach, frozen, ran_away, stuck

#: How many chains; the Monte Carlo error is to be below this share of the standard error.
CHAINS, SHARE = 4, 1 / 55
#: Fewest and most draws of a chain in the last sample, and most proposals of all chains in it.
FEWEST, MOST, PROPOSALS = 256, 65_536, 24_000_000
#: Most samples at the end, each from where the last one pointed.
ROUNDS = 8


@dataclass(frozen=True, eq=False)
class Maximum:
    """Coefficients that are learnt, their information, and the covariance that chance adds to them."""

    theta: np.ndarray
    information: np.ndarray
    monte_carlo: np.ndarray
    outcome: Outcome
    diagnostics: dict[str, float]
    interval: int
    notes: tuple[str, ...] = ()


def weighted_maximum(draws: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The change of theta at which the weighted mean of the draws (n, p) is what was observed, and the weights.

    It maximises observed . d - log mean exp(draws . d).
    """
    centred = draws - draws.mean(0)
    target = observed - draws.mean(0)
    change = np.zeros(len(observed))

    def at(d: np.ndarray) -> tuple[float, np.ndarray]:
        logs = centred @ d
        most = logs.max()
        weights = np.exp(logs - most)
        return float(target @ d - most - np.log(weights.mean())), weights / weights.sum()

    value, weights = at(change)
    for _ in range(50):
        mean = weights @ centred
        information = (centred * weights[:, None]).T @ centred - np.outer(mean, mean)
        step = np.linalg.lstsq(information, target - mean, rcond=1e-12)[0]
        rise, share = float(step @ (target - mean)), 1.0
        if rise < 1e-16:
            break
        while at(change + share * step)[0] < value and share > 1e-8:
            share /= 2
        change = change + share * step
        value, weights = at(change)
    return change, weights


def far_too_many(edges: int, pairs: int) -> int:
    """A number of edges that no model with so many in the mean gets by chance: the walk that has them has run away."""
    spread = np.sqrt(edges * (1 - edges / pairs))
    return int(min(4 * edges + 50, max((edges + pairs) / 2, edges + 8 * spread + 10)))


def maximise(
    model: Model,
    graphs: Sequence[np.ndarray],
    observed: np.ndarray,
    start: np.ndarray,
    fallback: np.ndarray,
    *,
    key: Any,
    share: float | None = None,
) -> Maximum:
    """Steps towards the maximum, then a large sample there from which it is read off with its error.

    `start` is a guess; if the walk runs away from it, the steps begin at `fallback`. The Monte Carlo error is to be
    below this `share` of the standard error.
    """
    count, free = len(graphs), ~model.fixed
    edges = int(np.mean([len(g) for g in graphs]))
    most = far_too_many(max(len(g) for g in graphs), model.network.dyads)
    interval = max(16, edges)
    begin = [graphs[c % count] for c in range(CHAINS)]
    chains = Chains(model, begin, key=key, stream=0, most=most)
    found = approach(model, chains, observed, start, interval)
    if not found.outcome.ok:
        chains = Chains(model, begin, key=key, stream=1, most=most)
        found = approach(model, chains, observed, fallback, interval)
    theta, interval = found.theta, found.interval
    diagnostics = {"steps": float(len(found.shares)), "interval": float(interval)}
    nothing = np.full((len(theta), len(theta)), np.nan)
    if not found.outcome.ok:
        return Maximum(theta, nothing, nothing, found.outcome, diagnostics, interval)
    length, affordable = FEWEST, max(FEWEST, min(MOST, PROPOSALS // (CHAINS * interval)))
    drawn, points, weights, time, settled = np.empty((0, 0, 0)), np.empty((0, 0)), np.empty(0), 1.0, False
    for _ in range(ROUNDS):
        chains.draw(model.full(theta), length // 16, interval)
        drawn = chains.draw(model.full(theta), length, interval)[..., free]
        if chains.lost or frozen(drawn, observed):
            outcome = ran_away(model, chains, observed, None, theta, len(found.shares))
            return Maximum(theta, nothing, nothing, outcome, diagnostics, interval)
        points = drawn.reshape(-1, drawn.shape[-1])
        change, weights = weighted_maximum(points, observed)
        effective = 1.0 / (len(weights) * float(weights @ weights))
        time = float(autocovariance_time(drawn).max())
        wanted = min(affordable, int(time * count / (share or SHARE) ** 2 / CHAINS))
        settled = effective > 0.8 and length >= 0.7 * wanted
        theta = theta + change * min(1.0, 2.0 * effective)
        if settled:
            break
        length = max(length, wanted, FEWEST) if effective > 0.5 else length
    if not settled:
        outcome = stuck(model, points, observed, drawn, len(found.shares) + ROUNDS)
        return Maximum(theta, nothing, nothing, outcome, diagnostics, interval)
    centred = points - observed
    information = (centred * weights[:, None]).T @ centred * count
    influence = (drawn - observed) * (weights * len(weights)).reshape(drawn.shape[:2])[..., None]
    inverse = np.linalg.pinv(information, hermitian=True)
    monte_carlo = inverse @ (mean_covariance(influence) * count**2) @ inverse
    diagnostics |= {
        "draws": float(len(points)),
        "effective_draws": len(points) / time,
        "autocorrelation": time,
        "proposals": float(chains.proposals),
        "accepted": chains.accepted / max(chains.proposals, 1),
    }
    return Maximum(theta, information, monte_carlo, found.outcome, diagnostics, interval)
