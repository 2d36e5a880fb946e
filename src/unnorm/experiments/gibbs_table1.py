"""Zhang et al. 2023, Table 1: denoising Gibbs on three densities of the plane, by the covariance of its posterior.

Published, MMD^2 of one chain of 10,000 steps against the training set, mean and standard deviation of 5 chains:

    data     learned diagonal   isotropic        full
    MoG      0.929 ± 0.343      0.724 ± 0.361    0.305 ± 0.141
    Rings    0.364 ± 0.044      0.006 ± 0.002    0.005 ± 0.001
    Roll     0.053 ± 0.011      0.030 ± 0.001    0.016 ± 0.002

Settings: noise 0.2; 10,000 rows; chains from N(0, 0.1 I). What the paper does not print is in its public code: rings
of radii 0.65 and 1.3 blurred by 0.065, a roll t (cos t, sin t) / 10 blurred by 0.05, and a kernel exp(-d^2 / b) whose
five widths b are 1/4 to 4 times the mean squared distance of two points (here of the rows; there of rows and chain
together, which changes MMD^2 by half a percent). Its five seeds are five chains of one network, which matters: networks
trained as printed differ (on rings 0.006 to 0.017 for the full covariance, from one seed to the next), so that a
published figure has the spread of networks for an error. MMD^2 is without bias here (theirs has one of about 0.0006),
and each figure is a mean over several single chains of a model, since one that seldom changes modes says little.

Every posterior is learnt twice: as printed, and further (`gibbs_models.Training`), and both are compared with the
published figures. A chain with the exact score shows what is left when nothing is to be learnt. On MoG that is nearly
all: it changes modes some eight times and visits them unevenly, so the figure tells how often a chain crosses more than
how good its posterior is, and a network trained as printed, too smooth between the modes, crosses more often and comes
out ahead of the truth. MoG is also a product over its coordinates, so its true posterior covariance is diagonal, and
the full matrix has nothing to gain there.

Beside them stands what the same rows allow: a score of all noise levels (32 from 4 down to 0.03), Gibbs between the
levels, one point per walk. Its measure is the floor: the MMD^2 of fresh rows against the training set, zero within its
standard deviation.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from unnorm.estimate import Estimate, mean_estimate
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, over_seeds
from unnorm.experiments.gibbs_chains import (
    EXACT,
    FLOOR,
    FULL,
    ISOTROPIC,
    LEARNED,
    LEVELS,
    Size,
    judge_analytic,
    judge_exact,
    judge_learned,
    judge_levels,
)
from unnorm.experiments.gibbs_models import (
    DATA,
    FURTHER,
    PRINTED,
    ROWS,
)
from unnorm.plots import dots, panels

#: Chains behind a published mean.
SEEDS = 5
SINGLE = (LEARNED, ISOTROPIC, FULL)
#: What follows the name of the data in a row, by the training.
TRAININGS = {"": PRINTED, ", trained further": FURTHER}
PUBLISHED = {
    "MoG": {LEARNED: (0.929, 0.343), ISOTROPIC: (0.724, 0.361), FULL: (0.305, 0.141)},
    "Rings": {LEARNED: (0.364, 0.044), ISOTROPIC: (0.006, 0.002), FULL: (0.005, 0.001)},
    "Roll": {LEARNED: (0.053, 0.011), ISOTROPIC: (0.030, 0.001), FULL: (0.016, 0.002)},
}


QUICK = Size(1, 64, 2500, 6000)
PAPER = Size(5, 16, ROWS, 30_000)


def _null(pieces: list[dict[str, Any]]) -> float:
    """The deviation, over so many seeds, of the MMD^2 of two samples of one law."""
    return float(np.mean([piece[FLOOR]["null"] for piece in pieces])) / len(pieces) ** 0.5


def _figure(pieces: list[dict[str, Any]], method: str) -> Estimate:
    """The mean over seeds and chains.

    Its error is that of the seeds, each with a network of its own; of a single network that of its chains; and that of
    the null where a seed has one figure only.
    """
    means = [float(np.mean(piece[method]["values"])) for piece in pieces]
    share = {"share_of_raised_variances": float(np.mean([piece[method].get("clipped", 0.0) for piece in pieces]))}
    if method in (LEVELS, FLOOR):
        return Estimate(float(np.mean(means)), _null(pieces), "mean over seeds, error of the null", share)
    if len(pieces) == 1:
        found = mean_estimate(np.asarray(pieces[0][method]["values"]), "single chains of one network")
    else:
        found = over_seeds(means, "single chains of several networks")
    return replace(found, diagnostics={**found.diagnostics, **share})


def _gap(pieces: list[dict[str, Any]], a: str, b: str) -> Estimate:
    """How far a is above b: network by network, or of a single one chain by chain (both walk by the same numbers)."""
    gaps = [np.subtract(piece[a]["values"], piece[b]["values"]) for piece in pieces]
    if len(gaps) == 1:
        return mean_estimate(gaps[0], "chains of one network, in pairs")
    return over_seeds([float(gap.mean()) for gap in gaps], "networks, in pairs")


def _best(row: Row, pieces: list[dict[str, Any]]) -> Claim:
    """Whether either of the others is ahead; most gaps are within their errors."""
    rival = min((LEARNED, ISOTROPIC), key=lambda method: row.figures[method].value)
    gap = _gap(pieces, FULL, rival)
    return _no_worse(
        f"{row.label}: no other posterior is better than the full one by two standard errors (it is off the {rival} by "
        "{gap}).",
        gap.value, gap.stderr,
    )  # fmt: skip


def _no_worse(sentence: str, gap: float, error: float) -> Claim:
    return Claim(sentence.format(gap=f"{gap:+.4f} ± {error:.4f}"), gap <= 2 * error)


def _against_published(row: Row, networks: int) -> Claim:
    """Within two standard errors of the difference.

    The published figure is of five chains of one network, so that it is off the mean of networks by their spread. Of a
    single network here that spread is not known, and not in the error.
    """
    ours, theirs = row.figures[FULL], row.published[FULL]
    spread = ours.stderr * networks**0.5 if networks > 1 else 0.0
    error = math.hypot(ours.stderr, spread, (theirs.error or 0.0) / SEEDS**0.5)
    told = f"{row.label}: with it a single chain is no worse than published ({{gap}})."
    return _no_worse(told, ours.value - theirs.value, error)


def _against_exact(row: Row) -> Claim:
    """Whether anything is left to learn."""
    gap = row.figures[FULL].minus(row.figures[EXACT])
    told = f"{row.label}: nor is it worse than a chain with the exact score ({{gap}})."
    return _no_worse(told, gap.value, gap.stderr)


def run(job: Job) -> Result:
    """Three data sets, three posteriors of a single level in two trainings, one model of all levels."""
    size = QUICK if job.quick else PAPER
    seeds = range(job.seed, job.seed + size.seeds)
    # Two of the parts belong to both trainings.
    alone = {"exact": judge_exact, "levels": judge_levels}
    taught = {
        f"{what}{suffix}": partial(part, training=training)
        for suffix, training in TRAININGS.items()
        for what, part in (("analytic", judge_analytic), ("learned", judge_learned))
    }
    pieces = job.over(
        "gibbs-table1", lambda *at: (taught | alone)[at[2]](at[0], at[1], size), DATA, seeds, taught | alone
    )
    found: dict[str, list[dict[str, Any]]] = {
        name + suffix: [
            {method: of for part in (f"analytic{suffix}", f"learned{suffix}", *alone)
             for method, of in pieces[name, seed, part].items()}
            for seed in seeds
        ]
        for name in DATA
        for suffix in TRAININGS
    }  # fmt: skip
    methods = (*SINGLE, EXACT, LEVELS, FLOOR)
    rows = tuple(
        Row(
            label,
            {method: _figure(of, method) for method in methods},
            {method: Published(*PUBLISHED[label.split(",")[0]][method]) for method in SINGLE},
        )
        for label, of in found.items()
    )
    null = {name: _null(found[name]) for name in DATA}
    further = tuple(row for row in rows if row.label not in DATA)
    claims = (
        *(_best(row, found[row.label]) for row in rows),
        *(_against_published(row, size.seeds) for row in rows),
        *(_against_exact(row) for row in further),
        Claim(
            "A score of all levels with Gibbs between them is at least ten times closer than these chains on each.",
            all(row.figures[LEVELS].value < row.figures[FULL].value / 10 for row in rows),
        ),
        Claim(
            "It is at the floor on each: within 3 standard deviations of what fresh rows of the data give.",
            all(abs(row.figures[LEVELS].value) < 3 * null[row.label] for row in rows if row.label in DATA),
        ),
    )
    remarks = tuple(
        f"{name}: two independent samples of {ROWS} rows have an MMD^2 of 0 ± {null[name]:.1g}" for name in DATA
    )
    series = {label: {method: of[0][method]["points"] for method in methods} for label, of in found.items()}
    return Result("Denoising Gibbs: MMD^2 to the training set", methods, rows, claims, series, remarks)


def draw(result: Result) -> Figure:
    """Every tenth point: a row for each data set, a column for each method."""
    methods = list(next(iter(result.series.values())))
    figure, grid = panels(len(result.series), len(methods), 2.3, 2.4)
    for line, (name, drawn) in zip(grid, result.series.items(), strict=True):
        for axes, method in zip(line, methods, strict=True):
            dots(axes, drawn[method], 2)
            axes.set_title(f"{method}\n{result.row(name).figures[method].value:.4f}", fontsize=8)
        line[0].set_ylabel(name)
    return figure


EXPERIMENT = Experiment("gibbs-table1", run, draw)
