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
from unnorm.report import write_report
from unnorm.runs import Run, assess
from unnorm.runs.assess import proposal_for, references_of
from unnorm.samplers import sample
from unnorm.training.checkpoint import write_atomically

CHAINS = 32
#: Fewer steps than this per chain say nothing about mixing.
MIN_STEPS = 200


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
    """Run chains from training rows, and keep n draws spread evenly over them."""
    if out is not None:
        require_format(out)
        require_new(out, force=force)
    run = Run.open(path)
    prepared = run.prepared
    entry = find(SAMPLERS, sampler_name, "sampler")
    context = Context(prepared.space, prepared.scales, jax.random.key(seed))
    sampler = entry.build(read_options(entry, parse_options(options, ["sampler"])["sampler"]), context)
    steps = max(MIN_STEPS, -(-n // CHAINS))
    start = prepared.train[np.random.default_rng(seed).integers(len(prepared.train), size=CHAINS)]
    trace = sample(
        run.model, sampler, chains=CHAINS, steps=steps, start=start, key=jax.random.key(seed), progress=not quiet
    )
    # Step-major order: neighbours in the output come from different chains.
    pooled = np.swapaxes(trace.draws, 0, 1).reshape(-1, trace.draws.shape[2])
    draws = prepared.standardiser.to_raw(pooled[np.linspace(0, len(pooled) - 1, n).round().astype(int)])
    warn(trace.warnings)
    if out is not None:
        write_atomically(out, table_bytes(prepared.columns, draws, out.suffix))
        note(f"{n} draws in {out}", quiet=quiet)
    if as_json:
        worst = trace.diagnostics
        emit_json(
            {
                "n": n,
                "out": None if out is None else str(out),
                "columns": list(prepared.columns),
                "draws": draws.tolist() if out is None else None,
                "sampler": sampler_name,
                "acceptance": float(np.mean(trace.acceptance)),
                "divergences": trace.divergences,
                "rhat": worst.worst_rhat,
                "ess_bulk": worst.worst_ess_bulk,
                "ess_tail": worst.worst_ess_tail,
                "warnings": list(trace.warnings),
            }
        )
    elif out is None:
        print(csv_text(prepared.columns, draws), end="")


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
