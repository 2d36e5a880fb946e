"""The commands that use a fitted model: sample, score, evaluate, report, list."""

from pathlib import Path
from typing import Any

import numpy as np

from unnorm.catalogue import listing
from unnorm.cli.learn import print_assessment, write_run_report
from unnorm.cli.options import parse_given, parse_options
from unnorm.cli.output import emit_json, emit_table, note, require_new, warn
from unnorm.data.kinds import AbstractSchema, Dataset, Origin, count_of, taken
from unnorm.data.writing import csv_text, require_format, table_bytes
from unnorm.errors import require
from unnorm.files import write_atomically
from unnorm.graphs.terms.parse import described
from unnorm.runs import Run, assess
from unnorm.runs.drawing import ROWS_AT_ONCE, Spread, draw
from unnorm.runs.graph_data import EMBEDDED
from unnorm.runs.left_out import places_of
from unnorm.runs.scoring import scores_of


def sample_command(
    path: Path,
    n: int,
    out: Path | None,
    sampler_name: str | None,
    options: list[str],
    given: str | None,
    solver: str | None,
    own: dict[str, float],
    guidance: float,
    exact: bool,
    force: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """n draws: independent ones of a model with a reference, or chains from training rows, or a population.

    An `out` without an ending is a folder: draws go there as they come, and the same command goes on where it stopped.
    """
    folder = out if out is not None and not out.suffix else None
    run = Run.open(path)
    kind, schema = run.prepared.kind, run.prepared.schema.exact() if exact else run.prepared.schema
    if out is None:
        require(as_json or kind.has_text, f"draws of {kind.name} are no text; name a file or folder with --out")
    elif folder is None:
        kind.require_writable(out)
        require_new(out, force=force)
    else:
        _require_own_table(folder / "table.npy", n, force)
    chosen, values = parse_options(options, ["sampler"])["sampler"], parse_given(given)
    chosen |= own
    drawn = draw(run, n, sampler=sampler_name, options=chosen, folder=folder, given=values, solver=solver,
                 guidance=guidance, seed=seed, progress=not quiet)  # fmt: skip
    if drawn.remark:
        note(drawn.remark, quiet=quiet)
    warn(drawn.warnings)
    columns, draws = schema.columns, None
    if folder is not None:
        _write_raw(folder / "table.npy", schema, drawn.rows)
        named = f", columns {', '.join(columns)}" if columns else ""
        note(f"{n} draws in {folder / 'table.npy'}{named}", quiet=quiet)
    else:
        draws = schema.written(drawn.rows[:])
    if out is not None and draws is not None:
        kind.write(draws, out, schema)
        note(f"{n} draws in {out}", quiet=quiet)
    if as_json:
        emit_json(
            {
                "n": n,
                "out": None if out is None else str(out),
                "columns": list(columns),
                "draws": draws.tolist() if out is None and draws is not None else None,
                "sampler": drawn.sampler,
                **drawn.figures,
                "warnings": list(drawn.warnings),
            }
        )
    elif out is None and draws is not None:
        print(kind.text(draws, schema), end="")


def _require_own_table(path: Path, n: int, force: bool) -> None:
    """Refuse to overwrite a table of draws before any work is done; with as many rows it is that of this command."""
    if force or not path.exists():
        return
    try:
        same = len(np.load(path, mmap_mode="r", allow_pickle=False)) == n
    except (OSError, ValueError):
        same = False
    require(same, f"{path} already exists, and not with {n} rows; choose another folder or add --force")


def _write_raw(path: Path, schema: AbstractSchema, rows: Spread | np.ndarray) -> None:
    """All rows in the data's own units as one .npy file, a few at a time; whole or not there."""
    part, one = path.with_name(f".{path.name}.part"), schema.written(rows[:1])
    file = np.lib.format.open_memmap(part, mode="w+", dtype=one.dtype, shape=(len(rows), *one.shape[1:]))
    for first in range(0, len(rows), ROWS_AT_ONCE):
        file[first : first + ROWS_AT_ONCE] = schema.written(rows[first : first + ROWS_AT_ONCE])
    file.flush()
    part.replace(path)


def score_command(
    path: Path, source: str, out: Path | None, force: bool, seed: int | None, as_json: bool, quiet: bool
) -> None:
    """One line per row: energy, log density, its error, rank (1 is the least likely), share of held-out rows below,
    and whether the row was fitted, so that its density is that of a model fitted without it.
    """
    if out is not None:
        require_format(out)
        require_new(out, force=force)
    run = Run.open(path)
    rows = _rows_like(run, source)
    scores = scores_of(run, rows, seed=seed, tell=lambda text: note(text, quiet=quiet), progress=not quiet)
    columns, values, decimals = scores.table()
    warn(scores.warnings)
    if out is not None:
        write_atomically(out, table_bytes(columns, values, out.suffix, decimals))
        note(f"{len(values)} scores in {out}", quiet=quiet)
    if as_json:
        emit_json(
            {
                "log_z": scores.log_z.to_dict(),
                "mean_log_density": float(scores.log_density.mean()),
                "fitted_rows": int(scores.fitted.sum()),
                "out": None if out is None else str(out),
                "columns": list(columns),
                "rows": values.tolist() if out is None else None,
            }
        )
    elif out is None:
        print(csv_text(columns, values, decimals), end="")


def _rows_like(run: Run, source: str) -> Any:
    """The rows of other data as the run has its own."""
    schema = run.prepared.schema
    found: Dataset = run.prepared.kind.read_like(Origin(source, run.prepared.asked), schema)
    return schema.to_rows(found.rows)


def evaluate_command(path: Path, data: str | None, seed: int | None, as_json: bool, quiet: bool) -> None:
    """What is known of the run on its held-out rows, or an assessment on the rows of a table that were not fitted."""
    run = Run.open(path)
    if data is None:
        assessment = run.assessment(seed=seed, progress=not quiet)
    else:
        rows = _rows_like(run, data)
        fresh = places_of(run, rows) < 0
        require(bool(fresh.any()), f"every row of {data} was fitted, so none is left to judge the model on")
        if not fresh.all():
            note(f"{int((~fresh).sum())} of {count_of(rows)} rows of {data} were fitted and are left out", quiet=quiet)
        own = run.settings.seed if seed is None else seed
        assessment = assess(
            run.model, run.prepared, taken(rows, fresh), references=run.baselines(), seed=own, progress=not quiet
        )
    if as_json:
        emit_json(assessment.to_dict())
    else:
        print_assessment(assessment)


def report_command(path: Path, seed: int | None, as_json: bool, quiet: bool) -> None:
    """Rewrite the report from what is known of the run."""
    run = Run.open(path)
    page = write_run_report(run, run.assessment(seed=seed, progress=not quiet))
    emit_json({"report": str(page)}) if as_json else print(f"Report: {page}")


def list_command(kind: str | None, as_json: bool) -> None:
    """The catalogue, whole or one kind of it."""
    networks = [(name, summary) for name, (_, summary) in EMBEDDED.items()]
    kinds = {**listing(), "networks": networks, "terms": described()}
    require(kind is None or kind in kinds, f"there is no list of {kind!r}; the lists are {', '.join(kinds)}")
    chosen = kinds if kind is None else {kind: kinds[kind]}
    if as_json:
        emit_json({k: [{"name": name, "summary": summary} for name, summary in v] for k, v in chosen.items()})
        return
    for title, entries in chosen.items():
        emit_table(title, ["name", "what it is"], [[name, summary] for name, summary in entries])
