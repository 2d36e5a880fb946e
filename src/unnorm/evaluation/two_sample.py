"""Whether two samples come from one law: the maximum mean discrepancy, with its error.

MMD^2 = E k(x, x') + E k(y, y') - 2 E k(x, y) is zero only when the laws of x and y agree (Gretton, Borgwardt,
Rasch, Schölkopf and Smola, 2012, "A kernel two-sample test"). Sums of kernels are kept, never a whole matrix.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unnorm.errors import require
from unnorm.estimate import Estimate


class _KernelSums(NamedTuple):
    """What the estimate and its error need of a kernel matrix: sums over rows, over columns, of squares."""

    rows: Float[np.ndarray, " n"]
    columns: Float[np.ndarray, " m"]
    squares: float

    @property
    def total(self) -> float:
        return float(self.rows.sum())


def _squared_distances(a: Float[Array, "n d"], b: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """|a_i - b_j|^2."""
    if a.shape[1] <= 8:
        # Differences first: exact also where the points are far from the origin and close together.
        return sum(((a[:, k, None] - b[:, k]) ** 2 for k in range(a.shape[1])), jnp.zeros((), a.dtype))
    # One matrix product: in many dimensions the differences would cost far more than the exponentials.
    inner = jnp.matmul(a, b.T, precision="highest")
    return jnp.maximum(jnp.sum(a**2, 1)[:, None] + jnp.sum(b**2, 1) - 2 * inner, 0)


@jax.jit
def _kernel(
    a: Float[Array, "n d"],
    b: Float[Array, "m d"],
    bandwidths: Float[Array, " h"],
) -> Float[Array, "n m"]:
    """sum_h exp(-|a_i - b_j|^2 / (2 h^2))."""
    squared = _squared_distances(a, b)
    return sum((jnp.exp(-squared / (2 * h**2)) for h in bandwidths), jnp.zeros((), a.dtype))


@partial(jax.jit, static_argnames=("block", "same"))
def _sums(
    a: Float[Array, "n d"],
    b: Float[Array, "m d"],
    bandwidths: Float[Array, " h"],
    shift: Float[Array, ""],
    *,
    block: int,
    same: bool,
) -> tuple[Float[Array, " n"], Float[Array, " m"], Float[Array, " n"]]:
    """Sums of k(a_i, b_j) - shift over j, over i, and of its square over j; i = j is left out if `same`."""
    n = len(a)
    blocks = -(-n // block)
    padded = jnp.pad(a, ((0, blocks * block - n), (0, 0))).reshape(blocks, block, -1)
    indices = jnp.arange(blocks * block).reshape(blocks, block)

    def step(columns: Array, rows: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        points, index = rows
        keep = index[:, None] < n
        if same:
            keep = keep & (index[:, None] != jnp.arange(len(b)))
        values = jnp.where(keep, _kernel(points, b, bandwidths) - shift, 0)
        return columns + values.sum(0), (values.sum(1), (values**2).sum(1))

    columns, (rows, squares) = jax.lax.scan(step, jnp.zeros(len(b), a.dtype), (padded, indices))
    return rows.reshape(-1)[:n], columns, squares.reshape(-1)[:n]


def _kernel_sums(a: Array, b: Array, bandwidths: Array, shift: Array, block: int, same: bool) -> _KernelSums:
    found = _sums(a, b, bandwidths, shift, block=min(block, len(a)), same=same)
    # What is left to add up is added up in double precision.
    rows, columns, squares = (np.asarray(s, np.float64) for s in found)
    return _KernelSums(rows, columns, float(squares.sum()))


def _points(x: Any, name: str) -> Float[np.ndarray, "n d"]:
    """The sample as a table of finite numbers, or a sentence about why it is none."""
    points = np.asarray(x)
    require(
        points.ndim >= 1 and len(points) >= 2 and points.size > 0,
        f"{name} needs at least 2 points along its first axis, but has shape {points.shape}",
    )
    points = points.reshape(len(points), -1).astype(np.float64)
    bad = int((~np.isfinite(points)).any(axis=1).sum())
    require(
        bad == 0,
        f"{bad} of {len(points)} points in {name} are not finite; remove them or mend what drew them",
    )
    return points


def _within_interaction(sums: _KernelSums) -> float:
    """E k°(x, x')^2 for the kernel centred in both arguments, without bias, from a matrix with no diagonal.

    The sum of squares of the U-centred matrix k_ij - r_i/(n-2) - r_j/(n-2) + T/((n-1)(n-2)), over n(n-3); r
    are the sums of rows and T their total (Székely and Rizzo, 2014).
    """
    n = len(sums.rows)
    centred = sums.squares - 2 / (n - 2) * (sums.rows**2).sum() + sums.total**2 / ((n - 1) * (n - 2))
    # A sum of squares: below zero only by rounding.
    return max(float(centred), 0.0) / (n * (n - 3))


def _between_interaction(sums: _KernelSums) -> float:
    """E k°(x, y)^2 without bias: the interaction mean square of the two-way table k(x_i, y_j)."""
    n, m = len(sums.rows), len(sums.columns)
    centred = sums.squares - (sums.rows**2).sum() / m - (sums.columns**2).sum() / n + sums.total**2 / (n * m)
    return max(float(centred), 0.0) / ((n - 1) * (m - 1))


def _variance(xx: _KernelSums, yy: _KernelSums, xy: _KernelSums) -> tuple[float, float]:
    """The first- and second-order parts of the variance of the U-statistic, each without bias.

    Write k = mean + one term for each argument + k°, where k° has mean zero given either argument. All these
    are uncorrelated (Hoeffding), so with a(x) = E k(x, x') - E k(x, y), b(y) = E k(y, y') - E k(x, y):

        Var = (4/n) Var a + (4/m) Var b
              + 2/(n(n-1)) E k°(x, x')^2 + 2/(m(m-1)) E k°(y, y')^2 + 4/(nm) E k°(x, y)^2.

    a is seen through a_i = sum_j k(x_i, x_j)/(n-2) - sum_j k(x_i, y_j)/m: the divisor n-2 makes the part that
    depends on x_i alone exactly a, and the rest adds E k°(x, x')^2/(n-2) + E k°(x, y)^2/m to their variance.
    """
    n, m = len(xx.rows), len(yy.rows)
    within_x, within_y, between = _within_interaction(xx), _within_interaction(yy), _between_interaction(xy)
    a = np.var(xx.rows / (n - 2) - xy.rows / m, ddof=1) - within_x / (n - 2) - between / m
    b = np.var(yy.rows / (m - 2) - xy.columns / n, ddof=1) - within_y / (m - 2) - between / n
    second = 2 * within_x / (n * (n - 1)) + 2 * within_y / (m * (m - 1)) + 4 * between / (n * m)
    return float(4 * a / n + 4 * b / m), second


def mmd(
    x: Any,
    y: Any,
    *,
    bandwidths: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0),
    block: int = 1024,
) -> Estimate:
    """MMD^2 between the laws of two samples of independent points, without bias, with its standard error.

    U = sum_{i != j} k(x_i, x_j)/(n(n-1)) + sum_{i != j} k(y_i, y_j)/(m(m-1)) - 2 sum_{ij} k(x_i, y_j)/(nm)
    with k(x, y) = sum_h exp(-|x - y|^2 / (2 h^2)): a sum of Gaussians, not their mean, and with the 2 in the
    exponent. Without bias means that it may be negative where the laws agree. The standard error is the root
    of the exact variance of U with each part estimated without bias, for any n and m of at least 4.

    Where laws agree U is not normal but skewed to the right, and `null_stderr` among the diagnostics is its
    standard deviation. Where they nearly agree, so that the truth is about as large as the error, U is still
    skewed and a 95% interval covers nearer 88%. The points of a chain are not independent: thin first, or
    the error is too small.

    Memory is block * max(n, m) numbers. Source: Gretton et al. (2012), Lemma 6; the error, Hoeffding (1948).

    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> y = np.random.default_rng(1).normal(size=(400, 2))
    >>> abs(mmd(x, y).value) < 5 * mmd(x, y).stderr, mmd(x, y + 1).value > 5 * mmd(x, y + 1).stderr
    (True, True)
    """
    first, second = np.shape(x)[1:], np.shape(y)[1:]
    require(first == second, f"two samples must have points of one shape, not {first} and {second}")
    require(
        len(bandwidths) > 0 and all(math.isfinite(h) and h > 0 for h in bandwidths),
        f"bandwidths must be one or more positive numbers, not {bandwidths}",
    )
    require(block >= 1, f"block {block} is not positive; pass at least 1")
    x, y = _points(x, "the first sample"), _points(y, "the second sample")
    n, m = len(x), len(y)
    # Distances do not depend on the origin; rounding does, so the origin is put among the points.
    centre = np.vstack([x, y]).mean(axis=0)
    a, b = jnp.asarray(x - centre, float), jnp.asarray(y - centre, float)
    widths = jnp.asarray(bandwidths, float)
    # Nor do U and its variance change when a constant is taken off the kernel, and the sums then round less.
    shift = jnp.mean(_kernel(a[:64], b[:64], widths))
    xx = _kernel_sums(a, a, widths, shift, block, same=True)
    yy = _kernel_sums(b, b, widths, shift, block, same=True)
    xy = _kernel_sums(a, b, widths, shift, block, same=False)
    value = xx.total / (n * (n - 1)) + yy.total / (m * (m - 1)) - 2 * xy.total / (n * m)
    diagnostics = {"samples_x": float(n), "samples_y": float(m)}
    method = "unbiased MMD^2"
    if min(n, m) < 4:
        warning = f"A standard error needs 4 points in each sample, not {min(n, m)}; it is given as infinite."
        return Estimate(value, math.inf, method, diagnostics, (warning,))
    linear, quadratic = _variance(xx, yy, xy)
    # Where the laws agree the first-order part is zero, and its estimate is as often negative as not.
    stderr = math.sqrt(max(linear, 0.0) + quadratic)
    return Estimate(value, stderr, method, {**diagnostics, "null_stderr": math.sqrt(quadratic)})


def median_bandwidth(x: Any, *, points: int = 1000) -> float:
    """The median distance |x_i - x_j| between two different points: a bandwidth on the scale of the data.

    It is h in exp(-|x - y|^2 / (2 h^2)). Taken over at most `points` points, evenly spaced along the sample.
    Source: Gretton et al. (2012), section 8.

    >>> median_bandwidth([0.0, 1.0, 3.0])
    2.0
    """
    # Loaded here: nothing else in this module needs it.
    from scipy.spatial.distance import pdist

    x = _points(x, "the sample")
    require(points >= 2, f"a median distance needs at least 2 points, not {points}")
    kept = x[np.linspace(0, len(x) - 1, min(points, len(x))).astype(int)]
    median = float(np.median(pdist(kept)))
    require(median > 0, "half of all pairs of points coincide, so the median distance is 0; choose a width")
    return median
