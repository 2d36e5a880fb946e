"""A deep Boltzmann machine of two hidden layers against one layer with as many parameters, on binarised MNIST.

Both are trained by persistent chains for as many updates: the deep one with mean field for the data (Salakhutdinov and
Hinton 2009), without the pretraining by layers that this work found it to need. Log-likelihoods of test digits are by
AIS, log Z from both sides; the sum over the hidden layers of a digit is by AIS too, from below. With an RBM it is
known. Published on this data by AIS and a variational bound: -84.62 for 500 and 1,000 units, pretrained.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from unnorm.data.black_and_white import BlackAndWhite, binarised_mnist
from unnorm.energies import RBM, DeepBoltzmann
from unnorm.estimate import Estimate
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, exact
from unnorm.experiments.machines import (
    GAP,
    LOG_Z,
    LOWER,
    SHEET,
    UPPER,
    Annealing,
    figures,
    judged,
    learnt_deep,
    learnt_rbm,
)
from unnorm.plots import new_figure, picture

DEEP, SHALLOW = "two layers", "one layer"
PARAMETERS, UNITS, SIDE = "parameters", "hidden units", 28
COLUMNS = (LOWER, UPPER, LOG_Z, GAP, UNITS, PARAMETERS)


@dataclass(frozen=True)
class Size:
    """Units of the two layers, updates, and how log Z is annealed."""

    hidden: tuple[int, int]
    steps: int
    annealing: Annealing


QUICK = Size((200, 300), 6_000, Annealing(levels=3000))
PAPER = Size((500, 1000), 500_000, Annealing(chains=512, levels=20_000, moves=10_000, rows=10_000))


def parameters(visible: int, *hidden: int) -> int:
    """Weights between neighbouring layers, and a bias for every unit.

    >>> parameters(784, 500)
    393284
    """
    sizes = (visible, *hidden)
    return sum(sizes) + sum(a * b for a, b in zip(sizes, hidden, strict=False))


def as_large(visible: int, hidden: tuple[int, int]) -> int:
    """Hidden units of one layer that has as many parameters as two layers, to the nearest."""
    return round((parameters(visible, *hidden) - visible) / (visible + 1))


def _one(data: BlackAndWhite, deep: bool, size: Size, seed: int) -> dict[str, Any]:
    key, visible = jax.random.key(seed), data.train.shape[1]
    hidden = size.hidden if deep else (as_large(visible, size.hidden),)
    model: RBM | DeepBoltzmann = (
        learnt_deep(data.train, hidden, size.steps, key) if deep else learnt_rbm(data.train, hidden[0], size.steps, key)
    )
    # Both are judged on the same digits.
    found = judged(model, data.train, data.test[: size.annealing.rows], size.annealing, seed)
    return {**found, UNITS: sum(hidden), PARAMETERS: parameters(visible, *hidden)}


def run(job: Job) -> Result:
    """Both machines."""
    size, data = QUICK if job.quick else PAPER, binarised_mnist()
    computes = {name: partial(_one, data, name == DEEP, size, job.seed) for name in (DEEP, SHALLOW)}
    pieces = job.pieces(computes, "machines")
    rows = tuple(
        Row(name, {**figures(piece), **{of: exact(piece[of], "counted") for of in (UNITS, PARAMETERS)}})
        for name, piece in pieces.items()
    )
    lower, upper = (Estimate.from_dict(pieces[DEEP][name]) for name in (LOWER, UPPER))
    other_lower, other_upper = (Estimate.from_dict(pieces[SHALLOW][name]) for name in (LOWER, UPPER))
    ahead, behind = lower.minus(other_upper), other_lower.minus(upper)
    claims = (
        Claim(
            f"Two layers beat one at equal parameters and updates, from below against from above: by {ahead.number()} "
            "nats.",
            ahead.value > 2 * ahead.stderr,
        ),
        *(
            Claim(
                f"{name}: the bracket of log Z is narrower than a nat ({figures(piece)[GAP].number()}).",
                abs(piece[GAP]["value"]) < 1 + 2 * piece[GAP]["stderr"],
            )
            for name, piece in pieces.items()
        ),
    )
    remarks = [f"{name}: {warning}" for name, piece in pieces.items() for warning in piece["warnings"]]
    if behind.value > 2 * behind.stderr:
        remarks.append(f"One layer beats two, from below against from above: by {behind.number()} nats.")
    remarks.append(
        f"The sum over the hidden layers of a digit is too low by about {pieces[DEEP]['bias']:.2g} nats on average, "
        "half of its squared error."
    )
    series = {name: piece["sheet"] for name, piece in pieces.items()}
    title = f"Deep and restricted Boltzmann machines on binarised MNIST, {size.steps:,} updates"
    return Result(title, COLUMNS, rows, claims, series, tuple(remarks))


def draw(result: Result) -> Figure:
    """Draws of both machines."""
    figure = new_figure(10, 4.2)
    parts: Any = figure.subfigures(1, len(result.series))
    for part, (name, sheet) in zip(parts, result.series.items(), strict=True):
        part.suptitle(name)
        for axes, image in zip(part.subplots(4, SHEET // 4).ravel(), sheet, strict=False):
            picture(axes, np.reshape(image, (SIDE, SIDE)), vmin=0, vmax=1)
    return figure


EXPERIMENT = Experiment("dbm", run, draw)
