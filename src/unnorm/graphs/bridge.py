"""log Z of a model of random graphs, by bridge sampling along a line from a model without dependence.

There log Z is exact. The line is cut into pieces short enough for the draws at their two ends to overlap, and
    mean over a of 1 / (1 + exp(r - w)) = mean over b of 1 / (1 + exp(w - r)),    w = (theta_b - theta_a) . s,
gives r = log Z(theta_b) - log Z(theta_a) for each (Bennett 1976); no error comes from the cutting.
"""

from dataclasses import dataclass

import numpy as np

from unnorm.graphs.chains import Chains, autocovariance_time, mean_covariance

#: How many standard deviations of w a piece is long; draws of each chain, and the most proposals of all, at a cut.
LENGTH, DRAWS, PROPOSALS = 1.5, 512, 1_200_000
MOST_CUTS = 400


@dataclass(frozen=True)
class Bridged:
    """log Z(to) - log Z(from), its standard error, over how many cuts, and the fewest effective draws at one."""

    value: float
    stderr: float
    cuts: int
    effective: float


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def ratio(a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """r from w at draws of both ends, and what each draw adds to the error of r."""
    low, high = min(a.min(), b.min()) - 40.0, max(a.max(), b.max()) + 40.0
    for _ in range(100):
        r = 0.5 * (low + high)
        if _sigmoid(a - r).mean() > _sigmoid(r - b).mean():
            low = r
        else:
            high = r
    r = 0.5 * (low + high)
    at_a, at_b = _sigmoid(a - r), _sigmoid(r - b)
    slope = (at_a * (1 - at_a)).mean() + (at_b * (1 - at_b)).mean()
    return r, at_a / slope, -at_b / slope


def bridge(chains: Chains, begin: np.ndarray, end: np.ndarray, interval: int) -> Bridged:
    """From `begin`, where log Z is known, to `end`; both hold all coefficients.

    The walk goes backwards: from the end, near which chains begin that began at data, to the beginning.
    """
    same = end == begin
    along = np.where(same, 0.0, np.where(same, 0.0, end) - np.where(same, 0.0, begin))
    if not np.any(along):
        return Bridged(0.0, 0.0, 0, np.inf)

    def projected(draws: np.ndarray) -> np.ndarray:
        return draws @ along

    longest = max(PROPOSALS // (DRAWS * len(chains)), 1)
    interval = min(interval, longest)
    chains.draw(end, DRAWS, interval)
    place, here = 1.0, projected(chains.draw(end, DRAWS, interval))
    value, variance, influence, cuts, fewest = 0.0, 0.0, np.zeros_like(here), 0, np.inf
    while place > 0.0 and cuts < MOST_CUTS:
        spread = float(here.std())
        there = max(0.0, place - LENGTH / max(spread, 1e-9))
        if 0.0 < there < 0.3 * (place - there):
            there = 0.0
        theta = np.where(same, end, np.where(same, 0.0, begin) + there * along)
        chains.draw(theta, DRAWS // 8, interval)
        before = projected(chains.draw(theta, DRAWS, interval))
        time = float(autocovariance_time(before[..., None])[0])
        interval = int(np.clip(interval * time / 4, 1, longest))
        step = place - there
        r, at_before, at_here = ratio((step * before).ravel(), (step * here).ravel())
        value += r
        cuts += 1
        total = influence + at_here.reshape(here.shape)
        variance += float(mean_covariance(total[..., None])[0, 0])
        fewest = min(fewest, here.size / float(autocovariance_time(here[..., None])[0]))
        influence, here, place = at_before.reshape(before.shape), before, there
    variance += float(mean_covariance(influence[..., None])[0, 0])
    return Bridged(value, float(np.sqrt(variance)), cuts, float(fewest))
