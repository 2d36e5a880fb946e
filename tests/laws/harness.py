"""From repeats to verdicts: tolerances are computed standard errors, never guesses.

A law says that the expectation of a statistic is a known number. `deviation` measures how many standard errors the
repeats are away from it; `holds` and `breaks` are the two verdicts. A law asserts `holds` for the algorithm and
`breaks` for a deliberately wrong variant of it.
"""

import math
from dataclasses import replace

import numpy as np

#: A true law fails by chance once in about 150,000 comparisons at 4.5 standard errors.
SIGMAS = 4.5


def deviation(repeats, truth, bias: float = 0.0) -> float:
    """The largest |mean - truth| over coordinates, in standard errors, after allowing a known bias bound."""
    repeats = np.asarray(repeats, dtype=np.float64)
    assert len(repeats) >= 8, "a standard error needs at least 8 repeats"
    assert np.all(np.isfinite(repeats)), "a repeat is not finite"
    stderr = repeats.std(axis=0, ddof=1) / math.sqrt(len(repeats))
    gap = np.maximum(np.abs(repeats.mean(axis=0) - np.asarray(truth, dtype=np.float64)) - bias, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(gap == 0, 0.0, gap / stderr)
    return float(np.max(ratio))


def holds(repeats, truth, bias: float = 0.0) -> bool:
    """Whether the repeats agree with the truth to within 4.5 standard errors in every coordinate."""
    return deviation(repeats, truth, bias) <= SIGMAS


def breaks(repeats, truth, bias: float = 0.0) -> bool:
    """Whether the repeats contradict the truth clearly: the verdict a negative control must get."""
    return deviation(repeats, truth, bias) > SIGMAS


def coverage(estimates, truth: float, level: float = 0.95) -> float:
    """The share of estimates whose stated interval holds the truth."""
    return float(np.mean([estimate.covers(truth, level) for estimate in estimates]))


def covers(estimates, truth: float) -> bool:
    """Whether stated 95% intervals of 200 repeats hold the truth as often as they should."""
    return 0.90 <= coverage(estimates, truth) <= 0.99


def halved(estimates) -> list:
    """The negative control of every coverage."""
    return [replace(estimate, stderr=estimate.stderr / 2) for estimate in estimates]


def near(estimate, truth: float) -> bool:
    """Within 4 stated standard errors."""
    return abs(estimate.value - truth) <= 4 * estimate.stderr
