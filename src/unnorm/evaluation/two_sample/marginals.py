"""How far draws are from rows column by column, beside how far rows are from other rows of the same table."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import ks_2samp

from unnorm.errors import require


class Marginals(NamedTuple):
    """Kolmogorov's distance of every column, and what the worst of them is between real rows, one time in a hundred."""

    distances: Float[np.ndarray, " d"]
    limit: float

    @property
    def worst(self) -> float:
        """The largest distance of all columns."""
        return float(np.max(self.distances))


def distances(draws: Float[np.ndarray, "n d"], rows: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " d"]:
    """sup_x |F(x) - G(x)| of the two empirical distribution functions of each column.

    >>> distances(np.zeros((4, 1)), np.array([[0.0], [0.0], [0.0], [1.0]])).tolist()
    [0.25]
    """
    pairs = zip(np.asarray(draws).T, np.asarray(rows).T, strict=True)
    return np.array([ks_2samp(a, b, method="asymp").statistic for a, b in pairs])  # pyright: ignore


def marginals(
    draws: Float[np.ndarray, "n d"],
    rows: Float[np.ndarray, "m d"],
    others: Float[np.ndarray, "k d"],
    *,
    groups: Int[np.ndarray, " m+k"] | None = None,
    repeats: int = 100,
    level: float = 0.99,
    seed: int = 0,
) -> Marginals:
    """Distances of draws to held-out rows, and the quantile of the worst such distance between rows and rows.

    For the latter the held-out and the other rows are put together and parted at random, as often as said, into sets of
    the sizes compared (of few rows as many as there are). `groups` labels the held-out and then the
    other rows: those of one label stay on one side, as they did when the rows were split.

    >>> rows = np.random.default_rng(0).normal(size=(3, 400, 2))
    >>> found = marginals(rows[0], rows[1], rows[2])
    >>> found.worst < found.limit < 0.2
    True
    """
    require(len(draws) >= 2 and len(rows) >= 2, "distances need at least 2 draws and 2 rows")
    pool, generator = np.concatenate([rows, others]), np.random.default_rng(seed)
    size = min(len(draws), len(pool) - len(rows))
    require(size >= 1, "marginals compares rows with other rows, and there are none; pass rows of the same table")
    labels = np.arange(len(pool)) if groups is None else np.unique(groups, return_inverse=True)[1].ravel()
    worst = []
    for _ in range(repeats):
        # Rows in the order of their groups, which is a random one.
        order = np.argsort(generator.permutation(int(labels.max()) + 1)[labels], kind="stable")
        worst.append(np.max(distances(pool[order[: len(rows)]], pool[order[len(rows) : len(rows) + size]])))
    return Marginals(distances(draws, rows), float(np.quantile(worst, level)))
