"""Posteriors of random graph models by the exchange algorithm: against all graphs, and against maximum likelihood.

On five vertices the posterior is known: a grid of coefficients, with Z the sum over all 1024 graphs. On the karate club
and the Florentine marriages it is compared with the estimate by Markov chain Monte Carlo: under a wide prior the means
should be within a standard error of it, and the deviations about as large as the standard errors.
"""

import time
from typing import Any

import networkx
import numpy as np
from matplotlib.figure import Figure

from unnorm.estimate import Estimate
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, exact
from unnorm.graphs import Enumerated, Model, fit, florentine, network_of, parse, posterior
from unnorm.plots import panels

MEAN, DEVIATION, TRUE_MEAN, TRUE_DEVIATION = "posterior mean", "deviation", "compared mean", "compared deviation"
RHAT, ESS, SECONDS = "R-hat", "effective draws", "seconds"
SMALL, KARATE, FLORENCE = "five vertices", "karate club", "Florentine marriages"
TERMS = {SMALL: "edges, triangle", KARATE: "edges, gwesp(0.5)", FLORENCE: "edges, triangle"}
#: Standard deviations of the priors, whose means are 0.
PRIOR = {SMALL: 1.0, KARATE: 5.0, FLORENCE: 5.0}


def _graph(name: str) -> Any:
    if name == SMALL:
        return networkx.Graph([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4)])
    return networkx.Graph(networkx.karate_club_graph().edges) if name == KARATE else florentine()


def _exact() -> tuple[list[float], list[float]]:
    """Means and deviations on a grid."""
    network = network_of(_graph(SMALL))
    every = Enumerated(Model(parse(TERMS[SMALL]), network))
    observed, grid = every.model.statistics(network.edges), np.linspace(-4.5, 4.5, 91)
    values = np.array([[observed @ (a, b) - every.log_partition(np.array([a, b])) for b in grid] for a in grid])
    weights = np.exp(values - values.max() - 0.5 * (grid[:, None] ** 2 + grid**2) / PRIOR[SMALL] ** 2)
    means, deviations = [], []
    for k in range(2):
        p = weights.sum(1 - k) / weights.sum()
        means.append(float(p @ grid))
        deviations.append(float(np.sqrt(p @ (grid - means[-1]) ** 2)))
    return means, deviations


def _piece(name: str, steps: int, seed: int) -> dict[str, Any]:
    """The posterior, and what it is compared with."""
    graph, began = _graph(name), time.perf_counter()
    found = posterior(graph, TERMS[name], prior=(0.0, PRIOR[name]), steps=steps, warmup=steps // 3, key=seed)
    seconds = time.perf_counter() - began
    if name == SMALL:
        means, deviations = _exact()
    else:
        fitted = fit(graph, TERMS[name], key=seed, log_likelihood=False)
        means = [row.estimate for row in fitted.coefficients]
        deviations = [row.stderr for row in fitted.coefficients]
    return {
        **found.to_dict(),
        "means": means,
        "deviations": deviations,
        "seconds": seconds,
        "shown": np.round(found.flat[:: max(1, found.flat.shape[0] // 1000)], 4).tolist(),
    }


def run(job: Job) -> Result:
    """Four chains on each network."""
    steps = 4000 if job.quick else 40_000
    pieces = job.over("networks", lambda name: _piece(name, steps, job.seed), tuple(TERMS))
    rows = []
    for name, piece in pieces.items():
        for k, told in enumerate(piece["coefficients"]):
            # The error of a deviation is about that of a mean over the square root of 2.
            spread = Estimate(told["deviation"], told["error"] / np.sqrt(2), "exchange algorithm")
            figures = {
                MEAN: Estimate(told["mean"], told["error"], "exchange algorithm"),
                DEVIATION: spread,
                TRUE_MEAN: exact(piece["means"][k]),
                TRUE_DEVIATION: exact(piece["deviations"][k]),
                RHAT: exact(told["rhat"]),
                ESS: exact(told["ess"]),
                SECONDS: exact(piece["seconds"]),
            }
            rows.append(Row(f"{name}: {told['name']}", figures))
    small, large = [row.figures for row in rows[:2]], [row.figures for row in rows[2:]]
    off = [abs(f[MEAN].value - f[TRUE_MEAN].value) / f[MEAN].stderr for f in small]
    off += [abs(f[DEVIATION].value - f[TRUE_DEVIATION].value) / f[DEVIATION].stderr for f in small]
    gaps = [abs(f[MEAN].value - f[TRUE_MEAN].value) / f[TRUE_DEVIATION].value for f in large]
    ratios = [f[DEVIATION].value / f[TRUE_DEVIATION].value for f in large]
    rhat = max(row.figures[RHAT].value for row in rows)
    claims = (
        Claim(f"On five vertices it is the enumerated posterior (off by {max(off):.1f} errors at most).", max(off) < 4),
        Claim(f"The chains have mixed (R-hat at most {rhat:.3f}).", rhat < 1.01),
        Claim(f"Means are within a standard error of the estimates ({max(gaps):.2f} at most).", max(gaps) < 1),
        Claim(
            f"Deviations are those of the estimates within a third ({min(ratios):.2f} to {max(ratios):.2f} times).",
            min(ratios) > 0.75 and max(ratios) < 4 / 3,
        ),
    )
    series = {name: {key: piece[key] for key in ("shown", "means", "deviations")} for name, piece in pieces.items()}
    columns = (MEAN, DEVIATION, TRUE_MEAN, TRUE_DEVIATION, RHAT, ESS, SECONDS)
    return Result("Posteriors of random graphs", columns, tuple(rows), claims, series)


def draw(result: Result) -> Figure:
    """Draws of both coefficients, and what they are compared with."""
    figure, grid = panels(1, 3, 3.2, 3)
    for axes, (name, told) in zip(grid.flat, result.series.items(), strict=True):
        points = np.array(told["shown"])
        axes.plot(points[:, 0], points[:, 1], ".", markersize=2, alpha=0.5)
        (x, y), (dx, dy) = told["means"], told["deviations"]
        axes.errorbar([x], [y], xerr=[dx], yerr=[dy], fmt="o", color="black", capsize=3)
        axes.set_xlabel(TERMS[name].split(", ")[0])
        axes.set_ylabel(TERMS[name].split(", ")[1])
        axes.set_title(name, fontsize=9)
    return figure


EXPERIMENT = Experiment("graph-bayes", run, draw)
