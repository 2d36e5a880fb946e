"""The commands that train: demo, fit, compare."""

import time
from pathlib import Path

from unnorm.catalogue import OBJECTIVES, find
from unnorm.cli.options import named, parse_options
from unnorm.cli.output import emit_json, emit_table, note, warn, write_json
from unnorm.errors import InputError, require
from unnorm.experiments import run_demo
from unnorm.report import write_demo_report, write_report
from unnorm.runs import Assessment, Prepared, Run, RunSettings, Training, assess, prepare
from unnorm.runs.assess import References, references_of
from unnorm.runs.folder import settings_of, train


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
    model: str,
    objective: str,
    training: Training,
    out: Path | None,
    options: list[str],
    resume: bool,
    report: bool,
    checkpoint_seconds: float,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit, save, assess, report."""
    parsed = parse_options(options, ["model", "objective"])
    path = out or Path(f"{Path(data).stem}-{objective}")
    prepared = prepare(data, seed)
    settings = settings_of(
        prepared, named(model, parsed["model"]), named(objective, parsed["objective"]), training, seed
    )
    begun = (path / "run.json").exists()
    run = _open_or_create(path, settings, prepared, resume)
    note(
        f"{len(prepared.train)} training rows of {len(prepared.columns)} columns; {model} by {objective}, "
        f"{training.steps} steps; saved in {path}",
        quiet=quiet,
    )
    try:
        fitted = train(
            settings,
            prepared,
            checkpoint=run.checkpoint,
            checkpoint_seconds=checkpoint_seconds,
            resume=resume,
            progress=not quiet,
        )
    except InputError:
        # Some options show that they do not suit the data only when something is built of them.
        if not begun:
            run.discard()
        raise
    run.write_json("outcome.json", {**fitted.outcome.to_dict(), "seconds": fitted.seconds})
    content = {"run": str(path), "outcome": fitted.outcome.to_dict(), "events": list(fitted.events)}
    warn(fitted.events if fitted.outcome.ok else [*fitted.events, str(fitted.outcome)])
    if report and fitted.outcome.ok:
        note("Assessing the model ...", quiet=quiet)
        references = references_of(prepared, seed=seed)
        assessment = assess(fitted.model, prepared, references=references, seed=seed, progress=not quiet)
        run.save_assessment(assessment.to_dict())
        page = write_report(
            run.path,
            settings,
            prepared,
            history=fitted.history,
            outcome=fitted.outcome,
            events=fitted.events,
            model=fitted.model,
            assessment=assessment,
            seconds=fitted.seconds,
            references=references,
        )
        content |= {"assessment": assessment.to_dict(), "report": str(page)}
        if not as_json:
            print_assessment(assessment, quiet)
            print(f"Report: {page}")
    if as_json:
        emit_json(content)
    elif not report:
        print(f"{fitted.outcome}\nSaved in {path}")
    require(fitted.outcome.ok, f"training {fitted.outcome}")


def _open_or_create(path: Path, settings: RunSettings, prepared: Prepared, resume: bool) -> Run:
    if resume and (path / "run.json").exists():
        run = Run.open(path)
        run.continue_with(settings)
        return run
    if resume and path.is_dir():
        # A run killed before its settings were written has nothing worth keeping but the data it had begun to save.
        leftovers = {"data.safetensors"}
        names = {entry.name for entry in path.iterdir()}
        require(
            all(name in leftovers or name.endswith(".part") for name in names),
            f"{path} holds no run to resume and is not empty; choose another --out",
        )
        for entry in path.iterdir():
            entry.unlink()
    return Run.create(path, settings, prepared)


def print_assessment(assessment: Assessment, quiet: bool) -> None:
    """The figures of an assessment for people."""
    rows = [["this model", assessment.log_likelihood.number()]]
    rows += [[name, value.number()] for name, value in assessment.baselines.items()]
    if assessment.truth is not None:
        rows.append(["the true density", assessment.truth.number()])
    emit_table("Held-out log-likelihood, nats per row", ["", "value ± standard error"], rows)
    if assessment.weights:
        rows = [[str(i + 1), f"{truth:.3f}", learnt.number()] for i, (truth, learnt) in enumerate(assessment.weights)]
        emit_table("Weights of the modes", ["mode", "true", "learnt"], rows[:10])
    print(f"log Z = {assessment.log_z}; MMD² of draws to held-out rows = {assessment.mmd.number()}")
    warn(assessment.warnings)


def compare_command(
    data: str, objectives: str, model: str, training: Training, seed: int, as_json: bool, quiet: bool
) -> None:
    """Fit by each objective in turn and print one table."""
    everything = [e.name for e in OBJECTIVES if e.suits(model)]
    names = everything if objectives == "all" else [n.strip() for n in objectives.split(",")]
    for name in names:
        find(OBJECTIVES, name, "objective")
    twice = next((name for name in names if names.count(name) > 1), None)
    require(twice is None, f"{twice} is named twice in --objectives")
    prepared = prepare(data, seed)
    # All of them are checked before the first is trained: a table that is refused half way would be lost.
    for name in names:
        settings_of(prepared, named(model, {}), named(name, {}), training, seed)
    references = references_of(prepared, seed=seed)
    rows, contents = [], []
    last: Assessment | None = None
    for name in names:
        note(f"{name} ...", quiet=quiet)
        row, content, assessment = _compare_one(name, model, prepared, references, training, seed, quiet)
        rows.append(row)
        contents.append(content)
        last = assessment or last
    if as_json:
        emit_json({"data": data, "model": model, "rows": contents, **_baseline_content(last)})
        return
    if last is not None:
        rows += [[name, value.number(), "", "", ""] for name, value in last.baselines.items()]
        if last.truth is not None:
            rows.append(["the true density", last.truth.number(), "", "", ""])
    header = ["objective", "log-likelihood", "worst weight error", "time", "outcome"]
    emit_table(f"{data}: held-out log-likelihood, nats per row", header, rows)


def _baseline_content(last: Assessment | None) -> dict:
    if last is None:
        return {}
    found = last.to_dict()
    return {"baselines": found["baselines"], "true_log_likelihood": found["true_log_likelihood"]}


def _compare_one(
    name: str, model: str, prepared: Prepared, references: References, training: Training, seed: int, quiet: bool
) -> tuple[list[str], dict, Assessment | None]:
    settings = settings_of(prepared, named(model, {}), named(name, {}), training, seed)
    fitted = train(settings, prepared, progress=not quiet)
    content = {"objective": name, "outcome": fitted.outcome.to_dict(), "seconds": fitted.seconds}
    time_text = f"{fitted.seconds:.0f} s"
    if not fitted.outcome.ok:
        return [name, "none", "", time_text, str(fitted.outcome)], content, None
    assessment = assess(fitted.model, prepared, references=references, seed=seed, progress=not quiet)
    errors = [abs(learnt.value - truth) for truth, learnt in assessment.weights]
    content |= {"assessment": assessment.to_dict()}
    worst = f"{max(errors):.3f}" if errors else ""
    return (
        [name, assessment.log_likelihood.number(), worst, time_text, fitted.outcome.code.value],
        content,
        assessment,
    )
