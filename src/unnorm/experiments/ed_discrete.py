"""Schroeder et al. 2023 and 2024: energy discrepancy on zeros and ones, beside what learns there without a constant.

Three tasks. Sixteen spins on a lattice with couplings of their own: how far off are the couplings learnt from 5,000
exact draws, and how many nats is the law from the true one (all 65,536 points are summed). Densities of the plane,
each coordinate written in six bits of Gray code: a network learns 4,096 probabilities, which are known. Drawings of
Omniglot, 15 x 15: a restricted Boltzmann machine is learnt, and its held-out log-likelihood estimated by annealing.

Every objective trains the same model from the same weights with the same number of steps: persistent chains (PCD),
pseudo-likelihood, ratio matching, and energy discrepancy with flips at a rate, with one site changed (the neighbourhood
on the grid), and with the pixels of windows shuffled. The sources print no figures for these tasks.
"""

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped
from matplotlib.figure import Figure

from unnorm.data import load
from unnorm.data.omniglot import omniglot
from unnorm.energies import RBM, AbstractEnergy, Ising, every_point, fit_sites, lattice, mlp_on_sites, rbm
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation import energies, enumerated, log_partition
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, exact, over_seeds
from unnorm.noises import Flips, OneSite
from unnorm.objectives import PCD, AbstractObjective, EnergyDiscrepancy, Pooling, PseudoLikelihood, RatioMatching
from unnorm.plots import COLOURS, bars, panels
from unnorm.samplers import AbstractSampler, Gibbs
from unnorm.spaces import Binary
from unnorm.training import fit

SIDE, BITS, DRAWING = 4, 6, 15
PLANE = ("fourmodes", "rings", "swissroll")
SEEDS = 3
ERROR, NATS, LIKELIHOOD, SECONDS = "error of a coupling", "nats from the truth", "log-likelihood", "seconds"
CHAINS, PSEUDO, RATIOS, FLIPS, GRID, POOL = (
    "PCD", "pseudo-likelihood", "ratio matching", "ED, flips", "ED, one site", "ED, pooling",
)  # fmt: skip


def _objectives(
    sampler: AbstractSampler, sites: int | None, window: tuple[int, ...] | None
) -> Mapping[str, AbstractObjective]:
    found: dict[str, AbstractObjective] = {
        CHAINS: PCD(sampler, chains=256, moves=2),
        PSEUDO: PseudoLikelihood(sites),
        RATIOS: RatioMatching(sites),
        FLIPS: EnergyDiscrepancy(Flips(0.1), draws=16),
        GRID: EnergyDiscrepancy(OneSite(), draws=16),
    }
    return found if window is None else {**found, POOL: EnergyDiscrepancy(Pooling(window), draws=16)}


SPINS = _objectives(Gibbs(), None, None)
PLANES = _objectives(Gibbs(4), None, None)
DRAWINGS = _objectives(Gibbs(), 16, (3, 3))


def gray(points: Float[np.ndarray, "n 2"], low: Any, high: Any) -> Float[np.ndarray, "n bits"]:
    """Each coordinate as the number of its cell of 2^BITS between low and high, in Gray code: neighbours differ in one.

    >>> gray(np.array([[0.0, 1.0]]), 0.0, 1.0).astype(int).tolist()
    [[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]]
    """
    cells = np.clip(((points - low) / (high - low) * 2**BITS).astype(int), 0, 2**BITS - 1)
    codes = cells ^ (cells >> 1)
    return (codes[:, :, None] >> np.arange(BITS - 1, -1, -1) & 1).reshape(len(points), -1).astype(np.float32)


def _learn(
    model: AbstractEnergy, objective: AbstractObjective, rows: Shaped[np.ndarray, "n ..."], steps: int, rate: float,
    seed: int,
) -> tuple[Any, float]:  # fmt: skip
    """The model, and the seconds of all steps but the first of them, which compile."""
    options = {"rate": rate, "batch": 256, "key": jax.random.key(seed + 1), "progress": False}
    fit(model, objective, rows, steps=1, evaluations=1, **options)
    began = time.monotonic()
    learnt = fit(model, objective, rows, steps=steps, evaluations=1, **options).model
    return learnt, time.monotonic() - began


def _spins(name: str, seed: int, steps: int) -> dict[str, float]:
    """The error of the couplings and the divergence from the law that the rows are drawn from."""
    rng, sites = np.random.default_rng(seed), lattice((SIDE, SIDE))
    planted = Ising(sites, 0.3 * rng.normal(size=(SIDE, SIDE)), 0.8 * rng.normal(size=len(sites.edges)))
    law = enumerated(planted)
    blank = Ising(sites, jnp.zeros((SIDE, SIDE)), jnp.zeros(len(sites.edges)))
    learnt, seconds = _learn(blank, SPINS[name], law.draws(5000, seed=seed), steps, 2e-2, seed)
    error = float(jnp.sqrt(jnp.mean((learnt.coupling - planted.coupling) ** 2)))
    return {"error": error, "nats": law.divergence(enumerated(learnt)), "seconds": seconds}


def _plane(problem: str, name: str, steps: int, seed: int) -> dict[str, Any]:
    """The divergence of a network from a density whose cells are known by many draws of it."""
    many = load(problem, n_train=1_000_000, n_valid=1, n_test=1, seed=seed + 100).train
    low, high = np.quantile(many, 0.0005, axis=0), np.quantile(many, 0.9995, axis=0)
    places = gray(many, low, high).astype(int) @ (1 << np.arange(2 * BITS - 1, -1, -1))
    truth = np.bincount(places, minlength=4**BITS) / len(many)
    rows = gray(load(problem, n_train=20_000, seed=seed).train, low, high)
    model = mlp_on_sites(Binary((2 * BITS,)), width=128, depth=3, key=jax.random.key(seed))
    learnt, seconds = _learn(model, PLANES[name], rows, steps, 2e-3, seed)
    law = enumerated(learnt).probabilities
    kept = truth > 0
    nats = float((truth[kept] * (np.log(truth[kept]) - np.log(np.maximum(law[kept], 1e-300)))).sum())
    return {"nats": nats, "seconds": seconds, "image": np.round(as_image(law), 6).tolist()}


def as_image(law: Float[np.ndarray, " n"]) -> Float[np.ndarray, "side side"]:
    """Probabilities of all codes as those of the cells of the plane."""
    bits = every_point(Binary((2 * BITS,))).astype(int).reshape(-1, 2, BITS)
    # Back from Gray code: each bit is the parity of those before it.
    cells = (np.cumsum(bits, axis=2) % 2) @ (1 << np.arange(BITS - 1, -1, -1))
    image = np.zeros((2**BITS, 2**BITS))
    image[cells[:, 0], cells[:, 1]] = law
    return image


def _drawings(name: str, steps: int, seed: int) -> dict[str, Any]:
    """Held-out log-likelihood of a machine; None where annealing could not tell log Z."""
    found = omniglot(DRAWING)
    found = found[np.random.default_rng(seed).permutation(len(found))]
    test, rows = found[:3000], found[3000:]
    alone = np.asarray(fit_sites(Binary((DRAWING, DRAWING)), rows).logits).reshape(-1, 2)
    start = rbm(Binary((DRAWING, DRAWING)), 64, key=jax.random.key(seed))
    model = RBM(start.space, start.weights, alone[:, 1] - alone[:, 0], start.hidden)
    learnt, seconds = _learn(model, DRAWINGS[name], rows, steps, 3e-3, seed)
    log_z = log_partition(learnt, key=jax.random.key(seed + 5))
    value = mean_estimate(-energies(learnt, test).astype(np.float64) - log_z.value, "test rows")
    estimate = Estimate(value.value, math.hypot(value.stderr, log_z.stderr), f"log Z by {log_z.method}")
    return {"likelihood": estimate.to_dict(), "seconds": seconds}


def run(job: Job) -> Result:
    """Every objective on every task."""
    few, many = (1000, 1500) if job.quick else (10_000, 30_000)
    spins = job.over("spins", lambda n, s: _spins(n, job.seed + s, few), SPINS, range(SEEDS))
    plane = job.over("plane", partial(_plane, steps=many, seed=job.seed), PLANE, PLANES)
    drawings = job.over("drawings", partial(_drawings, steps=many, seed=job.seed), DRAWINGS)
    rows = [
        Row(
            f"spins: {name}",
            {
                column: over_seeds([spins[name, s][part] for s in range(SEEDS)])
                for column, part in ((ERROR, "error"), (NATS, "nats"), (SECONDS, "seconds"))
            },
        )
        for name in SPINS
    ]
    rows += [
        Row(
            f"{problem}: {name}",
            {
                NATS: exact(plane[problem, name]["nats"], "all points"),
                SECONDS: exact(plane[problem, name]["seconds"], "clock"),
            },
        )
        for problem in PLANE
        for name in PLANES
    ]
    rows += [
        Row(
            f"drawings: {name}",
            {LIKELIHOOD: Estimate.from_dict(piece["likelihood"]), SECONDS: exact(piece["seconds"], "clock")},
        )
        for name, piece in drawings.items()
    ]
    result = Result(
        "Energy discrepancy on zeros and ones, beside other objectives",
        (ERROR, NATS, LIKELIHOOD, SECONDS),
        tuple(rows),
        (),
        {
            "images": {p: {n: plane[p, n]["image"] for n in (CHAINS, FLIPS, GRID)} for p in PLANE},
            "errors": {n: over_seeds([spins[n, s]["error"] for s in range(SEEDS)]).to_dict() for n in SPINS},
        },
        (f"{few} steps on spins, {many} on the plane and on drawings; seconds without compiling.",),
    )
    return Result(result.title, result.columns, result.rows, _claims(result), result.series, result.remarks)


def _claims(result: Result) -> tuple[Claim, ...]:
    def value(task: str, name: str, column: str) -> Estimate:
        return result.row(f"{task}: {name}").figures[column]

    best = min((FLIPS, GRID), key=lambda n: value("spins", n, ERROR).value)
    blank = 0.8
    drawn = {name: value("drawings", name, LIKELIHOOD).value for name in DRAWINGS}
    return (
        Claim(
            f"Energy discrepancy finds the couplings of spins to a fifth of their size ({best}: "
            f"{value('spins', best, ERROR).number()} of {blank}).",
            value("spins", best, ERROR).value < 0.2 * blank,
        ),
        Claim(
            "On spins pseudo-likelihood errs less than energy discrepancy of either kind.",
            value("spins", PSEUDO, ERROR).value < value("spins", best, ERROR).value,
        ),
        *(
            Claim(
                f"On {problem} energy discrepancy with flips is nearer to the truth than PCD.",
                value(problem, FLIPS, NATS).value < value(problem, CHAINS, NATS).value,
            )
            for problem in PLANE
        ),
        Claim(
            "On drawings energy discrepancy has at least the likelihood of PCD "
            f"(best {max(drawn[FLIPS], drawn[GRID], drawn[POOL]):.1f}, PCD {drawn[CHAINS]:.1f}).",
            max(drawn[FLIPS], drawn[GRID], drawn[POOL]) >= drawn[CHAINS],
        ),
    )


def draw(result: Result) -> Figure:
    """What was learnt of the plane above; the errors of couplings below."""
    images, errors = result.series["images"], result.series["errors"]
    figure, grid = panels(1 + len(images), 3, width=3.0, height=2.8)
    for row, (problem, of) in zip(grid, images.items(), strict=False):
        for axes, (name, image) in zip(row, of.items(), strict=True):
            axes.imshow(np.asarray(image).T, origin="lower", cmap="viridis")
            axes.set(title=f"{problem}, {name}", xticks=[], yticks=[])
    below = grid[-1]
    bars(below[0], range(len(errors)), list(errors.values()), color=COLOURS[0])
    below[0].set_xticks(range(len(errors)), list(errors), rotation=30, ha="right")
    below[0].set(title="spins", ylabel=ERROR)
    for axes in below[1:]:
        axes.set_axis_off()
    return figure


EXPERIMENT = Experiment("ed-discrete", run, draw)
