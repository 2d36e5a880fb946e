"""Every estimator of log Z on five targets whose log Z is known: error, stated error and cost.

Targets on the plane: a Gaussian with correlation 0.9, four separate modes of unequal weights, a funnel, a banana, and a
neural energy whose log Z comes from quadrature. All methods start from one wide Gaussian for each target. Reverse
annealing and bridge sampling need draws of the target: they get those of an HMC run started from the base, whose cost
is counted as theirs. An evaluation is one energy or gradient at one point; times are of second runs, so that nothing is
compiled in them. No figures were printed anywhere for this race.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.energies import standard_gaussian as wide
from unnorm.estimate import Estimate
from unnorm.evaluation import ais, bridge, importance, reverse_ais, smc, thermodynamic
from unnorm.evaluation.partition.annealing import PILOT
from unnorm.evaluation.partition.smc import SCOUTS
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, exact, over_seeds
from unnorm.experiments.logz_targets import TARGETS, OneOf, all_parts, true_log_z
from unnorm.plots import COLOURS, INK, grid_lines, panels
from unnorm.samplers import HMC, Trace, sample

#: Leapfrog steps of every annealed move, and the chains, warm-up and steps of the HMC run.
LEAPFROGS = 5
CHAINS, WARM, STEPS, LONG = 64, 200, 32, 10


def _draws(target: AbstractEnergy, base: AbstractNormalised, key: PRNGKeyArray) -> Trace:
    start, run = jax.random.split(key)
    xs = base.samples(CHAINS, key=start)
    return sample(
        target, HMC(leapfrogs=LONG), chains=CHAINS, steps=STEPS, warmup=WARM, start=xs, key=run, progress=False
    )


Method = Callable[[AbstractEnergy, AbstractNormalised, PRNGKeyArray], tuple[Estimate, float]]


def _importance(target: AbstractEnergy, base: AbstractNormalised, key: PRNGKeyArray) -> tuple[Estimate, float]:
    found = importance(target, base, draws=40_960, key=key)
    return found, found.diagnostics["samples"]


def _walked(found: Estimate, chains: float, pilots: float, moves: int) -> float:
    """Evaluations along the levels: each move starts with one gradient and makes LEAPFROGS more."""
    return (chains + pilots) * found.diagnostics["levels"] * (moves * (LEAPFROGS + 1) + 2)


def _ais(target: AbstractEnergy, base: AbstractNormalised, key: PRNGKeyArray) -> tuple[Estimate, float]:
    found = ais(target, base, chains=512, levels=60, leapfrogs=LEAPFROGS, key=key)
    return found, _walked(found, 512, 2 * PILOT, 1)


def _smc(target: AbstractEnergy, base: AbstractNormalised, key: PRNGKeyArray) -> tuple[Estimate, float]:
    found = smc(target, base, islands=32, particles=256, moves=3, leapfrogs=LEAPFROGS, key=key)
    return found, _walked(found, 32 * 256, SCOUTS, 3)


def _thermodynamic(target: AbstractEnergy, base: AbstractNormalised, key: PRNGKeyArray) -> tuple[Estimate, float]:
    found = thermodynamic(target, base, chains=128, levels=40, moves=8, leapfrogs=LEAPFROGS, key=key)
    return found, _walked(found, 128, 2 * PILOT, 8)


SAMPLING = CHAINS * (WARM + STEPS) * (LONG + 1)


def _reverse(target: AbstractEnergy, base: AbstractNormalised, key: PRNGKeyArray) -> tuple[Estimate, float]:
    first, second = jax.random.split(key)
    found = reverse_ais(target, base, _draws(target, base, first), levels=60, leapfrogs=LEAPFROGS, key=second)
    return found, SAMPLING + _walked(found, CHAINS * STEPS, 2 * PILOT, 1)


def _bridge(target: AbstractEnergy, base: AbstractNormalised, key: PRNGKeyArray) -> tuple[Estimate, float]:
    first, second = jax.random.split(key)
    found = bridge(target, base, _draws(target, base, first), base_draws=8192, key=second)
    return found, SAMPLING + found.diagnostics["samples"] + found.diagnostics["base_draws"]


METHODS: dict[str, Method] = {
    "importance sampling": _importance,
    "AIS": _ais,
    "reverse AIS": _reverse,
    "SMC": _smc,
    "thermodynamic": _thermodynamic,
    "bridge": _bridge,
}


def _race(name: str, method: str, repeats: int, seed: int) -> dict[str, Any]:
    """The value, stated error, time, evaluations and warnings of every repeat."""
    target = OneOf(which=jnp.asarray(list(TARGETS).index(name)), parts=all_parts())
    base = wide(2, TARGETS[name])
    # Keys of its own for every pair: with shared ones all methods would have the same luck, and no claim a known error.
    own = len(METHODS) * list(TARGETS).index(name) + list(METHODS).index(method)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), own), repeats + 1)
    METHODS[method](target, base, keys[0])
    found: dict[str, list[float]] = {"values": [], "errors": [], "seconds": [], "evaluations": [], "warned": []}
    for key in keys[1:]:
        start = time.perf_counter()
        estimate, evaluations = METHODS[method](target, base, key)
        found["seconds"].append(time.perf_counter() - start)
        found["values"].append(estimate.value)
        found["errors"].append(estimate.stderr)
        found["evaluations"].append(evaluations)
        found["warned"].append(float(bool(estimate.warnings)))
    return {**found, "truth": true_log_z(name)}


COLUMNS = ("mean error", "root mean square error", "stated error", "error / stated", "seconds", "evaluations")


def _row(name: str, method: str, piece: dict[str, Any]) -> Row:
    errors = np.array(piece["values"]) - piece["truth"]
    squares = over_seeds(errors**2)
    root = math.sqrt(squares.value)
    ratios = over_seeds((errors / np.array(piece["errors"])) ** 2)
    spread = math.sqrt(ratios.value)
    return Row(
        f"{name}: {method}",
        {
            "mean error": over_seeds(errors),
            "root mean square error": Estimate(root, squares.stderr / (2 * root), "over repeats"),
            "stated error": over_seeds(piece["errors"]),
            "error / stated": Estimate(spread, ratios.stderr / (2 * spread), "root mean square over repeats"),
            "seconds": over_seeds(piece["seconds"]),
            "evaluations": exact(float(np.mean(piece["evaluations"])), "counted"),
        },
    )


def run(job: Job) -> Result:
    """Every method on every target."""
    repeats = 12 if job.quick else 200
    found = job.over("log Z", lambda name, method: _race(name, method, repeats, job.seed), TARGETS, METHODS)
    rows = tuple(_row(name, method, piece) for (name, method), piece in found.items())
    runs = {name: {method: found[name, method] for method in METHODS} for name in TARGETS}
    series = {"truth": {name: runs[name]["AIS"]["truth"] for name in TARGETS}, "runs": runs}
    warned = sum(sum(piece["warned"]) for piece in found.values())
    remarks = (
        _best(rows),
        f"{warned:.0f} of {repeats * len(found)} estimates came with a warning of their own.",
    )
    return Result("log Z of five targets by six methods", COLUMNS, rows, _claims(rows, found), series, remarks)


def _best(rows: tuple[Row, ...]) -> str:
    """Which method has the least squared error for its evaluations, target by target."""
    said = []
    for name in TARGETS:
        of = [row for row in rows if row.label.startswith(f"{name}: ")]
        cost = [r.figures["root mean square error"].value ** 2 * r.figures["evaluations"].value for r in of]
        said.append(f"{name}: {of[int(np.argmin(cost))].label.split(': ')[1]}")
    return f"Least squared error times evaluations: {'; '.join(said)}."


def _claims(rows: tuple[Row, ...], found: dict[Any, Any]) -> tuple[Claim, ...]:
    ratios = np.concatenate([(np.array(p["values"]) - p["truth"]) / np.array(p["errors"]) for p in found.values()])
    covered = float(np.mean(np.abs(ratios) < 1.96))
    # Independent intervals of 95%: this many standard errors of the share.
    slack = 4.5 * math.sqrt(0.95 * 0.05 / len(ratios))
    worst = max(rows, key=lambda row: row.figures["error / stated"].value)
    largest = worst.figures["error / stated"].value
    small = max(row.figures["root mean square error"].value for row in rows)
    return (
        Claim(
            f"Of {len(ratios)} intervals of 95% {covered:.1%} hold the truth (95% to within {slack:.1%} expected).",
            abs(covered - 0.95) <= slack,
        ),
        Claim(
            f"No method on any target is off by more than twice its stated error, root mean square over repeats: the "
            f"worst is {worst.label}, {largest:.2f} times.",
            largest <= 2,
        ),
        Claim(f"Every method finds every log Z to within 0.2 nats: the largest error is {small:.3f}.", small < 0.2),
    )


def draw(result: Result) -> Figure:
    """Left: each estimate with its stated error, less the truth. Right: error against cost."""
    figure, row = panels(1, 2, 5.75, 5, width_ratios=(1.5, 1))
    left, right = row[0]
    runs, shown, marks = result.series["runs"], 5, ("o", "s", "^", "D", "v")
    for t, (name, mark) in enumerate(zip(TARGETS, marks, strict=True)):
        for k, (method, colour) in enumerate(zip(METHODS, COLOURS, strict=False)):
            piece, figures = runs[name][method], result.row(f"{name}: {method}").figures
            gaps, errors = np.array(piece["values"][:shown]) - piece["truth"], np.array(piece["errors"][:shown])
            places = t + (k + np.linspace(0.2, 0.8, len(gaps))) / (len(METHODS) + 1) - 0.43
            label = method if t == 0 else None
            left.errorbar(places, gaps, 1.96 * errors, fmt="o", ms=2.5, lw=1, color=colour, label=label)
            at = figures["evaluations"].value, figures["root mean square error"].value
            right.plot(*at, mark, color=colour, ms=6, mfc="white")
        right.plot([], [], mark, color=INK, mfc="white", label=name)
    left.axhline(0, color=INK, lw=0.8)
    left.set_xticks(range(len(TARGETS)), list(TARGETS))
    left.set_yscale("symlog", linthresh=0.05)
    gaps = (-0.5, -0.1, -0.05, 0, 0.05, 0.1, 0.5)
    left.set_yticks(gaps, [f"{gap:g}" for gap in gaps])
    left.set_ylabel("estimate less true log Z (bars: 95%)")
    right.set(xscale="log", yscale="log", xlabel="energies and gradients evaluated", ylabel="root mean square error")
    grid_lines(right)
    right.legend()
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


EXPERIMENT = Experiment("logz-race", run, draw)
