"""The commands that use a fitted model: sample, score, evaluate, report, list."""

from pathlib import Path

import jax
import numpy as np

from unnorm.catalogue import SAMPLERS, Context, find, listing, read_options
from unnorm.cli.learn import print_assessment
from unnorm.cli.options import parse_options
from unnorm.cli.output import csv_text, emit_json, emit_table, note, require_format, require_new, table_bytes, warn
from unnorm.data import read_table
from unnorm.errors import require
from unnorm.estimate import Estimate
from unnorm.evaluation import energies, log_partition
from unnorm.files import write_atomically
from unnorm.report import write_report
from unnorm.runs import Prepared, Run, assess
from unnorm.runs.assess import proposal_for, references_of
from unnorm.samplers import AbstractSampler, Particles, TemperedSMC, Trace, sample

CHAINS = 32
#: Fewer steps than this per chain say nothing about mixing.
MIN_STEPS = 200
#: Rows that are converted and written together.
ROWS_AT_ONCE = 2**16


def sample_command(
    path: Path,
    n: int,
    out: Path | None,
    sampler_name: str,
    options: list[str],
    force: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run chains from training rows, or a population, and keep n draws spread evenly over them.

    An `out` without an ending is a folder: draws go there as they come, and the same command goes on where it stopped.
    """
    folder = out if out is not None and not out.suffix else None
    if out is not None and folder is None:
        require_format(out)
        require_new(out, force=force)
    if folder is not None:
        _require_own_table(folder / "table.npy", n, force)
    run = Run.open(path)
    prepared = run.prepared
    entry = find(SAMPLERS, sampler_name, "sampler")
    context = Context(prepared.space, prepared.scales, jax.random.key(seed), prepared.train, prepared.valid)
    sampler = entry.build(read_options(entry, parse_options(options, ["sampler"])["sampler"]), context)
    if isinstance(sampler, TemperedSMC):
        require(folder is None, f"{sampler_name} has all its draws at once at the end; name a file such as draws.csv")
        particles = sampler(run.model, key=jax.random.key(seed))
        broken = not np.isfinite(particles.draws).all()
        rows, warnings, found = particles.resampled(n, seed=seed), particles.warnings, _figures_of_levels(particles)
    else:
        trace = _chains(run, sampler, n, folder, seed, quiet)
        broken = bool(trace.diagnostics.broken.any())
        rows, warnings, found = _Spread(trace, n), trace.warnings, _figures_of_chains(trace)
    require(
        not broken,
        f"no table was written: draws of {sampler_name} are not finite, since its step is too large for this model; "
        "use a smaller step (--set sampler.step_size=VALUE) or --sampler nuts",
    )
    warn(warnings)
    draws = None
    if folder is not None:
        _write_raw(folder / "table.npy", rows, prepared)
        note(f"{n} draws in {folder / 'table.npy'}, columns {', '.join(prepared.columns)}", quiet=quiet)
    else:
        draws = prepared.standardiser.to_raw(rows[:])
    if out is not None and draws is not None:
        write_atomically(out, table_bytes(prepared.columns, draws, out.suffix))
        note(f"{n} draws in {out}", quiet=quiet)
    if as_json:
        emit_json(
            {
                "n": n,
                "out": None if out is None else str(out),
                "columns": list(prepared.columns),
                "draws": draws.tolist() if out is None and draws is not None else None,
                "sampler": sampler_name,
                **found,
                "warnings": list(warnings),
            }
        )
    elif out is None and draws is not None:
        print(csv_text(prepared.columns, draws), end="")


def _chains(run: Run, sampler: AbstractSampler, n: int, folder: Path | None, seed: int, quiet: bool) -> Trace:
    """Chains from training rows, long enough for n draws."""
    train, steps = run.prepared.train, max(MIN_STEPS, -(-n // CHAINS))
    start = train[np.random.default_rng(seed).integers(len(train), size=CHAINS)]
    key = jax.random.key(seed)
    return sample(run.model, sampler, chains=CHAINS, steps=steps, start=start, to=folder, key=key, progress=not quiet)


class _Spread:
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


def _require_own_table(path: Path, n: int, force: bool) -> None:
    """Refuse to overwrite a table of draws before any work is done; with as many rows it is that of this command."""
    if force or not path.exists():
        return
    try:
        same = len(np.load(path, mmap_mode="r", allow_pickle=False)) == n
    except (OSError, ValueError):
        same = False
    require(same, f"{path} already exists, and not with {n} rows; choose another folder or add --force")


def _write_raw(path: Path, rows: "_Spread | np.ndarray", prepared: Prepared) -> None:
    """All rows in the data's own units as one .npy file, a few at a time; whole or not there."""
    part = path.with_name(f".{path.name}.part")
    file = np.lib.format.open_memmap(part, mode="w+", dtype=np.float64, shape=(len(rows), len(prepared.columns)))
    for first in range(0, len(rows), ROWS_AT_ONCE):
        file[first : first + ROWS_AT_ONCE] = prepared.standardiser.to_raw(rows[first : first + ROWS_AT_ONCE])
    file.flush()
    part.replace(path)


def _figures_of_chains(trace: Trace) -> dict[str, float]:
    worst = trace.diagnostics
    return {
        "acceptance": float(np.mean(trace.acceptance)),
        "divergences": trace.divergences,
        "rhat": worst.worst_rhat,
        "ess_bulk": worst.worst_ess_bulk,
        "ess_tail": worst.worst_ess_tail,
    }


def _figures_of_levels(particles: Particles) -> dict[str, float]:
    return {
        "acceptance": float(np.mean(particles.acceptance)),
        "levels": len(particles.betas) - 1,
        "particles": particles.draws.shape[0] * particles.draws.shape[1],
        "least_effective": float(np.min(particles.effective.sum(axis=1))),
        "families": float(np.sum(particles.families)),
    }


def rows_of(run: Run, source: str, *, to_fit: bool) -> np.ndarray:
    """A table with the run's columns, by name where it has them, in unit coordinates."""
    table = read_table(source, to_fit=to_fit)
    wanted = run.settings.columns
    if set(wanted) <= set(table.columns):
        values = table.values[:, [table.columns.index(name) for name in wanted]]
    else:
        unnamed = table.columns == tuple(f"x{i + 1}" for i in range(len(table.columns)))
        missing = [name for name in wanted if name not in table.columns]
        require(
            unnamed and len(table.columns) == len(wanted),
            f"{source} lacks the column {missing[0]!r} that the model was fitted to; its columns are "
            f"{', '.join(table.columns[:8])}",
        )
        values = table.values
    return run.prepared.standardiser.to_unit(values).astype(np.float32)


def _log_z(run: Run, seed: int, quiet: bool) -> Estimate:
    """log Z from the saved assessment if it is of this checkpoint, or computed now."""
    saved = run.saved_assessment()
    if saved is not None:
        return Estimate.from_dict(saved["log_z"])
    note("Estimating log Z ...", quiet=quiet)
    proposal = proposal_for(run.model, run.prepared, references_of(run.prepared, seed=seed))
    return log_partition(run.model, base=proposal, key=jax.random.key(seed + 1))


def score_command(
    path: Path, source: str, out: Path | None, force: bool, seed: int, as_json: bool, quiet: bool
) -> None:
    """One line per row: energy, log density, its error, rank (1 is the least likely), share of held-out rows below."""
    if out is not None:
        require_format(out)
        require_new(out, force=force)
    run = Run.open(path)
    rows = rows_of(run, source, to_fit=False)
    log_z = _log_z(run, seed, quiet)
    found = energies(run.model, rows)
    held_out = np.sort(energies(run.model, run.prepared.test))
    density = -found - log_z.value - run.prepared.standardiser.log_volume
    rank = np.empty(len(found))
    rank[np.argsort(-found, kind="stable")] = np.arange(1, len(found) + 1)
    less_likely = 1 - np.searchsorted(held_out, found, side="right") / len(held_out)
    columns = ("energy", "log_density", "log_density_stderr", "outlier_rank", "less_likely_share")
    values = np.column_stack([found, density, np.full(len(found), log_z.stderr), rank, less_likely])
    warn(log_z.warnings)
    if out is not None:
        write_atomically(out, table_bytes(columns, values, out.suffix))
        note(f"{len(values)} scores in {out}", quiet=quiet)
    if as_json:
        emit_json(
            {
                "log_z": log_z.to_dict(),
                "mean_log_density": float(density.mean()),
                "out": None if out is None else str(out),
                "columns": list(columns),
                "rows": values.tolist() if out is None else None,
            }
        )
    elif out is None:
        print(csv_text(columns, values), end="")


def evaluate_command(path: Path, data: str | None, seed: int, as_json: bool, quiet: bool) -> None:
    """Assess on the held-out rows, or on a table."""
    run = Run.open(path)
    rows = None if data is None else rows_of(run, data, to_fit=True)
    assessment = assess(run.model, run.prepared, rows, seed=seed, progress=not quiet)
    if data is None:
        run.save_assessment(assessment.to_dict())
    if as_json:
        emit_json(assessment.to_dict())
    else:
        print_assessment(assessment, quiet)


def report_command(path: Path, seed: int, as_json: bool, quiet: bool) -> None:
    """Assess again and rewrite the report."""
    run = Run.open(path)
    history, events, outcome, seconds = run.record()
    references = references_of(run.prepared, seed=seed)
    assessment = assess(run.model, run.prepared, references=references, seed=seed, progress=not quiet)
    run.save_assessment(assessment.to_dict())
    page = write_report(
        run.path,
        run.settings,
        run.prepared,
        history=history,
        outcome=outcome,
        events=events,
        model=run.model,
        assessment=assessment,
        seconds=seconds,
        references=references,
    )
    emit_json({"report": str(page)}) if as_json else print(f"Report: {page}")


def list_command(kind: str | None, as_json: bool) -> None:
    """The catalogue, whole or one kind of it."""
    kinds = listing()
    require(kind is None or kind in kinds, f"there is no list of {kind!r}; the lists are {', '.join(kinds)}")
    chosen = kinds if kind is None else {kind: kinds[kind]}
    if as_json:
        emit_json({k: [{"name": name, "summary": summary} for name, summary in v] for k, v in chosen.items()})
        return
    for title, entries in chosen.items():
        emit_table(title, ["name", "what it is"], [[name, summary] for name, summary in entries])
