"""Samplers and log Z on the square lattice, below, at and above the critical coupling, against what is known exactly.

Three lattices without a field: 4 x 5 sites with free edges, whose states are all summed; an 8 x 8 torus, whose second
moment of the magnetisation a transfer matrix has; a 32 x 32 torus, whose log Z and energy are Kaufman's. Gibbs sampling
in a checkerboard, Swendsen and Wang's clusters and parallel tempering give means with errors that count the effective
draws; annealed importance sampling (moved by Gibbs and by clusters) and sequential Monte Carlo give log Z with theirs.
What is asked is whether the truth lies within the errors that are stated. Onsager's infinite lattice is beside them,
and Yang's magnetisation.
"""

import math
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from unnorm.energies import (
    Ising,
    critical_coupling,
    lattice,
    onsager_equal,
    onsager_log_z,
    strip,
    torus_equal,
    torus_log_z,
    uniform,
    yang_magnetisation,
)
from unnorm.estimate import Estimate
from unnorm.evaluation import ais, enumerated, smc
from unnorm.evaluation.partition.chains import mean_of_chains
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, exact
from unnorm.plots import COLOURS, INK, grid_lines, panels
from unnorm.samplers import AbstractSampler, Gibbs, ParallelTempering, SwendsenWang, Trace, sample

CRITICAL = critical_coupling()
BETAS = {"below": 0.7, "critical": CRITICAL, "above": 1.1}
SMALL, MIDDLE, LARGE = "4 x 5", "8 x 8 torus", "32 x 32 torus"
SHAPES = {SMALL: (4, 5), MIDDLE: (8, 8), LARGE: (32, 32)}
ENERGY, MOMENT, LOG_Z = "energy per site", "m^2", "log Z per site"
OFF = "largest deviation in stated errors"
COLUMNS = (ENERGY, MOMENT, LOG_Z, OFF)


@dataclass(frozen=True)
class Size:
    """Chains of the samplers, draws of each and sweeps between them; chains and levels of annealing."""

    chains: int
    draws: int
    thin: int
    walkers: int
    levels: int


QUICK = Size(32, 400, 5, 256, 300)
PAPER = Size(64, 2000, 20, 2048, 3000)
SAMPLERS: dict[str, AbstractSampler] = {
    "Gibbs": Gibbs(),
    "Swendsen-Wang": SwendsenWang(),
    "tempering": ParallelTempering(4, 0.6, moves=Gibbs()),
}
CONSTANTS = ("AIS by Gibbs", "AIS by clusters", "SMC by Gibbs")


def model(shape: str, beta: float) -> Ising:
    """The lattice of this name; all but the small one are tori."""
    return Ising(lattice(SHAPES[shape], periodic=shape != SMALL), 0.0, beta)


@cache
def truth(shape: str, beta: float) -> dict[str, float]:
    """What is known, per site: enumeration, transfer matrix or Kaufman."""
    sites = math.prod(SHAPES[shape])
    if shape == SMALL:
        law = enumerated(model(shape, beta))
        flat = law.points.reshape(len(law.points), -1)
        moment = float(law.probabilities @ (2 * flat.mean(axis=1, dtype=np.float64) - 1) ** 2)
        energy = float(law.mean(model(shape, beta)))
        return {ENERGY: energy / sites, MOMENT: moment, LOG_Z: law.log_z / sites}
    known = {
        ENERGY: -beta * torus_equal(SHAPES[shape], beta) / sites,
        LOG_Z: torus_log_z(SHAPES[shape], beta) / sites,
    }
    if shape == MIDDLE:
        known[MOMENT] = 4 * strip(SHAPES[shape], 0.0, beta, around=(True, True)).variance / sites**2
    return known


def _means(trace: Trace, energy: Ising) -> dict[str, Any]:
    """Means over chains with the errors of their effective draws."""
    flat = trace.draws.reshape(-1, *energy.space.shape)
    energies = np.concatenate([np.asarray(jax.vmap(energy)(jnp.asarray(part))) for part in np.array_split(flat, 20)])
    shape, sites = trace.draws.shape[:2], energy.space.size
    values = {
        ENERGY: energies.reshape(shape) / sites,
        MOMENT: (2 * trace.draws.reshape(*shape, -1).mean(axis=2, dtype=np.float64) - 1) ** 2,
    }
    found = {}
    for name, of in values.items():
        mean = mean_of_chains(of)
        found[name] = Estimate(mean.value, mean.stderr, "chains", {"effective_draws": mean.effective}).to_dict()
    return found


def _sampled(shape: str, place: str, sampler: str, size: Size, seed: int) -> dict[str, Any]:
    energy = model(shape, BETAS[place])
    trace = sample(
        energy, SAMPLERS[sampler], chains=size.chains, steps=size.draws, thin=size.thin,
        warmup=size.draws, key=_key(seed, shape, place, sampler), progress=False,
    )  # fmt: skip
    return _means(trace, energy)


def _key(seed: int, *names: str) -> Any:
    """A key of its own for every piece."""
    places = [list(of).index(name) for of, name in zip((SHAPES, BETAS, (*SAMPLERS, *CONSTANTS)), names, strict=True)]
    return jax.random.fold_in(jax.random.key(seed), places[0] + 10 * places[1] + 100 * places[2])


def _constant(shape: str, place: str, method: str, size: Size, seed: int) -> dict[str, Any]:
    energy, key, sites = model(shape, BETAS[place]), _key(seed, shape, place, method), math.prod(SHAPES[shape])
    base = uniform(energy.space)
    if method == "SMC by Gibbs":
        found = smc(energy, base, islands=16, particles=size.walkers // 4, sampler=Gibbs(), key=key)
    else:
        by = Gibbs() if method == "AIS by Gibbs" else SwendsenWang()
        found = ais(energy, base, chains=size.walkers, levels=size.levels, sampler=by, key=key)
    each = Estimate(found.value / sites, found.stderr / sites, found.method)
    return {LOG_Z: each.to_dict(), "warnings": list(found.warnings)}


def _deviation(piece: dict[str, Any], known: dict[str, float]) -> float:
    """How many stated errors the worst figure is off; sums in 32 bits are good to some parts in a million."""
    return max(
        abs(piece[n]["value"] - t) / math.hypot(piece[n]["stderr"], 3e-6) for n, t in known.items() if n in piece
    )


def run(job: Job) -> Result:
    """Every method on every lattice at every coupling."""
    size = QUICK if job.quick else PAPER
    pieces = job.over("means", partial(_sampled, size=size, seed=job.seed), SHAPES, BETAS, SAMPLERS)
    pieces |= job.over("log Z", partial(_constant, size=size, seed=job.seed), SHAPES, BETAS, CONSTANTS)
    rows, off = [], {}
    for shape in SHAPES:
        for place, beta in BETAS.items():
            known = truth(shape, beta)
            rows.append(Row(f"{shape}, {place}: exact", {n: exact(v) for n, v in known.items()}))
            for method in (*SAMPLERS, *CONSTANTS):
                piece = pieces[shape, place, method]
                off[shape, place, method] = _deviation(piece, known)
                told = {n: Estimate.from_dict(piece[n]) for n in (ENERGY, MOMENT, LOG_Z) if n in piece}
                rows.append(Row(f"{shape}, {place}: {method}", {**told, OFF: exact(off[shape, place, method])}))
    for place, beta in BETAS.items():
        infinite = {
            ENERGY: -beta * onsager_equal(beta),
            MOMENT: yang_magnetisation(beta) ** 2,
            LOG_Z: onsager_log_z(beta),
        }
        rows.append(Row(f"infinite, {place}: Onsager, Yang", {n: exact(v) for n, v in infinite.items()}))
    remarks = [
        f"{shape}, {place}, {method}: {warning}"
        for (shape, place, method), piece in pieces.items()
        for warning in piece.get("warnings", ())
    ]
    series = {
        "figures": {
            f"{shape}, {place}, {method}": {n: piece[n] for n in (ENERGY, MOMENT, LOG_Z) if n in piece}
            for (shape, place, method), piece in pieces.items()
        },
        "off": {f"{shape}, {place}, {method}": value for (shape, place, method), value in off.items()},
    }
    title = "The square lattice below, at and above its critical coupling"
    return Result(title, COLUMNS, tuple(rows), _claims(off, pieces), series, tuple(remarks))


def _claims(off: dict[Any, float], pieces: dict[Any, Any]) -> tuple[Claim, ...]:
    claims = []
    for methods in ([m] for m in (*SAMPLERS, *CONSTANTS)):
        worst = max((value, at) for at, value in off.items() if at[2] in methods)
        claims.append(
            Claim(
                f"{methods[0]}: every figure lies within 4 of its stated errors from the truth (worst "
                f"{worst[0]:.1f}, {worst[1][0]}, {worst[1][1]}).",
                worst[0] < 4,
            )
        )
    errors = [pieces[LARGE, "critical", m][ENERGY]["stderr"] for m in ("Gibbs", "Swendsen-Wang")]
    claims.append(
        Claim(
            f"At the critical coupling of the 32 x 32 torus clusters know the energy better than as many sweeps of "
            f"Gibbs sampling (errors {errors[1]:.2g} and {errors[0]:.2g}).",
            errors[1] < errors[0],
        )
    )
    return tuple(claims)


def draw(result: Result) -> Figure:
    """Every estimate in stated errors from the truth, lattice by lattice."""
    figure, axes = panels(1, len(SHAPES), 4.2, 3.6)
    methods, off = (*SAMPLERS, *CONSTANTS), result.series["off"]
    for one, shape in zip(axes[0], SHAPES, strict=True):
        for k, (method, colour) in enumerate(zip(methods, COLOURS, strict=False)):
            values = [off[f"{shape}, {place}, {method}"] for place in BETAS]
            one.plot(np.arange(len(BETAS)) + 0.09 * (k - 2.5), values, "o", color=colour, ms=5, label=method)
        one.axhline(4, color=INK, lw=0.8)
        one.set_xticks(range(len(BETAS)), list(BETAS))
        one.set_title(shape)
        grid_lines(one, "y")
    axes[0][0].set_ylabel(OFF)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


EXPERIMENT = Experiment("ising-exact", run, draw)
