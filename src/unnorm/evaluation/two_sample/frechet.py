"""The Frechet distance of two samples: how far apart their means and covariances are.

    d^2 = | m - n |^2 + tr(A + B - 2 (A^(1/2) B A^(1/2))^(1/2)),

the squared Wasserstein distance of two Gaussians with these moments (Dowson and Landau 1982). In the features of some
network it is what papers call FID (Heusel et al. 2017), and depends on that network and on the number of points: two
samples of one law have a distance above zero, which `floor` says.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.errors import require
from unnorm.estimate import Estimate

#: Bootstrap samples for the error, unless told otherwise.
RESAMPLES = 50


def frechet(
    x: Any,
    y: Any,
    *,
    features: Callable[[Any], Any] | None = None,
    resamples: int = RESAMPLES,
    key: PRNGKeyArray,
) -> Estimate:
    """The squared Frechet distance of two sets of rows, with its bootstrap error and the floor of their sizes.

    Distances are of coordinates as they are, or of `features` of one row. `diagnostics["floor"]` is the distance of
    two halves of `y` shuffled, brought to these sizes (it falls as one over their number): a value near it is as good
    as can be told. It is no published FID, which is that of one certain network on 50,000 pictures.

    >>> x, y = np.random.default_rng(0).normal(size=(2, 500, 2))
    >>> found = frechet(x, y + [1.0, 0.0], key=jax.random.key(0))
    >>> abs(found.value - 1) < 4 * found.stderr
    True
    """
    x, y = _rows(x, features, "first"), _rows(y, features, "second")
    require(x.shape[1] == y.shape[1], f"rows of {x.shape[1]} and of {y.shape[1]} numbers cannot be compared")
    require_count(resamples, 2, "bootstrap samples")
    chance = np.random.default_rng(np.asarray(jax.random.key_data(key)).reshape(-1).tolist())
    value = frechet_of(moments(x), moments(y))
    again = [
        frechet_of(moments(x[chance.integers(len(x), size=len(x))]), moments(y[chance.integers(len(y), size=len(y))]))
        for _ in range(resamples)
    ]
    order = chance.permutation(len(y))
    half = len(y) // 2
    apart = frechet_of(moments(y[order[:half]]), moments(y[order[half:]]))
    floor = apart * (1 / len(x) + 1 / len(y)) / (1 / half + 1 / (len(y) - half))
    told = {"floor": floor, "rows": float(len(x)), "rows_of_second": float(len(y))}
    by = "coordinates" if features is None else "features"
    return Estimate(value, float(np.std(again, ddof=1)), f"Frechet distance of {by}", told)


def _rows(rows: Any, features: Callable[[Any], Any] | None, which: str) -> Float[np.ndarray, "n d"]:
    rows = np.asarray(rows if features is None else jax.lax.map(features, jax.numpy.asarray(rows), batch_size=256))
    flat = rows.reshape(len(rows), -1).astype(np.float64)
    require(len(flat) >= 4, f"a Frechet distance needs at least 4 rows, and the {which} sample has {len(flat)}")
    require(bool(np.all(np.isfinite(flat))), f"the {which} sample holds values that are not finite")
    return flat


def moments(rows: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Mean and covariance."""
    mean = rows.mean(0)
    return mean, (rows - mean).T @ (rows - mean) / (len(rows) - 1)


def frechet_of(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> float:
    """The squared distance of two pairs of mean and covariance.

    By the eigenvalues of a symmetric matrix, so that covariances may be singular.

    >>> frechet_of((np.zeros(1), np.eye(1)), (np.ones(1), 4 * np.eye(1)))
    2.0
    """
    values, vectors = np.linalg.eigh(one[1])
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    middle = np.linalg.eigvalsh(root @ other[1] @ root)
    apart = float(np.sum((one[0] - other[0]) ** 2))
    both = np.trace(one[1]) + np.trace(other[1]) - 2 * np.sum(np.sqrt(np.maximum(middle, 0)))
    return apart + max(float(both), 0.0) if math.isfinite(apart) else math.inf
