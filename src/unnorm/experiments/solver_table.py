"""Song 2022, Table 7.1 and Fig. 7.3 with errors in place of FID: predictors, correctors and both; error by evaluations.

The table walks N levels with a predictor alone (P), 2N with it (P 2x; the same score at refined levels, where the
source interpolates its discrete one), 2 corrector steps at each of N levels (C 2x), and one of each (PC), for three
predictors under VE and VP. Its ratio r is the source's (Table B.13). Then the error of every solver by how often the
score is asked, and of the flow by its tolerance. Two problems: a mixture on the line, score exact, W1 to it; digits of
8 x 8, a perceptron's score, Frechet distance in pixels to the digits learnt from (no FID: no number of the source can
be compared). Quick: N = 1000 and 50, a perceptron of 256; the paper's N = 1000 for digits too, of 512.
"""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from unnorm.catalogue.diffusion import levels_of
from unnorm.estimate import Estimate
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, ahead
from unnorm.experiments.digit_levels import (
    PIXELS,
    digit_score,
    digits,
    distance_to_digits,
    distance_to_mixture,
    floor_of_mixture,
    keys_of,
    mixture_score,
)
from unnorm.generators import (
    DDIM,
    AbstractTransition,
    AdaptiveFlow,
    Ancestral,
    DPMSolver,
    EulerMaruyama,
    ExponentialIntegrator,
    FlowEuler,
    Heun,
    ReverseDiffusion,
    ReverseFlow,
    SignalToNoise,
    Then,
    UniPC,
    generate,
)
from unnorm.noises import AbstractGaussianNoise, VarianceExploding, VariancePreserving
from unnorm.plots import grid_lines, panels
from unnorm.scores import AbstractLevelledScore

EXACT, DIGITS = "mixture, exact score", "digits"
NOISES: dict[str, AbstractGaussianNoise] = {"VE": VarianceExploding(0.01, 50.0), "VP": VariancePreserving()}
WAYS = ("P", "P 2x", "C 2x", "PC")
#: Name, transition; its corrector's ratio under VE and under VP (Table B.13).
PREDICTORS: dict[str, tuple[AbstractTransition, dict[str, float]]] = {
    "ancestral": (Ancestral(), {"VE": 0.17, "VP": 0.01}),
    "reverse diffusion": (ReverseDiffusion(), {"VE": 0.16, "VP": 0.01}),
    "probability flow": (ReverseFlow(), {"VE": 0.17, "VP": 0.04}),
}
ALONE, ALONE_RATIO = "corrector alone", {"VE": 0.22, "VP": 0.27}
#: Name of the catalogue, whose levels it walks; transition, evaluations a step.
SOLVERS: dict[str, tuple[str, AbstractTransition, int]] = {
    "DPM-Solver++ 2M": ("dpm++", DPMSolver(2), 1),
    "DPM-Solver++ 3M": ("dpm++", DPMSolver(3), 1),
    "UniPC": ("unipc", UniPC(2), 1),
    "Heun": ("heun", Heun(), 2),
    "DDIM": ("ddim", DDIM(), 1),
    "Euler on the flow": ("flow", FlowEuler(), 1),
    "ancestral": ("ancestral", Ancestral(), 1),
    "reverse diffusion": ("reverse-diffusion", ReverseDiffusion(), 1),
    "Euler-Maruyama": ("euler-maruyama", EulerMaruyama(), 1),
    "exponential integrator": ("exponential", ExponentialIntegrator(), 1),
}
TOLERANCES = (1e-1, 1e-3, 1e-5)
FAST = "DPM-Solver++ 2M"
BAR, SLOW = 20, 1000


@dataclass(frozen=True)
class Size:
    """Width and steps of the perceptron; levels of the table and draws, for both problems; evaluations looked at."""

    width: int
    steps: int
    levels: dict[str, int]
    draws: dict[str, int]
    evaluations: dict[str, tuple[int, ...]]


QUICK = Size(256, 2000, {EXACT: 1000, DIGITS: 50}, {EXACT: 2048, DIGITS: 512},
             {EXACT: (5, 10, 20, 50, 200, 1000), DIGITS: (5, 10, 20, 50)})  # fmt: skip
PAPER = Size(512, 20_000, {EXACT: 1000, DIGITS: 1000}, {EXACT: 4096, DIGITS: 2048},
             {EXACT: (5, 10, 20, 50, 100, 200, 500, 1000), DIGITS: (5, 10, 20, 50, 100, 200, 500, 1000)})  # fmt: skip
#: Draws where the bar is judged.
JUDGED = 2048


@lru_cache
def _score(problem: str, process: str, size_is_quick: bool, seed: int) -> AbstractLevelledScore:
    noise, size = NOISES[process], QUICK if size_is_quick else PAPER
    if problem == EXACT:
        return mixture_score(noise)
    return digit_score(noise, width=size.width, steps=size.steps, seed=seed)


def padded(levels: np.ndarray, steps: int) -> np.ndarray:
    """The last level named again: nothing is done there, and walks of several lengths are one program.

    >>> padded(np.array([1.0, 0.5]), 3).tolist()
    [1.0, 0.5, 0.5, 0.5]
    """
    return np.pad(levels, (0, steps + 1 - len(levels)), mode="edge")


class Walks:
    """Walks of one run, and how far their draws are from what they should be."""

    def __init__(self, quick: bool, seed: int):
        self.quick, self.seed, self.size = quick, seed, QUICK if quick else PAPER

    def error(
        self, problem: str, process: str, step: AbstractTransition, levels: Any, key: int, n: int | None = None
    ) -> dict[str, Any]:
        """The distance of n draws."""
        score = _score(problem, process, self.quick, self.seed)
        shape = (1,) if problem == EXACT else (PIXELS,)
        options = {"levels": levels, "n": n or self.size.draws[problem], "shape": shape}
        walk = generate(score, step, key=keys_of(self.seed, key), **options)
        distance = distance_to_mixture if problem == EXACT else distance_to_digits
        asked = walk.counts.get("evaluations", 0.0) / options["n"]
        return {"error": distance(walk.points, seed=self.seed).to_dict(), "asked": asked}

    def cell(self, problem: str, process: str, predictor: str, way: str) -> dict[str, Any]:
        """One number of the table."""
        least = float(NOISES[process].least_level())
        n = self.size.levels[problem] * (2 if way == "P 2x" else 1)
        levels = np.linspace(1.0, max(least, 1e-3) if process == "VP" else least, n + 1)
        if way == "P":
            levels = padded(levels, 2 * n)
        if way == "C 2x":
            step: AbstractTransition = SignalToNoise(ALONE_RATIO[process], steps=2)
        else:
            transition, ratios = PREDICTORS[predictor]
            step = Then(transition, SignalToNoise(ratios[process])) if way == "PC" else transition
        return self.error(problem, process, step, levels, 1)

    def by_evaluations(self, problem: str, solver: str, evaluations: int, n: int | None = None) -> dict[str, Any]:
        """The error of one solver that asks the score so often, the finish counted."""
        name, step, each = SOLVERS[solver]
        levels = levels_of(NOISES["VP"], name, max(1, (evaluations - 1) // each))
        if n is None:
            levels = padded(levels, max(self.size.evaluations[problem]))
        return self.error(problem, "VP", step, levels, 2, n)

    def by_tolerance(self, problem: str, tolerance: float) -> dict[str, Any]:
        """The error of the flow, and how often it asked."""
        return self.error(problem, "VP", AdaptiveFlow(tolerance), np.array([1.0, 1e-3]), 2)


def _estimate(piece: dict[str, Any]) -> Estimate:
    return Estimate.from_dict(piece["error"])


def _claims(found: dict[Any, Any], fast: Estimate, slow: Estimate) -> tuple[Claim, ...]:
    gap = fast.minus(slow)
    claims = [
        Claim(
            f"Digits: {FAST} with {BAR + 1} evaluations is no worse than {SLOW} ancestral steps ({fast.number()} "
            f"against {slow.number()}): within 5% or two errors.",
            gap.value <= max(0.05 * slow.value, 2 * gap.stderr),
        )
    ]
    for problem, process in ((problem, process) for problem in (EXACT, DIGITS) for process in NOISES):
        alone, where = found[problem, process, ALONE, "C 2x"], f"{problem}, {process}:"
        worst = max((found[problem, process, name, "PC"] for name in PREDICTORS), key=lambda e: e.value)
        flow, rest = (found[problem, process, name, "P"] for name in ("probability flow", "reverse diffusion"))
        mended = found[problem, process, "probability flow", "PC"]
        claims += [
            ahead(where + " the corrector alone is behind every PC (by {}).", alone.minus(worst)),
            ahead(where + " the flow alone is behind reverse diffusion (by {}).", flow.minus(rest)),
            ahead(where + " a corrector mends the flow (by {}).", flow.minus(mended)),
        ]
    return tuple(claims)


def run(job: Job) -> Result:
    """Table, errors by evaluations, errors by tolerance."""
    walks = Walks(job.quick, job.seed)
    judged = [
        _estimate(job.piece(f"bar-{n}", partial(walks.by_evaluations, DIGITS, solver, n + 1, JUDGED)))
        for solver, n in ((FAST, BAR), ("ancestral", SLOW))
    ]
    cells = job.over("table", walks.cell, (EXACT, DIGITS), NOISES, PREDICTORS, ("P", "P 2x", "PC"))
    cells |= job.over("table", walks.cell, (EXACT, DIGITS), NOISES, (ALONE,), ("C 2x",))
    found = {at: _estimate(piece) for at, piece in cells.items()}
    curves: dict[tuple[str, str, int], Any] = {}
    for problem in (EXACT, DIGITS):
        curves |= job.over("solvers", walks.by_evaluations, (problem,), SOLVERS, walks.size.evaluations[problem])
    tolerances = job.over("tolerances", walks.by_tolerance, (EXACT, DIGITS), TOLERANCES)
    columns = tuple(f"{process} {way}" for process in NOISES for way in WAYS)
    rows = []
    for problem in (EXACT, DIGITS):
        for name in (*PREDICTORS, ALONE):
            line = {f"{p} {way}": found.get((problem, p, name, way)) for p in NOISES for way in WAYS}
            rows.append(Row(f"{problem}: {name}", {column: cell for column, cell in line.items() if cell is not None}))
    floors = {EXACT: floor_of_mixture(walks.size.draws[EXACT], seed=job.seed).value, DIGITS: _floor(walks, job.seed)}
    remarks = [f"{name}: two samples of one law are apart by {floor:.4g}." for name, floor in floors.items()]
    for (problem, tolerance), piece in tolerances.items():
        told = f"{_estimate(piece).number()} after {piece['asked']:.0f} evaluations"
        remarks.append(f"{problem}, flow to a tolerance of {tolerance:g}: {told}.")
    series = {}
    for problem in (EXACT, DIGITS):
        ns = walks.size.evaluations[problem]
        series[problem] = {
            "floor": floors[problem],
            "solvers": {name: [[n, curves[problem, name, n]["error"]] for n in ns] for name in SOLVERS},
            "tolerances": [[tolerances[problem, at]["asked"], tolerances[problem, at]["error"]] for at in TOLERANCES],
        }
    claims = _claims(found, *judged)
    return Result("Error of draws by predictor and corrector", columns, tuple(rows), claims, series, tuple(remarks))


def _floor(walks: Walks, seed: int) -> float:
    train, held = digits()
    chosen = np.random.default_rng(seed).permutation(np.concatenate([train, held]))
    return distance_to_digits(chosen[: walks.size.draws[DIGITS]], seed=seed).diagnostics["floor"]


def draw(result: Result) -> Figure:
    """Error by evaluations: a line for each solver, one for the flow by its tolerance, the floor."""
    figure, grid = panels(1, 2, 5.2, 4.2)
    for axes, (problem, drawn) in zip(grid.flat, result.series.items(), strict=True):
        for k, (name, points) in enumerate(drawn["solvers"].items()):
            kept = [(n, e["value"]) for n, e in points if np.isfinite(e["value"])]
            # Colours come round again after the ninth.
            axes.plot(*zip(*kept, strict=True), "o-" if k < 9 else "s:", markersize=3, label=name)
        asked, errors = zip(*drawn["tolerances"], strict=True)
        axes.plot(asked, [e["value"] for e in errors], "k*--", markersize=5, label="flow by tolerance")
        axes.axhline(drawn["floor"], color="0.6", linestyle=":")
        axes.set(xscale="log", yscale="log", xlabel="evaluations of the score", ylabel="error", title=problem)
        grid_lines(axes)
    grid[0, 1].legend(fontsize=6)
    return figure


EXPERIMENT = Experiment("solver-table", run, draw)
