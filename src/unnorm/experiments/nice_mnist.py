"""Song 2022, Table 3.1: score matching losses for a flow (NICE) on MNIST, where the likelihood is known exactly.

The flow is trained by maximum likelihood (MLE), SSM, SSM-VR, DSM at several noises, curvature propagation (CP) and
approximate backpropagation; of each run the weights with the lowest exact SM loss on validation rows count, and their
exact SM loss and log-likelihood on test rows are told, both in logit space. Data as in the source: pixels plus
U[-1/512, 1/512], clipped to [0.001, 0.999] (the source prints another interval by mistake), then the logit. The printed
row DSM 0.10 is the best of a grid and 1.74 the Parzen heuristic. The heuristic here is that of these data. CP and
approximate backpropagation stand here twice: as they are (`objectives.flow_curvature`), and as released, where the
derivatives take the wrong half in every second coupling. The printed rows are beside the released ones.

The text prints one rate for all methods, 0.001; the released settings have it for DSM and CP, and a tenth of it for the
others. At the paper's scale each method has both, where they differ, and the better on validation rows counts.

Three quarters of a background pixel's dequantised values are clipped to one number. A density can be ever narrower
there, so the SM loss has no minimum, and what is compared is how far a method has come when it is stopped.

At the quick scale images are 14 x 14, the networks small and the rate of all methods starts at twice the printed one
and falls, because a run of some thousand steps at the printed rate ends before the scales of the flow have grown to
those of the background pixels. (At five times the printed rate it is an accident where a run ends.) Only the order of
the methods can be compared then; the published figures are those of 28 x 28 images. Two methods are compared by their
differences row by row on the same test rows; the spread over training seeds is not in these errors.

In words the source says that SSM-VR is far ahead of all others in SM loss, that the heuristic noise is the worst of all
in both figures, that CP is worse than SSM, that approximate backpropagation has more success than for kernel families,
and that likelihood and SM loss have little to do with each other. What of it is not in the printed order of the columns
stands first; that order stands after it, neighbour by neighbour.
"""

from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from unnorm.data.mnist import mnist
from unnorm.energies import NICE
from unnorm.estimate import mean_estimate
from unnorm.evaluation import energies
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, piece_name
from unnorm.experiments.score_losses import parzen_scale, sm_losses
from unnorm.noises import Gaussian
from unnorm.objectives import DSM, MLE, SM, SSM, SSMVR, AbstractObjective
from unnorm.objectives.flow_curvature import FlowApproximateBP, FlowCurvaturePropagation, Kind
from unnorm.plots import grid_lines, panels
from unnorm.spaces import Real
from unnorm.training import constant, cosine, fit

SM_LOSS, LOG_LIKELIHOOD = "test SM loss", "test log-likelihood"
PUBLISHED = {
    "MLE": (-579, -791),
    "SSM-VR": (-8054, -3355),
    "SSM": (-2428, -2039),
    "DSM (grid)": (-3035, -4363),
    "DSM (heuristic)": (-97, -8082),
    "CP, as released": (-1694, -1517),
    "approx BP, as released": (-48, -2288),
}
RIGHT = ("CP", "approx BP")
#: The published order, from the best.
BY_LOSS = ("SSM-VR", "DSM (grid)", "SSM", "CP, as released", "MLE", "DSM (heuristic)", "approx BP, as released")
BY_LIKELIHOOD = ("MLE", "CP, as released", "SSM", "approx BP, as released", "SSM-VR", "DSM (grid)", "DSM (heuristic)")
GRID = (0.01, 0.05, 0.10, 0.20, 0.28, 0.50, 1.00, 1.50)
QUICK_GRID = (0.10, 0.28)
CLIP = 0.001
PRINTED_RATE = 1e-3
#: Whose released settings have the printed rate; the others have a tenth of it.
AT_PRINTED_RATE = ("DSM", "CP")
#: Steps between two looks at the validation rows, as in the source.
EVERY = 100


def logits(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Images in [0, 1] as points of the whole space: dequantised, clipped, logit."""
    pixels = images.reshape(len(images), -1) + rng.uniform(-1 / 512, 1 / 512, (len(images), images[0].size))
    pixels = np.clip(pixels, CLIP, 1 - CLIP)
    return (np.log(pixels) - np.log1p(-pixels)).astype(np.float32)


def _settings(job: Job) -> dict[str, Any]:
    if job.quick:
        return {
            "side": 14, "width": 64, "depth": 2, "steps": 9000, "falls": True, "rows": 100, "test": 300,
        }  # fmt: skip
    return {
        "side": 28, "width": 1000, "depth": 4, "steps": 42_200, "falls": False, "rows": 128, "test": 10_000,
    }  # fmt: skip


def _rates(job: Job, method: str) -> tuple[float, ...]:
    """The printed rate, and a tenth of it where the released settings have that."""
    if job.quick:
        return (2 * PRINTED_RATE,)
    return (PRINTED_RATE,) if method.startswith(AT_PRINTED_RATE) else (PRINTED_RATE, 0.1 * PRINTED_RATE)


def _data(job: Job) -> dict[str, np.ndarray]:
    digits = mnist(_settings(job)["side"])
    rng = np.random.default_rng(job.seed)
    points = logits(digits.train.images, rng)[rng.permutation(len(digits.train.images))]
    n = len(points) * 9 // 10
    return {"train": points[:n], "valid": points[n:], "test": logits(digits.test.images, rng)}


def _one(
    data: dict[str, np.ndarray], objective: AbstractObjective, settings: dict[str, Any], rate: float, seed: int
) -> dict[str, Any]:
    """The weights with the lowest exact SM loss on validation rows are measured on the test rows."""
    start, key = jax.random.split(jax.random.key(seed))
    side = settings["side"]
    fitted = fit(
        NICE(Real((side * side,)), width=settings["width"], depth=settings["depth"], key=start), objective,
        data["train"], valid=data["valid"][: settings["rows"]], judge=SM(), steps=settings["steps"], batch=128,
        rate=rate, average=0.0, schedule=cosine if settings["falls"] else constant,
        evaluations=settings["steps"] // EVERY, key=key, progress=False,
    )  # fmt: skip
    test = data["test"][: settings["test"]]
    return {
        "steps": fitted.history["step"].tolist(),
        "curve": fitted.history["held_out"].tolist(),
        "valid": float(fitted.state.best_loss),
        "sm": np.asarray(sm_losses(fitted.model, jnp.asarray(test)), np.float64).tolist(),
        "log_likelihood": (-np.asarray(energies(fitted.model, data["test"]), np.float64)).tolist(),
    }


def run(job: Job) -> Result:
    """Every method."""
    settings = _settings(job)
    data = _data(job)
    grid = QUICK_GRID if job.quick else GRID
    heuristic = round(parzen_scale(data["train"][:5000], data["valid"][:500]), 2)
    objectives: dict[str, AbstractObjective] = {"MLE": MLE(), "SSM-VR": SSMVR(), "SSM": SSM()}
    objectives |= {"CP": FlowCurvaturePropagation(), "approx BP": FlowApproximateBP()}
    objectives |= {
        "CP, as released": FlowCurvaturePropagation(taken_for=Kind.SECOND),
        "approx BP, as released": FlowApproximateBP(taken_for=Kind.FIRST),
    }
    objectives |= {f"DSM-{sigma:g}": DSM(Gaussian(sigma)) for sigma in (*grid, heuristic)}
    runs = {
        piece_name(name, rate): partial(_one, data, objective, settings, rate, job.seed)
        for name, objective in objectives.items()
        for rate in _rates(job, name)
    }
    pieces = job.pieces(runs, "flows")
    # Each method at the rate that does best on the validation rows.
    found = {
        name: min((pieces[piece_name(name, rate)] for rate in _rates(job, name)), key=lambda piece: piece["valid"])
        for name in objectives
    }
    best = min((f"DSM-{sigma:g}" for sigma in grid), key=lambda name: found[name]["valid"])
    named = {name: name for name in (*PUBLISHED, *RIGHT) if not name.startswith("DSM")}
    named |= {"DSM (grid)": best, "DSM (heuristic)": f"DSM-{heuristic:g}"}
    rows = []
    measured = {method: {n: np.asarray(found[piece][n]) for n in ("sm", "log_likelihood")}
                for method, piece in named.items()}  # fmt: skip
    for method, piece in named.items():
        label = method + (f", sigma = {piece.removeprefix('DSM-')}" if piece.startswith("DSM-") else "")
        figures = {
            name: mean_estimate(values, f"{len(values)} test rows")
            for name, values in zip((SM_LOSS, LOG_LIKELIHOOD), measured[method].values(), strict=True)
        }
        printed = zip((SM_LOSS, LOG_LIKELIHOOD), PUBLISHED.get(method, ()), strict=False)
        rows.append(Row(label, figures, {name: Published(value) for name, value in printed}))
    grids = {f"sigma = {sigma:g}": found[f"DSM-{sigma:g}"] for sigma in grid if sigma != heuristic}
    series = {
        method: {n: found[named[method]][n] for n in ("steps", "curve")} | {n: float(v.mean()) for n, v in of.items()}
        for method, of in measured.items()
    }
    side = settings["side"]
    return Result(
        "NICE on MNIST (SM loss: lower is better; log-likelihood: higher; both in logit space)",
        (SM_LOSS, LOG_LIKELIHOOD),
        tuple(rows),
        (*_said(measured, grids), *_printed_order(measured)),
        {"methods": series},
        (
            f"Images {side} x {side}, networks of {settings['depth']} x {settings['width']} units, "
            f"{settings['steps']} steps; the source: 28 x 28, 4 x 1000, 42,200 steps.",
        ),
    )


def _better(a: str, b: str, gaps: np.ndarray, what: str) -> Claim:
    """Whether `a` is ahead of `b` by more than two standard errors of their differences row by row."""
    gap = mean_estimate(gaps, "paired rows")
    return Claim(f"{a} has a {what} than {b} (by {gap.value:.0f} ± {gap.stderr:.0f}).", gap.value > 2 * gap.stderr)


def _nearest(gaps: dict[str, np.ndarray]) -> str:
    """The rival with the smallest lead over it."""
    return min(gaps, key=lambda name: float(gaps[name].mean()))


def _said(measured: dict[str, dict[str, np.ndarray]], grids: dict[str, Any]) -> tuple[Claim, ...]:
    """What the source says of its table in words."""
    ahead = {m: measured[m]["sm"] - measured["SSM-VR"]["sm"] for m in PUBLISHED if m != "SSM-VR"}
    heuristic = measured["DSM (heuristic)"]
    loss = {sigma: heuristic["sm"] - np.asarray(of["sm"]) for sigma, of in grids.items()}
    likelihood = {s: np.asarray(of["log_likelihood"]) - heuristic["log_likelihood"] for s, of in grids.items()}
    gained = float(measured["approx BP, as released"]["sm"].mean())
    first, lowest, least = (_nearest(gaps) for gaps in (ahead, loss, likelihood))
    return (
        _better("SSM-VR, before all others,", first, ahead[first], "lower SM loss"),
        _better(f"DSM with any noise of the grid (the nearest: {lowest})", "with the heuristic one", loss[lowest],
                "lower SM loss"),
        _better(f"DSM with any noise of the grid (the nearest: {least})", "with the heuristic one", likelihood[least],
                "higher log-likelihood"),
        # Not "below 1e9, where kernel families end": the best weights of a run are never worse than its first.
        Claim(f"Approximate backpropagation has a lower SM loss ({gained:.3g}) than a flat density (0).", gained < 0),
    )  # fmt: skip


def _printed_order(measured: dict[str, dict[str, np.ndarray]]) -> tuple[Claim, ...]:
    """Both columns of the published table, neighbour by neighbour."""
    sm = {method: of["sm"] for method, of in measured.items()}
    likelihood = {method: of["log_likelihood"] for method, of in measured.items()}
    return (
        *(_better(f"Printed order: {a}", b, sm[b] - sm[a], "lower SM loss") for a, b in pairwise(BY_LOSS)),
        *(
            _better(f"Printed order: {a}", b, likelihood[a] - likelihood[b], "higher log-likelihood")
            for a, b in pairwise(BY_LIKELIHOOD)
        ),
    )


def draw(result: Result) -> Figure:
    """The validation SM loss along the run, and where each method ends in both measures."""
    figure, row = panels(1, 2, 5, 4.6)
    left, right = row[0]
    for method, of in result.series["methods"].items():
        (line,) = left.plot(of["steps"], of["curve"], "o-", label=method, markersize=3)
        right.plot(of["sm"], of["log_likelihood"], "o", color=line.get_color())
    # What is released is off by many powers of ten, and the others would be one point beside it.
    left.set_yscale("symlog", linthresh=100)
    right.set_xscale("symlog", linthresh=100)
    left.set(xlabel="steps", ylabel="validation SM loss")
    right.set(xlabel=SM_LOSS, ylabel=LOG_LIKELIHOOD)
    figure.legend(loc="outside lower center", ncols=5)
    for axes in row[0]:
        grid_lines(axes)
    return figure


EXPERIMENT = Experiment("nice-mnist", run, draw)
