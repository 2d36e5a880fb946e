"""A run from data to report, stage by stage; what a stage has made is kept, so that a run goes on wherever it ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from unnorm.errors import InputError
from unnorm.files import alone
from unnorm.progress import stage
from unnorm.runs.build import train
from unnorm.runs.findings import Assessment
from unnorm.runs.folder import Run
from unnorm.training import Fit


@dataclass
class Stages:
    """Counts the stages of a command aloud: 2 of 5: training."""

    total: int
    show: bool
    done: int = 0

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        self.done += 1
        with stage(f"{self.done} of {self.total}: {what}", show=self.show):
            yield


def learn(run: Run, stages: Stages, *, resume: bool, checkpoint_seconds: float, begun: bool) -> Fit:
    """Reference and training; `begun` says that the folder was there before, and is not to be taken back."""
    try:
        with alone(run.path / ".lock", run.path):
            return _learn(run, stages, resume, checkpoint_seconds)
    except InputError:
        # Some options show that they do not suit the data only when something is built of them.
        if not begun:
            run.discard()
        raise


def _learn(run: Run, stages: Stages, resume: bool, checkpoint_seconds: float) -> Fit:
    with stages("what the model starts from"):
        chosen = run.reference(progress=stages.show)
    with stages("training"):
        fitted = train(
            run.settings,
            run.prepared,
            reference=None if chosen is None else chosen.density,
            checkpoint=run.checkpoint,
            checkpoint_seconds=checkpoint_seconds,
            resume=resume,
            progress=stages.show,
        )
    before = run.record()[3] if (run.path / "outcome.json").exists() else 0.0
    ended = {**fitted.outcome.to_dict(), "seconds": max(fitted.seconds, before), "events": list(fitted.events)}
    run.write_json("outcome.json", ended)
    return fitted


def assessed(run: Run, stages: Stages) -> Assessment:
    """Baselines, then log Z, likelihood and draws."""
    with alone(run.path / ".lock", run.path):
        with stages("baselines to compare with"):
            run.baselines()
        with stages("log Z, likelihood and draws"):
            return run.assessment(progress=stages.show)
