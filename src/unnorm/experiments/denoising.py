"""Song 2022, Figs 4.3, 4.4 at reduced size: how sure a denoised digit is, and what else it could have been.

At a noisy digit x~ the clean one has the mean x~ + sigma^2 s1 and the covariance sigma^2 I + sigma^4 s2. The variances
of pixels are its diagonal; its leading eigenvectors are the directions in which the digit could have been another one.
s2 is the derivative of a score learnt by denoising, or learnt directly (rank 20 and a diagonal, Song 2022, Eq. 4.14).
The work shows pictures at 28 x 28 and prints no numbers; here (14 x 14, sigma = 0.5) what is predicted is compared with
the errors e = x - mean of held-out digits:

  * the share of |e|^2 along the five leading directions, beside that along five random ones;
  * the mean of (v . e)^2 along them over their eigenvalues, 1 if these are right;
  * the share of the variance of squared errors that the variances explain, beyond one variance for all.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from unnorm.data.mnist import mnist
from unnorm.estimate import Estimate, mean_estimate
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, exact
from unnorm.noises import Gaussian
from unnorm.objectives import D2SMVR, DSM, AbstractObjective, JointSecondOrder
from unnorm.plots import MAP, new_figure, picture
from unnorm.scores import AbstractScore, low_rank_mlp
from unnorm.tasks import Denoised, denoise
from unnorm.training import fit

SIGMA, SIDE, RANK, LEADING, SHOWN = 0.5, 14, 20, 5, 6
PIXELS = SIDE * SIDE
DERIVATIVE, DIRECT = "derivative of s1", f"s2 of rank {RANK}"
ERROR, ALONG, RANDOM = "squared error of a pixel", "share along leading directions", "share along random ones"
FOUND, EXPLAINED = "found / predicted along them", "variance explained"
COLUMNS = (ERROR, ALONG, RANDOM, FOUND, EXPLAINED)


@dataclass(frozen=True)
class Size:
    """Units of s1 and of alpha and beta, steps, held-out digits."""

    width: int
    factor_width: int
    steps: int
    rows: int


QUICK = Size(256, 64, 4000, 400)
PAPER = Size(1024, 256, 100_000, 5000)


def _digits() -> tuple[np.ndarray, np.ndarray]:
    digits = mnist(SIDE)
    train, test = (part.images.reshape(-1, PIXELS) for part in (digits.train, digits.test))
    return train, np.random.default_rng(0).permutation(test)


def ratio_of_means(above: np.ndarray, below: np.ndarray, method: str) -> Estimate:
    """E a / E b over rows, with the error of a ratio.

    >>> ratio_of_means(np.array([1.0, 3.0]), np.array([2.0, 2.0]), "rows").value
    1.0
    """
    ratio = above.mean() / below.mean()
    error = np.std(above - ratio * below, ddof=1) / (len(above) ** 0.5 * below.mean())
    return Estimate(float(ratio), float(error), method, {"rows": float(len(above))})


def measured(found: Denoised, clean: np.ndarray, *, seed: int) -> dict[str, Estimate]:
    """What was predicted at noisy points against the errors of their means."""
    errors = np.asarray(clean - found.mean, np.float64)
    squared, rows = np.sum(errors**2, axis=1), f"{len(errors)} digits"
    along = np.einsum("nkd,nd->nk", found.eigenvectors, errors) ** 2
    basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(errors.shape[1], found.eigenvalues.shape[1])))
    variances, flat = np.maximum(found.variances, 0), (errors**2).mean()
    left = np.mean((errors**2 - variances) ** 2, axis=1)
    explained = ratio_of_means(left, np.mean((errors**2 - flat) ** 2, axis=1), rows)
    return {
        ERROR: mean_estimate(squared / errors.shape[1], rows),
        ALONG: ratio_of_means(along.sum(axis=1), squared, rows),
        RANDOM: ratio_of_means(np.sum((errors @ basis) ** 2, axis=1), squared, rows),
        FOUND: ratio_of_means(along.sum(axis=1), found.eigenvalues.sum(axis=1), rows),
        EXPLAINED: Estimate(1 - explained.value, explained.stderr, rows),
    }


def _one(direct: bool, size: Size, seed: int) -> dict[str, Any]:
    """Train one model, denoise held-out digits, and keep some to look at."""
    train, test = _digits()
    begin, run, noise, power = jax.random.split(jax.random.key(seed), 4)
    model = low_rank_mlp(PIXELS, rank=RANK, width=size.width, factor_width=size.factor_width, key=begin)
    start: AbstractScore = model if direct else model.score
    objective: AbstractObjective = JointSecondOrder(D2SMVR(Gaussian(SIGMA))) if direct else DSM(Gaussian(SIGMA))
    fitted = fit(start, objective, train, steps=size.steps, batch=128, rate=1e-3, key=run, progress=False).model
    clean = test[: size.rows]
    noisy = clean + SIGMA * np.asarray(jax.random.normal(noise, clean.shape))
    found = denoise(fitted, SIGMA, noisy, directions=LEADING, key=power)
    shown = {"clean": clean, "noisy": noisy, "mean": found.mean, "variances": found.variances}
    return {
        "figures": {name: value.to_dict() for name, value in measured(found, clean, seed=seed).items()},
        "negative": float(np.mean(found.variances < 0)),
        "unconverged": float(np.mean(found.residuals > 0.01)),
        "shown": {name: np.round(images[:SHOWN], 3).tolist() for name, images in shown.items()},
        "eigenvalues": np.round(found.eigenvalues[:SHOWN], 4).tolist(),
        "eigenvectors": np.round(found.eigenvectors[:SHOWN], 3).tolist(),
    }


def run(job: Job) -> Result:
    """Both ways to s2."""
    size = QUICK if job.quick else PAPER
    computes = {name: partial(_one, direct, size, job.seed) for name, direct in (("derived", False), ("direct", True))}
    pieces = dict(zip((DERIVATIVE, DIRECT), job.pieces(computes, "denoising").values(), strict=True))
    rows = tuple(
        Row(name, {column: Estimate.from_dict(piece["figures"][column]) for column in COLUMNS})
        for name, piece in pieces.items()
    )
    even = Row("one variance for all", {RANDOM: exact(LEADING / PIXELS, "directions / pixels"), EXPLAINED: exact(0.0)})
    claims = []
    for row in rows:
        along, random = row.figures[ALONG], row.figures[RANDOM]
        gap, predicted, explained = along.minus(random), row.figures[FOUND], row.figures[EXPLAINED]
        claims += [
            Claim(
                f"{row.label}: the {LEADING} leading directions hold more of the error than random ones do "
                f"({along.number()} of it against {random.number()}).",
                gap.value > 3 * gap.stderr,
            ),
            Claim(
                f"{row.label}: along them the squared error is what was predicted, to a quarter "
                f"({predicted.number()} of it).",
                abs(predicted.value - 1) < 0.25,
            ),
            Claim(
                f"{row.label}: its variances know where the denoiser errs (they explain {explained.number()}).",
                explained.value > 3 * explained.stderr,
            ),
        ]
    remarks = tuple(
        f"{name}: {piece['negative']:.2%} of the variances are below 0; {piece['unconverged']:.2%} of the directions "
        "have not converged."
        for name, piece in pieces.items()
    )
    series = {
        name: {part: piece[part] for part in ("shown", "eigenvalues", "eigenvectors")} for name, piece in pieces.items()
    }
    title = f"Denoised digits and their uncertainty, {SIDE} x {SIDE}, sigma = {SIGMA:g}"
    return Result(title, COLUMNS, (*rows, even), tuple(claims), series, remarks)


def draw(result: Result) -> Figure:
    """Clean, noisy, mean, variances, leading directions, and the mean moved two deviations along the first."""
    figure = new_figure(12, 2 + 2 * SHOWN)
    parts: Any = figure.subfigures(len(result.series), 1)
    for part, (name, drawn) in zip(parts, result.series.items(), strict=True):
        part.suptitle(name)
        shown = {column: np.asarray(images) for column, images in drawn["shown"].items()}
        values, vectors = np.asarray(drawn["eigenvalues"]), np.asarray(drawn["eigenvectors"])
        moves = 2 * np.sqrt(np.maximum(values[:, :1], 0)) * vectors[:, 0]
        columns: list[tuple[str, Any, dict[str, Any]]] = []
        columns += [(title, images, {"vmin": 0, "vmax": 1}) for title, images in shown.items()]
        top = float(np.quantile(shown["variances"], 0.995))
        columns[3] = ("variances", shown["variances"], {"vmin": 0, "vmax": top, "cmap": MAP})
        for k in range(LEADING):
            limit = float(np.abs(vectors[:, k]).max())
            columns.append((f"direction {k + 1}", vectors[:, k], {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}))
        for sign, word in ((-1, "mean - 2 sd"), (1, "mean + 2 sd")):
            columns.append((word, shown["mean"] + sign * moves, {"vmin": 0, "vmax": 1}))
        for column, (title, images, options) in zip(part.subplots(SHOWN, len(columns)).T, columns, strict=True):
            column[0].set_title(title, fontsize=7)
            for axes, image in zip(column, images, strict=True):
                picture(axes, np.reshape(image, (SIDE, SIDE)), **options)
    return figure


EXPERIMENT = Experiment("denoising", run, draw)
