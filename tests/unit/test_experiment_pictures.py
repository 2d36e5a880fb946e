"""The picture of every experiment is drawn from its result alone, and shows the numbers in it."""

import importlib
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from unnorm.catalogue import EXPERIMENTS
from unnorm.estimate import Estimate
from unnorm.experiments import (
    bits,
    blindness,
    cnce_table1,
    denoising,
    diffusion_modes,
    digits_likelihood,
    dkef_uci,
    ed_discrete,
    gibbs_posterior,
    gibbs_variances,
    graph_bayes,
    ising_exact,
    langevin_modes,
    logz_race,
    logz_targets,
    ncsn_techniques,
    ozaki,
    rbm_mnist,
    references,
    score_toy,
    solver_table,
    ssm_scaling,
    ssm_variance,
    tables,
)
from unnorm.experiments.base import Experiment, Published, Result, Row

RNG = np.random.default_rng(0)
ONE = Estimate(1.5, 0.25, "made up").to_dict()
BELOW = Estimate(-1.5, 0.25, "made up").to_dict()
CLOUD = RNG.normal(size=(30, 2)).tolist()


def digits(n: int, side: int) -> list[list[float]]:
    return RNG.uniform(size=(n, side * side)).tolist()


def shades(n: int) -> list:
    return RNG.uniform(0, 255, size=(n, 4, 3, 1)).tolist()


def result(series: dict[str, Any], rows: dict[str, list[str]], published: tuple[str, ...] = ()) -> Result:
    """A result with the figure 1.5 in every column, and 2.5 where something is published."""
    made = tuple(
        Row(
            label,
            {column: Estimate(1.5, 0.25, "made up") for column in columns},
            {column: Published(2.5) for column in columns if column in published},
        )
        for label, columns in rows.items()
    )
    return Result("made up", (), made, (), series)


def ssm_cases() -> list[dict[str, Any]]:
    names = ("model", "kind", "law", "draws")
    return [
        dict(zip(names, case, strict=True)) | {"predicted": 1.0, "measured": 1.5, "stderr": 0.1}
        for case in ssm_variance._cases(quick=True)
    ]


def limits(ts: tuple[float, ...]) -> dict[str, Any]:
    return {"t": list(ts), "pieces": [{"measured": ONE, "formula": 1.0, "limit": 2.0, "bound": 0.5} for _ in ts]}


def denoised() -> dict[str, Any]:
    pixels = denoising.SIDE**2
    shown = {
        name: digits(denoising.SHOWN, denoising.SIDE) for name in ("clean", "noisy", "mean", "variances", "errors")
    }
    vectors = RNG.normal(size=(denoising.SHOWN, denoising.LEADING, pixels)).tolist()
    return {"shown": shown, "eigenvalues": np.ones((denoising.SHOWN, 2)).tolist(), "eigenvectors": vectors}


def feature() -> dict[str, Any]:
    """Counts as goodness of fit tells them."""
    rows = RNG.uniform(1, 50, size=(4, 5)).tolist()
    names = ("observed", "low", "median", "high")
    return {"values": list("01234"), "p_value": 0.5} | dict(zip(names, rows, strict=True))


def walked() -> dict[str, Any]:
    return {"ess": [1.0, None, 3.0], "excess": [0.1, None, -0.2], "points": CLOUD, "step": 0.1}


def posterior() -> dict[str, Any]:
    shown = gibbs_posterior.SHOWN
    parts = {"mean": shown.tolist(), "covariance": [np.eye(2).tolist()] * len(shown)}
    return {
        "axis": np.linspace(-2, 2, 9).tolist(), "density": RNG.uniform(size=(len(shown), 9, 9)).tolist(),
        "noisy": shown.tolist(), **dict.fromkeys(gibbs_posterior.METHODS, parts),
    }  # fmt: skip


LABELS, TIMES = ("a", "b"), ("rank 5", "derivative of s1")
SHEETS = ("held-out digits", *"abcdef")
RACE = {"values": [0.9, 1.1], "truth": 1.0, "errors": [0.1, 0.1]}
MADE = {
    "cnce-table1": lambda: result({m: {"NLL": 1.5} for m in cnce_table1.METHODS}, {}),
    "cnce-figure1": lambda: result(
        {"x": [-1.0, 0.0, 1.0], **{f"{n}, {w:g}": [[0.1, 0.2, 0.3]] * 2 for n in ("local", "mix") for w in (0.5, 0.8)}},
        {},
    ),
    "blindness": lambda: result(
        {"distance": [2.0, 4.0], **{n: [[0.1, 0.01], [0.2, 0.01]] for n in blindness.OBJECTIVES}}, {}
    ),
    "ed-density": lambda: result(
        {
            "densities": {n: {"image": [[0.1, 0.2], [0.3, 0.4]], "extent": [0, 1, 0, 1]} for n in "abc"},
            "limits": {"small": limits((0.5, 0.1)), "large": limits((1.0, 4.0))},
        },
        {},
    ),
    "ssm-variance": lambda: result({"cases": ssm_cases()}, {}),
    "dkef-uci": lambda: result({"runs": {t: {m: [[-1.0, -2.0]] * 2 for m in dkef_uci.METHODS} for t in LABELS}}, {}),
    "references": lambda: result({"gaps": {t: dict.fromkeys(references.KINDS[:-1], BELOW) for t in LABELS}}, {}),
    "tables": lambda: result({"gains": {t: dict.fromkeys(LABELS, ONE) for t in tables.TABLES}}, {}),
    "ssm-scaling": lambda: result(
        {
            "dimensions": [10, 100],
            "seconds": {m: [0.1, 0.2] for m in ssm_scaling.METHODS},
            "slopes": dict.fromkeys(ssm_scaling.METHODS, 1.0),
        },
        {},
    ),
    "nice-mnist": lambda: result(
        {"methods": {m: {"steps": [1, 2], "curve": [3.0, 2.0], "sm": -5.0, "log_likelihood": -7.0} for m in LABELS}}, {}
    ),
    "implicit-vae": lambda: result(
        {"methods": {m: {"behind": ONE, "mean": ONE, "pictures": digits(8, 14)} for m in ("ELBO", "b")}, "side": 14}, {}
    ),
    "hosm-table": lambda: result(
        {"errors": {label: {"sigma 0.05": 1.5} for label in LABELS}, "times": dict.fromkeys(TIMES, 1.5)},
        {key: ["sigma 0.05"] for key in LABELS} | {f"time: {label}": ["microseconds"] for label in TIMES},
        ("microseconds",),
    ),
    "gibbs-posterior": lambda: result(posterior(), {key: [gibbs_posterior.AVERAGE] for key in gibbs_posterior.METHODS}),
    "gibbs-table1": lambda: result(
        {t: dict.fromkeys(("one", "two"), CLOUD) for t in LABELS}, {key: ["one", "two"] for key in LABELS}
    ),
    "logz-race": lambda: result(
        {"runs": {t: dict.fromkeys(logz_race.METHODS, RACE) for t in logz_targets.TARGETS}},
        {f"{t}: {m}": list(logz_race.COLUMNS) for t in logz_targets.TARGETS for m in logz_race.METHODS},
    ),
    "langevin-modes": lambda: result(
        dict.fromkeys("abcdef", CLOUD), {key: [langevin_modes.WEIGHT] for key in "abcde"} | {"f": []}
    ),
    "ozaki": lambda: result(
        {
            "targets": {t: {m: walked() for m in ozaki.WALKS} for t in LABELS},
            "grid": [0.1, 0.2, 0.4],
            "relaxation": {"one": [1.0, 0.1], "two": [2.0, 0.2]},
        },
        {},
    ),
    "denoising": lambda: result({name: denoised() for name in LABELS}, {}),
    "mnist-generate": lambda: result({"sheets": {name: shades(20) for name in LABELS}}, {}),
    "faces": lambda: result(
        {"sheets": {"draws": shades(16), "data": shades(16)}, "between": shades(40), "noise": {"1": shades(32)}}, {}
    ),
    "diffusion-modes": lambda: result(
        {
            "densities": {m: RNG.uniform(size=(5, 5)).tolist() for m in diffusion_modes.METHODS},
            "wrong": dict.fromkeys(diffusion_modes.METHODS, 0.5),
        },
        {},
    ),
    "digits-likelihood": lambda: result(
        {
            "curves": {
                f"{p}, {t}": {"step": [1.0, 2.0], "loss": [3.5, 2.5], "held_out": [3.25, 2.75]}
                for p in digits_likelihood.PROCESSES
                for t in ("LW", "LW+IS")
            },
            **{name: {"a": 1.25 + i, "b": 1.125 + i} for i, name in enumerate(("NLL", "bound"))},
        },
        {},
    ),
    "florentine": lambda: result({"ours": [0.151, 0.148], "ergm": [0.181, 0.108], "stderr": 0.6}, {}),
    "schools": lambda: result({name: feature() for name in ("degree", "shared partners", "distance")}, {}),
    "graph-bayes": lambda: result(
        {name: {"shown": CLOUD, "means": [0.5, 1.5], "deviations": [0.1, 0.2]} for name in graph_bayes.TERMS}, {}
    ),
    "bits": lambda: result(
        {"tables": {name: dict.fromkeys(bits.METHODS, ONE) for name in bits.TABLES}, "tree": bits.TABLES}, {}
    ),
    "ed-discrete": lambda: result(
        {
            "images": {p: {n: digits(8, 3) for n in ("a", "b", "c")} for p in ed_discrete.PLANE},
            "errors": {"a": ONE, "b": BELOW},
        },
        {},
    ),
    "score-toy": lambda: result(
        {
            "curves": {"digits": [1.5, 0.5], "digits with noise": [1.25, 0.75]},
            "shown": {name: digits(16, 8) for name in (score_toy.TEN, score_toy.ONE)},
        },
        {},
    ),
    "solver-table": lambda: result(
        {
            problem: {
                "floor": 0.125,
                "solvers": {name: [[10, ONE], [100, ONE]] for name in solver_table.SOLVERS},
                "tolerances": [[25.0, ONE], [50.0, ONE]],
            }
            for problem in (solver_table.EXACT, solver_table.DIGITS)
        },
        {},
    ),
    "ncsn-techniques": lambda: result(
        {
            "curves": {name: [2.5, 1.25, 0.75] for name in ncsn_techniques.VARIANTS},
            "distances": {name: [ONE, ONE] for name in ncsn_techniques.VARIANTS},
        },
        {},
    ),
    "ising-exact": lambda: result(
        {
            "off": {
                f"{shape}, {place}, {method}": float(RNG.uniform(0, 3))
                for shape in ising_exact.SHAPES
                for place in ising_exact.BETAS
                for method in (*ising_exact.SAMPLERS, *ising_exact.CONSTANTS)
            }
        },
        {},
    ),
    "rbm-mnist": lambda: result(
        {"bounds": {"a": {rbm_mnist.LOWER: BELOW, rbm_mnist.UPPER: ONE}}, "sheet": digits(rbm_mnist.SHEET, 28)}, {}
    ),
    "dbm": lambda: result({name: digits(rbm_mnist.SHEET, 28) for name in ("two layers", "one layer")}, {}),
    "gibbs-mnist": lambda: result(
        {
            "maps": {n: digits(gibbs_variances.SHOWN, 28) for n in ("noisy", "mean", "exact", "one")},
            "sheets": {name: digits(4, 28) for name in SHEETS},
            "probes": [1, 3],
            "error": {"a": 0.5, "b": 0.3},
        },
        {},
    ),
}


def numbers(figure: Figure) -> set[float]:
    """Every number that a line, a bar, a cloud or an image of the figure stands for, to nine digits."""
    found: list[np.ndarray] = []
    for axes in figure.axes:
        found += [np.ravel(line.get_xydata()) for line in axes.lines]
        found += [np.ravel(of.get_offsets()) for of in axes.collections]
        found += [np.ravel(of.get_array()) for of in axes.images]
        found += [np.array([of.get_width(), of.get_height()]) for of in axes.patches]
    return {_round(value) for part in found for value in np.asarray(part, float)}


def leaves(tree: Any) -> list[float]:
    if isinstance(tree, dict):
        return [leaf for of in tree.values() for leaf in leaves(of)]
    if isinstance(tree, list):
        return [leaf for of in tree for leaf in leaves(of)]
    return [tree] if isinstance(tree, float) else []


def test_every_experiment_has_a_made_up_result():
    assert {name for name, _ in EXPERIMENTS} == {*MADE, "demo"}


def drawn(name: str) -> tuple[Experiment, Result]:
    return importlib.import_module(f"unnorm.experiments.{name.replace('-', '_')}").EXPERIMENT, MADE[name]()


@pytest.mark.parametrize("name", MADE)
def test_a_picture_shows_the_numbers_of_its_result(name):
    experiment, made = drawn(name)
    shown, held = numbers(experiment.draw(made)), leaves(made.to_dict()["series"])

    def share(values: list[float]) -> float:
        """As they are, from the other side, or in thousandths."""
        return float(np.mean([any(_round(k * value) in shown for k in (1, -1, 1e3)) for value in values]))

    # Errors are lengths of bars, and an ellipse stands for a covariance: a third is seen as it is.
    assert share(held) > 1 / 3
    # Control: numbers that are not in the result are not in the picture.
    assert share([value + 0.123457891 for value in held]) < 0.02


@pytest.mark.parametrize("name", [name for name in MADE if name not in ("gibbs-mnist", "denoising")])
def test_a_picture_becomes_a_file(name, tmp_path):
    """Two that have a hundred panels are left out: they take as long as all others."""
    experiment, made = drawn(name)
    experiment.picture(made, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"


def _round(value: float) -> float:
    return float(f"{value:.9g}")
