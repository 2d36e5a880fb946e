"""The commands that train: demo, fit, compare."""

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from unnorm.catalogue import MODELS, OBJECTIVES, find
from unnorm.cli.options import chosen_names, named, parse_options, training_settings
from unnorm.cli.output import emit_json, emit_table, note, warn, write_json
from unnorm.errors import InputError, require
from unnorm.experiments import run_demo
from unnorm.report import write_demo_report, write_report
from unnorm.runs import Assessment, Prepared, Run, RunSettings, Training, prepare, settings_of
from unnorm.runs.diffusions import Fidelity, FlowLikelihood
from unnorm.runs.findings import Discrepancy, Likelihood, LogZ
from unnorm.runs.picture_features import FeatureFidelity
from unnorm.runs.stages import Stages, assessed, learn


def demo_command(out: Path, seed: int, steps: int, as_json: bool, quiet: bool) -> None:
    """Run the demonstration and write its report into a folder of its own."""
    began = time.monotonic()
    require(
        not out.exists() or (out / "demo.json").exists() or (out.is_dir() and not any(out.iterdir())),
        f"{out} exists and is not a demonstration of unnorm; choose another --out",
    )
    note("Training one network by DSM and by CNCE with jumps on two modes of weights 0.8 and 0.2 ...", quiet=quiet)
    result = run_demo(seed=seed, steps=steps, progress=not quiet)
    out.mkdir(parents=True, exist_ok=True)
    report = write_demo_report(out, result)
    content = {**result.to_dict(), "report": str(report), "seconds": time.monotonic() - began}
    write_json(out / "demo.json", content)
    if as_json:
        emit_json(content)
        return
    rows = [
        [
            name.upper(),
            assessment.weights[0][1].number(),
            assessment.log_likelihood.number(),
            f"{result.shortfall(name):.3f}",
            f"{result.fits[name].seconds:.0f} s",
        ]
        for name, assessment in result.assessments.items()
    ]
    truth = next(iter(result.assessments.values()))
    rows.append(["the truth", f"{truth.weights[0][0]:.1f}", truth.truth.number() if truth.truth else "", "0.000", ""])
    emit_table(
        "Two modes with a gap between them", ["", "weight of mode 1", "log-likelihood", "below truth", "time"], rows
    )
    print(result.verdict)
    print(f"Report: {report}")


def fit_command(
    data: str,
    model: str | None,
    objective: str | None,
    training: Mapping[str, Any],
    out: Path | None,
    options: list[str],
    *,
    group: str | None,
    test: str | None,
    condition: str | None,
    kind: str | None,
    own: Mapping[str, Any],
    resume: bool,
    report: bool,
    checkpoint_seconds: float,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit, save, assess, report: stage by stage, each kept as soon as it is done."""
    parsed = parse_options(options, ["model", "objective"])
    # Options of some models that have names of their own: --hidden 64 is --set model.hidden=64.
    parsed["model"] |= {name: value for name, value in own.items() if value is not None}
    conditions = () if condition is None else tuple(name.strip() for name in condition.split(","))
    prepared = prepare(data, seed, group=group, test=test, conditions=conditions, kind=kind)
    model, objective = chosen_names(prepared, model, objective)
    asked = {name: value for name, value in training.items() if value is not None}
    settled = training_settings(**{**find(MODELS, model, "model").training(prepared.space), **asked})
    path = out or Path(f"{Path(data).stem}-{objective}")
    chosen = named(model, parsed["model"]), named(objective, parsed["objective"])
    settings = settings_of(prepared, *chosen, settled, seed)
    begun = (path / "run.json").exists()
    run = Run.create_or_resume(path, settings, prepared, resume=resume)
    note(
        f"{prepared.sizes[0]} training rows of {in_words(prepared)}; {model} by {objective}, "
        f"{settled.steps} steps; saved in {path}",
        quiet=quiet,
    )
    for remark in prepared.remarks:
        note(remark, quiet=quiet)
    warn(prepared.warnings)
    stages = Stages(5 if report else 2, show=not quiet)
    fitted = learn(run, stages, resume=resume, checkpoint_seconds=checkpoint_seconds, begun=begun)
    content = {
        "run": str(path),
        "outcome": fitted.outcome.to_dict(),
        "events": list(fitted.events),
        "remarks": list(prepared.remarks),
        "warnings": list(prepared.warnings),
    }
    warn(fitted.events if fitted.outcome.ok else [*fitted.events, str(fitted.outcome)])
    if report and fitted.outcome.ok:
        assessment = assessed(run, stages)
        with stages("the report"):
            page = write_run_report(run, assessment)
        content |= {"assessment": assessment.to_dict(), "report": str(page)}
        if not as_json:
            print_assessment(assessment)
            print(f"Report: {page}")
    if as_json:
        emit_json(content)
    elif not report:
        print(f"{fitted.outcome}\nSaved in {path}")
    require(fitted.outcome.ok, f"training {fitted.outcome}")


def in_words(prepared: Prepared) -> str:
    """What a row is made of."""
    count = len(prepared.columns)
    beside = len(prepared.schema.conditions)
    given = f" given {beside} other{'s' * (beside > 1)}" if beside else ""
    return f"{count} columns{given}" if count else f"{prepared.space}"


def write_run_report(run: Run, assessment: Assessment) -> Path:
    """The report of a run from what its folder holds."""
    history, events, outcome, seconds = run.record()
    return write_report(
        run.path,
        run.settings,
        run.prepared,
        history=history,
        outcome=outcome,
        events=events,
        model=run.model,
        assessment=assessment,
        seconds=seconds,
        references=run.baselines(),
    )


def print_assessment(assessment: Assessment) -> None:
    """The figures of an assessment for people."""
    for found in assessment.all(Likelihood):
        rows = [["this model", found.model.number()]]
        rows += [[name, value.number()] for name, value in found.baselines.items()]
        if found.truth is not None:
            rows.append(["the true density", found.truth.number()])
        emit_table("Held-out log-likelihood, nats per row", ["", "value ± standard error"], rows)
    if assessment.weights:
        rows = [[str(i + 1), f"{truth:.3f}", learnt.number()] for i, (truth, learnt) in enumerate(assessment.weights)]
        emit_table("Weights of the modes", ["mode", "true", "learnt"], rows[:10])
    for found in assessment.all(FlowLikelihood):
        rows = [["log-likelihood by the flow, nats per row", found.flow.number()]]
        rows += [["its lower bound", found.bound.number()]]
        rows += [] if found.bits is None else [["bits per dimension", found.bits.number()]]
        rows += [] if found.bits_bound is None else [["at most", found.bits_bound.number()]]
        emit_table(f"Likelihood of {found.rows} held-out rows", ["", "value ± standard error"], rows)
    for found in assessment.all(Fidelity):
        rows = [["draws", found.draws.number()], ["as many training pictures", found.train.number()]]
        emit_table("Frechet distance of pixels to held-out pictures (no FID)", ["", "value ± standard error"], rows)
    for found in assessment.all(FeatureFidelity):
        rows = [[name, own.number(), ideal.number()] for name, own, ideal in found.table()]
        rows.append(["held-out pictures named right", found.figures.accuracy.number(), ""])
        emit_table(
            "In features of a classifier trained here (no FID)", ["", "draws", "halves of held-out pictures"], rows
        )
    figures = [f"log Z = {found.estimate}" for found in assessment.all(LogZ)]
    figures += [f"MMD² of draws to held-out rows = {found.mmd.number()}" for found in assessment.all(Discrepancy)]
    if figures:
        print("; ".join(figures))
    warn(assessment.warnings)


#: What is compared when nothing is said, where it works.
COMPARED = ("cnce", "cnce-local", "dsm", "pcd")


def compare_command(
    data: str,
    objectives: str | None,
    model: str | None,
    training: Training,
    out: Path | None,
    *,
    group: str | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit by each objective in turn and print one table; in a folder, what is done is kept."""
    for name in _names(objectives or "all"):
        find(OBJECTIVES, name, "objective")
    prepared = prepare(data, seed, group=group)
    made = find(MODELS, model or "mlp", "model")
    everything = [e.name for e in OBJECTIVES if e.suits(made) and e.works(prepared.space)]
    usual = [name for name in COMPARED if name in everything] or everything
    names = usual if objectives is None else everything if objectives == "all" else _names(objectives)
    model = made.name
    # All of them are checked before the first is trained: a table that is refused half way would be lost.
    settings = {name: settings_of(prepared, named(model, {}), named(name, {}), training, seed) for name in names}
    warn(prepared.warnings)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) if out is None else out
        _open_comparison(folder, settings[names[0]])
        rows, contents = [], []
        last: Assessment | None = None
        for i, name in enumerate(names):
            note(f"objective {i + 1} of {len(names)}: {name}", quiet=quiet)
            row, content, assessment = _compare_one(name, folder, settings[name], prepared, quiet)
            rows.append(row)
            contents.append(content)
            last = assessment or last
    if as_json:
        emit_json({"data": data, "model": model, "rows": contents, **_baseline_content(last)})
        return
    if last is not None:
        for found in last.all(Likelihood):
            rows += [[name, value.number(), "", "", ""] for name, value in found.baselines.items()]
            if found.truth is not None:
                rows.append(["the true density", found.truth.number(), "", "", ""])
    header = ["objective", "log-likelihood", "worst weight error", "time", "outcome"]
    emit_table(f"{data}: held-out log-likelihood, nats per row", header, rows)


def _names(objectives: str) -> list[str]:
    """The names in a list with commas between, each once; none for all of them."""
    names = [] if objectives == "all" else [name.strip() for name in objectives.split(",")]
    twice = next((name for name in names if names.count(name) > 1), None)
    require(twice is None, f"{twice} is named twice in --objectives")
    return names


def _open_comparison(folder: Path, settings: RunSettings) -> None:
    """Make the folder of a comparison, or refuse one that holds anything else."""
    file = folder / "comparison.json"
    asked = {"fingerprint": settings.fingerprint, "version": settings.version}
    if file.exists():
        try:
            begun = json.loads(file.read_text())
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{file} is damaged; choose another --out") from error
        require(begun == asked, f"{folder} holds a comparison on other rows; choose another --out")
        return
    require(
        not folder.exists() or (folder.is_dir() and not any(folder.iterdir())),
        f"{folder} exists and holds no comparison; choose another --out",
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(file, asked)


def _baseline_content(last: Assessment | None) -> dict:
    if last is None:
        return {}
    found = last.to_dict()
    return {name: found[name] for name in ("baselines", "true_log_likelihood") if name in found}


def _compare_one(
    name: str, folder: Path, settings: RunSettings, prepared: Prepared, quiet: bool
) -> tuple[list[str], dict, Assessment | None]:
    run = Run.create_or_resume(folder / name, settings, prepared, resume=True, shelf=folder)
    stages = Stages(4, show=not quiet)
    fitted = learn(run, stages, resume=True, checkpoint_seconds=10.0, begun=True)
    seconds = run.record()[3]
    content = {"objective": name, "outcome": fitted.outcome.to_dict(), "seconds": seconds}
    time_text = f"{seconds:.0f} s"
    if not fitted.outcome.ok:
        return [name, "none", "", time_text, str(fitted.outcome)], content, None
    assessment = assessed(run, stages)
    errors = [abs(learnt.value - truth) for truth, learnt in assessment.weights]
    content |= {"assessment": assessment.to_dict()}
    worst = f"{max(errors):.3f}" if errors else ""
    reached = "".join(found.model.number() for found in assessment.all(Likelihood))
    return (
        [name, reached, worst, time_text, fitted.outcome.code.value],
        content,
        assessment,
    )
