"""An RBM of 500 hidden units on binarised MNIST, by persistent contrastive divergence: its log-likelihood, bracketed.

log p(x) = -E(x) - log Z of 10,000 test digits. AIS gives a log Z that is on average too low, so that the likelihood by
it alone is overstated; walks back from draws of the machine give one that is too high (Grosse, Ghahramani and Adams
2015). Both are told. The walks back begin where long chains of Gibbs sampling from training digits end: they are draws
of the machine as far as these chains mix.

scikit-learn's BernoulliRBM is trained by the same kind of chains (batches of 100, as many chains) for the same time on
the wall, at each of two learning rates (0.1 is its default); compiling counts as our time. Its machines are judged as
ours is. Published for 500 hidden units: -86.34 by AIS after CD-25 with 1,000 times as many updates (Salakhutdinov and
Murray 2008).
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from unnorm.data.black_and_white import BlackAndWhite, binarised_mnist
from unnorm.energies import RBM
from unnorm.estimate import Estimate
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, ahead, exact
from unnorm.experiments.machines import (
    GAP,
    LOG_Z,
    LOWER,
    SHEET,
    UPPER,
    Annealing,
    figures,
    judged,
    learnt_rbm,
    log_odds,
)
from unnorm.plots import DATA, grid_lines, named_rows, new_figure, picture
from unnorm.spaces import Binary

OURS, COINS = "unnorm, PCD-1", "independent pixels"
RATES = (0.1, 0.03)
SECONDS, UPDATES = "seconds of training", "updates"
COLUMNS = (LOWER, UPPER, LOG_Z, GAP, SECONDS, UPDATES)
SIDE = 28


@dataclass(frozen=True)
class Size:
    """Hidden units, updates, and how log Z is annealed."""

    hidden: int
    steps: int
    annealing: Annealing


QUICK = Size(500, 8_000, Annealing())
PAPER = Size(500, 500_000, Annealing(chains=512, levels=20_000, moves=10_000))


def theirs(rate: float) -> str:
    """The name of a row."""
    return f"scikit-learn, rate {rate:g}"


def _ours(data: BlackAndWhite, size: Size, seed: int) -> dict[str, Any]:
    began = time.perf_counter()
    model = jax.block_until_ready(learnt_rbm(data.train, size.hidden, size.steps, jax.random.key(seed)))
    seconds = time.perf_counter() - began
    found = judged(model, data.train, data.test, size.annealing, seed)
    return {**found, SECONDS: seconds, UPDATES: size.steps}


def _theirs(data: BlackAndWhite, rate: float, seconds: float, size: Size, seed: int) -> dict[str, Any] | None:
    """Batches in a new order every epoch until the time is over; None without scikit-learn."""
    try:
        from sklearn.neural_network import BernoulliRBM
    except ImportError:
        return None
    machine: Any = BernoulliRBM(size.hidden, learning_rate=rate, batch_size=100, random_state=seed)
    rng, rows, updates, order = np.random.default_rng(seed), data.train, 0, np.zeros(0, int)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        order = rng.permutation(len(rows)) if len(order) < 100 else order
        machine.partial_fit(rows[order[:100]])
        order, updates = order[100:], updates + 1
    taken = time.perf_counter() - began
    model = RBM(Binary((rows.shape[1],)), machine.components_.T, machine.intercept_visible_, machine.intercept_hidden_)
    return {**judged(model, data.train, data.test, size.annealing, seed), SECONDS: taken, UPDATES: updates}


def _coins(data: BlackAndWhite) -> Estimate:
    """Test rows under pixels that know nothing of each other."""
    odds = log_odds(data.train).astype(np.float64)
    values = data.test @ odds - np.logaddexp(0, odds).sum()
    return Estimate(float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5), "exact, mean over rows")


def _row(name: str, piece: dict[str, Any]) -> Row:
    told = {SECONDS: exact(piece[SECONDS], "clock"), UPDATES: exact(piece[UPDATES], "counted")}
    return Row(name, {**figures(piece), **told})


def run(job: Job) -> Result:
    """Ours, then scikit-learn for as long at each rate."""
    size, data = QUICK if job.quick else PAPER, binarised_mnist()
    ours = job.piece("ours", partial(_ours, data, size, job.seed))
    seconds = ours[SECONDS]
    computes = {f"{rate:g}": partial(_theirs, data, rate, seconds, size, job.seed) for rate in RATES}
    peers = {theirs(float(k)): piece for k, piece in job.pieces(computes, "scikit-learn").items() if piece is not None}
    pieces = {OURS: ours, **peers}
    coins = _coins(data)
    rows = [_row(name, piece) for name, piece in pieces.items()]
    rows[0] = replace(rows[0], published={UPPER: Published(-86.34)})
    lower, upper = (Estimate.from_dict(ours[name]) for name in (LOWER, UPPER))
    gap = Estimate.from_dict(ours[GAP])
    claims = [
        Claim(
            f"Both sides of the bracket agree: log-likelihood {lower.number()} at least, {upper.number()} at most "
            f"(the sides differ by {gap.number()} nats).",
            abs(gap.value) < 1 + 2 * gap.stderr,
        ),
        ahead("The machine beats independent pixels, from below: by {} nats.", lower.minus(coins)),
    ]
    remarks = [f"{name}: {warning}" for name, piece in pieces.items() for warning in piece["warnings"]]
    if peers:
        best = max(peers, key=lambda name: peers[name][UPPER]["value"])
        claims.append(
            ahead(
                f"At equal time on the wall it beats scikit-learn at its best rate ({best}), ours from below against "
                "theirs from above: by {} nats.",
                lower.minus(Estimate.from_dict(peers[best][UPPER])),
            )
        )
    else:
        remarks.append("scikit-learn is not installed, so nothing is compared with it: pip install scikit-learn.")
    table = (*rows, Row(COINS, {LOWER: coins, UPPER: coins}))
    series = {"bounds": {n: {k: p[k] for k in (LOWER, UPPER)} for n, p in pieces.items()}, "sheet": ours["sheet"]}
    title = f"RBM of {size.hidden} hidden units on binarised MNIST, {len(data.test):,} test digits"
    return Result(title, COLUMNS, table, tuple(claims), series, tuple(remarks))


def draw(result: Result) -> Figure:
    """Left: the two bounds of every machine. Right: draws of ours."""
    figure = new_figure(10, 4)
    parts: Any = figure.subfigures(1, 2, width_ratios=(1.2, 1))
    left, bounds = parts[0].subplots(), result.series["bounds"]
    for k, piece in enumerate(bounds.values()):
        ends = [piece[name]["value"] for name in (LOWER, UPPER)]
        left.plot(ends, [k, k], color=DATA, lw=2)
        errors = [2 * piece[name]["stderr"] for name in (LOWER, UPPER)]
        left.errorbar(ends, [k, k], xerr=errors, fmt="o", ms=4, color=DATA, capsize=2)
    named_rows(left, list(bounds))
    left.set_xlabel("test log-likelihood in nats, both bounds (bars: 2 errors)")
    grid_lines(left, "x")
    for axes, image in zip(parts[1].subplots(4, SHEET // 4).ravel(), result.series["sheet"], strict=False):
        picture(axes, np.reshape(image, (SIDE, SIDE)), vmin=0, vmax=1)
    return figure


EXPERIMENT = Experiment("rbm-mnist", run, draw)
