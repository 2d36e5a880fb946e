"""Yu et al. 2025, Figure 2: energy diffusions with and without the CNCE regulariser.

An energy E(x, t) is trained by denoising at every noise level (as the paper's "EBM diffusion"), and the same with CNCE
of global jumps at the level 0 added, weighted by lambda, with kernels of a bandwidth: both chosen by the held-out bound
on the likelihood, as there. On the 20-D mixture of 40 components its energy at level 0 is judged as in the paper (see
`cnce_table1`), and on the grid of 25 modes in the plane its weights of the modes.

`wells` is our own combination: wells that the noise widens exactly, so that what is learnt at high noise holds at low
noise too, with jumps near and far at the level 0. The weights of modes are those of the mass of the learnt density in
the cell around each, by summation on a grid of points.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from unnorm.data import Problem, load
from unnorm.energies import AbstractEnergy
from unnorm.estimate import Estimate
from unnorm.evaluation import energies, likelihood_bound
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, exact, over_seeds, piece_name
from unnorm.experiments.cnce_table1 import COLUMNS, figures
from unnorm.noises import GlobalJumps, Jumps, LikelihoodTimes, VarianceExploding, scales_of
from unnorm.objectives import CNCE, DSM, AbstractObjective, AtLevel, LikelihoodWeighting
from unnorm.plots import panels, picture
from unnorm.scores import LevelledEnergy, levelled_energy, wells_energy
from unnorm.training import fit

PRINTED = {
    "diffusion": ((1783.6, 535.0), (31.0, 7.6), (2972.5, 886.7)),
    "diffusion + CNCE": ((103.5, 27.0), (-8.5, 0.3), (80.6, 17.0)),
}
PLAIN, REGULARISED, WELLS, BEST = METHODS = ("diffusion", "diffusion + CNCE", "wells", "wells + CNCE")
TOTAL_VARIATION = "wrong mass"
#: Noise from a third of a component's deviation to ten times the data's.
LOW, HIGH = 0.03, 10.0
#: Points along a side of the grid that the density of the plane is summed on.
SIDE = 401
EDGE = 2.6


@dataclass(frozen=True)
class Size:
    """Steps of training and of the runs that choose, seeds, and what is chosen from."""

    steps: int
    choosing: int
    seeds: int
    weights: tuple[float, ...]
    bandwidths: tuple[float, ...]
    draws: int


QUICK = Size(4000, 600, 1, (0.1, 1.0, 10.0), (0.1,), 20_000)
PAPER = Size(50_000, 50_000, 3, (0.1, 1.0, 10.0), (0.0, 0.01, 0.1, 1.0), 100_000)


def bound_objective() -> DSM:
    """The held-out negative ELBO, up to what the score has no part in."""
    return DSM(weighting=LikelihoodWeighting(), times=LikelihoodTimes())


def _objective(method: str, weight: float, bandwidth: float, problem: Problem) -> AbstractObjective:
    if method in (PLAIN, WELLS):
        return DSM()
    if method == REGULARISED:
        # The noise of the paper is the empirical KDE; a jump back to a row's own kernel teaches nothing.
        return DSM() + weight * AtLevel(CNCE(GlobalJumps(bandwidth, leave_one_out=bandwidth > 0)), 0.0)
    scales = scales_of(problem.train, problem.valid)
    jumps = Jumps(local=(scales.step, 3 * scales.step), bandwidth=scales.bandwidth, leave_one_out=True)
    return DSM() + weight * AtLevel(CNCE(jumps), 0.0)


def trained(method: str, problem: Problem, weight: float, bandwidth: float, steps: int, seed: int) -> LevelledEnergy:
    """The energy over levels with the best held-out bound of its run."""
    begin, run = jax.random.split(jax.random.key(seed))
    noise, rows = VarianceExploding(LOW, HIGH), jnp.asarray(problem.train)
    spread = float(np.sqrt(np.mean(np.square(problem.train, dtype=np.float64))))
    if method in (WELLS, BEST):
        radius = scales_of(problem.train, problem.valid).bandwidth
        model = wells_energy(noise, rows, units=256, radius=radius, key=begin)
    else:
        model = levelled_energy(noise, rows.shape[1], spread=spread, width=128, depth=3, octaves=6, key=begin)
    return fit(
        model, _objective(method, weight, bandwidth, problem), rows, valid=jnp.asarray(problem.valid),
        judge=bound_objective(), steps=steps, batch=256, rate=3e-3, evaluations=20, key=run, progress=False,
    ).model  # fmt: skip


def elbo(model: LevelledEnergy, problem: Problem) -> float:
    """The held-out bound on the mean log-likelihood."""
    return likelihood_bound(model, problem.valid[:1000], levels=50, key=jax.random.key(11)).value


def _choice(name: str, size: Size, seed: int, weight: float, bandwidth: float) -> dict[str, float]:
    problem = load(name)
    model = trained(REGULARISED, problem, weight, bandwidth, size.choosing, seed)
    return {"elbo": elbo(model, problem)}


def masses(energy: AbstractEnergy) -> tuple[np.ndarray, np.ndarray]:
    """The density of the plane on a grid of points, and its mass in the unit cell around each of the 25 modes."""
    axis = np.linspace(-EDGE, EDGE, SIDE)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log_p = -energies(energy, points.astype(np.float32))
    density = np.exp(log_p - log_p.max())
    density /= density.sum()
    cells = np.clip(np.round(points), -2, 2).astype(int) + 2
    mass = np.zeros((5, 5))
    np.add.at(mass, (cells[:, 0], cells[:, 1]), density)
    return density.reshape(SIDE, SIDE), mass


def _one(name: str, size: Size, method: str, chosen: tuple[float, float], seed: int) -> dict[str, Any]:
    problem = load(name)
    model = trained(method, problem, *chosen, size.steps, seed)
    energy = model.at(0.0)
    found: dict[str, Any] = {"elbo": elbo(model, problem)}
    found |= figures(energy, problem, draws=size.draws, seed=seed)
    if name == "grid":
        density, mass = masses(energy)
        found |= {TOTAL_VARIATION: float(0.5 * np.abs(mass - 1 / 25).sum()), "density": density[::4, ::4].tolist()}
    return found


def _chosen(job: Job, name: str, size: Size) -> tuple[float, float]:
    """The weight and bandwidth whose run has the best held-out bound."""
    places = [(weight, bandwidth) for weight in size.weights for bandwidth in size.bandwidths]
    computes = {
        piece_name("choice", name, *place): partial(_choice, name, size, job.seed + 1, *place) for place in places
    }
    found = job.pieces(computes, f"choosing on {name}")
    bounds = [piece["elbo"] for piece in found.values()]
    return places[int(np.argmax(bounds))]


def _rows(found: dict[Any, Any], name: str, seeds: list[int], columns: tuple[str, ...]) -> list[Row]:
    rows = []
    for method in METHODS:
        values = {c: over_seeds([found[name, method, seed][c] for seed in seeds]) for c in columns}
        printed = PRINTED.get(method) if name == "gmm20" else None
        told = {} if printed is None else {c: Published(*p) for c, p in zip(COLUMNS, printed, strict=True)}
        rows.append(Row(f"{name}: {method}", values, told))
    return rows


def claims_of(figures_of: Any, wrong: Any) -> tuple[Claim, ...]:
    """`figures_of(method)` are those of the 20-D mixture, `wrong(method)` the wrong mass on the grid."""
    plain, regularised, best = (figures_of(m) for m in (PLAIN, REGULARISED, BEST))
    limits = dict(zip(COLUMNS, (p[0] for p in PRINTED[REGULARISED]), strict=True))
    return (
        *(
            Claim(f"Regularised, {c} is at most the printed {limits[c]:g}.", regularised[c].value <= limits[c])
            for c in COLUMNS
        ),
        *(Claim(f"The regulariser lowers {c}.", regularised[c].value < plain[c].value) for c in COLUMNS),
        Claim("It lowers the wrong mass on the grid.", wrong(REGULARISED).value < wrong(PLAIN).value),
        Claim("Our combination is better than the regularised one in every column.",
              all(best[c].value < regularised[c].value for c in COLUMNS)),
    )  # fmt: skip


def run(job: Job) -> Result:
    """Choose, train and judge on both problems."""
    size = QUICK if job.quick else PAPER
    seeds = [job.seed + 1 + i for i in range(size.seeds)]
    chosen = {name: _chosen(job, name, size) for name in ("gmm20", "grid")}
    computes = {
        (name, method, seed): partial(_one, name, size, method, chosen[name], seed)
        for name in chosen for method in METHODS for seed in seeds
    }  # fmt: skip
    pieces = job.pieces({piece_name(*at): compute for at, compute in computes.items()}, "diffusion-modes")
    found = dict(zip(computes, pieces.values(), strict=True))
    rows = _rows(found, "gmm20", seeds, COLUMNS) + _rows(found, "grid", seeds, (*COLUMNS, TOTAL_VARIATION))
    floors = {name: _floor(load(name)) for name in chosen}
    rows += [Row(f"{name}: true density", {"Ratio": exact(0), "NLL": exact(floor), "MSE": exact(0)})
             for name, floor in floors.items()]  # fmt: skip
    named = {row.label: row for row in rows}

    def wrong(method: str) -> Estimate:
        return named[f"grid: {method}"].figures[TOTAL_VARIATION]

    remarks = (
        *(f"Chosen on {name} by the held-out bound: lambda {w:g}, bandwidth {b:g}." for name, (w, b) in chosen.items()),
        f"log Z is from {size.draws:,} draws of the true density, as in the paper: mass that a model puts elsewhere is "
        "not seen.",
        f"{size.steps:,} steps ({size.choosing:,} to choose) and {size.seeds} seed{'s' * (size.seeds > 1)}; the "
        "paper's are 50,000 and 3.",
    )
    series = {
        "densities": {m: found["grid", m, seeds[0]]["density"] for m in METHODS},
        "wrong": {m: wrong(m).value for m in METHODS},
    }
    claims = claims_of(lambda method: named[f"gmm20: {method}"].figures, wrong)
    return Result("Energy diffusions with and without CNCE at the level 0", (*COLUMNS, TOTAL_VARIATION), tuple(rows),
                  claims, series, remarks)  # fmt: skip


def _floor(problem: Problem) -> float:
    entropy = problem.facts["entropy"]
    assert isinstance(entropy, float)
    return entropy if math.isfinite(entropy) else math.nan


def draw(result: Result) -> Figure:
    """The learnt densities of the plane."""
    figure, grid = panels(1, 4, 2.9, 3.0)
    for axes, (method, density) in zip(grid[0], result.series["densities"].items(), strict=True):
        picture(axes, np.asarray(density).T, origin="lower", extent=(-EDGE, EDGE, -EDGE, EDGE))
        axes.set_title(f"{method}\nwrong mass {result.series['wrong'][method]:.3f}", fontsize=9)
    return figure


EXPERIMENT = Experiment("diffusion-modes", run, draw)
