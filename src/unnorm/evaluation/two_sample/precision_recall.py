"""Precision and recall of draws against data: which part of each lies where the other has points, with errors."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.errors import require
from unnorm.estimate import Estimate
from unnorm.evaluation.two_sample.kernel_statistic import two_samples


class PrecisionRecall(NamedTuple):
    """The share of draws that lie among the data, and of data that lie among the draws."""

    precision: Estimate
    recall: Estimate


def _shares(
    balls: Float[np.ndarray, "n d"], points: Float[np.ndarray, "m d"], kept: Bool[np.ndarray, "g n"], neighbours: int
) -> Float[np.ndarray, " g"]:
    """The share of points in a ball of some kept centre, which reaches to its own k-th kept neighbour."""
    # Loaded here: nothing else in this module needs it.
    from scipy.spatial.distance import cdist

    among, to = cdist(balls, balls), cdist(points, balls)
    np.fill_diagonal(among, np.inf)
    order = np.argsort(among, axis=1)
    among = np.take_along_axis(among, order, axis=1)
    found = []
    for keep in kept:
        place = np.argmax(np.cumsum(keep[order], axis=1) == neighbours, axis=1)
        radii = np.where(keep, np.take_along_axis(among, place[:, None], axis=1)[:, 0], -1.0)
        found.append(np.mean((to <= radii).any(axis=1)))
    return np.array(found)


def _share(balls: np.ndarray, points: np.ndarray, neighbours: int, groups: int, order: np.ndarray, name: str):
    """The share of points inside the balls; its error from the points, and from the balls by leaving groups out."""
    n = len(balls)
    group = np.empty(n, int)
    group[order] = np.arange(n) % groups
    kept = np.vstack([np.ones(n, bool), group != np.arange(groups)[:, None]])
    shares = _shares(balls, points, kept, neighbours)
    value, m = float(shares[0]), len(points)
    padded = (value * m + 1) / (m + 2)  # a share of 1 is not known without error
    from_balls = (groups - 1) / groups * float(np.sum((shares[1:] - shares[1:].mean()) ** 2))
    stderr = math.sqrt(padded * (1 - padded) / m + from_balls)
    diagnostics = {"points": float(m), "balls": float(n), "neighbours": float(neighbours)}
    return Estimate(value, stderr, name, {**diagnostics, "balls_stderr": math.sqrt(from_balls)})


def precision_recall(
    data: Any, draws: Any, *, neighbours: int = 3, groups: int = 20, key: PRNGKeyArray
) -> PrecisionRecall:
    """Precision: the share of draws within the ball of some data point, up to its k-th neighbour; recall: the reverse.

    Kynkäänniemi, Karras, Laine, Lehtinen and Aila 2019. As samples grow they tend to the mass of each law on the
    support of the other; n points miss a share of order k / n of their own law, and more in many dimensions, so
    compare equal sizes only. The error adds that of the points, binomial, and that of the balls, by leaving out one of
    `groups` groups of centres at a time. Memory is the product of both sizes.

    >>> import jax
    >>> x, y = np.random.default_rng(0).uniform(size=(2, 500, 1))
    >>> found = precision_recall(x, y + 0.5, key=jax.random.key(0))
    >>> abs(found.precision.value - 0.5) < 0.1, abs(found.recall.value - 0.5) < 0.1
    (True, True)
    """
    x, y = two_samples(data, draws)
    smallest = min(len(x), len(y))
    require_count(neighbours, 1, "neighbours")
    require_count(groups, 2, "groups")
    require(
        groups <= smallest and smallest >= 2 * (neighbours + 1),
        f"{smallest} points are too few for {neighbours} neighbours and {groups} groups",
    )
    of_x, of_y = (
        np.asarray(jax.random.permutation(k, len(s))) for k, s in zip(jax.random.split(key), (x, y), strict=True)
    )
    return PrecisionRecall(
        _share(x, y, neighbours, groups, of_x, "precision"), _share(y, x, neighbours, groups, of_y, "recall")
    )
