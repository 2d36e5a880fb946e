"""Zhang et al. 2023, Fig. 1: the posterior of the clean point given the noisy one, and the Gaussians that stand for it.

Data: four Gaussians at (+-1, +-1) with standard deviation 0.2; noise 0.2. Given x~ the clean point is a mixture of four
Gaussians of standard deviation 0.2 / sqrt(2), weighed by the components' responsibilities. The approximations have

    learned diagonal   mean and deviations from a network trained by Kullback-Leibler divergence (Eq. 13),
    isotropic          the mean of an energy trained by denoising, one variance for all x~ (Eq. 18),
    diagonal           that mean, and the diagonal of sigma^2 I + sigma^4 Hessian (Eq. 19, without its sampling error),
    full               that mean, and the whole matrix (Eq. 12),

and, to tell what the Gaussian costs from what learning does, the last three with the exact score. The measure is
KL(true posterior, Gaussian), by quadrature, at four points and on average over noisy data. The paper shows a picture
and no numbers, and says that only the full covariance has the variance of the posterior.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from unnorm.energies import AbstractEnergy, gaussian_mixture
from unnorm.estimate import mean_estimate
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, over_seeds
from unnorm.experiments.gibbs_models import (
    CORNERS,
    FURTHER,
    PRINTED,
    ROWS,
    SIGMA,
    data_of,
    train_denoiser,
    train_energy,
)
from unnorm.plots import MODEL, panels
from unnorm.samplers import isotropic_variance
from unnorm.scores import FromScore, GaussianDenoiser

OWN = 0.2
#: Beside a mode, between two modes, a little off the middle of them, and near the centre of all four.
SHOWN = np.array([[-0.9, 0.8], [0.0, 1.0], [0.9, -0.06], [0.1, 0.05]])
LEARNED, ISOTROPIC, DIAGONAL, FULL = "learned diagonal", "isotropic", "diagonal", "full"
EXACT = {ISOTROPIC: "isotropic, exact score", DIAGONAL: "diagonal, exact score", FULL: "full, exact score"}
METHODS = (LEARNED, ISOTROPIC, DIAGONAL, FULL, *EXACT.values())
AVERAGE = "mean over noisy data"
POINTS = tuple(f"at ({x:g}, {y:g})" for x, y in SHOWN)
#: A step of a quarter of the posterior's smallest deviation leaves only rounding in its entropy.
AXIS = np.linspace(-2.6, 2.6, 150)
GRID = np.stack(np.meshgrid(AXIS, AXIS, indexing="ij"), axis=-1).reshape(-1, 2)
#: Where a learnt covariance has an eigenvalue below this share of sigma^2 it is raised to it, as the sampler does.
FLOOR = 1e-6


def true_posterior(noisy: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Density on the grid, entropy, mean and covariance of x given each x~."""
    total, gain = OWN**2 + SIGMA**2, OWN**2 / (OWN**2 + SIGMA**2)
    variance = gain * SIGMA**2
    squared = np.sum((noisy[:, None] - CORNERS) ** 2, axis=-1)
    logits = -squared / (2 * total)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    means = CORNERS + gain * (noisy[:, None] - CORNERS)
    mean = np.einsum("nk,nki->ni", weights, means)
    covariance = np.einsum("nk,nki,nkj->nij", weights, means, means) - np.einsum("ni,nj->nij", mean, mean)
    covariance += variance * np.eye(2)
    density = np.zeros((len(noisy), len(GRID)))
    for k in range(len(CORNERS)):
        offsets = np.sum((GRID - means[:, k, None]) ** 2, axis=-1)
        density += weights[:, k, None] * np.exp(-offsets / (2 * variance)) / (2 * math.pi * variance)
    cell = (AXIS[1] - AXIS[0]) ** 2
    entropy = -np.sum(np.where(density > 0, density * np.log(np.maximum(density, 1e-300)), 0), axis=1) * cell
    return density, entropy, mean, covariance


def divergence(
    entropy: np.ndarray, true_mean: np.ndarray, true_covariance: np.ndarray, mean: np.ndarray, covariance: np.ndarray
) -> np.ndarray:
    """KL(p, N(mean, Sigma)) = -H(p) + (log det 2 pi Sigma + tr Sigma^-1 (Cov p + (E p - mean)(E p - mean)')) / 2."""
    offset = true_mean - mean
    second = true_covariance + np.einsum("ni,nj->nij", offset, offset)
    _, log_det = np.linalg.slogdet(2 * math.pi * covariance)
    return -entropy + 0.5 * (log_det + np.trace(np.linalg.solve(covariance, second), axis1=1, axis2=2))


def _raised(covariance: np.ndarray) -> tuple[np.ndarray, int]:
    """Symmetrised, with eigenvalues no smaller than the floor, and how many were raised."""
    values, vectors = np.linalg.eigh((covariance + np.swapaxes(covariance, 1, 2)) / 2)
    low = values < FLOOR * SIGMA**2
    values = np.where(low, FLOOR * SIGMA**2, values)
    return np.einsum("nij,nj,nkj->nik", vectors, values, vectors), int(low.sum())


def _gaussians(energy: AbstractEnergy, tau2: float, noisy: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray, int]]:
    """Mean, covariance and the number of raised eigenvalues of the three analytic posteriors."""
    second = FromScore(energy)

    @jax.jit
    def parts(points):
        return jax.vmap(lambda y: (second(jnp.zeros(()), y), second.matrix(y)))(points)

    slope, hessian = (np.asarray(part, np.float64) for part in parts(jnp.asarray(noisy, float)))
    mean, eye = noisy + SIGMA**2 * slope, np.eye(2)
    whole, raised = _raised(SIGMA**2 * eye + SIGMA**4 * hessian)
    diagonal, raised_diagonal = _raised(SIGMA**2 * eye + SIGMA**4 * hessian * eye)
    return {
        ISOTROPIC: (mean, np.broadcast_to(tau2 * eye, hessian.shape), 0),
        DIAGONAL: (mean, diagonal, raised_diagonal),
        FULL: (mean, whole, raised),
    }


def _denoised(denoiser: GaussianDenoiser, noisy: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    mean, log_std = jax.jit(jax.vmap(denoiser))(jnp.asarray(noisy, float))
    variances = np.exp(2 * np.asarray(log_std, np.float64))
    return np.asarray(mean, np.float64), variances[:, :, None] * np.eye(2), 0


def _seed(job: Job, seed: int) -> dict[str, Any]:
    """Divergences of every approximation at the shown points and over noisy data."""
    training = FURTHER if job.quick else PRINTED
    keys = jax.random.split(jax.random.key(seed), 6)
    data = data_of("MoG", ROWS, keys[0])
    energy, denoiser = train_energy(data, training, keys[1]), train_denoiser(data, training, keys[2])
    exact = gaussian_mixture(np.full(4, 0.25), CORNERS, math.hypot(OWN, SIGMA))
    rows = data_of("MoG", 1000, keys[3]) + SIGMA * jax.random.normal(keys[4], (1000, 2))
    noisy = np.concatenate([SHOWN, np.asarray(rows, np.float64)])
    _, entropy, true_mean, true_covariance = true_posterior(noisy)
    found = {LEARNED: _denoised(denoiser, noisy)}
    learnt, ideal = (isotropic_variance(model, SIGMA, data, key=keys[5]).value for model in (energy, exact))
    found |= _gaussians(energy, learnt, noisy)
    found |= {EXACT[name]: parts for name, parts in _gaussians(exact, ideal, noisy).items()}
    piece: dict[str, Any] = {}
    for name, (mean, covariance, raised) in found.items():
        values = divergence(entropy, true_mean, true_covariance, mean, covariance)
        shares = np.trace(covariance, axis1=1, axis2=2) / np.trace(true_covariance, axis1=1, axis2=2)
        piece[name] = {
            "shown": values[: len(SHOWN)].tolist(),
            "noisy": values[len(SHOWN) :].tolist(),
            "variance share": shares[: len(SHOWN)].tolist(),
            "mean": mean[: len(SHOWN)].tolist(),
            "covariance": covariance[: len(SHOWN)].tolist(),
            "raised": raised,
        }
    return piece


def run(job: Job) -> Result:
    """Every approximation, trained anew from each seed."""
    seeds = 1 if job.quick else 5
    computes = {f"seed-{seed}": partial(_seed, job, job.seed + seed) for seed in range(seeds)}
    pieces = list(job.pieces(computes, "gibbs-posterior").values())
    rows = []
    for name in METHODS:
        figures = {point: over_seeds([piece[name]["shown"][i] for piece in pieces]) for i, point in enumerate(POINTS)}
        figures[AVERAGE] = (
            over_seeds([float(np.mean(piece[name]["noisy"])) for piece in pieces])
            if seeds > 1
            else mean_estimate(pieces[0][name]["noisy"], "mean over 1000 noisy points")
        )
        rows.append(Row(name, figures))
    average = {row.label: row.figures[AVERAGE].value for row in rows}
    ideal = {name: average[label] for name, label in EXACT.items()}
    shares = {name: np.mean([piece[name]["variance share"] for piece in pieces], axis=0) for name in METHODS}
    claims = (
        Claim(
            "On average over noisy data the full covariance is closer than the learned diagonal and the isotropic one.",
            average[FULL] < min(average[LEARNED], average[ISOTROPIC]),
        ),
        Claim(
            "With the exact score the diagonal is as close as the full matrix, since this density is a product over "
            "its coordinates, and both are closer than the isotropic one.",
            abs(ideal[FULL] - ideal[DIAGONAL]) < 1e-4 < ideal[ISOTROPIC] - ideal[FULL],
        ),
        Claim(
            "Between modes the isotropic covariance has less than half the variance of the posterior, the full one "
            "from half to twice of it.",
            bool(np.all(shares[ISOTROPIC][1:] < 0.5) and np.all(np.abs(np.log(shares[FULL][1:])) < math.log(2))),
        ),
    )
    raised = {name: sum(piece[name]["raised"] for piece in pieces) for name in METHODS}
    remarks = tuple(f"{name}: {n} eigenvalues were raised to the floor" for name, n in raised.items() if n)
    density = true_posterior(SHOWN)[0].reshape(len(SHOWN), len(AXIS), len(AXIS))
    series = {
        "axis": AXIS[::2].tolist(),
        "density": np.round(density[:, ::2, ::2], 4).tolist(),
        "noisy": SHOWN.tolist(),
        **{name: {part: pieces[0][name][part] for part in ("mean", "covariance")} for name in METHODS},
    }
    title = "Posterior of denoising: KL from the truth to its Gaussian approximations"
    return Result(title, (*POINTS, AVERAGE), tuple(rows), claims, series, remarks)


def draw(result: Result) -> Figure:
    """The true posteriors, each with the ellipse of two standard deviations of every approximation."""
    names = (LEARNED, ISOTROPIC, DIAGONAL, FULL)
    figure, row = panels(1, len(names), 3.1, 3.9, sharex=True, sharey=True)
    axis, turn = result.series["axis"], np.linspace(0, 2 * np.pi, 100)
    circle = 2 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    total = np.asarray(result.series["density"])
    total = (total / total.max(axis=(1, 2), keepdims=True)).sum(axis=0)
    for axes, name in zip(row[0], names, strict=True):
        axes.contourf(axis, axis, total.T, levels=np.linspace(0.05, 1, 8), cmap="Greens")
        drawn = result.series[name]
        for mean, covariance, noisy in zip(drawn["mean"], drawn["covariance"], result.series["noisy"], strict=True):
            axes.plot(*(np.asarray(mean) + circle @ np.linalg.cholesky(covariance).T).T, color=MODEL)
            axes.plot(*noisy, "kx", ms=5)
        axes.set(xlim=(-1.9, 1.9), ylim=(-1.9, 1.9), aspect="equal")
        axes.set_title(f"{name}\nmean divergence {result.row(name).figures[AVERAGE].value:.3f}")
    return figure


EXPERIMENT = Experiment("gibbs-posterior", run, draw)
