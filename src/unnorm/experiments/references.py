"""How close the reference of `unnorm fit` comes to densities that are known, before any network: why it is the default.

For every problem of the bank: one Gaussian, the best single committee of mixtures, the blend that `unnorm fit` begins
with, and the true density, all on the same test rows. The gap to the truth is a mean of paired differences, so its
error is theirs. Columns are standardised as `unnorm fit` does, and the change of variables is counted.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from unnorm.compiling import compiled
from unnorm.data import PROBLEMS, Standardiser, load
from unnorm.energies import AbstractNormalised, best_committee, best_reference, fit_gaussian
from unnorm.estimate import mean_estimate
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row
from unnorm.plots import QUIET, named_rows, panels

KINDS = ("one Gaussian", "best committee", "blend", "true density")
#: How near the truth the blend is to come, in nats per row: a fifteenth of what one Gaussian misses on the rings.
NEAR = 0.05

_log_probs = compiled(lambda density, rows: jax.vmap(density.log_prob)(rows))


def _fitted(kind: str, train: jax.Array, valid: jax.Array, seed: int) -> AbstractNormalised:
    key = jax.random.key(seed)
    if kind == "one Gaussian":
        return fit_gaussian(train)
    if kind == "best committee":
        return best_committee(train, valid, key=key)[0]
    return best_reference(train, valid, key=key)


def _piece(name: str, seed: int) -> dict[str, Any]:
    problem = load(name)
    standard = Standardiser.fit(problem.train)
    train, valid, test = (jnp.asarray(standard.to_unit(rows)) for rows in (problem.train, problem.valid, problem.test))
    assert isinstance(problem.truth, AbstractNormalised)
    found = {"true density": _log_probs(problem.truth, jnp.asarray(problem.test))}
    for kind in KINDS[:-1]:
        found[kind] = _log_probs(_fitted(kind, train, valid, seed), test) - standard.log_volume
    return {kind: np.asarray(rows, float).tolist() for kind, rows in found.items()}


def run(job: Job) -> Result:
    """Every problem, every kind; several seeds at paper scale."""
    seeds = range(1) if job.quick else range(3)
    names = tuple(PROBLEMS)
    computes = {f"{name}-{seed}": partial(_piece, name, job.seed + seed) for name in names for seed in seeds}
    pieces = job.pieces(computes, "references")

    def rows_of(name: str, kind: str) -> np.ndarray:
        # Rows are the same for every seed: their mean over seeds keeps the error that of the rows.
        return np.mean([pieces[f"{name}-{seed}"][kind] for seed in seeds], axis=0)

    rows, claims, gaps = [], [], {}
    for name in names:
        truth = rows_of(name, "true density")
        gap = mean_estimate(rows_of(name, "blend") - truth, "paired rows")
        figures = {kind: mean_estimate(rows_of(name, kind), "held-out rows") for kind in KINDS}
        rows.append(Row(name, figures | {"blend - truth": gap}))
        claims.append(
            Claim(f"{name}: the blend is within {NEAR} nats of the true density ({gap.number()}).", gap.value >= -NEAR)
        )
        gaps[name] = {kind: mean_estimate(rows_of(name, kind) - truth, "paired rows").to_dict() for kind in KINDS[:-1]}
    columns = (*KINDS, "blend - truth")
    title = "Held-out log-likelihood of references, nats per row"
    return Result(title, columns, tuple(rows), tuple(claims), {"gaps": gaps})


def draw(result: Result) -> Figure:
    """How far each kind is below the truth, on a logarithmic axis."""
    gaps = result.series["gaps"]
    figure, panel = panels(1, 1, 8, 3.6)
    axes = panel[0, 0]
    for kind, mark in zip(KINDS[:-1], ("s", "^", "o"), strict=True):
        below = [max(-gap[kind]["value"], 1e-4) for gap in gaps.values()]
        axes.semilogx(below, np.arange(len(gaps)), mark, label=kind)
    axes.axvline(NEAR, color=QUIET, lw=1)
    named_rows(axes, list(gaps))
    axes.set(xlabel="nats per row below the true density")
    axes.legend()
    return figure


EXPERIMENT = Experiment("references", run, draw)
