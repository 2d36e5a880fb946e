"""Song 2022, Fig. 5.3: Langevin gets the weights of far modes wrong, annealed Langevin gets them right.

The mixture is 0.2 N((-5, -5), I) + 0.8 N((5, 5), I), its scores exact; 1280 points begin uniform on [-8, 8]^2. Langevin
takes 1000 steps x + (e/2) s + sqrt(e) z with e = 0.1. Annealed Langevin takes 100 at each of 10 levels, with
e_i = e sigma_i^2 / sigma_L^2. Song 2022 prints e = 0.1 and sigma from 10 to 0.1, and these settings diverge: the first
step is 1000, while a density as wide as sqrt(101) bears no more than 404. Two settings that work are run instead: those
of the published code (sigma from 20 to 1 in place of the components' own deviation, e = 0.1), and the printed levels
with e = 0.01. Beside them, Gibbs between the same levels (Zhang et al. 2023). The printed figure has no numbers; the
weight of the larger mode should be 0.8.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from unnorm.energies import gaussian_mixture
from unnorm.energies.base import Point
from unnorm.estimate import mean_estimate
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, exact
from unnorm.generators import AbstractTransition, GibbsTransition, LangevinCorrector, PosteriorDraw, Stay, generate
from unnorm.noises import VarianceExploding
from unnorm.noises.base import Level
from unnorm.plots import dots, panels
from unnorm.samplers import Langevin, sample
from unnorm.scores import LevelledFunction

WEIGHTS = (0.2, 0.8)
CENTRES = np.array([[-5.0, -5.0], [5.0, 5.0]])
POINTS = 1280
#: Ten levels, the first visited twice: a transition to a level ends there.
TIMES = np.concatenate([[1.0], np.linspace(1, 0, 10)])
TRUTH, PLAIN, PRINTED = "independent draws", "Langevin", "annealed, as printed"
CODE, MENDED, GIBBS = "annealed, levels 20 to 1", "annealed, levels 10 to 0.1", "Gibbs between levels 10 to 0.1"
METHODS = (TRUTH, PLAIN, PRINTED, CODE, MENDED, GIBBS)
WEIGHT, LOST = "weight of the larger mode", "share of points lost"


class MixtureSlope(eqx.Module):
    """Exact at every level: means as they are, variances own + sigma(t)^2."""

    noise: VarianceExploding
    own: float

    def __call__(self, t: Level, x: Point) -> Point:
        variance = self.own + self.noise.variance(t)
        offsets = jnp.asarray(CENTRES, float) - x[None]
        logits = jnp.log(jnp.asarray(WEIGHTS)) - jnp.sum(offsets**2, axis=1) / (2 * variance)
        return jax.nn.softmax(logits) @ offsets / variance


#: method: levels, variance of the components themselves, transition (whose step is ratio sigma^2 = e_i / 2).
WALKS: dict[str, tuple[VarianceExploding, float, AbstractTransition]] = {
    PRINTED: (VarianceExploding(0.1, 10.0), 1.0, LangevinCorrector(0.1 / (2 * 0.1**2), 100)),
    CODE: (VarianceExploding(1.0, 20.0), 0.0, LangevinCorrector(0.1 / 2, 100)),
    MENDED: (VarianceExploding(0.1, 10.0), 1.0, LangevinCorrector(0.01 / (2 * 0.1**2), 100)),
    GIBBS: (VarianceExploding(0.1, 10.0), 1.0, GibbsTransition(steps=10)),
}


def _points(method: str, begin: Array, key: Array) -> np.ndarray:
    target = gaussian_mixture(WEIGHTS, CENTRES, 1.0)
    if method == TRUTH:
        return np.asarray(target.samples(POINTS, key=key))
    if method == PLAIN:
        trace = sample(target, Langevin(0.05), chains=POINTS, steps=1, thin=1000, start=begin, key=key, progress=False)
        return trace.draws[:, 0]
    noise, own, transition = WALKS[method]
    finish = PosteriorDraw() if method == GIBBS else Stay()
    score = LevelledFunction(MixtureSlope(noise, own), noise)
    return generate(score, transition, levels=TIMES, n=POINTS, shape=(2,), start=begin, finish=finish, key=key).points


def _repeat(method: str, repeats: int, seed: int) -> dict[str, Any]:
    """The weight found in each repeat, the share of points lost, and the points of the first."""
    weights, lost, shown = [], [], np.zeros((0, 2))
    for repeat in range(repeats):
        key = jax.random.fold_in(jax.random.key(seed), repeat)
        begin = jax.random.uniform(jax.random.fold_in(key, 1), (POINTS, 2), minval=-8.0, maxval=8.0)
        points = _points(method, begin, jax.random.fold_in(key, 2))
        finite = np.all(np.isfinite(points), axis=1)
        lost.append(float(np.mean(~finite)))
        if finite.any():
            weights.append(float(np.mean(points[finite].sum(axis=1) > 0)))
        if repeat == 0:
            shown = points[finite]
    return {"weights": weights, "lost": lost, "points": np.round(shown.astype(np.float64), 3).tolist()}


def run(job: Job) -> Result:
    """Each method from the same starting points."""
    repeats = 8 if job.quick else 64
    computes = {f"{i}": partial(_repeat, method, repeats, job.seed) for i, method in enumerate(METHODS)}
    pieces = dict(zip(METHODS, job.pieces(computes, "langevin-modes").values(), strict=True))
    rows = tuple(
        Row(
            method,
            ({WEIGHT: mean_estimate(piece["weights"], "mean over repeats")} if piece["weights"] else {})
            | {LOST: exact(float(np.mean(piece["lost"])), "counted")},
        )
        for method, piece in pieces.items()
    )
    found = {row.label: row.figures[WEIGHT] for row in rows if WEIGHT in row.figures}
    claims = (
        Claim("Langevin misses the weight by more than 0.2.", abs(found[PLAIN].value - WEIGHTS[1]) > 0.2),
        Claim(
            "Annealed Langevin finds it to within 0.05, with either setting that works.",
            all(abs(found[method].value - WEIGHTS[1]) < 0.05 for method in (CODE, MENDED)),
        ),
        Claim(
            "Gibbs between levels finds it to within 0.02.",
            abs(found[GIBBS].value - WEIGHTS[1]) < 0.02,
        ),
        Claim(
            "The printed settings lose every point.",
            all(share == 1.0 for share in pieces[PRINTED]["lost"]),
        ),
    )
    series = {method: piece["points"] for method, piece in pieces.items()}
    title = "Weight of the larger mode (0.8) after walks from [-8, 8]^2"
    return Result(title, (WEIGHT, LOST), rows, claims, series)


def draw(result: Result) -> Figure:
    """The points of the first repeat, one panel for each method."""
    figure, grid = panels(2, 3, 3, 3.1)
    for axes, (method, drawn) in zip(grid.flat, result.series.items(), strict=True):
        dots(axes, drawn, 9, markersize=2)
        figures = result.row(method).figures
        said = f"weight {figures[WEIGHT].value:.3f}" if WEIGHT in figures else "every point lost"
        axes.set_title(f"{method}\n{said}", fontsize=9)
    return figure


EXPERIMENT = Experiment("langevin-modes", run, draw)
