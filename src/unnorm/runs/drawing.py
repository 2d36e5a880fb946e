"""Draws of the model of a run: independent ones, chains from training rows, or a population.

`unnorm sample` writes them to files, and `Fitted.sample` hands them over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from unnorm.catalogue import MODELS, SAMPLERS, Context, find, first_for, read_options, require_works
from unnorm.data.kinds import count_of, taken
from unnorm.energies import AbstractEnergy
from unnorm.errors import require
from unnorm.runs.findings import draws_finding
from unnorm.runs.folder import Run
from unnorm.runs.generating import conditions_for, guided, walked
from unnorm.runs.given import energy_of_points
from unnorm.runs.lots import Lots
from unnorm.runs.prepare import points_of
from unnorm.samplers import AbstractSampler, ImportanceResampling, Particles, Resampled, TemperedSMC, Trace, sample
from unnorm.scores import AbstractLevelledScore

CHAINS = 32
#: Fewer steps than this per chain say nothing about mixing.
MIN_STEPS = 200
#: Rows that are drawn, converted and written together.
ROWS_AT_ONCE = 2**16


class Spread:
    """n rows spread evenly over a trace, which are read as they are asked for."""

    def __init__(self, trace: Trace, n: int):
        total = trace.draws.shape[0] * trace.draws.shape[1]
        self.trace, self.numbers = trace, np.linspace(0, total - 1, n).round().astype(int)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, some: slice) -> np.ndarray:
        # Step-major order: neighbours come from different chains.
        steps, chains = np.divmod(self.numbers[some], self.trace.draws.shape[0])
        return self.trace.draws[chains, steps]


@dataclass(frozen=True, eq=False)
class Drawn:
    """Draws in unit coordinates, which are read as they are asked for, and how far to trust them."""

    rows: Spread | np.ndarray
    sampler: str
    figures: Mapping[str, Any]
    warnings: tuple[str, ...]
    #: What a person may want to know, if nothing is wrong.
    remark: str = ""


def default_sampler(run: Run) -> str:
    """The first of the catalogue that works on the run's space and draws from its model: independent draws of a model
    with a reference, chains of another.
    """
    return first_for(SAMPLERS, run.prepared.space, model=find(MODELS, run.settings.model.name, "model")).name


def draw(
    run: Run,
    n: int,
    *,
    sampler: str | None = None,
    options: dict[str, Any] | None = None,
    folder: Path | None = None,
    given: Mapping[str, Any] | None = None,
    solver: str | None = None,
    guidance: float = 1.0,
    seed: int,
    progress: bool = True,
) -> Drawn:
    """n draws of the model of a run, by a sampler of the catalogue; in a folder they are kept as they come.

    `given` has a value, in the data's own units, for every condition of a model that takes some. A score over noise
    levels is walked by a `solver`, pushed towards its label by `guidance`.
    """
    if isinstance(run.model, AbstractLevelledScore):
        require(
            sampler is None,
            f"the model of {run.path} is a score over noise levels, which solvers walk; name one by --solver "
            "(unnorm list generators)",
        )
        return _generated(run, run.model, n, folder, solver, options or {}, given or {}, guidance, seed, progress)
    require(
        solver is None and guidance == 1,
        f"--solver and --guidance are for scores over noise levels, and the model of {run.path} is an energy; "
        "use --sampler",
    )
    name, prepared = sampler or default_sampler(run), run.prepared
    entry = find(SAMPLERS, name, "sampler")
    require_works(SAMPLERS, entry, prepared.space, None, "sampler")
    model = energy_of_points(run, given or {})
    context = Context(prepared.space, prepared.scales, jax.random.key(seed), prepared.train, prepared.valid)
    built = entry.build(read_options(entry, options or {}), context)
    remark = ""
    rows: Spread | np.ndarray
    if isinstance(built, TemperedSMC):
        require(folder is None, f"{name} gives all its draws at once, at the end; name a file such as draws.csv")
        particles = built(model, key=jax.random.key(seed))
        broken = not np.isfinite(particles.draws).all()
        rows, warnings, found = particles.resampled(n, seed=seed), particles.warnings, _figures_of_levels(particles)
    elif isinstance(built, ImportanceResampling):
        drawn = _independent(run, model, built, n, folder, seed, progress)
        broken = not np.isfinite(drawn.draws).all()
        rows, warnings, found = drawn.draws, drawn.warnings, figures_of(drawn)
        remark = f"{drawn.effective:.0%} of {drawn.proposals:,} proposals are effective"
    else:
        trace = _chains(run, model, built, n, folder, seed, progress)
        broken = bool(trace.diagnostics.broken.any())
        rows, warnings, found = Spread(trace, n), trace.warnings, figures_of(trace)
    require(
        not broken,
        f"nothing was written: draws of {name} are not finite, since its step is too large for this model; "
        "use a smaller step (--set sampler.step_size=VALUE) or --sampler nuts",
    )
    return Drawn(rows, name, found, warnings, remark)


def _generated(
    run: Run,
    score: AbstractLevelledScore,
    n: int,
    folder: Path | None,
    solver: str | None,
    options: dict[str, Any],
    given: Mapping[str, Any],
    guidance: float,
    seed: int,
    progress: bool,
) -> Drawn:
    conditions = conditions_for(run.prepared, n, given, seed=seed)
    asked = {"solver": solver, "options": options, "given": {**given}, "guidance": guidance, "n": n}
    lots = Lots(folder, {"of": run.identity, "seed": seed, **asked})
    made = walked(
        guided(score, guidance), n, conditions=conditions, solver=solver, options=options, lots=lots,
        key=jax.random.key(seed), progress=progress,
    )  # fmt: skip
    require(
        made.lost == 0,
        f"nothing was written: {made.lost} of {n} draws are not finite; use more levels (--steps) or another --solver",
    )
    way = f"{made.steps} levels" if made.evaluations is None else f"{made.evaluations:.0f} evaluations"
    return Drawn(made.points, made.solver, made.figures(), made.warnings, f"{way} by {made.solver}")


def figures_of(sampled: Trace | Resampled) -> dict[str, Any]:
    """How far to trust draws, as plain numbers."""
    return draws_finding(sampled).fields()["sampler"]


def _independent(
    run: Run,
    model: AbstractEnergy,
    sampler: ImportanceResampling,
    n: int,
    folder: Path | None,
    seed: int,
    progress: bool,
) -> Resampled:
    """Draws in lots of `ROWS_AT_ONCE`, each with a key of its own; in a folder each lot is kept as it is done."""
    key, lots = jax.random.key(seed), []
    kept = Lots(folder, {"of": run.identity, "seed": seed, "proposals_each": sampler.proposals})
    for lot, first in enumerate(range(0, n, ROWS_AT_ONCE)):
        size = min(ROWS_AT_ONCE, n - first)
        found = kept.found(lot, size)
        if found is not None:
            draws, notes = found
            lots.append(Resampled(draws, notes["proposals"], notes["effective"], notes["repeated"]))
            continue
        drawn = sampler(model, size, key=jax.random.fold_in(key, lot), progress=progress)
        kept.keep(lot, drawn.draws, {**figures_of(drawn), "effective": drawn.effective})
        lots.append(drawn)
    proposals = sum(lot.proposals for lot in lots)
    effective = sum(lot.effective * lot.proposals for lot in lots) / proposals
    repeated = sum(lot.repeated for lot in lots)
    return Resampled(np.concatenate([lot.draws for lot in lots]), proposals, effective, repeated)


def _chains(
    run: Run,
    model: AbstractEnergy,
    sampler: AbstractSampler,
    n: int,
    folder: Path | None,
    seed: int,
    progress: bool,
) -> Trace:
    """Chains from training rows, long enough for n draws."""
    train, steps = points_of(run.prepared.train), max(MIN_STEPS, -(-n // CHAINS))
    start = taken(train, np.random.default_rng(seed).integers(count_of(train), size=CHAINS))
    key = jax.random.key(seed)
    return sample(model, sampler, chains=CHAINS, steps=steps, start=start, to=folder, key=key, progress=progress)


def _figures_of_levels(particles: Particles) -> dict[str, float]:
    return {
        "acceptance": float(np.mean(particles.acceptance)),
        "levels": len(particles.betas) - 1,
        "particles": particles.draws.shape[0] * particles.draws.shape[1],
        "least_effective": float(np.min(particles.effective.sum(axis=1))),
        "families": float(np.sum(particles.families)),
    }
