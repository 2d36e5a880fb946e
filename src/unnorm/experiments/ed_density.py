"""Schroeder et al. 2023: energy discrepancy on densities of the plane, and its two limits.

The source prints no numbers. Here a network is trained on each problem by energy discrepancy (Gaussian noise
half as wide as the data, 16 draws, stabiliser 1), its normaliser found by quadrature on a grid, and its log-likelihood
on held-out rows set beside the true density's. On two far modes a narrower noise is tried too: it does not see across
the gap, as score matching does not, and gets the weights of the modes wrong.

The limits are measured on the line, data N(0, 1) and model N(m, s^2), where everything is a formula:

    ED_t = log s + (1 + m^2) / (2 s^2) - log(s^2 + t) / 2 - (1 + t + m^2) / (2 (s^2 + t)).

As t falls the gradient of ED/t becomes that of score matching; as t grows ED(U) - ED(-log p) becomes the
Kullback-Leibler divergence, from which it differs by at most W2^2 / (2 t). Measured is the loss one trains with (no
stabiliser, a finite number of draws); the formula and the limit stand beside it.
"""

import math
from functools import partial
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from unnorm.data import load
from unnorm.energies import GaussianDensity, MLPEnergy
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation import energies
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, exact
from unnorm.noises import Gaussian as Local
from unnorm.noises import scales_of
from unnorm.objectives import EnergyDiscrepancy
from unnorm.plots import COLOURS, MAP, QUIET, bars, named_ticks, new_figure
from unnorm.training import fit

PROBLEMS = ("bimodal", "fourmodes", "rings", "swissroll")
#: The noise, in standard deviations of the data.
WIDE, NARROW = 0.5, 0.1
POINTS = 200
RATE = 5e-3
#: Nats per row that count as having learnt a density.
CLOSE = 0.1
#: The model of the line, N(MEAN, SCALE^2).
MEAN, SCALE = 0.5, 1.5
SMALL, LARGE = (0.5, 0.1, 0.02), (1.0, 4.0, 16.0)
MODEL, TRUTH, GAP = "log-likelihood", "of the truth", "nats below the truth"
MEASURED, FORMULA, LIMIT = "measured", "formula", "limit"


def _learn(name: str, width: float, steps: int, seed: int) -> dict[str, Any]:
    """Held-out log-likelihoods of the network and of the truth; the density on a grid."""
    problem = load(name, seed=seed)
    assert problem.truth is not None
    begin, run = jax.random.split(jax.random.key(seed))
    model = MLPEnergy(problem.space, width=64, depth=3, scale=scales_of(problem.train, problem.valid).length, key=begin)
    noise = width * float(np.sqrt(problem.train.var(0).mean()))
    objective = EnergyDiscrepancy(Local(noise), draws=16)
    fitted = fit(model, objective, problem.train, steps=steps, rate=RATE, key=run, progress=False)
    low, high = problem.train.min(0), problem.train.max(0)
    low, high = low - 0.5 * (high - low), high + 0.5 * (high - low)
    axes = [np.linspace(a, b, POINTS) for a, b in zip(low, high, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2).astype(np.float32)
    log_f = -energies(fitted.model, points).astype(np.float64)
    log_z = float(np.logaddexp.reduce(log_f)) + math.log((axes[0][1] - axes[0][0]) * (axes[1][1] - axes[1][0]))
    density = np.exp(log_f - log_z).reshape(POINTS, POINTS)
    found = -energies(fitted.model, problem.test).astype(np.float64) - log_z
    true = -energies(problem.truth, problem.test).astype(np.float64)
    return {
        "model": mean_estimate(found, "held-out rows").to_dict(),
        "truth": mean_estimate(true, "held-out rows").to_dict(),
        "gap": mean_estimate(true - found, "held-out rows").to_dict(),
        # Had the model mass beyond the grid, it would show as mass on its rim.
        "rim": float(np.max([density[0].max(), density[-1].max(), density[:, 0].max(), density[:, -1].max()])),
        "image": np.round(density[::2, ::2], 4).tolist(),
        "extent": [float(low[0]), float(high[0]), float(low[1]), float(high[1])],
    }


def _discrepancy(theta: Array, t: float) -> Array:
    """ED_t of the model N(m, s^2) with theta = (m, log s), in closed form."""
    m, variance = theta[0], jnp.exp(2 * theta[1])
    wider = variance + t
    return theta[1] + (1 + m**2) / (2 * variance) - jnp.log(wider) / 2 - (1 + t + m**2) / (2 * wider)


@eqx.filter_jit
def _line(objective: EnergyDiscrepancy, theta: Array, keys: Array) -> tuple[Array, Array]:
    """Losses and gradients in (mean, log scale), each on a batch of 500 of N(0, 1)."""

    def one(key):
        data, noise = jax.random.split(key)
        batch = jax.random.normal(data, (500, 1))

        def loss(theta):
            return objective(GaussianDensity(theta[:1], -theta[1:, None]), None, batch, key=noise)[0]

        return jax.value_and_grad(loss)(theta)

    return jax.lax.map(one, keys)


def _small(t: float, repeats: int, seed: int) -> dict[str, Any]:
    """d(ED/t)/d log s: measured, by the formula, and in the limit of score matching."""
    theta = jnp.array([MEAN, math.log(SCALE)])
    keys = jax.random.split(jax.random.key(seed), 2 * repeats)
    _, gradients = _line(EnergyDiscrepancy(Local(math.sqrt(t)), 128, 0.0), theta, keys)
    # Score matching is r^2 (1 + m^2) / 2 - r with r = s^-2.
    rate = SCALE**-2
    return {
        "measured": mean_estimate(np.asarray(gradients)[:, 1] / t, "batches").to_dict(),
        "formula": float(jax.grad(_discrepancy)(theta, t)[1]) / t,
        "limit": 2 * rate - 2 * rate**2 * (1 + MEAN**2),
    }


def _large(t: float, repeats: int, seed: int) -> dict[str, Any]:
    """ED(U) - ED(-log p): measured, by the formula, and in the limit of the divergence; the bound on the gap."""
    keys = jax.random.split(jax.random.key(seed), repeats)
    # Wide noise wastes most of its draws, and too few of them lift the loss.
    objective = EnergyDiscrepancy(Local(math.sqrt(t)), 1024, 0.0)
    theta, truth = jnp.array([MEAN, math.log(SCALE)]), jnp.zeros(2)
    excess = _line(objective, theta, keys)[0] - _line(objective, truth, keys)[0]
    rate = SCALE**-2
    return {
        "measured": mean_estimate(np.asarray(excess), "batches").to_dict(),
        "formula": float(_discrepancy(theta, t) - _discrepancy(truth, t)),
        "limit": 0.5 * (rate * (1 + MEAN**2) - 1 - math.log(rate)),
        "bound": (MEAN**2 + (1 - SCALE) ** 2) / (2 * t),
    }


def run(job: Job) -> Result:
    """Four problems, one of them twice, and both limits."""
    steps, repeats = (1000, 64) if job.quick else (20_000, 1000)
    narrow = f"{PROBLEMS[0]}, narrow noise"
    computes = {name: partial(_learn, name, WIDE, steps, job.seed) for name in PROBLEMS}
    computes["narrow"] = partial(_learn, PROBLEMS[0], NARROW, steps, job.seed)
    computes |= {f"small-{t:g}": partial(_small, t, repeats, job.seed) for t in SMALL}
    computes |= {f"large-{t:g}": partial(_large, t, repeats, job.seed) for t in LARGE}
    pieces = job.pieces(computes, "ed-density")
    densities = {name: pieces[name] for name in PROBLEMS} | {narrow: pieces["narrow"]}
    small, large = [pieces[f"small-{t:g}"] for t in SMALL], [pieces[f"large-{t:g}"] for t in LARGE]
    rows = [
        Row(name, {c: Estimate.from_dict(piece[k]) for c, k in ((MODEL, "model"), (TRUTH, "truth"), (GAP, "gap"))})
        for name, piece in densities.items()
    ]
    rows += [_line_row(f"gradient of ED/t, t = {t:g}", piece) for t, piece in zip(SMALL, small, strict=True)]
    rows += [_line_row(f"excess of ED, t = {t:g}", piece) for t, piece in zip(LARGE, large, strict=True)]
    curves = {
        "small": {"t": list(SMALL), "pieces": small},
        "large": {"t": list(LARGE), "pieces": large},
    }
    return Result(
        "Energy discrepancy on densities of the plane, and its limits on the line",
        (MODEL, TRUTH, GAP, MEASURED, FORMULA, LIMIT),
        tuple(rows),
        _claims(densities, narrow, small, large),
        {"densities": {n: {k: p[k] for k in ("image", "extent")} for n, p in densities.items()}, "limits": curves},
        (f"{steps} training steps of rate {RATE:g}; density on the rims of the grids at most {_rim(densities):.0e}.",),
    )


def _rim(densities: dict[str, Any]) -> float:
    return max(piece["rim"] for piece in densities.values())


def _line_row(label: str, piece: dict[str, Any]) -> Row:
    figures = {MEASURED: Estimate.from_dict(piece["measured"])}
    return Row(label, figures | {FORMULA: exact(piece["formula"]), LIMIT: exact(piece["limit"])})


def _claims(densities: dict[str, Any], narrow: str, small: list[Any], large: list[Any]) -> tuple[Claim, ...]:
    def gap(piece: dict[str, Any]) -> float:
        return abs(piece["measured"]["value"] - piece["limit"])

    def error(piece: dict[str, Any]) -> float:
        return piece["measured"]["stderr"]

    wide, tight = densities[PROBLEMS[0]]["gap"], densities[narrow]["gap"]
    claims = [
        Claim(
            f"On {name} the learnt density is within {CLOSE} nats per row of the true one.",
            densities[name]["gap"]["value"] + 2 * densities[name]["gap"]["stderr"] < CLOSE,
        )
        for name in PROBLEMS
    ]
    return (
        *claims,
        Claim(
            f"On {PROBLEMS[0]} narrow noise is further from the truth than wide noise.",
            tight["value"] - wide["value"] > 2 * math.hypot(tight["stderr"], wide["stderr"]),
        ),
        Claim(
            "As t falls the gradient of ED/t, far from that of score matching at first, comes within errors of it.",
            gap(small[0]) > 3 * error(small[0]) and gap(small[-1]) < min(3 * error(small[-1]), gap(small[0])),
        ),
        Claim(
            "As t grows the excess of ED comes nearer to the divergence.",
            all(gap(a) > gap(b) for a, b in pairwise(large)),
        ),
        Claim(
            "At every t the excess of ED is, within errors, below the divergence by at most W2^2 / (2 t).",
            all(-3 * error(p) <= p["limit"] - p["measured"]["value"] <= p["bound"] + 3 * error(p) for p in large),
        ),
        Claim(
            "Every measured figure is within 3 standard errors of its formula.",
            all(abs(p["measured"]["value"] - p["formula"]) < 3 * error(p) for p in (*small, *large)),
        ),
    )


def draw(result: Result) -> Figure:
    """The learnt densities above, the limits below."""
    densities, limits = result.series["densities"], result.series["limits"]
    figure = new_figure(3 * len(densities), 6)
    parts: Any = figure.subfigures(2, 1)
    above, below = parts
    for axes, (name, of) in zip(above.subplots(1, len(densities)), densities.items(), strict=True):
        axes.imshow(np.asarray(of["image"]).T, origin="lower", extent=of["extent"], aspect="auto", cmap=MAP)
        axes.set(title=name)
    titles = {"small": "gradient of ED/t, to score matching", "large": "excess of ED, to the divergence"}
    for axes, (end, curve) in zip(below.subplots(1, 2), limits.items(), strict=True):
        pieces = curve["pieces"]
        bars(axes, curve["t"], [piece["measured"] for piece in pieces], label="measured, 2 standard errors")
        axes.plot(curve["t"], [piece["formula"] for piece in pieces], "x", color=COLOURS[1], zorder=3, label="formula")
        axes.axhline(pieces[0]["limit"], color=QUIET, linestyle="--", label="limit")
        if end == "large":
            lower = [piece["limit"] - piece["bound"] for piece in pieces]
            axes.plot(curve["t"], lower, ":", color=COLOURS[2], label="limit - W2² / 2t")
        axes.set(xscale="log", xlabel="t", title=titles[end])
        named_ticks(axes, curve["t"])
        axes.legend()
    return figure


EXPERIMENT = Experiment("ed-density", run, draw)
