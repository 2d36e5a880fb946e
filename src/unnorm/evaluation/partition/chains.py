"""Draws of a target as what they are: independent points, or chains whose neighbours resemble each other."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Shaped

from unnorm.errors import require
from unnorm.evaluation.tables import table_of
from unnorm.samplers import Trace
from unnorm.samplers.diagnostics import ess_mean

#: Draws of a target: a `Trace` holds chains; the rows of an array are taken to be independent.
Draws = Trace | Shaped[np.ndarray | Array, "n ..."]


class Mean(NamedTuple):
    """A mean, its standard error, and how many independent draws would have it."""

    value: float
    stderr: float
    effective: float


def as_chains(draws: Draws, point: tuple[int, ...], what: str) -> Shaped[np.ndarray, "chains steps ..."]:
    """Chains along the first axis, steps along the second; an independent draw is a chain of one step.

    `point` is the shape of a point of the target, which draws must have.

    >>> as_chains(np.zeros((9, 2)), (2,), "a mean").shape
    (9, 1, 2)
    """
    if isinstance(draws, Trace):
        found = draws.draws
    else:
        rows = table_of(draws, f"the draws for {what}")
        require(rows.ndim >= 1, f"{what} needs an array with one draw of the target per row, not one number")
        found = rows[:, None]
    given = found.shape[2:]
    require(given == point, f"{what} needs draws of the target, points of shape {point}, not of shape {given}")
    require(
        found.shape[0] * found.shape[1] >= 8,
        f"{what} needs at least 8 draws of the target, not {found.shape[0] * found.shape[1]}",
    )
    bad = int((~np.isfinite(found.reshape(found.shape[0] * found.shape[1], -1))).any(axis=1).sum())
    require(bad == 0, f"{bad} draws of the target are not finite; mend the sampler that made them")
    return found


def mean_of_chains(values: Float[np.ndarray, "chains steps"]) -> Mean:
    """The mean over all draws; its error counts the effective draws of chains (Geyer 1992).

    Chains that disagree count as correlated, so that a mode only some of them have found widens the error.

    >>> mean_of_chains(np.array([[1.0], [2.0], [3.0], [2.0]])).value
    2.0
    """
    values = np.asarray(values, np.float64)
    count = values.size
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    if not spread > 0:
        return Mean(mean, spread, float(count))
    if values.shape[1] == 1:
        return Mean(mean, spread / math.sqrt(count), float(count))
    require(values.shape[1] >= 8, f"chains need at least 8 steps to be judged, not {values.shape[1]}")
    effective = float(ess_mean(values))
    return Mean(mean, spread / math.sqrt(effective), effective)
