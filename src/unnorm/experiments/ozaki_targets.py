"""The densities that Ozaki's walk and Langevin's are compared on, and the effective draws of a chain."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from unnorm.energies import AbstractNormalised, gaussian, gaussian_mixture
from unnorm.samplers import AbstractSampler, Langevin, Ozaki, sample

ALIGNED, ACROSS, FIRST, SECOND = "Gaussian along the axes", "Gaussian across them", "two modes", "four modes"
#: Autocorrelations count up to the first below this.
CUT = 0.05


def targets() -> dict[str, AbstractNormalised]:
    """The densities, all of the plane."""
    turned = 4.0 * np.array([[1.0, 0.95], [0.95, 1.0]])
    corners = 2.8 * np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    narrow = np.tile(np.diag([0.3, 1.0]), (2, 1, 1))
    return {
        ALIGNED: gaussian(np.zeros(2), np.diag([0.1, 10.0])),
        ACROSS: gaussian(np.zeros(2), turned),
        FIRST: gaussian_mixture([0.5, 0.5], [[-1.6, 0.0], [1.6, 0.0]], narrow),
        SECOND: gaussian_mixture(np.full(4, 0.25), corners, 1.0),
    }


@dataclass(frozen=True)
class Truth:
    """What independent draws say: mean and variance of the coordinates, and the mean energy."""

    mean: np.ndarray
    variance: np.ndarray
    energy: float


def truth_of(target: AbstractNormalised, n: int = 400_000) -> Truth:
    """From `n` independent draws, as in Song 2022."""
    draws = target.samples(n, key=jax.random.key(2**20))
    points = np.asarray(draws, np.float64)
    energies = np.asarray(jax.jit(jax.vmap(target))(draws), np.float64)
    return Truth(points.mean(0), points.var(0), float(energies.mean()))


def effective_draws(
    draws: Float[np.ndarray, "chains n d"], mean: np.ndarray, variance: np.ndarray
) -> Float[np.ndarray, "chains d"]:
    """n / (1 + 2 sum_{s < S} (1 - s/n) rho_s), S the first lag with rho_s < 0.05; mean and variance are the truth's.

    >>> draws = np.random.default_rng(0).normal(size=(2, 1000, 1))
    >>> effective_draws(draws, np.zeros(1), np.ones(1)).tolist()
    [[1000.0], [1000.0]]
    """
    n = draws.shape[1]
    length = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(np.asarray(draws, np.float64) - mean, length, axis=1)
    lags = np.arange(n)[:, None]
    products = np.fft.irfft(np.abs(spectrum) ** 2, length, axis=1)[:, :n]
    rho = products / ((n - lags) * variance)
    kept = np.logical_and.accumulate(rho[:, 1:] >= CUT, axis=1)
    return n / (1 + 2 * np.sum(np.where(kept, (1 - lags[1:] / n) * rho[:, 1:], 0), axis=1))


CHAINS, STEPS, BURN_IN = 32, 9000, 1000


#: A law counts as right when its mean energy is, to this many nats (a Gaussian of the plane has a mean of 1).
TOLERANCE = 0.1


def measure(
    target: AbstractNormalised, truth: Truth, sampler: AbstractSampler, chains: int, key: Any
) -> tuple[dict[str, Any], np.ndarray]:
    """Effective draws and excess energy of every chain (nothing if one was lost), and the draws."""
    begin, run = jax.random.split(key)
    start = target.samples(chains, key=begin)
    draws = sample(
        target, sampler, chains=chains, steps=STEPS, warmup=BURN_IN, start=start, key=run, progress=False
    ).draws  # fmt: skip
    energies = np.asarray(energies_along(target, draws), np.float64)
    if not np.all(np.isfinite(energies)):
        return {"lost": True}, draws
    return {
        "lost": False,
        "ess": effective_draws(draws, truth.mean, truth.variance).min(axis=1).tolist(),
        "excess": (energies.mean(axis=1) - truth.energy).tolist(),
    }, draws


energies_along = jax.jit(lambda target, draws: jax.vmap(jax.vmap(target))(draws))


def ranking(found: list[dict[str, Any]], right: bool) -> list[int]:
    """Places in the grid from the most effective draws down, of all steps or of those whose law is right.

    A step at which no chain was lost may lose one in another run; then the next is as good as it gets.
    """
    kept = [
        i
        for i, piece in enumerate(found)
        if not piece["lost"] and not (right and abs(np.mean(piece["excess"])) > TOLERANCE)
    ]
    # The smallest step is the nearest to right where none is within the tolerance.
    return sorted(kept, key=lambda i: -float(np.mean(found[i]["ess"]))) or [0]


#: Fig. 4.6: printed step, points, iterations, and how often they are looked at.
PRINTED, POINTS, ITERATIONS, EVERY, GROUPS = 0.01, 2000, 1000, 10, 8


def relaxation_curves(seed: int) -> dict[str, Any]:
    """Fig. 4.6: excess energy by iteration, from points spread evenly over a square, in groups."""
    target = targets()[FIRST]
    energy = truth_of(target).energy
    walks = {
        f"Langevin, e = {PRINTED:g}": Langevin.halved(PRINTED),
        f"Ozaki, e = {PRINTED:g}": Ozaki(PRINTED),
        f"Langevin, e = {2 * PRINTED:g}": Langevin.halved(2 * PRINTED),
    }
    piece: dict[str, Any] = {}
    for i, (label, sampler) in enumerate(walks.items()):
        begin, run = jax.random.split(jax.random.fold_in(jax.random.key(seed), 7 + i))
        start = jax.random.uniform(begin, (POINTS, 2), minval=-5.0, maxval=5.0)
        draws = sample(
            target, sampler, chains=POINTS, steps=ITERATIONS // EVERY, thin=EVERY, start=start, key=run, progress=False
        ).draws  # fmt: skip
        energies = np.asarray(energies_along(target, draws), np.float64).reshape(GROUPS, -1, draws.shape[1])
        piece[label] = (energies.mean(axis=1) - energy).tolist()
    return piece
