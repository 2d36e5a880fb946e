"""Which objectives see the weights of a mixture, by the distance of its modes.

Score matching is said to be blind to the weights of far modes, and local noise too (Yu et al. 2025). Here a mixture of
two Gaussians on the line with standard deviation 1 learns its means, variances and weights, from equal weights and
means a little off, on data of weights 0.3 and 0.7; the modes lie 2 to 12 standard deviations apart. An objective that
sees nothing leaves the weight at 0.5: an error of 0.2. Every method learns from the same rows with the same number of
steps. Denoising learns the noisy density, whose weights are the same.
"""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

from unnorm.energies import gaussian_mixture
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, over_seeds
from unnorm.noises import Gaussian, Jumps, MomentGaussian
from unnorm.objectives import CNCE, DSM, NCE, SM, SSM, AbstractObjective, EnergyDiscrepancy
from unnorm.plots import QUIET, panels
from unnorm.training import cosine, fit_repeats

WEIGHT = 0.3
DISTANCES = (2.0, 4.0, 6.0, 8.0, 12.0)
OBJECTIVES: dict[str, AbstractObjective] = {
    "SM": SM(),
    "SSM": SSM(),
    "DSM, noise 0.3": DSM(Gaussian(0.3)),
    "DSM, noise 3": DSM(Gaussian(3.0)),
    "CNCE local": CNCE(Gaussian(0.7)),
    "CNCE mix": CNCE(Jumps(local=0.7, bandwidth=0.5, leave_one_out=True)),
    "ED, t = 0.5": EnergyDiscrepancy(Gaussian(0.5**0.5), draws=16),
    "ED, t = 25": EnergyDiscrepancy(Gaussian(5.0), draws=16),
    "NCE": NCE(MomentGaussian(widen=1.5)),
}
LOCAL = ("SM", "SSM", "DSM, noise 0.3", "CNCE local", "ED, t = 0.5")
FAR = ("CNCE mix", "NCE")


@lru_cache
def _adam(steps: int) -> optax.GradientTransformation:
    """With a large epsilon: Adam's usual one would turn gradients that vanish to rounding into steps of full size."""
    return optax.adam(lambda step: 0.02 * cosine(jnp.asarray(step) / steps), eps=1e-4)


def _errors(name: str, distance: float, repeats: int, steps: int, seed: int) -> dict[str, Any]:
    """|weight - truth| of each repeat."""
    means = np.array([[-distance / 2], [distance / 2]])
    data_key, run_key = jax.random.split(jax.random.key(seed))
    truth = gaussian_mixture([WEIGHT, 1 - WEIGHT], means, 1.0)
    data = truth.samples(repeats * 1000, key=data_key).reshape(repeats, 1000, 1)
    start = gaussian_mixture([0.5, 0.5], means + 0.1, 1.1)
    fits = fit_repeats(start, OBJECTIVES[name], data, steps=steps, batch=128, optimiser=_adam(steps), key=run_key)
    weights = jax.nn.softmax(fits.logits, axis=1)
    # Modes may change places; the one further left is the first.
    left = jnp.argmin(fits.components.mean[:, :, 0], axis=1)
    found = np.asarray(jnp.take_along_axis(weights, left[:, None], axis=1)[:, 0], np.float64)
    return {"errors": np.abs(found - WEIGHT).tolist()}


def run(job: Job) -> Result:
    """Each objective at each distance."""
    repeats, steps, distances = (8, 500, DISTANCES[::2]) if job.quick else (32, 5000, DISTANCES)
    computes = {
        f"{i}-{distance:g}": partial(_errors, name, distance, repeats, steps, job.seed)
        for i, name in enumerate(OBJECTIVES)
        for distance in distances
    }
    pieces = job.pieces(computes, "blindness")
    columns = tuple(f"distance {distance:g}" for distance in distances)
    rows = tuple(
        Row(
            name,
            {
                column: over_seeds(pieces[f"{i}-{distance:g}"]["errors"], "mean over data sets")
                for column, distance in zip(columns, distances, strict=True)
            },
        )
        for i, name in enumerate(OBJECTIVES)
    )
    last = {row.label: row.figures[columns[-1]].value for row in rows}
    claims = (
        Claim(
            f"At {distances[-1]:g} standard deviations scores and local noise leave the weight where it began "
            "(error 0.2, to within 0.03).",
            all(abs(last[name] - 0.2) < 0.03 for name in LOCAL),
        ),
        Claim(
            "At that distance mixed conditional NCE and NCE find it to within 0.05.",
            all(last[name] < 0.05 for name in FAR),
        ),
    )
    series = {
        "distance": list(distances),
        **{row.label: [[row.figures[c].value, row.figures[c].stderr] for c in columns] for row in rows},
    }
    return Result("Error of a mixture's weight against the distance of its modes", columns, rows, claims, series)


def draw(result: Result) -> Figure:
    """One line for each objective."""
    figure, panel = panels(1, 1, 8.5, 4)
    axes = panel[0, 0]
    for name in OBJECTIVES:
        values = np.asarray(result.series[name])
        style = "--" if name in LOCAL else "-"
        axes.errorbar(result.series["distance"], values[:, 0], values[:, 1], ls=style, marker="o", ms=3, label=name)
    axes.axhline(0.2, color=QUIET, lw=0.8)
    axes.text(DISTANCES[0], 0.203, "weight left at its start", color=QUIET)
    axes.set(xlabel="distance of the modes in standard deviations", ylabel="error of the weight", ylim=(0, None))
    figure.legend(loc="outside right center")
    return figure


EXPERIMENT = Experiment("blindness", run, draw)
