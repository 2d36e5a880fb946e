"""The sliced Wasserstein distance between two samples, with its error.

SW^2 = E_theta W_2^2(theta'x, theta'y) over directions theta; on a line W_2^2 is the mean squared difference of
quantiles (Rabin, Peyré, Delon and Bernot 2012).
"""

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from unnorm.errors import require
from unnorm.estimate import Estimate
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.two_sample.kernel_statistic import two_samples

#: Projections held at once.
BLOCK = 2**20


class Coupling(NamedTuple):
    """Which sorted point of x goes to which of y, and how much of the mass: both quantile functions are steps."""

    of_x: Int[np.ndarray, " k"]
    of_y: Int[np.ndarray, " k"]
    mass: Float[np.ndarray, " k"]


def coupling(n: int, m: int) -> Coupling:
    """The monotone coupling of n and m equal masses.

    >>> coupling(1, 2).mass
    array([0.5, 0.5])
    """
    # In units of 1 / (n m) every break is a whole number.
    breaks = np.unique(np.concatenate([np.arange(1, n + 1) * m, np.arange(1, m + 1) * n]))
    starts = np.concatenate([[0], breaks[:-1]])
    return Coupling(starts // m, starts // n, (breaks - starts) / (n * m))


def _potentials(own: Float[np.ndarray, "k n"], gradient: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "k n"]:
    """int gradient d own along the sorted points of every row, by the trapezoid, with mean zero."""
    pieces = 0.5 * (gradient[:, 1:] + gradient[:, :-1]) * np.diff(own, axis=1)
    values = np.concatenate([np.zeros((len(own), 1)), np.cumsum(pieces, axis=1)], axis=1)
    return values - values.mean(axis=1, keepdims=True)


def _frames(frames: int, dimension: int, key: PRNGKeyArray) -> Float[np.ndarray, "frames d d"]:
    """Orthonormal frames, uniform over all: Q of a Gaussian matrix, its signs mended."""
    normal = np.asarray(jax.random.normal(key, (frames, dimension, dimension)), np.float64)
    # By NumPy: a compiled program must not hold a batch of them (see `small_matrices`).
    q, r = np.linalg.qr(normal)
    return q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]


def _slices(x: np.ndarray, y: np.ndarray, joint: Coupling, directions: np.ndarray):
    """W_2^2 along each direction, and the sums over directions of the Kantorovich potential of every point.

    In double precision, and sorted by NumPy, which does it several times faster than XLA on a processor.
    """
    n, m = len(x), len(y)
    along_x, along_y = directions @ x.T, directions @ y.T
    rank_x, rank_y = np.argsort(along_x, axis=1), np.argsort(along_y, axis=1)
    sorted_x, sorted_y = np.take_along_axis(along_x, rank_x, axis=1), np.take_along_axis(along_y, rank_y, axis=1)
    back, to = sorted_x[:, joint.of_x], sorted_y[:, joint.of_y]
    values = ((back - to) ** 2) @ joint.mass
    # The mean place each point is sent to: sums over its pieces, which are neighbours.
    image = n * np.add.reduceat(joint.mass * to, np.searchsorted(joint.of_x, np.arange(n)), axis=1)
    preimage = m * np.add.reduceat(joint.mass * back, np.searchsorted(joint.of_y, np.arange(m)), axis=1)
    of_x, of_y = np.zeros(n), np.zeros(m)
    np.add.at(of_x, rank_x, _potentials(sorted_x, 2 * (sorted_x - image)))
    np.add.at(of_y, rank_y, _potentials(sorted_y, 2 * (sorted_y - preimage)))
    return values, of_x, of_y


def sliced_wasserstein(x: Any, y: Any, *, frames: int | None = None, key: PRNGKeyArray) -> Estimate:
    """SW^2 = E W_2^2(theta'x, theta'y), with its standard error, from independent points.

    Directions come in orthonormal frames, whose mean is exact for a shift. The error adds, in squares, the spread over
    frames and that of the points: each point moves W_2^2 by its Kantorovich potential, int 2 (s - T(s)) ds with T the
    transport (del Barrio and Loubes 2019). Two samples of one law are never at distance 0: `null_value` among the
    diagnostics is what halves of the pooled points give, put in proportion to 1/n + 1/m, and the value is too high by
    about as much. `frames` (default: about 128 directions, at least 8 frames) are drawn from `key`.

    >>> import jax
    >>> x, y = np.random.default_rng(0).normal(size=(2, 1000, 2))
    >>> sliced_wasserstein(x, y + 1, key=jax.random.key(0)).covers(1.0, 0.999)
    True
    """
    x, y = two_samples(x, y)
    n, m, d = len(x), len(y), x.shape[1]
    if frames is None:
        frames = 1 if d == 1 else max(8, -(-128 // d))
    (frames,) = whole_numbers(frames=frames)
    require(frames >= 1, f"at least one frame is needed, not {frames}")
    require(n * m < 2**52, f"{n} and {m} points are too many to couple; pass fewer")
    run, split = jax.random.split(key)
    directions = _frames(frames, d, run).transpose(0, 2, 1).reshape(-1, d)
    joint, whole = coupling(n, m), np.vstack([x, y])
    halves = whole[np.asarray(jax.random.permutation(split, n + m))]
    half = (n + m) // 2
    equal = coupling(half, half)
    values, null, of_x, of_y = [], [], np.zeros(n), np.zeros(m)
    block = max(1, BLOCK // (n + m))
    for some in (directions[i : i + block] for i in range(0, len(directions), block)):
        found, more_x, more_y = _slices(x, y, joint, some)
        of_x, of_y = of_x + more_x / len(directions), of_y + more_y / len(directions)
        values.append(found)
        null.append(_slices(halves[:half], halves[half : 2 * half], equal, some)[0])
    found = np.concatenate(values).reshape(frames, d).mean(axis=1)
    # On a line there is one direction, and nothing to choose.
    spread = 0.0 if d == 1 else (math.inf if frames == 1 else float(found.var(ddof=1)) / frames)
    stderr = math.sqrt(of_x.var(ddof=1) / n + of_y.var(ddof=1) / m + spread)
    diagnostics = {
        "samples_x": float(n),
        "samples_y": float(m),
        "frames": float(frames),
        "directions_stderr": math.sqrt(spread),
        "null_value": float(np.mean(np.concatenate(null))) * (1 / n + 1 / m) * half / 2,
    }
    return Estimate(float(found.mean()), stderr, "sliced Wasserstein, squared", diagnostics)
