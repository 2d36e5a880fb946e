"""The bank of problems with known answers: data to learn from, and the density they were drawn from.

Every truth is an `AbstractNormalised`: its energy is -log p exactly and log Z = 0, so a learnt energy, a
sampler or an estimate of log Z can be held against it. What else is known exactly is in `Problem.facts`:

- `log_z`, the log normaliser of the truth's energy (0);
- `entropy`, -E log p, the best negative log-likelihood there is;
- `mean` and `covariance` of p;
- `mode_weights` and `mode_centres` (or `mode_radii`), where there are modes.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypedDict, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import entr, i0e

from unnorm.data.shapes import Funnel, Rings, SwissRoll
from unnorm.energies.base import AbstractEnergy, AbstractNormalised
from unnorm.energies.gaussian import gaussian as gaussian_energy
from unnorm.energies.mixture import gaussian_mixture
from unnorm.errors import require
from unnorm.spaces import AbstractSpace

Fact = float | tuple[float, ...] | tuple[tuple[float, ...], ...]


class Draws(TypedDict, total=False):
    """How much is drawn, and from which seed: 10,000 rows each and seed 0 unless said otherwise."""

    n_train: int
    n_valid: int
    n_test: int
    seed: int


@dataclass(frozen=True, eq=False)
class Problem:
    """Data in three parts (float32, n x d), and what is known about where they came from.

    >>> problem = bimodal(n_train=100)
    >>> problem.train.shape, problem.facts["mode_weights"]
    ((100, 2), (0.8, 0.2))
    """

    name: str
    space: AbstractSpace
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    truth: AbstractEnergy | None
    facts: Mapping[str, Fact]
    summary: str


def bimodal(weight: float = 0.8, **draws: Unpack[Draws]) -> Problem:
    """Two modes ten standard deviations apart, whose weights no local difference of energies can tell.

    After Fig. 1 of Yu et al., Conditional noise-contrastive estimation of energy-based models by jumping
    between modes. The figure has equal weights (`weight=0.5`); unequal ones expose a method that guesses.

    >>> bimodal(weight=0.5, n_train=5).facts["mode_weights"]
    (0.5, 0.5)
    """
    require(0 < weight < 1, f"the weight of a mode must lie between 0 and 1, not at {weight}")
    centres = np.array([[-1.5, 0.0], [1.5, 0.0]])
    weights = np.array([weight, 1 - weight])
    summary = f"Two Gaussian modes in the plane with weights {weight:g} and {1 - weight:g}, far apart."
    return _mixture_problem("bimodal", summary, weights, centres, 0.3, **draws)


def grid(**draws: Unpack[Draws]) -> Problem:
    """25 equal modes on {-2, .., 2}^2 with standard deviation 0.1 (Yu et al., Sec. 4).

    >>> len(grid(n_train=5).facts["mode_weights"])
    25
    """
    centres = _lattice(np.arange(-2.0, 3.0))
    summary = "25 narrow Gaussian modes of equal weight on a 5 x 5 grid in the plane."
    return _mixture_problem("grid", summary, np.full(25, 1 / 25), centres, 0.1, **draws)


def gmm20(**draws: Unpack[Draws]) -> Problem:
    """40 equal modes in 20 dimensions, means from N(0, I) and standard deviation 0.1 (Yu et al., Sec. 4).

    The means do not depend on the seed. They lie so far apart (over 30 standard deviations) that the entropy
    is log 40 + 20 (log(2 pi e) / 2 + log 0.1) = -13.98 to double precision.

    >>> round(gmm20(n_train=5).facts["entropy"], 2)
    -13.98
    """
    # Seed 20 fixes the problem itself; the argument `seed` only draws from it.
    centres = np.random.default_rng(20).standard_normal((40, 20))
    entropy = math.log(40) + 20 * (0.5 * math.log(2 * math.pi * math.e) + math.log(0.1))
    summary = "40 narrow Gaussian modes of equal weight in 20 dimensions."
    return _mixture_problem("gmm20", summary, np.full(40, 1 / 40), centres, 0.1, entropy, **draws)


def fourmodes(**draws: Unpack[Draws]) -> Problem:
    """Four equal modes at (+-1, +-1) with standard deviation 0.2.

    The toy mixture of Zhang et al. (2023), Moment matching denoising Gibbs sampling, Sec. 2.4.

    >>> fourmodes(n_train=5).facts["mean"]
    (0.0, 0.0)
    """
    centres = _lattice(np.array([-1.0, 1.0]))
    summary = "Four Gaussian modes of equal weight at the corners of a square."
    return _mixture_problem("fourmodes", summary, np.full(4, 1 / 4), centres, 0.2, **draws)


def rings(**draws: Unpack[Draws]) -> Problem:
    """Two rings of equal weight, radii 1 and 2, blurred by 0.1; Zhang et al. (2023) print no numbers of theirs.

    >>> rings(n_train=5).facts["mode_radii"]
    (1.0, 2.0)
    """
    weights, radii, scale = np.array([0.5, 0.5]), np.array([1.0, 2.0]), 0.1
    truth = Rings(weights, radii, scale)
    # A uniform angle gives each coordinate half of E r^2, the blur adds s^2.
    variance = float(weights @ radii**2 / 2 + scale**2)
    facts: dict[str, Fact] = {
        "entropy": _rings_entropy(weights, radii, scale),
        "mean": (0.0, 0.0),
        "covariance": ((variance, 0.0), (0.0, variance)),
        "mode_weights": _tuple(weights),
        "mode_radii": _tuple(radii),
    }
    return _problem("rings", "Two concentric rings of equal weight in the plane.", truth, facts, **draws)


def swissroll(**draws: Unpack[Draws]) -> Problem:
    """A spiral of one and a half turns, blurred by 0.2: one connected, strongly curved ridge.

    >>> swissroll(n_train=5).train.shape
    (5, 2)
    """
    truth = SwissRoll()
    centres, scale = np.asarray(truth.centres, dtype=np.float64), float(truth.scale)
    weights = np.full(len(centres), 1 / len(centres))
    facts: dict[str, Fact] = {
        "entropy": _mixture_entropy(weights, centres, scale),
        **_mixture_moments(weights, centres, scale),
    }
    return _problem("swissroll", "A noisy spiral in the plane.", truth, facts, **draws)


def funnel(dimension: int = 2, scale: float = 1.5, **draws: Unpack[Draws]) -> Problem:
    """Neal's funnel in 2 to 10 dimensions; `scale` is the standard deviation of the first coordinate.

    Neal (2003) has dimension 10 and scale 3; the default is mild enough to plot.

    >>> round(funnel(n_train=5).facts["entropy"], 4)
    3.2433
    """
    require(2 <= dimension <= 10, f"the funnel comes in 2 to 10 dimensions, not {dimension}")
    truth = Funnel(dimension, scale)
    variances = np.full(dimension, math.exp(scale**2 / 2))
    variances[0] = scale**2
    facts: dict[str, Fact] = {
        "entropy": truth.entropy(),
        "mean": (0.0,) * dimension,
        "covariance": _rows(np.diag(variances)),
    }
    summary = f"Neal's funnel in {dimension} dimensions: the first coordinate sets the scale of the others."
    return _problem("funnel", summary, truth, facts, **draws)


def gaussian(dimension: int = 2, correlation: float = 0.8, **draws: Unpack[Draws]) -> Problem:
    """A Gaussian with unit variances and correlation rho^|i-j| between coordinates i and j.

    >>> gaussian(n_train=5).facts["covariance"]
    ((1.0, 0.8), (0.8, 1.0))
    """
    require(dimension >= 1, f"a Gaussian needs at least 1 dimension, not {dimension}")
    require(-1 < correlation < 1, f"a correlation must lie between -1 and 1, not at {correlation}")
    index = np.arange(dimension)
    covariance = np.power(correlation, np.abs(index[:, None] - index))
    # log det of an autoregressive correlation matrix is (d - 1) log(1 - rho^2).
    log_det = (dimension - 1) * math.log1p(-(correlation**2))
    facts: dict[str, Fact] = {
        "entropy": 0.5 * (dimension * math.log(2 * math.pi * math.e) + log_det),
        "mean": (0.0,) * dimension,
        "covariance": _rows(covariance),
    }
    summary = f"A Gaussian in {dimension} dimensions with correlation {correlation:g}."
    return _problem("gaussian", summary, gaussian_energy(np.zeros(dimension), covariance), facts, **draws)


PROBLEMS: dict[str, Callable[..., Problem]] = {
    "bimodal": bimodal,
    "grid": grid,
    "gmm20": gmm20,
    "fourmodes": fourmodes,
    "rings": rings,
    "swissroll": swissroll,
    "funnel": funnel,
    "gaussian": gaussian,
}


def _problem(
    name: str,
    summary: str,
    truth: AbstractNormalised,
    facts: Mapping[str, Fact],
    *,
    n_train: int = 10_000,
    n_valid: int = 10_000,
    n_test: int = 10_000,
    seed: int = 0,
) -> Problem:
    """Draw the three parts, each from a key of its own: the size of one does not change another."""
    sizes = {"n_train": n_train, "n_valid": n_valid, "n_test": n_test}
    for what, n in sizes.items():
        require(n >= 1, f"{what} is {n}, but a problem needs at least 1 row of each kind")
    require(seed >= 0, f"a seed is a whole number from 0 up, not {seed}")
    # In single precision whatever the caller's, so that a seed means the same rows everywhere.
    with jax.enable_x64(False):
        single = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float32)), truth)
        keys = jax.random.split(jax.random.key(seed), 3)
        train, valid, test = (np.array(_draw(single, n, key)) for n, key in zip(sizes.values(), keys, strict=True))
    return Problem(name, truth.space, train, valid, test, truth, {"log_z": 0.0, **facts}, summary)


# Compiled as a whole: drawn operation by operation, the first load would take seconds.
@eqx.filter_jit
def _draw(truth: AbstractNormalised, n: int, key: PRNGKeyArray) -> Float[Array, "n d"]:
    return truth.samples(n, key=key)


def _mixture_problem(
    name: str,
    summary: str,
    weights: np.ndarray,
    centres: np.ndarray,
    scale: float,
    entropy: float | None = None,
    **draws: Unpack[Draws],
) -> Problem:
    """A problem whose truth is a mixture of Gaussians of one width."""
    truth = gaussian_mixture(weights, centres, scale)
    if entropy is None:
        entropy = _mixture_entropy(weights, centres, scale)
    facts: dict[str, Fact] = {
        "entropy": entropy,
        **_mixture_moments(weights, centres, scale),
        "mode_weights": _tuple(weights),
        "mode_centres": _rows(centres),
    }
    return _problem(name, summary, truth, facts, **draws)


def _mixture_moments(weights: np.ndarray, centres: np.ndarray, scale: float) -> dict[str, Fact]:
    """Mean and covariance of sum_k w_k N(c_k, s^2 I)."""
    mean = weights @ centres
    apart = centres - mean
    covariance = (weights[:, None] * apart).T @ apart + scale**2 * np.eye(len(mean))
    return {"mean": _tuple(mean), "covariance": _rows(covariance)}


def _mixture_entropy(weights: np.ndarray, centres: np.ndarray, scale: float) -> float:
    """-E log p of sum_k w_k N(c_k, s^2 I) in the plane, by the trapezoidal rule on a square.

    For a smooth density that has vanished at the edge the rule converges faster than any power of the step: a
    third of a standard deviation leaves only rounding.
    """
    half_width = np.abs(centres).max() + 9 * scale
    axis = np.linspace(-half_width, half_width, 2 * math.ceil(3 * half_width / scale) + 1)
    # exp(-|x - c|^2 / 2 s^2) is a product over coordinates, so the whole lattice is one matrix product.
    kernels = np.exp(-((axis[:, None, None] - centres) ** 2) / (2 * scale**2))
    density = (kernels[..., 0] * weights) @ kernels[..., 1].T / (2 * math.pi * scale**2)
    return float(entr(density).sum() * (axis[1] - axis[0]) ** 2)


def _rings_entropy(weights: np.ndarray, radii: np.ndarray, scale: float) -> float:
    """-E log p of blurred rings: the same rule along the radius, as p depends on nothing else."""
    r = np.linspace(0, radii.max() + 9 * scale, 10_001)
    kernels = np.exp(-((r[:, None] - radii) ** 2) / (2 * scale**2)) * i0e(r[:, None] * radii / scale**2)
    density = kernels @ weights / (2 * math.pi * scale**2)
    return float((2 * math.pi * r) @ entr(density) * r[1])


def _lattice(axis: np.ndarray) -> np.ndarray:
    """All pairs of values of the axis, as rows."""
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def _tuple(values: np.ndarray) -> tuple[float, ...]:
    # Twelve digits: facts are read by people, and 1 - 0.8 is not 0.2.
    return tuple(float(v) for v in np.round(values, 12) + 0.0)


def _rows(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(_tuple(row) for row in values)
