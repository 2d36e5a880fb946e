"""E k(x, x') + E k(y, y') - 2 E k(x, y) for any kernel k: without bias, with its error, and with a p-value.

The maximum mean discrepancy and the energy distance are two kernels of it. Sums of kernels are kept, never a whole
matrix. Points are looked at around their mean and in a unit of their own, so that no units overflow, and in double
precision where single precision could not tell neighbours apart.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import require
from unnorm.estimate import Estimate
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.tables import table_of

#: Up to so many coordinates, distances are taken by differences.
BY_DIFFERENCES = 8
#: Squared distances may be rounded by this share of the square of the shortest one that matters.
ROUNDING = 1e-3


@runtime_checkable
class Kernel(Protocol):
    """k(a_i, b_j) of all pairs, as a pytree: its numbers may change without compiling anew."""

    def __call__(self, a: Float[Array, "n d"], b: Float[Array, "m d"], /) -> Float[Array, "n m"]: ...


@runtime_checkable
class KernelInUnits(Protocol):
    """A kernel in every unit of length: k(x, y) = unit^degree in_unit(unit)(x / unit, y / unit)."""

    @property
    def degree(self) -> int: ...

    def in_unit(self, unit: float) -> Kernel: ...

    def finest(self, points: Float[np.ndarray, "n d"], unit: float) -> float:
        """The shortest distance, in this unit, that the kernel is to tell from zero; the points are in it too."""
        ...


class KernelSums(NamedTuple):
    """What the estimate and its error need of a kernel matrix: sums over rows, over columns, of squares."""

    rows: Float[np.ndarray, " n"]
    columns: Float[np.ndarray, " m"]
    squares: float

    @property
    def total(self) -> float:
        return float(self.rows.sum())


def squared_distances(a: Float[Array, "n d"], b: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """|a_i - b_j|^2."""
    if a.shape[1] <= BY_DIFFERENCES:
        # Differences first: exact also where the points are far from the origin and close together.
        return sum(((a[:, k, None] - b[None, :, k]) ** 2 for k in range(a.shape[1])), jnp.zeros((), a.dtype))
    # One matrix product: in many dimensions the differences would cost far more than the exponentials.
    inner = jnp.matmul(a, b.T, precision="highest")
    return jnp.maximum(jnp.sum(a**2, 1)[:, None] + jnp.sum(b**2, 1) - 2 * inner, 0)


def _block(block: Any) -> int:
    (block,) = whole_numbers(block=block)
    require(block >= 1, f"block {block} is too small; pass at least 1")
    return block


def _blocks(a: Array, block: int) -> tuple[Array, Array]:
    """The rows in blocks, the last one padded, and their numbers."""
    count = -(-len(a) // block)
    padded = jnp.pad(a, ((0, count * block - len(a)), (0, 0))).reshape(count, block, -1)
    return padded, jnp.arange(count * block).reshape(count, block)


@partial(jax.jit, static_argnames=("block", "same"))
def _sums(
    kernel: Kernel, a: Float[Array, "n d"], b: Float[Array, "m d"], shift: Float[Array, ""], *, block: int, same: bool
) -> tuple[Float[Array, " n"], Float[Array, " m"], Float[Array, " n"]]:
    """Sums of k(a_i, b_j) - shift over j, over i, and of its square over j; i = j is left out if `same`."""
    n = len(a)

    def step(columns: Array, rows: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        points, index = rows
        keep = index[:, None] < n
        if same:
            keep = keep & (index[:, None] != jnp.arange(len(b))[None])
        values = jnp.where(keep, kernel(points, b) - shift, 0)
        return columns + values.sum(0), (values.sum(1), (values**2).sum(1))

    columns, (rows, squares) = jax.lax.scan(step, jnp.zeros(len(b), a.dtype), _blocks(a, block))
    return rows.reshape(-1)[:n], columns, squares.reshape(-1)[:n]


def _kernel_sums(kernel: Kernel, a: Array, b: Array, shift: Array, block: int, same: bool) -> KernelSums:
    found = _sums(kernel, a, b, shift, block=min(block, len(a)), same=same)
    # What is left to add up is added up in double precision.
    rows, columns, squares = (np.asarray(s, np.float64) for s in found)
    return KernelSums(rows, columns, float(squares.sum()))


def points_of(x: Any, name: str) -> Float[np.ndarray, "n d"]:
    """The sample as a table of finite numbers, or a sentence about why it is none."""
    points = table_of(x, name)
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


def two_samples(x: Any, y: Any) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "m d"]]:
    """Both samples as tables of one width."""
    x, y = table_of(x, "the first sample"), table_of(y, "the second sample")
    first, second = x.shape[1:], y.shape[1:]
    require(first == second, f"two samples must have points of one shape, not {first} and {second}")
    return points_of(x, "the first sample"), points_of(y, "the second sample")


def _within_interaction(sums: KernelSums) -> float:
    """E k°(x, x')^2 for the kernel centred in both arguments, without bias, from a matrix with no diagonal.

    The sum of squares of the U-centred matrix k_ij - r_i/(n-2) - r_j/(n-2) + T/((n-1)(n-2)), over n(n-3); r
    are the sums of rows and T their total (Székely and Rizzo, 2014).
    """
    n = len(sums.rows)
    centred = sums.squares - 2 / (n - 2) * (sums.rows**2).sum() + sums.total**2 / ((n - 1) * (n - 2))
    # A sum of squares: below zero only by rounding.
    return max(float(centred), 0.0) / (n * (n - 3))


def _between_interaction(sums: KernelSums) -> float:
    """E k°(x, y)^2 without bias: the interaction mean square of the two-way table k(x_i, y_j)."""
    n, m = len(sums.rows), len(sums.columns)
    centred = sums.squares - (sums.rows**2).sum() / m - (sums.columns**2).sum() / n + sums.total**2 / (n * m)
    return max(float(centred), 0.0) / ((n - 1) * (m - 1))


def variance(xx: KernelSums, yy: KernelSums, xy: KernelSums) -> tuple[float, float]:
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


class Prepared(NamedTuple):
    """Both samples around their common mean, in a unit of their own, and the kernel in that unit.

    Distances do not depend on the origin; rounding does, so the origin is put among the points. Nor do U and its
    variance change when a constant, `shift`, is taken off the kernel, and the sums then round less.
    """

    kernel: Kernel
    a: Float[Array, "n d"]
    b: Float[Array, "m d"]
    shift: Float[Array, ""]


def exponent_of(points: Float[np.ndarray, "n d"]) -> int:
    """e with the largest |coordinate| in [2^e, 2^(e+1)): dividing by 2^e rounds nothing."""
    largest = float(np.abs(points).max())
    return math.frexp(largest)[1] - 1 if largest > 0 else 0


def _in_own_unit(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Both samples around their common mean, the largest coordinate between 1 and 2, and the unit they are then in."""
    pooled = np.vstack([x, y])
    # Twice: the mean of points near the largest number would overflow, and the mean may be all there is to them.
    first = exponent_of(pooled)
    pooled = np.ldexp(pooled, -first)
    pooled = pooled - pooled.mean(axis=0)
    second = exponent_of(pooled)
    pooled = np.ldexp(pooled, -second)
    return pooled[: len(x)], pooled[len(x) :], float(np.ldexp(1.0, first + second))


def _precision(points: Float[np.ndarray, "n d"], finest: float) -> AbstractContextManager[Any]:
    """Double precision if the squared distances would otherwise be rounded by too much for the shortest that matters.

    Differences of rounded points are off by eps |a|; a squared distance from a product of matrices by eps |a|^2, which
    is far more where points are far from their mean and close to each other.
    """
    radius = float(np.sqrt((points**2).sum(axis=1).max()))
    off = float(jnp.finfo(jnp.zeros(()).dtype).eps) * radius
    off = off * finest if points.shape[1] <= BY_DIFFERENCES else off * radius
    return jax.enable_x64(True) if off > ROUNDING * finest**2 else nullcontext()


def _prepared(family: KernelInUnits, a: np.ndarray, b: np.ndarray, unit: float) -> Prepared:
    kernel, near, far = family.in_unit(unit), jnp.asarray(a, float), jnp.asarray(b, float)
    return Prepared(kernel, near, far, jnp.mean(kernel(near[:64], far[:64])))


def kernel_estimate(family: KernelInUnits, x: Any, y: Any, *, block: int, method: str) -> Estimate:
    """U = sum_{i != j} k(x_i, x_j)/(n(n-1)) + sum_{i != j} k(y_i, y_j)/(m(m-1)) - 2 sum_{ij} k(x_i, y_j)/(nm)."""
    block = _block(block)
    x, y = two_samples(x, y)
    n, m = len(x), len(y)
    x, y, unit = _in_own_unit(x, y)
    pooled = np.vstack([x, y])
    with _precision(pooled, family.finest(pooled, unit)):
        kernel, a, b, shift = _prepared(family, x, y, unit)
        xx = _kernel_sums(kernel, a, a, shift, block, same=True)
        yy = _kernel_sums(kernel, b, b, shift, block, same=True)
        xy = _kernel_sums(kernel, a, b, shift, block, same=False)
    factor = unit**family.degree
    value = factor * (xx.total / (n * (n - 1)) + yy.total / (m * (m - 1)) - 2 * xy.total / (n * m))
    require(math.isfinite(value), f"the {method} of these samples is {value}; rescale them")
    diagnostics = {"samples_x": float(n), "samples_y": float(m)}
    if min(n, m) < 4:
        warning = f"A standard error needs 4 points in each sample, not {min(n, m)}; it is given as infinite."
        return Estimate(value, math.inf, method, diagnostics, (warning,))
    linear, quadratic = variance(xx, yy, xy)
    # Where the laws agree the first-order part is zero, and its estimate is as often negative as not.
    stderr = factor * math.sqrt(max(linear, 0.0) + quadratic)
    return Estimate(value, stderr, method, {**diagnostics, "null_stderr": factor * math.sqrt(quadratic)})


@partial(jax.jit, static_argnames=("block",))
def _quadratic_forms(
    kernel: Kernel, z: Float[Array, "n d"], labels: Float[Array, "n p"], shift: Float[Array, ""], *, block: int
) -> tuple[Float[Array, " n"], Float[Array, " p"]]:
    """Sums of rows K 1 and s' K s of every column s, K without its diagonal."""
    n = len(z)

    def step(total: Array, rows: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        points, index, own = rows
        keep = (index[:, None] < n) & (index[:, None] != jnp.arange(n)[None])
        values = jnp.where(keep, kernel(points, z) - shift, 0)
        return total + jnp.sum(own * jnp.matmul(values, labels, precision="highest"), axis=0), values.sum(1)

    total, rows = jax.lax.scan(
        step, jnp.zeros(labels.shape[1], z.dtype), (*_blocks(z, block), _blocks(labels, block)[0])
    )
    return rows.reshape(-1)[:n], total


def permutation_p_value(
    family: KernelInUnits, x: Any, y: Any, *, permutations: int, block: int, key: PRNGKeyArray
) -> float:
    """The share of relabellings of the pooled points, the actual one among them, whose U is at least as large.

    Uniform where the laws agree, whatever they are, up to the grid of 1 / (permutations + 1). The kernel may depend on
    the pooled points only.
    """
    (permutations,), block = whole_numbers(permutations=permutations), _block(block)
    require(permutations >= 19, f"a p-value needs at least 19 permutations, not {permutations}")
    x, y = two_samples(x, y)
    n, m = len(x), len(y)
    x, y, unit = _in_own_unit(x, y)
    pooled = np.vstack([x, y])
    actual = jnp.concatenate([jnp.ones(n), jnp.zeros(m)])
    shuffled = jax.vmap(lambda k: jax.random.permutation(k, actual))(jax.random.split(key, permutations))
    labels = jnp.concatenate([actual[None], shuffled]).T
    with _precision(pooled, family.finest(pooled, unit)):
        kernel, a, b, shift = _prepared(family, x, y, unit)
        points = jnp.concatenate([a, b])
        rows, within = _quadratic_forms(kernel, points, labels.astype(a.dtype), shift, block=min(block, n + m))
    rows, xx = np.asarray(rows, np.float64), np.asarray(within, np.float64)
    of_x = rows @ np.asarray(labels, np.float64)
    xy = of_x - xx
    yy = rows.sum() - 2 * of_x + xx
    values = xx / (n * (n - 1)) + yy / (m * (m - 1)) - 2 * xy / (n * m)
    bad = int((~np.isfinite(values)).sum())
    require(bad == 0, f"the statistic is not finite for {bad} of {len(values)} relabellings, so it has no p-value")
    return float(np.mean(values >= values[0]))
