"""Models of zeros and ones on three tables of the literature: held-out log-likelihood, each judged on the same rows.

nltcs (16 columns: every probability is summed exactly), plants (69) and jester (100), with the split that they come
with (Lowd and Davis 2010). Beside ours, the default of `unnorm fit`: independent columns; a pairwise Markov network by
pseudo-likelihood with the penalty that validation rows choose; a restricted Boltzmann machine by persistent chains; a
mixture of products with the number of components that validation rows choose, which ours is a tilt of. Where log Z is
no sum it is estimated, and its error is in that of the likelihood; differences are of the same rows, so their errors
are those of paired differences. Published: a Chow-Liu tree (Rahman, Kothalkar and Gogate 2014); the best probabilistic
circuits have about -6.0 on nltcs.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from unnorm.data.debd import BinaryTable, debd
from unnorm.energies import (
    AbstractEnergy,
    AbstractNormalised,
    best_site_mixture,
    count_points,
    fit_markov_network,
    fit_sites,
    rbm,
    tilt,
)
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation import energies, log_partition
from unnorm.evaluation.partition.log_partition import FEW_POINTS
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, ahead, exact
from unnorm.objectives import PCD, TiltNCE
from unnorm.plots import bars, panels
from unnorm.samplers import Gibbs
from unnorm.spaces import Binary
from unnorm.training import fit

#: The tables, and what a Chow-Liu tree has there.
TABLES = {"nltcs": -6.759, "plants": -16.524, "jester": -58.227}
COLUMNS, PAIRS, MACHINE, PRODUCTS, OURS = (
    "independent columns", "pairwise network", "Boltzmann machine", "mixture of products", "ours: tilted mixture",
)  # fmt: skip
METHODS = (COLUMNS, PAIRS, MACHINE, PRODUCTS, OURS)
LIKELIHOOD, AHEAD, LOG_Z, SECONDS = "log-likelihood", "ours ahead by", "error of log Z", "seconds"
#: What ours is to reach on the test rows of nltcs.
BAR = -6.03
HIDDEN = 64


def _judged(model: AbstractEnergy, base: AbstractNormalised | None, table: BinaryTable, seed: int) -> dict[str, Any]:
    """log p of every test row, and the error of log Z in them."""
    few = (count_points(model.space) or math.inf) <= FEW_POINTS
    log_z = log_partition(model, base=None if few else base, key=jax.random.key(seed + 7))
    found = -energies(model, table.test).astype(np.float64) - log_z.value
    return {"rows": np.round(found, 5).tolist(), "log_z": log_z.to_dict()}


def _columns(space: Binary, table: BinaryTable, quick: bool, seed: int) -> dict[str, Any]:
    return {COLUMNS: _judged(fit_sites(space, table.train), None, table, seed)}


def _pairs(space: Binary, table: BinaryTable, quick: bool, seed: int) -> dict[str, Any]:
    model = fit_markov_network(space, table.train, table.valid).model
    return {PAIRS: _judged(model, fit_sites(space, table.train), table, seed)}


def _machine(space: Binary, table: BinaryTable, quick: bool, seed: int) -> dict[str, Any]:
    begin, run = jax.random.split(jax.random.key(seed))
    fitted = fit(
        rbm(space, HIDDEN, key=begin), PCD(Gibbs(), chains=256, moves=2), table.train, steps=4000 if quick else 40_000,
        batch=256, rate=1e-2 if quick else 3e-3, key=run, progress=False,
    ).model  # fmt: skip
    return {MACHINE: _judged(fitted, None, table, seed)}


def _products(space: Binary, table: BinaryTable, quick: bool, seed: int) -> dict[str, Any]:
    """The mixture, and the network that tilts it."""
    start, begin, run = jax.random.split(jax.random.key(seed), 3)
    counts = (8, 16, 32, 64) if quick else (8, 16, 32, 64, 128, 256)
    mixture = best_site_mixture(space, table.train, table.valid, counts=counts, key=start)
    fitted = fit(
        tilt(mixture, width=128, depth=2, key=begin), TiltNCE(4.0), table.train, valid=table.valid,
        steps=3000 if quick else 20_000, batch=512, key=run, progress=False,
    ).model  # fmt: skip
    return {PRODUCTS: _judged(mixture, None, table, seed), OURS: _judged(fitted, mixture, table, seed)}


FAMILIES: dict[str, Callable[..., dict[str, Any]]] = {
    "columns": _columns, "pairs": _pairs, "machine": _machine, "products": _products,
}  # fmt: skip


def _piece(job: Job, name: str, family: str) -> dict[str, Any]:
    table, began = debd(name), time.monotonic()
    found = FAMILIES[family](Binary((table.train.shape[1],)), table, job.quick, job.seed)
    return {"models": found, "seconds": time.monotonic() - began}


def likelihood(piece: dict[str, Any]) -> Estimate:
    """The mean of log p over the rows; its error holds that of log Z."""
    rows, error = mean_estimate(np.asarray(piece["rows"]), "test rows"), piece["log_z"]["stderr"]
    return Estimate(rows.value, math.hypot(rows.stderr, error), f"test rows, log Z by {piece['log_z']['method']}")


def gap(ours: dict[str, Any], theirs: dict[str, Any]) -> Estimate:
    """How far ours is ahead, row by row; both errors of log Z are in its error."""
    found = mean_estimate(np.asarray(ours["rows"]) - np.asarray(theirs["rows"]), "paired over test rows")
    error = math.hypot(found.stderr, ours["log_z"]["stderr"], theirs["log_z"]["stderr"])
    return Estimate(found.value, error, found.method)


def run(job: Job) -> Result:
    """Every family on every table."""
    pieces = job.over("bits", lambda name, family: _piece(job, name, family), TABLES, FAMILIES)
    found = {
        name: {label: model for family in FAMILIES for label, model in pieces[name, family]["models"].items()}
        for name in TABLES
    }
    seconds = {
        (name, label): pieces[name, family]["seconds"]
        for name in TABLES
        for family in FAMILIES
        for label in pieces[name, family]["models"]
    }
    rows = [_row(name, label, found[name], seconds[name, label]) for name in TABLES for label in METHODS]
    return Result(
        "Zeros and ones: held-out log-likelihood, nats per row",
        (LIKELIHOOD, AHEAD, LOG_Z, SECONDS),
        tuple(rows),
        _claims(found),
        {
            "tables": {name: {label: likelihood(found[name][label]).to_dict() for label in METHODS} for name in TABLES},
            "tree": TABLES,
        },
        ("Published: a Chow-Liu tree on the same test rows. Seconds of the mixture and of its tilt are of both.",),
    )


def _row(name: str, label: str, of: dict[str, Any], seconds: float) -> Row:
    log_z = Estimate.from_dict(of[label]["log_z"])
    figures = {
        LIKELIHOOD: likelihood(of[label]),
        LOG_Z: exact(log_z.stderr, log_z.method),
        SECONDS: exact(seconds, "clock"),
    }
    if label != OURS:
        figures[AHEAD] = gap(of[OURS], of[label])
    return Row(f"{name}: {label}", figures, {LIKELIHOOD: Published(TABLES[name])} if label == OURS else {})


def _claims(found: dict[str, dict[str, Any]]) -> tuple[Claim, ...]:
    claims = [
        ahead(f"On {name} ours is ahead of the {label} (by {{}} nats per row).", gap(of[OURS], of[label]))
        for name, of in found.items()
        for label in METHODS
        if label != OURS
    ]
    trees = [
        Claim(
            f"On {name} ours is ahead of the published Chow-Liu tree ({TABLES[name]}).",
            likelihood(of[OURS]).value > TABLES[name],
        )
        for name, of in found.items()
    ]
    reached = likelihood(found["nltcs"][OURS])
    return (*claims, *trees, Claim(f"On nltcs ours has at least {BAR} ({reached.number()}).", reached.value >= BAR))


def draw(result: Result) -> Figure:
    """Each table's models beside one another, the published tree as a line."""
    tables = result.series["tables"]
    figure, grid = panels(1, len(tables), width=4.2, height=3.6)
    for axes, (name, of) in zip(grid[0], tables.items(), strict=True):
        bars(axes, range(len(of)), list(of.values()), label="2 standard errors")
        axes.axhline(result.series["tree"][name], linestyle="--", linewidth=1, label="published Chow-Liu tree")
        axes.set(title=name, ylabel=LIKELIHOOD)
        axes.set_xticks(range(len(of)), list(of), rotation=25, ha="right")
        axes.legend()
    return figure


EXPERIMENT = Experiment("bits", run, draw)
