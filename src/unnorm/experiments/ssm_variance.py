"""Song 2022, Theorem 3.3: how much the estimates of sliced score matching scatter, predicted and measured.

Two Gaussian models whose loss is quadratic in the parameters, so that every fit is one exact Newton step on the very
objective: N(0, I / r) in 10 dimensions with r = 2 unknown, and a Gaussian with one precision r = 2 for all coordinates
and one coupling c = 0.5 for all pairs, both unknown. The asymptotic covariance is predicted by
`evaluation.efficiency.score_matching_efficiency` from draws of the truth and measured over thousands of fits. The
source prints the theorem and no figures. For the first model the theorem gives N Var = 2 r^2 / D for SM, and that
times 1 + (D - 1) / M for SSM with Rademacher or spherical slices, 1 + (D + 1) / M with Gaussian ones; SSM-VR has SM's,
but for Gaussian slices, where it is 1 + 1 / M times as much.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from unnorm.energies import AbstractEnergy
from unnorm.estimate import Estimate
from unnorm.evaluation.efficiency import ScoreMatchingEfficiency, score_matching_efficiency
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, exact
from unnorm.objectives import SM, SSM, SSMVR, AbstractObjective, GaussianSlices, RademacherSlices, SphereSlices
from unnorm.plots import COLOURS, INK, grid_lines, named_ticks, panels
from unnorm.small_matrices import solve
from unnorm.spaces import Real

SLICES = {"Rademacher": RademacherSlices(), "Gaussian": GaussianSlices(), "sphere": SphereSlices()}
DIMENSION, RATE, COUPLING = 10, 2.0, 0.5
MODELS = {"scale": (RATE,), "coupled": (RATE, COUPLING)}


class Coupled(AbstractEnergy):
    """E(x) = (r |x|^2 + c ((sum x)^2 - |x|^2)) / 2; without c where theta is r alone."""

    theta: Float[Array, " p"]
    space: Real = eqx.field(static=True, default=Real((DIMENSION,)))

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        square = jnp.sum(x**2)
        statistics = jnp.stack([square, jnp.sum(x) ** 2 - square])
        return 0.5 * jnp.dot(self.theta, statistics[: len(self.theta)])


def _root(theta: tuple[float, ...]) -> np.ndarray:
    """A factor of the covariance."""
    r, c = (*theta, 0.0)[:2]
    precision = (r - c) * np.eye(DIMENSION) + c * np.ones((DIMENSION, DIMENSION))
    return np.linalg.cholesky(np.linalg.inv(precision)).astype(np.float32)


def _draw(theta: tuple[float, ...], shape: tuple[int, ...], key: Array) -> Array:
    return jax.random.normal(key, (*shape, DIMENSION)) @ _root(theta).T


@eqx.filter_jit
def _fits(objective: AbstractObjective, theta: Array, free: Array, root: Array, keys: Array, n: int) -> Array:
    """theta_hat - theta of one fit for each key, in the parameters marked free.

    A quadratic is known from six values around the truth: differences at distance 1 are its gradient and its Hessian,
    and one Newton step its minimum.
    """
    offsets = jnp.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 1.0]])

    def one(key):
        draw, slice_key = jax.random.split(key)
        points = jax.random.normal(draw, (n, DIMENSION)) @ root.T
        at, right, left, up, down, corner = jax.vmap(
            lambda offset: objective(Coupled(theta=theta + offset), None, points, key=slice_key)[0]
        )(offsets)
        gradient = 0.5 * jnp.stack([right - left, up - down])
        mixed = corner - right - up + at
        hessian = jnp.array([[right + left - 2 * at, mixed], [mixed, up + down - 2 * at]])
        # A parameter that is not free stays where it is.
        hessian = jnp.where(jnp.outer(free, free), hessian, jnp.eye(2))
        return -solve(hessian, jnp.where(free, gradient, 0.0))

    return jax.lax.map(one, keys, batch_size=20)


def _predict(efficiency: ScoreMatchingEfficiency, kind: str, slices: str, draws: int) -> float:
    """The trace of the asymptotic covariance."""
    if kind == "SM":
        return float(jnp.trace(efficiency.sm()))
    method = efficiency.ssm if kind == "SSM" else efficiency.ssm_vr
    return float(jnp.trace(method(SLICES[slices], draws)))


def _objective(kind: str, slices: str, draws: int) -> AbstractObjective:
    if kind == "SM":
        return SM()
    return (SSM if kind == "SSM" else SSMVR)(SLICES[slices], draws)


def _cases(quick: bool) -> list[tuple[str, str, str, int]]:
    """Model, kind, slices, draws."""
    draws = (1, 5) if quick else (1, 2, 5, 10)
    cases = []
    for model in MODELS:
        cases.append((model, "SM", "", 0))
        cases += [(model, kind, law, m) for kind in ("SSM", "SSM-VR") for law in SLICES for m in draws]
    return cases


def _label(model: str, kind: str, law: str, draws: int) -> str:
    return f"{model}, {kind}" + (f", {law}, M = {draws}" if law else "")


def _closed_form(model: str, kind: str, law: str, draws: int) -> float | None:
    """The closed forms of the scale model."""
    if model != "scale":
        return None
    least = 2 * RATE**2 / DIMENSION
    if kind == "SM":
        return least
    gaussian = law == "Gaussian"
    extra = (DIMENSION + 1 if gaussian else DIMENSION - 1) if kind == "SSM" else (1 if gaussian else 0)
    return least * (1 + extra / draws)


def _measure(job: Job, case: tuple[str, str, str, int], index: int, fits: int, n: int) -> dict[str, float]:
    model_name, kind, law, draws = case
    theta = MODELS[model_name]
    keys = jax.random.split(jax.random.fold_in(jax.random.key(job.seed), 100 + index), fits)
    padded, free = jnp.array((*theta, 0.0)[:2]), jnp.array([True, len(theta) == 2])
    gaps = _fits(_objective(kind, law, draws), padded, free, jnp.asarray(_root(theta)), keys, n)
    squares = n * np.sum(np.asarray(gaps, np.float64) ** 2, axis=1)
    return {"value": float(squares.mean()), "stderr": float(squares.std(ddof=1) / math.sqrt(fits))}


def _forecast(job: Job, model_name: str, points: int) -> dict[str, dict[str, float]]:
    """Every prediction for a model, with its spread over eight sets of draws."""
    theta = MODELS[model_name]
    sets = _draw(theta, (8, points // 8), jax.random.fold_in(jax.random.key(job.seed), list(MODELS).index(model_name)))
    found: dict[str, list[float]] = {}
    for rows in sets:
        efficiency = score_matching_efficiency(Coupled(theta=jnp.asarray(theta)), rows)
        for case in _cases(job.quick):
            if case[0] == model_name:
                found.setdefault(_label(*case), []).append(_predict(efficiency, *case[1:]))
    return {
        label: {"value": float(np.mean(v)), "stderr": float(np.std(v, ddof=1) / math.sqrt(len(v)))}
        for label, v in found.items()
    }


def _estimate(numbers: dict[str, float], method: str) -> Estimate:
    return Estimate(numbers["value"], numbers["stderr"], method)


def run(job: Job) -> Result:
    """Predict and measure every case."""
    fits, n, points = (2000, 200, 16_384) if job.quick else (10_000, 1000, 131_072)
    cases = _cases(job.quick)
    forecasts: dict[str, dict[str, float]] = {}
    for model in MODELS:
        forecasts |= job.piece(f"predicted-{model}", lambda model=model: _forecast(job, model, points))
    measured = job.pieces(
        {f"measured-{i:02d}": (lambda case=case, i=i: _measure(job, case, i, fits, n)) for i, case in enumerate(cases)},
        "fits",
    )
    rows, series = [], []
    for i, case in enumerate(cases):
        label = _label(*case)
        predicted = _estimate(forecasts[label], f"{points} draws of the truth")
        observed = _estimate(measured[f"measured-{i:02d}"], f"{fits} fits of {n} points")
        closed = _closed_form(*case)
        figures = {} if closed is None else {"closed form": exact(closed)}
        rows.append(Row(label, figures | {"predicted N Var": predicted, "measured N Var": observed}))
        series.append(
            dict(zip(("model", "kind", "law", "draws"), case, strict=True))
            | {"predicted": predicted.value, "measured": observed.value, "stderr": observed.stderr}
        )
    return Result(
        "Theorem 3.3: N times the variance of score matching's estimates (trace over parameters)",
        ("closed form", "predicted N Var", "measured N Var"),
        tuple(rows),
        _claims(series, n),
        {"cases": series, "points": n},
        (f"Measured at N = {n}, where the mean square exceeds its limit by up to about {14 / n:.1%}.",),
    )


def _claims(series: list[dict[str, Any]], n: int) -> tuple[Claim, ...]:
    def of(model: str, kind: str, law: str = "", draws: int = 0) -> float:
        key = (model, kind, law, draws)
        return next(c["measured"] for c in series if (c["model"], c["kind"], c["law"], c["draws"]) == key)

    gaps = [max(abs(c["measured"] - c["predicted"]) - 14 / n * c["predicted"], 0.0) / c["stderr"] for c in series]
    ordered = all(of(m, "SSM", "Gaussian", k) > of(m, "SSM", "Rademacher", k) for m in MODELS for k in (1, 5))
    one, least = of("scale", "SSM", "Rademacher", 1), of("scale", "SM")
    reduced = [of(m, "SSM-VR", law, 1) / of(m, "SSM", law, 1) for m in MODELS for law in SLICES]
    free = of("scale", "SSM-VR", "Rademacher", 1) / least
    return (
        Claim(
            f"Prediction and measurement agree in all {len(series)} cases: the largest gap is {max(gaps):.1f} standard "
            "errors after allowing for finite N.",
            max(gaps) < 4.5,
        ),
        Claim("Gaussian slices scatter more than Rademacher ones (one and five draws, both models).", ordered),
        Claim(
            f"One Rademacher slice in {DIMENSION} dimensions costs {one / least:.1f} times the variance of exact score "
            f"matching on the scale model; {DIMENSION} are predicted.",
            abs(one / least - DIMENSION) < 0.15 * DIMENSION,
        ),
        Claim(
            f"Variance reduction helps with every law: it leaves between {min(reduced):.0%} and {max(reduced):.0%} of "
            "the variance of one slice.",
            max(reduced) < 1,
        ),
        Claim(
            f"With Rademacher slices on the scale model it leaves that of exact score matching (ratio {free:.3f}).",
            abs(free - 1) < 0.1,
        ),
    )


def draw(result: Result) -> Figure:
    """N Var against the number of slices: lines predicted, points measured."""
    figure, row = panels(1, 2, 5, 4.4)
    for axes, model in zip(row[0], MODELS, strict=True):
        cases = [c for c in result.series["cases"] if c["model"] == model]
        whole = next(c for c in cases if c["kind"] == "SM")
        axes.axhline(whole["predicted"], color=INK, lw=1, label="SM")
        axes.errorbar([1], [whole["measured"]], [2 * whole["stderr"]], fmt=".", color=INK)
        for kind, style, mark in (("SSM", "-", "o"), ("SSM-VR", "--", "s")):
            for law, colour in zip(SLICES, COLOURS, strict=False):
                line = [c for c in cases if (c["kind"], c["law"]) == (kind, law)]
                draws = [c["draws"] for c in line]
                axes.plot(draws, [c["predicted"] for c in line], style, color=colour, lw=1.3, label=f"{kind}, {law}")
                errors = [2 * c["stderr"] for c in line]
                axes.errorbar(draws, [c["measured"] for c in line], errors, fmt=mark, color=colour, ms=4.5, mfc="white")
        axes.set(xscale="log", yscale="log", xlabel="slices per point M", ylabel="N × variance")
        named_ticks(axes, sorted({c["draws"] for c in cases if c["draws"]}))
        axes.set_title({"scale": "one scale", "coupled": "scale and coupling"}[model])
        grid_lines(axes)
    row[0, 1].legend(fontsize=8, loc="upper right")
    figure.suptitle("Lines: predicted by Theorem 3.3. Points: measured (± 2 standard errors).")
    return figure


EXPERIMENT = Experiment("ssm-variance", run, draw)
