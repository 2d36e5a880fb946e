"""Whether a model of noisy data has a clean density behind it: the noise divided out, on the line or in the plane."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unnorm.arguments import require_positive
from unnorm.compiling import compiled
from unnorm.energies.base import AbstractEnergy
from unnorm.errors import InputError, require
from unnorm.evaluation.counts import whole_numbers
from unnorm.spaces import Real

#: No more of the mass than this may be below zero.
TOLERANCE = 1e-3
#: What frequencies beyond the grid may add to those that are kept, as a share.
ALIASING = 1e-4


@dataclass(frozen=True)
class CleanDensity:
    """A noisy density with its noise divided out, on a grid.

    `density` holds all frequencies that were kept as they are, so that it is as sharp as it can be and rings a little
    where they end. `negative` is the mass below zero of the same density smoothed by a kernel that is nowhere negative
    and holds kept frequencies only: 0 for every density that is one, however sharp.
    """

    axes: tuple[np.ndarray, ...]
    density: np.ndarray
    negative: float
    #: Frequencies up to this one were kept: beyond, the noise has left nothing that could be told from rounding.
    cutoff: float

    @property
    def exists(self) -> bool:
        """Whether some density, blurred by the noise, is the noisy one: no more than a thousandth below zero.

        A no is a no. A yes says that nothing speaks against it at the resolution of the kept frequencies.
        """
        return self.negative < TOLERANCE


def overlap(t: Float[np.ndarray, "..."], dimension: int) -> Float[np.ndarray, "..."]:
    """The overlap of two balls of diameter 1 at distance t, as a share of one: 1 - t on the line.

    A window that is the convolution of a ball with itself has a square, so nothing negative, for inverse transform.

    >>> overlap(np.array([0.0, 0.5, 1.0]), 1).tolist()
    [1.0, 0.5, 0.0]
    """
    t = np.minimum(t, 1.0)
    return 1 - t if dimension == 1 else 2 / np.pi * (np.arccos(t) - t * np.sqrt(1 - t**2))


def clean_density(
    energy: AbstractEnergy, sigma: float, low: Any, high: Any, *, points: int = 512, smallest: float = 1e-4
) -> CleanDensity:
    """Whether a model of noisy data has a clean one (Zhang et al. 2023, Thm A.1), on the line or in the plane.

    A density q with q * N(0, sigma^2 I) = q~ exists if and only if F(q~) / F(k) is positive semi-definite, that is
    (Bochner) if its inverse transform q is nowhere negative. The transform of exp(-E) is taken on a periodic grid from
    `low` to `high`, which must hold all of it: on its border the density must be below `smallest` of its maximum.
    Frequencies where F(k) is below `smallest` are left out, since dividing by it would make noise of rounding.

    Cutting them off makes any sharp q ring below zero, so that what is judged is q convolved with a kernel that is
    nowhere negative: its transform, `overlap` of |f| / cutoff, ends where the kept frequencies do. An existing q stays
    non-negative under it. A Gaussian q~ that is 1% narrower than the noise is still seen, with `smallest` as it is.

    >>> import unnorm as un
    >>> blurred, barely, sharp = (un.energies.standard_gaussian(1, scale=s) for s in (1.5, 1.02, 0.9))
    >>> [clean_density(e, 1.0, [-12.0], [12.0]).exists for e in (blurred, barely, sharp)]
    [True, True, False]
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    (points,) = whole_numbers(points=points)
    _check(energy, sigma, low, high, points, smallest)
    axes = tuple(np.linspace(a, b, points, endpoint=False) for a, b in zip(low, high, strict=True))
    steps = [float(axis[1] - axis[0]) for axis in axes]
    noisy = _on_grid(energy, axes, smallest) / np.prod(steps)
    # F(q~) is at most F(k) where there is a clean density, so what aliases onto the highest kept frequency c from
    # beyond the grid's highest, N, is at most F(k)(2 N - c) / F(k)(c) = exp(-2 sigma^2 N (N - c)).
    top = math.pi / max(steps)
    cutoff = min(math.sqrt(-2 * math.log(smallest)) / sigma, top + math.log(ALIASING) / (2 * sigma**2 * top))
    require(
        cutoff * sigma >= 1, f"a grid of step {max(steps):.2g} is too coarse for noise of {sigma:.2g}; use more points"
    )
    rates = np.meshgrid(*(2 * np.pi * np.fft.fftfreq(points, step) for step in steps), indexing="ij")
    rate = np.sqrt(sum(r**2 for r in rates))
    kept = rate <= cutoff
    noise = np.exp(-0.5 * sigma**2 * np.where(kept, rate, 0.0) ** 2)
    clean = np.where(kept, np.fft.fftn(noisy) / noise, 0.0)
    smooth = np.fft.ifftn(clean * overlap(rate / cutoff, len(low))).real
    negative = float(np.maximum(-smooth, 0).sum() * np.prod(steps))
    return CleanDensity(axes, np.fft.ifftn(clean).real, negative, cutoff)


def _check(energy: Any, sigma: float, low: np.ndarray, high: np.ndarray, points: int, smallest: float) -> None:
    if not isinstance(energy, AbstractEnergy):
        raise InputError(f"clean_density takes an energy, not {type(energy).__name__}")
    require(low.ndim == 1 and low.shape == high.shape, "low and high are corners: one number for each coordinate")
    require(len(low) in (1, 2), f"the noise is divided out on the line or in the plane, not in {len(low)} dimensions")
    space = Real((len(low),))
    require(energy.space == space, f"these corners belong to {space}, and the energy is on {energy.space}")
    require(bool(np.all(low < high)), "every coordinate needs low below high")
    require(bool(np.all(np.isfinite([low, high]))), "the corners of the box must be finite")
    require_positive(sigma, "the sigma of the noise")
    require(points >= 8, f"a grid needs at least 8 points along every side, not {points}")
    require(0 < smallest < 1, f"the smallest share of the noise's transform lies in (0, 1), not {smallest}")


def _on_grid(energy: AbstractEnergy, axes: tuple[np.ndarray, ...], smallest: float) -> np.ndarray:
    """exp(-E) on the grid with sum 1; refused where it is no number, or where the box cuts it."""
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    # In double precision, if the caller allows it: rounding is multiplied by 1 / smallest.
    found = np.asarray(_energies(energy, jnp.asarray(grid.reshape(-1, len(axes)), float)), np.float64)
    require(found.ndim == 1, f"an energy returns one number per point, but this one returned shape {found.shape[1:]}")
    bad = int((np.isnan(found) | np.isneginf(found)).sum())
    require(bad == 0, f"the energy is NaN or minus infinity at {bad} of {found.size} points of the grid")
    require(bool(np.isfinite(found).any()), "the energy is infinite in all of the box; move low and high")
    heights = np.exp(found.min() - found).reshape(grid.shape[:-1])
    border = max(float(np.take(heights, [0, -1], axis=axis).max()) for axis in range(len(axes)))
    require(
        border <= smallest,
        f"the box cuts the density, which on its border is {border:.2g} of its maximum (at most {smallest:.2g} will "
        "do); move low and high apart",
    )
    return heights / heights.sum()


@compiled
def _energies(energy: AbstractEnergy, xs: Array) -> Array:
    return jax.lax.map(energy, xs, batch_size=4096)
