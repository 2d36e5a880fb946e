"""A run on disk: settings, data, checkpoint; everything needed to use the model again, and nothing that runs code.

RUN/run.json              the settings, readable
RUN/data.safetensors      the rows it was fitted to and judged on, in unit coordinates
RUN/checkpoint.safetensors the whole training state
RUN/assessment.json       what is known about the result
RUN/report.html           the same for people
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unnorm import __version__
from unnorm.catalogue import MODELS, OBJECTIVES, Context, find, read_options
from unnorm.data import Standardiser
from unnorm.energies import AbstractEnergy
from unnorm.errors import InputError, require
from unnorm.estimate import Outcome, OutcomeCode
from unnorm.files import write_atomically
from unnorm.noises import Scales
from unnorm.runs.prepare import Prepared, problem_named
from unnorm.training import Fit, best_model, fit
from unnorm.training.checkpoint import load_arrays, save_arrays

VERSION = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Named(_Frozen):
    """A name of the catalogue and its options."""

    name: str
    options: dict[str, Any] = {}


class Training(_Frozen):
    """How long and how fast."""

    steps: int = Field(default=5000, ge=1)
    batch: int = Field(default=256, ge=1)
    rate: float = Field(default=1e-3, gt=0)
    average: float = Field(default=0.999, ge=0, lt=1)
    evaluations: int = Field(default=50, ge=1)
    patience: int | None = Field(default=None, ge=1)


class RunSettings(_Frozen):
    """All that defines a run; equal settings give equal bits."""

    model: Named
    objective: Named
    training: Training
    seed: int
    source: str
    fingerprint: str
    columns: tuple[str, ...]
    standardiser: dict[str, list[float]]
    scales: dict[str, float]
    version: int = VERSION
    unnorm: str = __version__


def settings_of(prepared: Prepared, model: Named, objective: Named, training: Training, seed: int) -> RunSettings:
    """The settings of a new run; names and options are checked here, before anything is written."""
    for entries, named, what in ((MODELS, model, "model"), (OBJECTIVES, objective, "objective")):
        read_options(find(entries, named.name, what), named.options)
    entry = find(OBJECTIVES, objective.name, "objective")
    require(
        entry.suits(model.name),
        f"{objective.name} learns only {' or '.join(entry.only or ())} models, not {model.name}",
    )
    return RunSettings(
        model=model,
        objective=objective,
        training=training,
        seed=seed,
        source=prepared.source,
        fingerprint=prepared.fingerprint,
        columns=prepared.columns,
        standardiser=prepared.standardiser.to_dict(),
        scales={"bandwidth": prepared.scales.bandwidth, "length": prepared.scales.length},
    )


def build(
    settings: RunSettings, prepared: Prepared, saved: Mapping[str, tuple[int, ...]] | None = None
) -> tuple[AbstractEnergy, Any]:
    """The model before training, and its objective; with the shapes of a `saved` model, a frame for its arrays."""
    context = Context(
        prepared.space, prepared.scales, jax.random.key(settings.seed), prepared.train, prepared.valid, saved
    )
    model = find(MODELS, settings.model.name, "model")
    objective = find(OBJECTIVES, settings.objective.name, "objective")
    return (
        model.build(read_options(model, settings.model.options), context),
        objective.build(read_options(objective, settings.objective.options), context),
    )


def train(
    settings: RunSettings,
    prepared: Prepared,
    *,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    progress: bool = True,
) -> Fit[AbstractEnergy]:
    """Fit what the settings describe."""
    model, objective = build(settings, prepared)
    return fit(
        model,
        objective,
        prepared.train,
        valid=prepared.valid,
        **settings.training.model_dump(),
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        resume=resume,
        key=jax.random.key(settings.seed + 1),
        progress=progress,
    )


@dataclass(frozen=True)
class Run:
    """A folder that holds a run."""

    path: Path
    settings: RunSettings

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @staticmethod
    def create(path: Path, settings: RunSettings, prepared: Prepared) -> "Run":
        """A new folder with settings and data; refuses to touch anything that is already there."""
        require(
            not path.exists() or (path.is_dir() and not any(path.iterdir())),
            f"{path} already exists; choose another --out, or add --resume to continue that run",
        )
        path.mkdir(parents=True, exist_ok=True)
        arrays = {"train": prepared.train, "valid": prepared.valid, "test": prepared.test}
        save_arrays(path / "data.safetensors", arrays, {})
        # The settings come last: a folder with run.json is complete.
        write_atomically(path / "run.json", (settings.model_dump_json(indent=2) + "\n").encode())
        return Run(path, settings)

    def discard(self) -> None:
        """Take back what `create` made, if nothing was learnt since: settings that were refused leave no folder."""
        if self.checkpoint.exists():
            return
        for name in ("run.json", "data.safetensors"):
            (self.path / name).unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    @staticmethod
    def open(path: Path) -> "Run":
        """A saved run."""
        path = Path(path)
        require(path.is_dir(), f"{path} is not a folder with a run; make one with: unnorm fit DATA --out {path}")
        file = path / "run.json"
        require(file.exists(), f"{path} holds no run.json, so it is not a run of unnorm; fit one with --out")
        try:
            raw = json.loads(file.read_text())
            require(
                isinstance(raw, dict) and raw.get("version") == VERSION,
                f"{file} has version {raw.get('version') if isinstance(raw, dict) else '?'}, and this release reads "
                f"version {VERSION}",
            )
            settings = RunSettings.model_validate(raw)
        except (json.JSONDecodeError, UnicodeDecodeError, ValidationError) as error:
            raise InputError(f"{file} is damaged; restore it from a copy or fit again") from error
        return Run(path, settings)

    @cached_property
    def prepared(self) -> Prepared:
        """The rows of the run, as they were."""
        arrays, _ = load_arrays(self.path / "data.safetensors")
        standardiser = Standardiser.from_dict(self.settings.standardiser)
        scales = Scales(dimension=len(self.settings.columns), **self.settings.scales)
        return Prepared(
            arrays["train"],
            arrays["valid"],
            arrays["test"],
            self.settings.columns,
            self.settings.source,
            standardiser,
            scales,
            problem_named(self.settings.source),
        )

    def continue_with(self, settings: RunSettings) -> None:
        """Refuse to resume with other settings than the run was started with."""
        old, new = self.settings.model_dump(mode="json"), settings.model_dump(mode="json")
        for field in ("fingerprint", "model", "objective", "training", "seed"):
            name = "data" if field == "fingerprint" else field
            require(
                old[field] == new[field],
                f"{self.path} was started with another {name} ({_short(old[field])} then, {_short(new[field])} now); "
                "repeat the original settings to resume, or choose another --out",
            )

    @cached_property
    def model(self) -> AbstractEnergy:
        """The trained model: the best weights of the checkpoint."""
        template, _ = build(self.settings, self.prepared)
        return best_model(template, self.checkpoint)

    def write_json(self, name: str, content: Any) -> None:
        """A small JSON file of the run, atomically."""
        write_atomically(self.path / name, (json.dumps(content, indent=2) + "\n").encode())

    def save_assessment(self, content: dict[str, Any]) -> None:
        """Keep an assessment together with a hash of the checkpoint it is about."""
        self.write_json("assessment.json", {"checkpoint": self._checkpoint_hash(), **content})

    def saved_assessment(self) -> dict[str, Any] | None:
        """The assessment of this very checkpoint, if one was saved."""
        file = self.path / "assessment.json"
        if not file.exists():
            return None
        try:
            content = json.loads(file.read_text())
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{file} is damaged; delete it and run: unnorm evaluate {self.path}") from error
        return content if content.get("checkpoint") == self._checkpoint_hash() else None

    def record(self) -> tuple[dict[str, Any], tuple[str, ...], Outcome, float]:
        """The learning curves, events, outcome and seconds of training."""
        arrays, notes = load_arrays(self.checkpoint)
        history = {name.removeprefix("history/"): a for name, a in arrays.items() if name.startswith("history/")}
        file = self.path / "outcome.json"
        if not file.exists():
            step = int(arrays["state.step"])
            unfinished = Outcome(OutcomeCode.UNFINISHED, step, "training was interrupted", "Continue it with --resume.")
            return history, tuple(notes["events"]), unfinished, 0.0
        saved = json.loads(file.read_text())
        seconds = saved.pop("seconds")
        return history, tuple(notes["events"]), Outcome.from_dict(saved), seconds

    def _checkpoint_hash(self) -> str:
        return hashlib.sha256(self.checkpoint.read_bytes()).hexdigest()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
