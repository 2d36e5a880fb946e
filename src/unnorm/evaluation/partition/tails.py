"""Whether the stated error of importance weights can be believed: how heavy their tail is.

The delta method needs weights that have a variance, and a few weights can hide that they have none. The largest weights
of any proposal follow a generalised Pareto law, whose index k tells how many moments there are: a variance only when
k < 1/2. The effective sample size does not see this; k does (Vehtari, Simpson, Gelman, Yao and Gabry 2024).
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from unnorm.estimate import Estimate

#: Above this index weights have no variance, and annealing takes over.
VARIANCE = 0.5
#: Above this index the error is too small by far even with many draws (Vehtari et al. 2024).
UNUSABLE = 0.7


def tail_index(log_weights: Any) -> float:
    """k of the generalised Pareto law of the largest weights; nan when there are too few to tell.

    Fitted to the 3 sqrt(n) largest by the method of Zhang and Stephens (2009), and drawn towards 1/2 by ten
    observations, as in Pareto-smoothed importance sampling.

    >>> uniform = np.random.default_rng(0).uniform(size=20_000)
    >>> abs(tail_index(-0.8 * np.log(uniform)) - 0.8) < 0.2
    True
    """
    values = np.sort(np.asarray(log_weights, dtype=np.float64))
    size = int(min(0.2 * values.size, 3 * math.sqrt(values.size)))
    if size < 20 or not math.isfinite(values[-1]):
        return math.nan
    weights = np.exp(values[-size - 1 :] - values[-1])
    excess = weights[1:] - weights[0]
    if not excess[0] > 0:
        excess = excess[excess > 0]  # ties at the threshold
    if excess.size < 20:
        return math.nan
    # The posterior mean of b = -k / scale on a grid of quantiles of its prior, then k given b.
    grid = 30 + int(math.sqrt(excess.size))
    quartile = excess[int(excess.size / 4 + 0.5) - 1]
    b = 1 / excess[-1] + (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3 * quartile)
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    log_likelihood = excess.size * (np.log(-b / k) - k - 1)
    posterior = np.exp(log_likelihood - log_likelihood.max())
    b_mean = float(b @ posterior / posterior.sum())
    k_mean = float(np.log1p(-b_mean * excess).mean())
    return (excess.size * k_mean + 10 * 0.5) / (excess.size + 10)


def judged(estimate: Estimate, log_weights: Any) -> Estimate:
    """The estimate with the tail index of its weights, and a warning if it is too high to believe the error."""
    k = tail_index(log_weights)
    if not math.isfinite(k):
        return estimate
    warnings = estimate.warnings
    if k > UNUSABLE and not warnings:
        warnings = (
            f"The largest weights are too large (tail index {k:.2f}, above {UNUSABLE}): the stated error is too small; "
            "use a proposal with wider tails, or annealing.",
        )
    return replace(estimate, diagnostics={**estimate.diagnostics, "pareto_k": k}, warnings=warnings)
