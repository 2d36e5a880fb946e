"""The report of a run: one page that stands alone, with images embedded and nothing fetched.

RUN/report.html           the page
RUN/figures/NAME.png      each figure
RUN/figures/NAME.csv      the numbers behind it
"""

import base64
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined

from unnorm import __version__
from unnorm.catalogue import MODELS, OBJECTIVES, find, read_options
from unnorm.estimate import Outcome
from unnorm.files import write_atomically
from unnorm.plots import Picture
from unnorm.report import curves
from unnorm.report.of_data import sections_of
from unnorm.report.of_findings import section_of, tiles_of
from unnorm.report.section import Section, Subject
from unnorm.report.verdict import gains, judge
from unnorm.runs import Assessment, Prepared, RunSettings
from unnorm.runs.findings import AbstractDraws, Discrepancy
from unnorm.runs.references import References
from unnorm.runs.settings import Named
from unnorm.words import model_words

#: Importance weights carried by fewer draws than this understate their own errors.
ENOUGH_EFFECTIVE = 100


@dataclass(frozen=True, eq=False)
class Shown:
    """A picture that has been saved, and its image as text."""

    picture: Picture
    image: str


def show(picture: Picture, run_path: Path) -> Shown:
    """Save a picture in the run's `figures` and make its image part of the page."""
    return Shown(
        picture, "data:image/png;base64," + base64.b64encode(picture.save(run_path / "figures")).decode("ascii")
    )


def _template(name: str) -> str:
    return files("unnorm.report").joinpath(name).read_text(encoding="utf-8")


def render(template: str, **values: Any) -> bytes:
    """A page from its template; every value is escaped, and a missing one is an error."""
    # Names of files and columns are the user's: autoescape makes them text wherever they appear.
    environment = Environment(
        loader=FunctionLoader(_template), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(version=__version__, **values).encode()


def write_report(
    run_path: Path,
    settings: RunSettings | None,
    prepared: Prepared,
    *,
    history: Mapping[str, np.ndarray],
    outcome: Outcome,
    events: Sequence[str],
    model: Any,
    assessment: Assessment,
    seconds: float,
    references: References | None = None,
) -> Path:
    """Write `report.html` and `figures/` into the folder of a run, and say where the page is.

    With the `references` of the assessment, differences of log-likelihoods get paired errors; without them the errors
    are combined as if independent, which overstates them. `seconds` is what training took. A model that was fitted in
    Python has no `settings`.
    """
    subject = Subject(
        prepared, model, assessment, history, outcome, events, seconds, settings, references, Path(run_path).name
    )
    return write_page(Path(run_path), subject, sections_for(subject))


def sections_for(subject: Subject) -> list[Section]:
    """All sections of the report of a fit: what was fitted, its data, what was found, how it was learnt, its draws."""
    found = [section_of(finding, subject) for finding in subject.assessment.values()]
    draws = [isinstance(finding, AbstractDraws) for finding in subject.assessment.values()]
    learning = Section("Training", figures=(curves.learning(subject.history, subject.outcome),))
    return [
        fitted_section(subject),
        *sections_of(subject.prepared.schema, subject),
        *(section for section, late in zip(found, draws, strict=True) if section is not None and not late),
        learning,
        *(section for section, late in zip(found, draws, strict=True) if section is not None and late),
        *again_section(subject),
    ]


def write_page(run_path: Path, subject: Subject, sections: Sequence[Section]) -> Path:
    """Lay sections out as a page; the verdict, the figures of the findings and all warnings stand at its top."""
    prepared, assessment = subject.prepared, subject.assessment
    page = render(
        "run.html.j2",
        title=f"{prepared.source}: {_what(subject)}",
        verdict=judge(assessment, subject.outcome, gains(subject.model, prepared, assessment, subject.references)),
        tiles=[tile for finding in assessment.values() for tile in tiles_of(finding)],
        warnings=(*prepared.warnings, *all_warnings(subject.outcome, subject.events, assessment)),
        sections=[(section, [show(picture, run_path) for picture in section.figures]) for section in sections],
    )
    path = run_path / "report.html"
    write_atomically(path, page)
    return path


def _what(subject: Subject) -> str:
    settings = subject.settings
    if settings is None:
        return model_words(subject.model)
    return f"{settings.model.name} by {settings.objective.name}"


def all_warnings(outcome: Outcome, events: Sequence[str], assessment: Assessment) -> tuple[str, ...]:
    """Everything that went wrong, in the order it did, each once."""
    ending = () if outcome.ok else (f"Training {outcome}",)
    carried = [value.diagnostics.get("effective_samples", np.inf) for _, value in assessment.weights]
    doubtful = ()
    if min(carried, default=np.inf) < ENOUGH_EFFECTIVE:
        doubtful = (
            f"Only {min(carried):.0f} effective draws carry the weights of the modes: their errors are too small.",
        )
    apart = [sentence for found in assessment.all(Discrepancy) for sentence in found.mmd.warnings]
    return tuple(dict.fromkeys((*events, *ending, *assessment.warnings, *doubtful, *apart)))


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(3.21), duration(75), duration(7300)
    ('3.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def command_line(settings: RunSettings, folder: str) -> str:
    """The command that makes this run again, in a new folder."""
    training = settings.training
    words = ["unnorm", "fit", settings.source, "--model", settings.model.name, "--objective", settings.objective.name]
    words += ["--steps", str(training.steps), "--batch", str(training.batch), "--rate", f"{training.rate:g}"]
    words += ["--evaluations", str(training.evaluations)]
    words += ["--kind", settings.kind] if settings.forced else []
    words += ["--condition", ",".join(settings.conditions)] if settings.conditions else []
    words += [] if settings.group is None else ["--group", settings.group]
    words += [] if settings.test_source is None else ["--test", settings.test_source]
    words += [] if training.patience is None else ["--patience", str(training.patience)]
    for kind, named in (("model", settings.model), ("objective", settings.objective)):
        for option, value in named.options.items():
            text = value if isinstance(value, str) else json.dumps(value)
            words += ["--set", f"{kind}.{option}={text}"]
    return shlex.join([*words, "--seed", str(settings.seed), "--out", f"{folder or 'run'}-again"])


def described(named: Named, entries: tuple[Any, ...], what: str) -> str:
    """A catalogue name with all its options, those left to the data too."""
    options = read_options(find(entries, named.name, what), named.options).model_dump()
    told = ", ".join(
        f"{name} {'chosen from the data' if value is None else _plain(value)}" for name, value in options.items()
    )
    return f"{named.name} ({told})" if told else named.name


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def rows_in_words(prepared: Prepared) -> str:
    """How many rows served for what."""
    train, valid, test = prepared.sizes
    return f"{train + valid + test:,}: {train:,} to train, {valid:,} to choose, {test:,} to judge"


def fitted_section(subject: Subject) -> Section:
    """What was fitted to what, and how that ended."""
    prepared, settings = subject.prepared, subject.settings
    found = [("Data", prepared.source)]
    if prepared.problem is not None:
        found.append(("Problem", prepared.problem.summary))
    found += [("Rows", rows_in_words(prepared)), *(("", remark) for remark in prepared.remarks)]
    found.append(("Columns", _names(prepared.columns)) if prepared.columns else ("Points", str(prepared.space)))
    if prepared.schema.conditions:
        found.append(("Given", _names(prepared.schema.conditions)))
    if settings is None:
        found.append(("Model", model_words(subject.model)))
    else:
        training = settings.training
        stop = "" if training.patience is None else f", patience {training.patience}"
        found += [
            ("Model", described(settings.model, MODELS, "model")),
            ("Objective", described(settings.objective, OBJECTIVES, "objective")),
            ("Training", f"{training.steps:,} steps of {training.batch} rows, rate {training.rate:g}{stop}"),
        ]
        if settings.scales:
            found.append(("From the data", ", ".join(f"{name} {value:.3g}" for name, value in settings.scales.items())))
        found.append(("Seed", str(settings.seed)))
    return Section(
        "What was fitted",
        facts=[*found, ("Time to train", duration(subject.seconds)), ("Outcome", str(subject.outcome))],
    )


def _names(columns: Sequence[str]) -> str:
    names = " · ".join(columns[:12]) + (f" and {len(columns) - 12} more" if len(columns) > 12 else "")
    return f"{len(columns)}: {names}"


def again_section(subject: Subject) -> list[Section]:
    """The command that makes the run again, where a command made it."""
    settings = subject.settings
    if settings is None:
        return []
    note = (
        f"The same release (unnorm {settings.unnorm}) and the same rows give the same weights; "
        f"the settings are in run.json, the SHA-256 of the rows begins with {settings.fingerprint[:12]}."
    )
    return [Section("Do it again", code=command_line(settings, subject.folder), notes=(note,))]
