"""Song 2022, Tables 4.1 and 4.2: second-order scores learnt directly against derivatives of first-order ones.

Table 4.1, squared error of s2 against that of the clean density, sigma = 0.01 / 0.05 / 0.1 (the text prints neither the
covariance nor whether entries are summed or averaged):

    normal, 100-d         s1 by DSM, derivative      43.80 / 43.76 / 43.75
                          s1 by DSM-VR, derivative    9.40 /  9.39 /  9.21
                          s2 of rank 15               7.12 /  6.91 /  7.03
                          s2 of rank 20               5.24 /  5.07 /  5.13
                          s2 of rank 30               1.76 /  2.05 /  1.76
    mixture of logistics  s1 by DSM-VR, derivative   32.80 / 32.44 / 31.51     (80-d, 20 components, diagonal only)
                          s2                         21.68 / 22.23 / 22.18

Table 4.2, the time of either way, is in `hosm_times`.

Here the normal has 35 correlated pairs among its 100 coordinates, with a correlation of 0.364. Its precision then has
35 equal rank-one pieces off the diagonal, each of squared norm 0.352, and the best s2 of rank r leaves 0.352 (35 - r):
the printed 7.04, 5.28 and 1.76. Errors are summed over entries.

What s2 leaves beyond that comes from s1: the loss fixes s2 + s1 s1', so that an error e of s1 enters s2 as
e s1' + s1 e'. With the exact s1 in its place, and many rows, s2 reaches the best of its rank; it has a row of its own.

Which of the two ways wins is a matter of how many rows there are, which the source does not say. DSM-VR at small noise
is score matching: with few rows s1 bends at each of them, and its derivative is wrong long before its values are. With
many rows the derivative is better than any s2 of low rank can be. At the quick size (20 coordinates with 7 pairs, ranks
3 and 6, networks as wide as printed, one seed) the errors by rows were

    rows                          10,000   15,000   20,000   30,000   100,000
    normal: s1 by DSM-VR            31.8     12.3      7.6      3.5      0.92
    normal: s2 of rank 3             6.3      3.5      3.1      3.2      2.7
    normal: s2 of rank 6             6.3      2.6      2.4      2.1      1.3
    logistics: s1 by DSM-VR          4.3      2.5      2.0      1.5      0.96
    logistics: s2                    3.3      2.6      2.4      2.3      2.1

so the printed order holds between about 20,000 and 30,000 rows of the normal (with fewer DSM is better than DSM-VR) and
below about 15,000 of the mixture. The experiment takes 25,000 and 10,000, and shows beside them what many rows do. The
weight gamma of the first-order loss changes little between 1/16 and 25 times its default.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from unnorm.estimate import Estimate
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, exact, over_seeds
from unnorm.experiments.hosm_errors import (
    MANY,
    PAPER,
    QUICK,
    Size,
    error_of_constant,
    error_on_logistics,
    error_on_normal,
)
from unnorm.experiments.hosm_targets import best_of_rank
from unnorm.experiments.hosm_times import PRINTED_TIMES, TIMED_RANKS, times
from unnorm.plots import named_rows, panels

PRINTED = {
    "normal: s1 by DSM": {0.01: (43.80, 0.012), 0.05: (43.76, 0.001), 0.1: (43.75, 0.001)},
    "normal: s1 by DSM-VR": {0.01: (9.40, 0.049), 0.05: (9.39, 0.015), 0.1: (9.21, 0.020)},
    "normal: s2 of rank 15": {0.01: (7.12, 0.319), 0.05: (6.91, 0.078), 0.1: (7.03, 0.039)},
    "normal: s2 of rank 20": {0.01: (5.24, 0.065), 0.05: (5.07, 0.047), 0.1: (5.13, 0.065)},
    "normal: s2 of rank 30": {0.01: (1.76, 0.038), 0.05: (2.05, 0.544), 0.1: (1.76, 0.045)},
    "logistics: s1 by DSM-VR": {0.01: (32.80, 0.34), 0.05: (32.44, 0.30), 0.1: (31.51, 0.43)},
    "logistics: s2": {0.01: (21.68, 0.18), 0.05: (22.23, 0.08), 0.1: (22.18, 0.08)},
}


KNOWN = "logistics: s2, s1 known"
MANY_ROWS = {"derivative": "normal: s1 by DSM-VR, many rows", "direct": "normal: s2 of the last rank, many rows"}


def _column(sigma: float) -> str:
    return f"sigma {sigma:g}"


def _known(size: Size) -> str:
    return f"normal: s2 of rank {size.ranks[-1]}, s1 known"


def _cells(size: Size, seed: int) -> dict[str, Callable[[float, int], float]]:
    """What is measured in each row, as a function of sigma and the number of the seed."""
    ways: dict[str, str | int] = {f"normal: s1 by {name}": name for name in ("DSM", "DSM-VR")}
    ways |= {f"normal: s2 of rank {rank}": rank for rank in size.ranks}
    cells: dict[str, Callable[[float, int], float]] = {
        label: lambda s, i, way=way: error_on_normal(way, s, size, seed + i) for label, way in ways.items()
    }
    large = replace(size, points=max(size.points, MANY))
    cells[_known(size)] = lambda s, i: error_on_normal(size.ranks[-1], s, large, seed + i, exact_slope=True)
    cells["logistics: s1 by DSM-VR"] = lambda s, i: error_on_logistics(False, s, size, seed + i)
    cells["logistics: s2"] = lambda s, i: error_on_logistics(True, s, size, seed + i)
    cells[KNOWN] = lambda s, i: error_on_logistics(True, s, size, seed + i, exact_slope=True)
    return cells


def _with_many_rows(size: Size, seed: int) -> dict[str, Callable[[float, int], float]]:
    """The two ways to s2 where neither learns rows by heart."""
    large = replace(size, points=MANY, logistic_points=MANY)
    return {
        MANY_ROWS["derivative"]: lambda s, i: error_on_normal("DSM-VR", s, large, seed + i),
        MANY_ROWS["direct"]: lambda s, i: error_on_normal(size.ranks[-1], s, large, seed + i),
        "logistics: s1 by DSM-VR, many rows": lambda s, i: error_on_logistics(False, s, large, seed + i),
        "logistics: s2, many rows": lambda s, i: error_on_logistics(True, s, large, seed + i),
    }


def _clearly_below(a: Estimate, b: Estimate) -> bool:
    """Whether a is below b by more than twice the standard error of their difference."""
    difference = b.minus(a)
    return difference.value > 2 * difference.stderr


def _ordered(figures: Sequence[Estimate]) -> bool:
    return all(_clearly_below(b, a) for a, b in pairwise(figures))


def run(job: Job) -> Result:
    """Train every method at every sigma from every seed, and time the two ways to s2."""
    size = QUICK if job.quick else PAPER
    cells = _cells(size, job.seed) | (_with_many_rows(size, job.seed) if job.quick else {})
    seeds = range(size.seeds)
    found = job.over("training", lambda label, sigma, seed: cells[label](sigma, seed), cells, size.sigmas, seeds)
    rows = []
    for label in cells:
        printed = {} if job.quick else PRINTED.get(label, {})
        figures = {_column(s): over_seeds([found[label, s, i] for i in seeds]) for s in size.sigmas}
        rows.append(Row(label, figures, {_column(s): Published(*p) for s, p in printed.items()}))
    best = {f"best of rank {r}": best_of_rank(r, size.pairs) for r in size.ranks}
    rows += [Row(name, {_column(s): exact(v, "closed form") for s in size.sigmas}) for name, v in best.items()]
    constant = job.piece("constant", lambda: error_of_constant(size))
    rows.append(Row("best constant, logistics", {_column(s): exact(constant, "5000 draws") for s in size.sigmas}))
    timed = job.piece("times-100", lambda: times(100))
    for label, runs in timed.items():
        printed = {"microseconds": Published(*PRINTED_TIMES[label])} if label in PRINTED_TIMES else {}
        rows.append(Row(f"time: {label}", {"microseconds": over_seeds(runs, "mean of 7 runs")}, printed))
    return _judge(tuple(rows), size, job)


def _judge(rows: tuple[Row, ...], size: Size, job: Job) -> Result:
    by_label = {row.label: row.figures for row in rows}
    normal = ["normal: s1 by DSM", "normal: s1 by DSM-VR", *(f"normal: s2 of rank {r}" for r in size.ranks)]
    logistics = ["logistics: s1 by DSM-VR", "logistics: s2"]
    claims = []
    for sigma in size.sigmas:
        column = _column(sigma)
        errors = [by_label[label][column] for label in normal]
        claims += [
            Claim(
                f"sigma {sigma:g}: all errors fall in the printed order (s1 by DSM, s1 by DSM-VR, s2 by growing rank).",
                _ordered(errors),
            ),
            Claim(f"sigma {sigma:g}: the derivative of s1 is better by DSM-VR than by DSM.", _ordered(errors[:2])),
            Claim(f"sigma {sigma:g}: the error of s2 falls with its rank.", _ordered(errors[2:])),
            Claim(
                f"sigma {sigma:g}: s2 of rank {size.ranks[-1]} is better than the derivative of s1 by DSM-VR.",
                _clearly_below(errors[-1], errors[1]),
            ),
            Claim(
                f"sigma {sigma:g}: with s1 known, s2 of rank {size.ranks[-1]} comes within a tenth of the best of its "
                "rank.",
                by_label[_known(size)][column].value < 1.1 * best_of_rank(size.ranks[-1], size.pairs),
            ),
            Claim(
                f"sigma {sigma:g}: on the mixture of logistics the diagonal of s2 is better than the derivative of s1.",
                _ordered([by_label[label][column] for label in logistics]),
            ),
            Claim(
                f"sigma {sigma:g}: the same with s1 known to s2.",
                _clearly_below(by_label[KNOWN][column], by_label[logistics[0]][column]),
            ),
        ]
    timed = {label: by_label[f"time: {label}"]["microseconds"] for label in PRINTED_TIMES}
    for rank in TIMED_RANKS:
        direct, derived = timed[f"rank {rank}"], timed["derivative of s1"]
        ratio = derived.value / direct.value
        claims.append(
            Claim(
                f"alpha and beta of rank {rank} take less time than the Jacobian of s1 (ratio {ratio:.2g}, published "
                f"{PRINTED_TIMES['derivative of s1'][0] / PRINTED_TIMES[f'rank {rank}'][0]:.2g}).",
                _clearly_below(direct, derived),
            )
        )
    remarks = [
        f"Errors are sums over entries, at {size.dimension} coordinates with {size.pairs} correlated pairs; those on "
        f"the mixture ({size.logistic_dimension} coordinates, {size.components} components) are over the diagonal.",
        f"{size.points:,} rows of the normal, {size.logistic_points:,} of the mixture; the source prints no number.",
        "'Best of rank r' is what the best diag(alpha) + beta beta' leaves; the rest is training.",
        "Times depend on the machine and on what else it does; the ratios are what to compare.",
    ]
    if job.quick:
        remarks.append("The quick size is smaller than the printed one; only the order of the methods compares.")
        derived, direct = (by_label[MANY_ROWS[way]][_column(size.sigmas[0])].value for way in ("derivative", "direct"))
        remarks.append(
            f"With {MANY:,} rows the derivative of s1 leaves {derived:.2f}, s2 of rank {size.ranks[-1]} {direct:.2f}: "
            "the printed order is one of few rows."
        )
    columns = (*(_column(s) for s in size.sigmas), "microseconds")
    series = {
        "errors": {
            label: {c: e.value for c, e in by_label[label].items()}
            for label in (*normal, _known(size), *logistics, KNOWN)
        },
        "best": {str(r): best_of_rank(r, size.pairs) for r in size.ranks},
        "times": {label: figure.value for label, figure in timed.items()},
    }
    return Result("Second-order scores", columns, rows, tuple(claims), series, tuple(remarks))


def draw(result: Result) -> Figure:
    """Errors of every method at every sigma, and times beside those printed."""
    figure, row = panels(1, 2, 5.5, 4.5)
    left, right = row[0]
    labels, timed = list(result.series["errors"]), list(result.series["times"])
    columns = list(result.series["errors"][labels[0]])
    width = 0.8 / len(columns)
    for i, column in enumerate(columns):
        found = [result.row(label).figures[column] for label in labels]
        places = np.arange(len(labels)) + (i - (len(columns) - 1) / 2) * width
        left.barh(places, [f.value for f in found], width, xerr=[f.stderr for f in found], label=column)
    named_rows(left, labels)
    left.set_xlabel("squared error of s2, summed over entries")
    rows, places = [result.row(f"time: {label}") for label in timed], np.arange(len(timed))
    right.bar(places - 0.2, [of.figures["microseconds"].value for of in rows], 0.4, label="here (processor)")
    right.bar(places + 0.2, [of.published["microseconds"].value for of in rows], 0.4, label="printed (GPU)")
    right.set_xticks(places, timed, rotation=20)
    right.set(yscale="log", ylabel="microseconds for a batch of 10, D = 100")
    for axes in row[0]:
        axes.legend()
    return figure


EXPERIMENT = Experiment("hosm-table", run, draw)
