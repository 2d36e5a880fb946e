"""The command that repeats a table or figure of the literature."""

import importlib
import time
from pathlib import Path

from unnorm.catalogue import EXPERIMENTS
from unnorm.cli.output import emit_json, emit_table, note, write_json
from unnorm.errors import InputError, require
from unnorm.estimate import Estimate
from unnorm.experiments.base import Experiment, Job, Result, Row, Scale
from unnorm.files import alone


def _find(name: str) -> Experiment:
    names = [known for known, _ in EXPERIMENTS if known != "demo"]
    if name not in names:
        raise InputError(f"there is no experiment called {name!r}; the choices are {', '.join(names)}")
    return importlib.import_module(f"unnorm.experiments.{name.replace('-', '_')}").EXPERIMENT


def reproduce_command(name: str, scale: Scale, out: Path | None, seed: int, as_json: bool, quiet: bool) -> None:
    """Run an experiment (or finish it), print its table, and write the picture and the numbers."""
    require(scale in ("quick", "paper"), f"--scale is quick or paper, not {scale!r}")
    experiment = _find(name)
    job = Job(out or Path(f"{name}-{scale}"), scale, seed, progress=not quiet)
    job.open(name, experiment.code)
    note(f"{name} at scale {scale}, in {job.folder} ...", quiet=quiet)
    began = time.monotonic()
    with alone(job.folder / ".lock", job.folder):
        result = experiment.run(job)
    picture = job.folder / f"{name}.png"
    experiment.picture(result, picture)
    content = {
        "experiment": name, "scale": scale, "seed": seed, **result.to_dict(), "picture": str(picture),
        "seconds": time.monotonic() - began,
    }  # fmt: skip
    write_json(job.folder / "result.json", content)
    if as_json:
        emit_json(content)
        return
    _print(result)
    print(f"Picture: {picture}\nNumbers: {job.folder / 'result.json'}")


def _print(result: Result) -> None:
    header = ["", *(part for name in result.columns for part in _heads(result, name))]
    rows = [
        [row.label, *(cell for name in result.columns for cell in _cells(result, row, name))] for row in result.rows
    ]
    emit_table(result.title, header, rows)
    for claim in result.claims:
        print(f"{'shown    ' if claim.holds else 'NOT shown'}  {claim.sentence}")
    for remark in result.remarks:
        print(remark)


def _published_anywhere(result: Result, name: str) -> bool:
    return any(name in row.published for row in result.rows)


def _heads(result: Result, name: str) -> list[str]:
    return [name, "published"] if _published_anywhere(result, name) else [name]


def _number(figure: Estimate) -> str:
    """A figure with its error; without one where it is exact, or where one seed says nothing of it."""
    if figure.stderr == 0:
        return f"{figure.value:.4g}"
    return f"{figure.value:.4g} (1 seed)" if figure.diagnostics.get("seeds") == 1 else figure.number()


def _cells(result: Result, row: Row, name: str) -> list[str]:
    ours = _number(row.figures[name]) if name in row.figures else ""
    if not _published_anywhere(result, name):
        return [ours]
    return [ours, row.published[name].number() if name in row.published else ""]
