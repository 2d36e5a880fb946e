"""Yu et al. 2025, Figure 1: two far modes; local noise learns their shapes, not their weights, mixed noise both.

The printed figure shows equal weights and no numbers; unequal ones (0.8 and 0.2) are added, because a method that knows
nothing of the weights may still return equal ones. The same network is trained by conditional NCE with local moves
only and with the mix. Its weight left of the middle is found by quadrature on a grid, so it carries no sampling error;
the error given is that over seeds.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from unnorm.data import load
from unnorm.energies import MLPEnergy
from unnorm.evaluation import energies
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, exact, over_seeds
from unnorm.noises import Gaussian, Jumps
from unnorm.objectives import CNCE
from unnorm.plots import DATA, MODEL, panels
from unnorm.training import fit

WEIGHTS = (0.5, 0.8)
#: Local width, kernel bandwidth and the modes' standard deviation are all of one size, 0.3.
NOISES = {"local": Gaussian(0.3), "mix": Jumps(local=0.3, bandwidth=0.3, leave_one_out=True)}
#: A weight is found when it is this close to the truth.
TOLERANCE = 0.03
#: Half-width, in x and y, of the grid, and its number of points in x (half as many in y).
SPAN, POINTS = (4.0, 2.0), 160


def _grid() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    xs = np.linspace(-SPAN[0], SPAN[0], POINTS)
    ys = np.linspace(-SPAN[1], SPAN[1], POINTS // 2)
    return xs, ys, np.stack(np.meshgrid(xs, ys, indexing="ij"), -1).reshape(-1, 2).astype(np.float32)


def _density(log_f: np.ndarray) -> np.ndarray:
    """Probabilities of the grid's cells."""
    mass = np.exp(log_f - log_f.max())
    return (mass / mass.sum()).reshape(POINTS, POINTS // 2)


def _one(weight: float, noise: str, seed: int, steps: int) -> dict[str, Any]:
    problem = load("bimodal", weight=weight, seed=seed)
    xs, _, points = _grid()
    begin, run = jax.random.split(jax.random.key(seed))
    model = MLPEnergy(problem.space, width=64, depth=3, scale=0.3, key=begin)
    fitted = fit(model, CNCE(NOISES[noise], draws=2), problem.train[:2000], steps=steps, key=run, progress=False)
    mass = _density(-energies(fitted.model, points))
    truth = problem.truth
    assert truth is not None
    of_data = jnp.asarray(problem.test[:2000])
    # On the grid's normaliser the log-likelihood needs no sampling either.
    xs_step = (2 * SPAN[0] / (POINTS - 1)) * (2 * SPAN[1] / (POINTS // 2 - 1))
    found = -energies(fitted.model, points).astype(np.float64)
    log_z = float(np.log(np.sum(np.exp(found - found.max()))) + found.max() + np.log(xs_step))
    return {
        "left": float(mass[xs < 0].sum()),
        "shortfall": float(np.mean(energies(fitted.model, of_data) + log_z - energies(truth, of_data))),
        "line": np.round(mass.sum(1) * (POINTS - 1) / (2 * SPAN[0]), 5).tolist(),
        "outcome": fitted.outcome.code.value,
    }


def run(job: Job) -> Result:
    """Two noises, two pairs of weights, some seeds."""
    seeds, steps = (range(2), 1200) if job.quick else (range(5), 10_000)
    computes = {
        f"{noise}-{weight:g}-{seed}": partial(_one, weight, noise, job.seed + seed, steps)
        for weight in WEIGHTS
        for noise in NOISES
        for seed in seeds
    }
    pieces = job.pieces(computes, "cnce-figure1")
    rows, series = [], {"x": _grid()[0].tolist()}
    for weight in WEIGHTS:
        for noise in NOISES:
            mine = [pieces[f"{noise}-{weight:g}-{seed}"] for seed in seeds]
            figures = {
                "weight": over_seeds([piece["left"] for piece in mine]),
                "true weight": exact(weight),
                "error": over_seeds([abs(piece["left"] - weight) for piece in mine]),
                "nats below truth": over_seeds([piece["shortfall"] for piece in mine]),
            }
            rows.append(Row(f"{noise}, {weight:g}", figures))
            series[f"{noise}, {weight:g}"] = [piece["line"] for piece in mine]
    errors = {row.label: row.figures["error"].value for row in rows}
    claims = (
        Claim(
            "Mixed noise finds the weights, equal and unequal, to within 0.03.",
            all(errors[f"mix, {w:g}"] <= TOLERANCE for w in WEIGHTS),
        ),
        Claim("Local noise alone misses the unequal weights by more than 0.1.", errors["local, 0.8"] > 0.1),
    )
    columns = ("weight", "true weight", "error", "nats below truth")
    return Result(
        "Weights of two far modes, by local and by mixed conditional NCE", columns, tuple(rows), claims, series
    )


def draw(result: Result) -> Figure:
    """The learnt density summed over y, beside the truth."""
    xs = np.asarray(result.series["x"])
    figure, row = panels(1, len(WEIGHTS), 4.5, 3.2, sharey=True)
    for axes, weight in zip(row[0], WEIGHTS, strict=True):
        bumps = [w * np.exp(-0.5 * ((xs - m) / 0.3) ** 2) for w, m in ((weight, -1.5), (1 - weight, 1.5))]
        axes.fill_between(xs, sum(bumps) / (0.3 * np.sqrt(2 * np.pi)), color="0.85", label="truth")
        for noise, colour in (("local", MODEL), ("mix", DATA)):
            for i, line in enumerate(result.series[f"{noise}, {weight:g}"]):
                axes.plot(xs, line, color=colour, lw=1.2, label=f"CNCE {noise}" if i == 0 else None)
        axes.set(title=f"weights {weight:g} and {1 - weight:g}", xlabel="first coordinate")
        axes.legend()
    return figure


EXPERIMENT = Experiment("cnce-figure1", run, draw)
