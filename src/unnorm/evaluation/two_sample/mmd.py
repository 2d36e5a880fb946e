"""Whether two samples come from one law: the maximum mean discrepancy, with its error and a p-value.

MMD^2 = E k(x, x') + E k(y, y') - 2 E k(x, y) is zero only when the laws of x and y agree (Gretton, Borgwardt,
Rasch, Schölkopf and Smola, 2012, "A kernel two-sample test").
"""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import real_numbers
from unnorm.errors import require
from unnorm.estimate import Estimate
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.two_sample.kernel_statistic import KernelSums as _KernelSums  # noqa: F401
from unnorm.evaluation.two_sample.kernel_statistic import (
    exponent_of,
    kernel_estimate,
    permutation_p_value,
    points_of,
    squared_distances,
    two_samples,
)
from unnorm.evaluation.two_sample.kernel_statistic import variance as _variance  # noqa: F401

#: The widths of the seed's kernel; for the median heuristic, multiples of the median distance.
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)


class GaussianSum(eqx.Module):
    """k(x, y) = sum_h exp(-|x - y|^2 / (2 h^2)): a sum of Gaussians, not their mean, and with the 2 in the exponent."""

    bandwidths: Float[Array, " h"]

    def __call__(self, a: Float[Array, "n d"], b: Float[Array, "m d"]) -> Float[Array, "n m"]:
        squared = squared_distances(a, b)
        # A width whose square is 0 in these numbers still tells points in one place from all others.
        least = jnp.finfo(a.dtype).tiny
        return sum((jnp.exp(-squared / jnp.maximum(2 * h**2, least)) for h in self.bandwidths), jnp.zeros((), a.dtype))


@dataclass(frozen=True)
class Gaussians:
    """sum_h exp(-|x - y|^2 / (2 h^2)) in any unit: the widths are divided by it."""

    bandwidths: tuple[float, ...]
    degree: int = 0

    def in_unit(self, unit: float) -> GaussianSum:
        """The kernel of points in this unit."""
        return GaussianSum(jnp.asarray(np.asarray(self.bandwidths) / unit, float))

    def finest(self, points: Float[np.ndarray, "n d"], unit: float) -> float:
        """The smallest width."""
        return min(self.bandwidths) / unit


def _kernel_of(bandwidths: float | tuple[float, ...]) -> Gaussians:
    found = real_numbers(bandwidths)
    widths = np.array([]) if found is None else np.atleast_1d(np.asarray(found, np.float64))
    require(
        widths.ndim == 1 and widths.size > 0 and bool(np.all(np.isfinite(widths) & (widths > 0))),
        f"bandwidths must be one or more positive numbers, not {bandwidths}",
    )
    return Gaussians(tuple(widths.tolist()))


def mmd(x: Any, y: Any, *, bandwidths: float | tuple[float, ...] = WIDTHS, block: int = 1024) -> Estimate:
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
    return kernel_estimate(_kernel_of(bandwidths), x, y, block=block, method="unbiased MMD^2")


def mmd_test(
    x: Any,
    y: Any,
    *,
    bandwidths: float | tuple[float, ...] | None = None,
    permutations: int = 500,
    block: int = 1024,
    key: PRNGKeyArray,
) -> Estimate:
    """`mmd` with a `p_value` among its diagnostics, from relabellings of the pooled points.

    The default bandwidths are the median distance of the pooled points times 1/4, 1/2, 1, 2 and 4. The p-value is
    uniform where the laws agree, for any sizes of independent samples. Memory is (n + m) * permutations numbers.

    >>> import jax
    >>> x, y = np.random.default_rng(0).normal(size=(2, 200, 2))
    >>> mmd_test(x, y, key=jax.random.key(0)).diagnostics["p_value"] > 0.01
    True
    >>> round(mmd_test(x, y + 1, key=jax.random.key(0)).diagnostics["p_value"], 3)
    0.002
    """
    if bandwidths is None:
        pooled = np.vstack(two_samples(x, y))
        # A median over some points only must not know which sample they come from.
        shuffled = np.random.default_rng(0).permutation(pooled[np.lexsort(pooled.T)])
        median = median_bandwidth(shuffled)
        bandwidths = tuple(median * width for width in WIDTHS)
    p = permutation_p_value(_kernel_of(bandwidths), x, y, permutations=permutations, block=block, key=key)
    found = mmd(x, y, bandwidths=bandwidths, block=block)
    return replace(found, diagnostics={**found.diagnostics, "p_value": p, "permutations": float(permutations)})


def median_bandwidth(x: Any, *, points: int = 1000) -> float:
    """The median distance |x_i - x_j| between two different points: a bandwidth on the scale of the data.

    It is h in exp(-|x - y|^2 / (2 h^2)). Taken over at most `points` points, evenly spaced along the sample.
    Source: Gretton et al. (2012), section 8.

    >>> median_bandwidth([0.0, 1.0, 3.0])
    2.0
    """
    # Loaded here: nothing else in this module needs it.
    from scipy.spatial.distance import pdist

    x, (points,) = points_of(x, "the sample"), whole_numbers(points=points)
    require(points >= 2, f"a median distance needs at least 2 points, not {points}")
    kept = x[np.linspace(0, len(x) - 1, min(points, len(x))).astype(int)]
    # In a unit of their own, as whose squares neither overflow nor vanish.
    exponent = exponent_of(kept)
    median = float(np.ldexp(np.median(pdist(np.ldexp(kept, -exponent))), exponent))
    require(median > 0, "half of all pairs of points coincide, so the median distance is 0; choose a width")
    return median
