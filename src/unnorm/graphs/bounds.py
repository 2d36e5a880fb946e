"""How far an infinite estimate may be from infinity: the end of a one-sided interval.

A statistic that is as low as it can be has its estimate at minus infinity; the 95% interval ends where the chance of
seeing it so low has fallen to 5%, with the other coefficients as they were estimated.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unnorm.graphs import logistic
from unnorm.graphs.chains import Chains
from unnorm.graphs.model import Model

#: Draws of each of four chains at a trial value.
DRAWS = 512


def one_sided(
    model: Model, graphs: Sequence[np.ndarray], theta: np.ndarray, k: int, *, key: Any, level: float = 0.95
) -> float:
    """The end of the interval for statistic k, which is pinned; `theta` are all coefficients."""
    sign = 1.0 if theta[k] < 0 else -1.0
    wanted = (1.0 - level) ** (1.0 / len(graphs))
    chance = _exactly(model, graphs, theta, k) if model.independent else _by_drawing(model, graphs, theta, k, key)
    low, high = -25.0, 25.0
    for _ in range(40 if model.independent else 14):
        middle = 0.5 * (low + high)
        if chance(sign * middle) > wanted:
            low = middle
        else:
            high = middle
    return sign * 0.5 * (low + high)


def _exactly(model: Model, graphs: Sequence[np.ndarray], theta: np.ndarray, k: int) -> Any:
    """The chance that no pair moves the statistic, where pairs are independent."""
    loose = Model(model.terms, model.network, {p: held for p, held in model.pinned.items() if p != k})
    design = logistic.design(loose, graphs[:1])
    column = int(np.flatnonzero(np.flatnonzero(~loose.fixed) == k)[0])
    moved = design.rows[:, column]
    others = design.offset + np.delete(design.rows, column, 1) @ np.delete(theta[~loose.fixed], column)
    down = -1.0 if theta[k] < 0 else 1.0

    def chance(value: float) -> float:
        odds = others + moved * value
        logs = -np.logaddexp(0.0, -np.sign(moved) * down * odds)
        return math.exp(float(np.sum(np.where(moved == 0, 0.0, design.weights * logs))))

    return chance


def _by_drawing(model: Model, graphs: Sequence[np.ndarray], theta: np.ndarray, k: int, key: Any) -> Any:
    """The share of draws in which the statistic is what it was."""
    held = model.pinned[k][1]
    interval = max(16, 2 * model.network.dyads // 10, 2 * len(graphs[0]))

    def chance(value: float) -> float:
        trial = theta.copy()
        trial[k] = value
        most = 4 * max(len(g) for g in graphs) + 50
        chains = Chains(model, [graphs[0]] * 4, key=key, stream=13, most=most)
        chains.draw(trial, DRAWS // 4, interval)
        drawn = chains.draw(trial, DRAWS, interval)
        return 0.0 if chains.lost or not drawn.size else float(np.mean(np.abs(drawn[..., k] - held) < 1e-6))

    return chance
