"""Scores of a density known only by samples, in closed form, through the kernel k(a, b) = exp(-|a - b|^2 / (2 w^2)).

Both estimators rest on Stein's identity E_q[h(x) s(x)' + grad h(x)] = 0 for every h that vanishes far away. They need
no training, cost one solve or eigendecomposition of an n x n matrix, and grow worse with the dimension.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from unnorm.energies.base import Scalar
from unnorm.errors import require
from unnorm.noises.base import Level
from unnorm.scores.base import AbstractPlainScore
from unnorm.small_matrices import solve, symmetric_eigen

Samples = Float[Array, "n d"]


def _squared_distances(a: Samples, b: Samples) -> Float[Array, "n m"]:
    return jnp.sum((a[:, None] - b[None]) ** 2, axis=-1)


def _smallest(values: Float[Array, "..."], k: int) -> Scalar:
    """The k-th smallest of values that are not negative, by building up its bits: sorting is ten times as slow.

    Such floating-point numbers are in the order of their bits read as whole numbers. A bit of the answer is set where
    fewer than k values lie below the number with that bit.
    """
    whole = jnp.int64 if values.dtype.itemsize == 8 else jnp.int32
    bits = jax.lax.bitcast_convert_type(values, whole)
    places = jnp.arange(8 * values.dtype.itemsize - 2, -1, -1, dtype=whole)

    def place(found, shift):
        with_it = found | (jnp.ones((), whole) << shift)
        return jnp.where(jnp.sum(bits < with_it) < k, with_it, found), None

    found, _ = jax.lax.scan(place, jnp.zeros((), whole), places)
    return jax.lax.bitcast_convert_type(found, values.dtype)


def median_width(samples: Samples) -> Scalar:
    """The median distance between two different samples, not differentiated; in the middle of two by their squares.

    >>> float(median_width(jnp.array([[0.0], [1.0], [3.0]])))
    2.0
    """
    n = len(samples)
    require(n >= 2, f"a median distance needs at least 2 samples, not {n}")
    squares = jax.lax.stop_gradient(_squared_distances(samples, samples))
    # Of n^2 squares n are those of points to themselves, and every other one stands there twice.
    pairs = n * (n - 1) // 2
    low, high = n + 2 * ((pairs + 1) // 2), n + 2 * (pairs // 2 + 1)
    lower = _smallest(squares, low)
    above = jnp.min(squares, where=squares > lower, initial=jnp.inf)
    upper = jnp.where(jnp.sum(squares <= lower) < high, above, lower)
    return jnp.sqrt((lower + upper) / 2)


def _checked(width: Scalar | float) -> Scalar | float:
    """The width, refused unless it is positive; only outside compiled code, where it has a value."""
    if not isinstance(width, Tracer):
        require(
            0 < float(width) < float("inf"),
            f"the width of a kernel must be positive and finite, not {float(width):g}; "
            "samples of which most are equal have no median distance, so give a width",
        )
    return width


def _kernel_and_slopes(samples: Samples, width: Scalar | float) -> tuple[Float[Array, "n n"], Samples]:
    """K, and B with row i equal to sum_j grad_{x_j} k(x_i, x_j) = sum_j k(x_i, x_j) (x_i - x_j) / w^2."""
    kernel = jnp.exp(-_squared_distances(samples, samples) / (2 * width**2))
    slopes = (jnp.sum(kernel, axis=1)[:, None] * samples - kernel @ samples) / width**2
    return kernel, slopes


def stein_score(samples: Samples, ridge: float = 1.0, width: Scalar | float | None = None) -> Samples:
    """S = -(K + ridge I)^-1 B at the samples themselves, B_i = sum_j grad_{x_j} k(x_i, x_j) (Li and Turner 2018).

    `width` w is the median distance unless given; if more than half of the pairs of samples are equal it is 0, which is
    refused (inside compiled code, where there is no value to refuse, the scores are then not numbers). The ridge is 1
    because the value 0.001 of the published code amplifies noise: on 100 samples of N(0, I) its error is larger than
    that of the zero vector (2.8 against 2 in two dimensions), while a ridge of 1 leaves 0.26.

    >>> samples = jax.random.normal(jax.random.key(0), (100, 2))
    >>> bool(jnp.mean((stein_score(samples) + samples) ** 2) < 0.3)
    True
    """
    require(ridge > 0, f"the ridge of a Stein estimator must be positive, not {ridge}")
    kernel, slopes = _kernel_and_slopes(samples, _checked(median_width(samples) if width is None else width))
    return -solve(kernel + ridge * jnp.eye(len(samples), dtype=samples.dtype), slopes)


class SpectralScore(AbstractPlainScore):
    """s(x) = sum_j beta_j psi_j(x) over the leading eigenfunctions of the kernel (Shi, Sun and Zhu 2018).

    With K = U diag(lambda) U' on n samples, psi_j(x) = sqrt(n) / lambda_j sum_m u_mj k(x, x_m) (Nystroem) and
    beta_j = -(1/n) sum_n grad psi_j(x_n), which is Stein's identity for h = psi_j. The eigenvalues kept are the largest
    ones whose cumulative share is below `share`, decided anew for every set of samples. Holds out of sample. The level
    t plays no part. The width is that of `stein_score`.

    >>> samples = jax.random.normal(jax.random.key(0), (100, 2))
    >>> SpectralScore(samples)(0.0, jnp.zeros(2)).shape
    (2,)
    """

    samples: Samples
    coefficients: Samples
    width: Scalar

    def __init__(self, samples: Samples, share: float = 0.99, width: Scalar | float | None = None):
        require(0 < share <= 1, f"the share of eigenvalues lies in (0, 1], not {share}")
        n = len(samples)
        self.samples = samples
        self.width = jnp.asarray(_checked(median_width(samples) if width is None else width), samples.dtype)
        kernel, slopes = _kernel_and_slopes(samples, self.width)
        values, vectors = symmetric_eigen(kernel)
        values, vectors = values[::-1], vectors[:, ::-1]
        # The first is kept even when it alone exceeds the share.
        kept = (jnp.cumsum(values) < share * jnp.sum(values)).at[0].set(True)
        inverse = jnp.where(kept, 1 / jnp.where(kept, values, 1.0), 0.0)
        # Row m of Gbar is the mean over n of grad_{x_n} k(x_n, x_m): the slopes, divided by n.
        beta = -jnp.sqrt(n) * inverse[:, None] * (vectors.T @ (slopes / n))
        self.coefficients = jnp.sqrt(n) * vectors @ (inverse[:, None] * beta)

    def __call__(self, t: Level, x: Float[Array, " d"], condition: Any = None) -> Float[Array, " d"]:
        kernel = jnp.exp(-jnp.sum((self.samples - x[None]) ** 2, axis=-1) / (2 * self.width**2))
        return kernel @ self.coefficients
