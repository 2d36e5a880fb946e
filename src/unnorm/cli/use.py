"""The commands that use a fitted model: sample, score, evaluate, report, list."""

from pathlib import Path

import jax
import numpy as np

from unnorm.catalogue import SAMPLERS, Context, find, listing, read_options
from unnorm.cli.learn import print_assessment, write_run_report
from unnorm.cli.options import parse_options
from unnorm.cli.output import csv_text, emit_json, emit_table, note, require_format, require_new, table_bytes, warn
from unnorm.data import read_table
from unnorm.data.recorded import Decimals, as_recorded
from unnorm.energies import Tilted
from unnorm.errors import require
from unnorm.estimate import Estimate
from unnorm.evaluation import energies, log_partition
from unnorm.files import write_atomically
from unnorm.runs import Prepared, Run, assess
from unnorm.runs.assess import figures_of, proposal_for
from unnorm.runs.left_out import log_densities_left_out, places_of
from unnorm.runs.prepare import columns_of
from unnorm.samplers import AbstractSampler, ImportanceResampling, Particles, Resampled, TemperedSMC, Trace, sample
from unnorm.training.checkpoint import load_arrays, save_arrays

CHAINS = 32
#: Fewer steps than this per chain say nothing about mixing.
MIN_STEPS = 200
#: Rows that are converted and written together.
ROWS_AT_ONCE = 2**16


def sample_command(
    path: Path,
    n: int,
    out: Path | None,
    sampler_name: str | None,
    options: list[str],
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
    if out is not None and folder is None:
        require_format(out)
        require_new(out, force=force)
    if folder is not None:
        _require_own_table(folder / "table.npy", n, force)
    run = Run.open(path)
    prepared = run.prepared
    name = sampler_name or ("independent" if isinstance(run.model, Tilted) else "nuts")
    entry = find(SAMPLERS, name, "sampler")
    context = Context(prepared.space, prepared.scales, jax.random.key(seed), prepared.train, prepared.valid)
    sampler = entry.build(read_options(entry, parse_options(options, ["sampler"])["sampler"]), context)
    rows: _Spread | np.ndarray
    if isinstance(sampler, TemperedSMC):
        require(folder is None, f"{name} has all its draws at once at the end; name a file such as draws.csv")
        particles = sampler(run.model, key=jax.random.key(seed))
        broken = not np.isfinite(particles.draws).all()
        rows, warnings, found = particles.resampled(n, seed=seed), particles.warnings, _figures_of_levels(particles)
    elif isinstance(sampler, ImportanceResampling):
        drawn = _independent(run, sampler, n, folder, seed, quiet)
        broken = not np.isfinite(drawn.draws).all()
        rows, warnings, found = drawn.draws, drawn.warnings, figures_of(drawn)
        note(f"{drawn.effective:.0%} of {drawn.proposals:,} proposals are effective", quiet=quiet)
    else:
        trace = _chains(run, sampler, n, folder, seed, quiet)
        broken = bool(trace.diagnostics.broken.any())
        rows, warnings, found = _Spread(trace, n), trace.warnings, figures_of(trace)
    require(
        not broken,
        f"no table was written: draws of {name} are not finite, since its step is too large for this model; "
        "use a smaller step (--set sampler.step_size=VALUE) or --sampler nuts",
    )
    warn(warnings)
    decimals = (None,) * len(prepared.columns) if exact or not prepared.decimals else prepared.decimals
    draws = None
    if folder is not None:
        _write_raw(folder / "table.npy", rows, prepared, decimals)
        note(f"{n} draws in {folder / 'table.npy'}, columns {', '.join(prepared.columns)}", quiet=quiet)
    else:
        draws = as_recorded(prepared.standardiser.to_raw(rows[:]), decimals)
    if out is not None and draws is not None:
        write_atomically(out, table_bytes(prepared.columns, draws, out.suffix, decimals))
        note(f"{n} draws in {out}", quiet=quiet)
    if as_json:
        emit_json(
            {
                "n": n,
                "out": None if out is None else str(out),
                "columns": list(prepared.columns),
                "draws": draws.tolist() if out is None and draws is not None else None,
                "sampler": name,
                **found,
                "warnings": list(warnings),
            }
        )
    elif out is None and draws is not None:
        print(csv_text(prepared.columns, draws, decimals), end="")


def _independent(
    run: Run, sampler: ImportanceResampling, n: int, folder: Path | None, seed: int, quiet: bool
) -> Resampled:
    """Draws in lots of `ROWS_AT_ONCE`, each with a key of its own; in a folder each lot is kept as it is done."""
    key, lots = jax.random.key(seed), []
    own = {"of": run.identity, "seed": seed, "proposals_each": sampler.proposals}
    for lot, first in enumerate(range(0, n, ROWS_AT_ONCE)):
        size = min(ROWS_AT_ONCE, n - first)
        file = None if folder is None else folder / f"lot-{lot + 1}.safetensors"
        if file is not None and file.exists():
            arrays, notes = load_arrays(file)
            if all(notes.get(name) == value for name, value in own.items()) and len(arrays["draws"]) == size:
                lots.append(Resampled(arrays["draws"], notes["proposals"], notes["effective"], notes["repeated"]))
                continue
        drawn = sampler(run.model, size, key=jax.random.fold_in(key, lot), progress=not quiet)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            save_arrays(file, {"draws": drawn.draws}, {**figures_of(drawn), "effective": drawn.effective, **own})
        lots.append(drawn)
    proposals = sum(lot.proposals for lot in lots)
    effective = sum(lot.effective * lot.proposals for lot in lots) / proposals
    repeated = sum(lot.repeated for lot in lots)
    return Resampled(np.concatenate([lot.draws for lot in lots]), proposals, effective, repeated)


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


def _write_raw(path: Path, rows: "_Spread | np.ndarray", prepared: Prepared, decimals: Decimals) -> None:
    """All rows in the data's own units as one .npy file, a few at a time; whole or not there."""
    part = path.with_name(f".{path.name}.part")
    file = np.lib.format.open_memmap(part, mode="w+", dtype=np.float64, shape=(len(rows), len(prepared.columns)))
    for first in range(0, len(rows), ROWS_AT_ONCE):
        raw = prepared.standardiser.to_raw(rows[first : first + ROWS_AT_ONCE])
        file[first : first + ROWS_AT_ONCE] = as_recorded(raw, decimals)
    file.flush()
    part.replace(path)


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
    values = columns_of(table, run.settings.columns, source)
    return run.prepared.standardiser.to_unit(values).astype(np.float32)


def _log_z(run: Run, seed: int | None, quiet: bool) -> Estimate:
    """log Z from the saved assessment if it is of this model, or computed now."""
    seed = run.settings.seed if seed is None else seed
    saved = run.saved_assessment(seed)
    if saved is not None:
        return saved.log_z
    note("Estimating log Z ...", quiet=quiet)
    proposal = proposal_for(run.model, run.prepared, run.baselines())
    return log_partition(run.model, base=proposal, key=jax.random.key(seed + 1))


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
    rows = rows_of(run, source, to_fit=False)
    log_z = _log_z(run, seed, quiet)
    volume = run.prepared.standardiser.log_volume
    found = energies(run.model, rows)
    density, error, warnings = -found - log_z.value - volume, np.full(len(rows), log_z.stderr), log_z.warnings
    places = places_of(run, rows)
    fitted = places >= 0
    if fitted.any():
        note(
            f"{int(fitted.sum())} of {len(rows)} rows were fitted: each is scored by a model fitted without it "
            f"(kept in {path}) ...",
            quiet=quiet,
        )
        values, errors, more = log_densities_left_out(run, progress=not quiet)
        density[fitted], error[fitted] = values[places[fitted]], errors[places[fitted]]
        warnings = tuple(dict.fromkeys((*warnings, *more)))
    held_out = np.sort(-energies(run.model, run.prepared.test) - log_z.value - volume)
    rank = np.empty(len(found))
    rank[np.argsort(density, kind="stable")] = np.arange(1, len(found) + 1)
    less_likely = np.searchsorted(held_out, density, side="left") / len(held_out)
    columns = ("energy", "log_density", "log_density_stderr", "outlier_rank", "less_likely_share", "fitted")
    values = np.column_stack([found, density, error, rank, less_likely, fitted])
    decimals = (None, None, None, 0, None, 0)
    warn(warnings)
    if out is not None:
        write_atomically(out, table_bytes(columns, values, out.suffix, decimals))
        note(f"{len(values)} scores in {out}", quiet=quiet)
    if as_json:
        emit_json(
            {
                "log_z": log_z.to_dict(),
                "mean_log_density": float(density.mean()),
                "fitted_rows": int(fitted.sum()),
                "out": None if out is None else str(out),
                "columns": list(columns),
                "rows": values.tolist() if out is None else None,
            }
        )
    elif out is None:
        print(csv_text(columns, values, decimals), end="")


def evaluate_command(path: Path, data: str | None, seed: int | None, as_json: bool, quiet: bool) -> None:
    """What is known of the run on its held-out rows, or an assessment on the rows of a table that were not fitted."""
    run = Run.open(path)
    if data is None:
        assessment = run.assessment(seed=seed, progress=not quiet)
    else:
        rows = rows_of(run, data, to_fit=True)
        fresh = places_of(run, rows) < 0
        require(bool(fresh.any()), f"every row of {data} was fitted, so that none is left to judge the model on")
        if not fresh.all():
            note(f"{int((~fresh).sum())} of {len(rows)} rows of {data} were fitted and are left out", quiet=quiet)
        own = run.settings.seed if seed is None else seed
        assessment = assess(
            run.model, run.prepared, rows[fresh], references=run.baselines(), seed=own, progress=not quiet
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
    kinds = listing()
    require(kind is None or kind in kinds, f"there is no list of {kind!r}; the lists are {', '.join(kinds)}")
    chosen = kinds if kind is None else {kind: kinds[kind]}
    if as_json:
        emit_json({k: [{"name": name, "summary": summary} for name, summary in v] for k, v in chosen.items()})
        return
    for title, entries in chosen.items():
        emit_table(title, ["name", "what it is"], [[name, summary] for name, summary in entries])
