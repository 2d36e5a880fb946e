"""A school of 1,461 students (faux.magnolia.high): friendship within grades and races, and friends of friends.

The network is simulated from a model of a real one (Resnick et al. 1997; Hunter et al. 2008) and comes with R's ergm,
of which version 4.12 prints the figures beside ours. Standard errors of both hold the part that is Monte Carlo.
"""

import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from unnorm.estimate import Estimate
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, exact
from unnorm.graphs import fit, goodness
from unnorm.graphs.embedded import local_network
from unnorm.plots import panels

TERMS = "edges, nodematch(Grade), nodematch(Race), gwesp(0.25)"
NAMES = ("edges", "nodematch(Grade)", "nodematch(Race)", "gwesp(0.25)")
#: What ergm prints: estimate and standard error.
PRINTED = ((-9.3234, 0.095), (2.7428, 0.089), (0.9059, 0.074), (1.8215, 0.050))
ESTIMATE, STDERR, SHARE, OFF = "estimate", "standard error", "Monte Carlo / standard error", "gap / standard error"
SECONDS, LOG_LIKELIHOOD = "seconds", "log-likelihood"
SHOWN = ("degree", "shared partners", "distance")


def _fitted(seed: int, draws: int) -> dict[str, Any]:
    graph = local_network("faux.magnolia.high")
    began = time.perf_counter()
    found = fit(graph, TERMS, key=seed)
    seconds = time.perf_counter() - began
    told = goodness(found, draws=draws, key=seed).to_dict() if draws else {}
    return {
        "estimates": [row.estimate for row in found.coefficients],
        "errors": [row.stderr for row in found.coefficients],
        "shares": [float(np.sqrt(row.monte_carlo_share)) for row in found.coefficients],
        "log_likelihood": found.log_likelihood.to_dict(),
        "seconds": seconds,
        "goodness": told,
        "diagnostics": dict(found.diagnostics),
    }


def run(job: Job) -> Result:
    """One seed with goodness of fit, or several."""
    seeds = range(job.seed, job.seed + (2 if job.quick else 8))
    found = job.over("seeds", lambda seed: _fitted(seed, 50 if seed == job.seed else 0), seeds)
    pieces = list(found.values())
    first = pieces[0]
    rows = []
    for k, name in enumerate(NAMES):
        value, error = PRINTED[k]
        gaps = [abs(piece["estimates"][k] - value) / error for piece in pieces]
        figures = {
            ESTIMATE: Estimate(first["estimates"][k], first["errors"][k], "maximum likelihood, seed 0"),
            STDERR: exact(first["errors"][k]),
            SHARE: exact(max(piece["shares"][k] for piece in pieces)),
            OFF: exact(max(gaps)),
        }
        rows.append(Row(name, figures, {ESTIMATE: Published(value, error), STDERR: Published(error)}))
    seconds = max(piece["seconds"] for piece in pieces)
    figures = {LOG_LIKELIHOOD: Estimate.from_dict(first["log_likelihood"]), SECONDS: exact(seconds)}
    rows.append(Row("whole fit", figures, {}))
    off = max(row.figures[OFF].value for row in rows[: len(NAMES)])
    unlike = [f["name"] for f in first["goodness"]["features"] if f["p_value"] < 0.05]
    claims = (
        Claim(f"Every coefficient is within .2 of ergm's standard error (the furthest {off:.2f}).", off < 0.2),
        Claim(f"A fit with its log-likelihood takes at most 10 s (the slowest {seconds:.1f} s).", seconds <= 10),
        Claim(
            "Graphs drawn from the model are like the school in degrees, shared partners and distances.",
            not set(unlike) & set(SHOWN),
        ),
    )
    remark = first["goodness"]["sentence"]
    series = {f["name"]: f for f in first["goodness"]["features"] if f["name"] in SHOWN}
    columns = (ESTIMATE, STDERR, SHARE, OFF, LOG_LIKELIHOOD, SECONDS)
    return Result("faux.magnolia.high ~ " + TERMS, columns, tuple(rows), claims, series, (remark,))


def draw(result: Result) -> Figure:
    """Observed counts, between the lines that hold 95% of the draws."""
    figure, grid = panels(1, 3, 3.2, 2.8)
    for axes, name in zip(grid.flat, SHOWN, strict=True):
        told = result.series[name]
        places = np.arange(len(told["values"]))
        for side in ("low", "high"):
            axes.plot(places, told[side], "--", color="tab:gray", linewidth=1)
        axes.plot(places, told["observed"], "o-", markersize=3, linewidth=1)
        axes.set_yscale("symlog")
        highest = max(max(told["high"]), max(told["observed"]))
        powers = [0, *(10**k for k in range(int(np.log10(max(highest, 1))) + 1))]
        axes.set_yticks(powers, [f"{power:,}" for power in powers])
        axes.set_xlabel(name)
        axes.set_title(f"p = {told['p_value']:.2f}", fontsize=9)
    grid[0, 0].set_ylabel("count")
    return figure


EXPERIMENT = Experiment("schools", run, draw)
