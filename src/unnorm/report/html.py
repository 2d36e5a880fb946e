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
from unnorm.energies import AbstractEnergy
from unnorm.estimate import Estimate, Outcome
from unnorm.files import write_atomically
from unnorm.plots import Picture
from unnorm.report import curves, draws
from unnorm.report.pairs import density_picture
from unnorm.report.tables import Row, Table
from unnorm.report.verdict import PAIRED, gains, judge, plural
from unnorm.runs import Assessment, Prepared, RunSettings
from unnorm.runs.assess import References
from unnorm.runs.settings import Named

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
    settings: RunSettings,
    prepared: Prepared,
    *,
    history: Mapping[str, np.ndarray],
    outcome: Outcome,
    events: Sequence[str],
    model: AbstractEnergy,
    assessment: Assessment,
    seconds: float,
    references: References | None = None,
) -> Path:
    """Write `report.html` and `figures/` into the folder of a run, and say where the page is.

    With the `references` of the assessment, differences of log-likelihoods get paired errors; without them the errors
    are combined as if independent, which overstates them. `seconds` is what training took.
    """
    run_path = Path(run_path)
    differences = gains(model, prepared, assessment, references)
    weights = assessment.weights
    found = draws.distances(prepared, assessment.sampled)
    page = render(
        "run.html.j2",
        title=f"{prepared.source}: {settings.model.name} by {settings.objective.name}",
        verdict=judge(assessment, outcome, differences),
        tiles=_tiles(assessment),
        warnings=(*prepared.warnings, *all_warnings(outcome, events, assessment)),
        fitted=_fitted(settings, prepared, outcome, seconds),
        density=show(density_picture(model, prepared, assessment), run_path),
        density_title="Data and draws" if len(prepared.columns) > 2 else "The learnt density",
        likelihood_table=_likelihood_table(assessment, differences),
        likelihood=show(
            curves.likelihoods({"this model": assessment.log_likelihood}, assessment.baselines, assessment.truth),
            run_path,
        ),
        likelihood_note=_likelihood_note(assessment, differences, prepared),
        weights=show(curves.mode_weights(weights), run_path) if weights else None,
        weights_table=_weights_table(assessment, prepared),
        learning=show(curves.learning(history, outcome), run_path),
        sampler_words=draws.words(assessment.sampled),
        sampler_table=draws.table(assessment, found),
        pictures=[show(picture, run_path) for picture in draws.pictures(prepared, assessment.sampled, found)],
        command=command_line(settings, run_path.name),
        command_note=f"The same release (unnorm {settings.unnorm}) and the same rows give the same weights; "
        f"the settings are in run.json, the SHA-256 of the rows begins with {settings.fingerprint[:12]}.",
    )
    path = run_path / "report.html"
    write_atomically(path, page)
    return path


def all_warnings(outcome: Outcome, events: Sequence[str], assessment: Assessment) -> tuple[str, ...]:
    """Everything that went wrong, in the order it did, each once."""
    ending = () if outcome.ok else (f"Training {outcome}",)
    carried = [value.diagnostics.get("effective_samples", np.inf) for _, value in assessment.weights]
    doubtful = ()
    if min(carried, default=np.inf) < ENOUGH_EFFECTIVE:
        doubtful = (
            f"Only {min(carried):.0f} effective draws carry the weights of the modes: their errors are too small.",
        )
    return tuple(dict.fromkeys((*events, *ending, *assessment.warnings, *doubtful, *assessment.mmd.warnings)))


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
    words += [] if settings.group is None else ["--group", settings.group]
    words += [] if settings.test_source is None else ["--test", settings.test_source]
    words += [] if training.patience is None else ["--patience", str(training.patience)]
    for kind, named in (("model", settings.model), ("objective", settings.objective)):
        for option, value in named.options.items():
            text = value if isinstance(value, str) else json.dumps(value)
            words += ["--set", f"{kind}.{option}={text}"]
    return shlex.join([*words, "--seed", str(settings.seed), "--out", f"{folder or 'run'}-again"])


def _tiles(assessment: Assessment) -> list[tuple[str, str]]:
    found = [("Log-likelihood, nats per row", assessment.log_likelihood.number())]
    if assessment.truth is not None:
        found.append(("Log-likelihood of the truth", assessment.truth.number()))
    if assessment.weights:
        worst = max(assessment.weights, key=lambda pair: abs(pair[1].value - pair[0]))
        found.append((f"Worst mode weight (true {worst[0]:.3g})", worst[1].number()))
    found.append(("MMD² to held-out rows", assessment.mmd.number()))
    found.append(draws.tile(assessment.sampled))
    return found


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
    train, valid, test = (len(part) for part in (prepared.train, prepared.valid, prepared.test))
    return f"{train + valid + test:,}: {train:,} to train, {valid:,} to choose, {test:,} to judge"


def _fitted(settings: RunSettings, prepared: Prepared, outcome: Outcome, seconds: float) -> list[tuple[str, str]]:
    training = settings.training
    names = " · ".join(prepared.columns[:12])
    if len(prepared.columns) > 12:
        names += f" and {len(prepared.columns) - 12} more"
    stop = "" if training.patience is None else f", patience {training.patience}"
    found = [
        ("Data", settings.source),
        ("Rows", rows_in_words(prepared)),
        *(("", remark) for remark in prepared.remarks),
        ("Columns", f"{len(prepared.columns)}: {names}"),
        ("Model", described(settings.model, MODELS, "model")),
        ("Objective", described(settings.objective, OBJECTIVES, "objective")),
        ("Training", f"{training.steps:,} steps of {training.batch} rows, rate {training.rate:g}{stop}"),
        ("From the data", ", ".join(f"{name} {value:.3g}" for name, value in settings.scales.items())),
        ("Seed", str(settings.seed)),
        ("Time to train", duration(seconds)),
        ("Outcome", str(outcome)),
    ]
    if prepared.problem is not None:
        found.insert(1, ("Problem", prepared.problem.summary))
    return found


def _likelihood_table(assessment: Assessment, differences: Mapping[str, Estimate]) -> Table:
    rows = [Row(("this model", assessment.log_likelihood.number(), ""), strong=True)]
    others = dict(assessment.baselines)
    if assessment.truth is not None:
        others["truth"] = assessment.truth
    rows += [Row((name, value.number(), differences[name].number())) for name, value in others.items()]
    return Table(("", "log-likelihood, nats per row", "this model is above it by"), tuple(rows))


def _likelihood_note(assessment: Assessment, differences: Mapping[str, Estimate], prepared: Prepared) -> str:
    paired = [name for name, value in differences.items() if value.method == PAIRED]
    if len(paired) == len(differences):
        errors = "Errors of differences are paired: taken row by row, with that of log Z added."
    elif paired:
        errors = (
            f"The error of the difference to {' and '.join(paired)} is paired (row by row, with that of log Z added); "
            "the others combine both errors as if they were independent, which overstates them."
        )
    else:
        errors = "Errors of differences are combined as if they were independent, which overstates them."
    return (
        f"In the data's own units. The size of the mixture was chosen by "
        f"{plural(len(prepared.valid), 'validation row')}. log Z = {assessment.log_z}. {errors}{_of_grid(prepared)}"
    )


def _of_grid(prepared: Prepared) -> str:
    """What a density is worth where values were recorded in steps."""
    count = sum(places is not None for places in prepared.decimals)
    if not count:
        return ""
    return (
        f" {count} of {len(prepared.columns)} columns were recorded in steps (whole numbers, or a fixed number of "
        "decimals), and are taken for continuous here: nats depend on the step, so compare models of this table only."
    )


def _weights_table(assessment: Assessment, prepared: Prepared) -> Table:
    facts = prepared.problem.facts if prepared.problem is not None else {}
    centres = facts.get("mode_centres")
    where = [""] * len(assessment.weights)
    if isinstance(centres, tuple) and len(prepared.columns) <= 3:
        where = [str(centre) for centre in centres]
    rows = [
        Row((f"{i} {place}".strip(), f"{truth:.4g}", learnt.number(), f"{learnt.value - truth:+.4f}"))
        for i, ((truth, learnt), place) in enumerate(zip(assessment.weights, where, strict=True), 1)
    ]
    return Table(("mode", "true", "learnt", "difference"), tuple(rows))
