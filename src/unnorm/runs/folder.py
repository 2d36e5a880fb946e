"""A run on disk: settings, data, what was fitted and what is known of it, each kept as soon as it is there.

RUN/run.json               the settings, readable
RUN/data.safetensors       the rows it was fitted to and judged on, as points; conditions beside them
RUN/reference.safetensors  the density a tilted model starts from: its spec, its arrays, how it was made
RUN/checkpoint.safetensors the whole training state
RUN/baselines.safetensors  the mixture that the model is compared with
RUN/draws.safetensors      draws of the model
RUN/assessment.json        what is known about the result
RUN/left-out-K.safetensors what the rows that were fitted are worth to a model fitted without them
RUN/report.html            the same for people

Nothing here runs code when it is loaded, and everything carries a checksum.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from unnorm.catalogue.saved import load_density, save_density
from unnorm.data.recognise import kind_named
from unnorm.energies import AbstractEnergy, GaussianMixture, Recipe
from unnorm.energies.reference import Chosen
from unnorm.errors import InputError, require
from unnorm.estimate import Outcome, OutcomeCode
from unnorm.files import labels_of, write_atomically
from unnorm.noises import Scales
from unnorm.runs.assess import assess
from unnorm.runs.build import build, fit_reference
from unnorm.runs.findings import Assessment
from unnorm.runs.prepare import Prepared, problem_named
from unnorm.runs.references import References, made_for, references_from
from unnorm.runs.settings import VERSION, RunSettings
from unnorm.runs.trees import named_arrays, tree_of
from unnorm.scores import LevelledScore
from unnorm.training import best_model
from unnorm.training.checkpoint import load_arrays, save_arrays

#: What a run that was killed before its settings were written may have left.
LEFTOVERS = ("data.safetensors", ".lock")


@dataclass(frozen=True)
class Run:
    """A folder that holds a run; what several runs have in common (a comparison's) lies on their `shelf`."""

    path: Path
    settings: RunSettings
    shelf: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @staticmethod
    def create(path: Path, settings: RunSettings, prepared: Prepared, shelf: Path | None = None) -> "Run":
        """A new folder with settings and data; refuses to touch anything that is already there."""
        require(
            not path.exists() or (path.is_dir() and not any(path.iterdir())),
            f"{path} already exists; choose another --out, or add --resume to continue that run",
        )
        path.mkdir(parents=True, exist_ok=True)
        parts = {"train": prepared.train, "valid": prepared.valid, "test": prepared.test}
        arrays = {name: array for part, rows in parts.items() for name, array in named_arrays(part, rows).items()}
        arrays["together"] = prepared.labels
        if prepared.test_together is not None:
            arrays["test_together"] = prepared.test_together
        save_arrays(path / "data.safetensors", arrays, {})
        # The settings come last: a folder with run.json is complete.
        write_atomically(path / "run.json", (settings.model_dump_json(indent=2) + "\n").encode())
        return Run(path, settings, shelf or path)

    @staticmethod
    def create_or_resume(
        path: Path, settings: RunSettings, prepared: Prepared, *, resume: bool, shelf: Path | None = None
    ) -> "Run":
        """The run in this folder if it is to be taken up again and has the same settings, or a new one."""
        if resume and (path / "run.json").exists():
            run = Run.open(path, shelf)
            run.continue_with(settings)
            return run
        if resume and path.is_dir():
            # A run killed before its settings were written has nothing worth keeping but the data it began to save.
            names = {entry.name for entry in path.iterdir()}
            require(
                all(name in LEFTOVERS or name.endswith(".part") for name in names),
                f"{path} holds no run to resume and is not empty; choose another --out",
            )
            for entry in path.iterdir():
                entry.unlink()
        return Run.create(path, settings, prepared, shelf)

    def discard(self) -> None:
        """Take back what `create` made, if nothing was learnt since: settings that were refused leave no folder."""
        if self.checkpoint.exists():
            return
        for name in ("run.json", "data.safetensors", "reference.safetensors"):
            (self.path / name).unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    @staticmethod
    def open(path: Path, shelf: Path | None = None) -> "Run":
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
                f"version {VERSION}; use the release that wrote it, or fit again",
            )
            settings = RunSettings.model_validate(raw)
        except (json.JSONDecodeError, UnicodeDecodeError, ValidationError) as error:
            raise InputError(f"{file} is damaged; restore it from a copy or fit again") from error
        return Run(path, settings, shelf or path)

    def continue_with(self, settings: RunSettings) -> None:
        """Refuse to resume with other settings than the run was started with."""
        old, new = self.settings.model_dump(mode="json"), settings.model_dump(mode="json")
        for field in ("kind", "fingerprint", "model", "objective", "training", "seed"):
            name = {"fingerprint": "data", "kind": "kind of data"}.get(field, field)
            require(
                old[field] == new[field],
                f"{self.path} was started with another {name} ({_short(old[field])} then, {_short(new[field])} now); "
                "repeat the original settings to resume, or choose another --out",
            )

    @cached_property
    def prepared(self) -> Prepared:
        """The rows of the run, as they were."""
        arrays, _ = load_arrays(self.path / "data.safetensors")
        settings = self.settings
        kind = kind_named(settings.kind)
        schema = kind.schema_from(settings.data)
        scales, struct = settings.scales, schema.rows_space.struct()
        return Prepared(
            tree_of("train", struct, arrays),
            tree_of("valid", struct, arrays),
            tree_of("test", struct, arrays),
            schema,
            kind,
            settings.source,
            None if scales is None else Scales(dimension=schema.space.size, **scales),
            problem_named(settings.source),
            together=arrays["together"],
            test_together=arrays.get("test_together"),
            group=settings.group,
            test_source=settings.test_source,
            forced=settings.forced,
            remarks=settings.remarks,
            warnings=settings.warnings,
        )

    # ------------------------------------------------------------------------------------ what is made once and kept

    def reference(self, *, progress: bool = False) -> Chosen | None:
        """The density that the model starts from and how it was made, if it has one; fitted at the first call."""
        file = self.shelf / "reference.safetensors"
        if not file.exists():
            chosen = fit_reference(self.settings, self.prepared, progress=progress)
            if chosen is not None:
                save_density(file, chosen.density, {"recipe": chosen.recipe.to_dict(), **self._of_data()})
            return chosen
        density, notes = load_density(file)
        self._require_own(file, notes)
        return Chosen(density, Recipe.from_dict(notes["recipe"]))

    def baselines(self) -> References:
        """What the model is compared with; fitted at the first call."""
        file = self.shelf / "baselines.safetensors"
        if not file.exists():
            made = made_for(self.prepared, seed=self.settings.seed)
            if made is not None:
                save_density(file, made[0], {"components": made[1], **self._of_data()})
            return references_from(made, self.prepared)
        mixture, notes = load_density(file)
        self._require_own(file, notes)
        assert isinstance(mixture, GaussianMixture)
        return references_from((mixture, notes["components"]), self.prepared)

    def _of_data(self) -> dict[str, Any]:
        return {"data": self.settings.fingerprint}

    def _require_own(self, file: Path, notes: Mapping[str, Any]) -> None:
        require(
            notes["data"] == self.settings.fingerprint,
            f"{file} was made from other rows than those of {self.path}; delete it to have it made again",
        )

    @cached_property
    def model(self) -> AbstractEnergy | LevelledScore:
        """The trained model: the best weights of the checkpoint."""
        require(
            self.checkpoint.exists(),
            f"{self.path} has no model yet; go on with: unnorm fit ... --resume, then try again",
        )
        chosen = self.reference()
        template, _ = build(self.settings, self.prepared, None if chosen is None else chosen.density)
        return best_model(template, self.checkpoint)

    @property
    def energy(self) -> AbstractEnergy:
        """The trained model, where it is an energy."""
        model = self.model
        require(
            isinstance(model, AbstractEnergy),
            f"the model of {self.path} is a score over noise levels, which has no energy; unnorm evaluate has its "
            "log-likelihood",
        )
        assert isinstance(model, AbstractEnergy)
        return model

    def assessment(self, *, seed: int | None = None, progress: bool = True) -> Assessment:
        """What is known of the model on its own test rows; found out at the first call."""
        seed = self.settings.seed if seed is None else seed
        saved = self.saved_assessment(seed)
        if saved is not None:
            return saved
        found = assess(self.model, self.prepared, references=self.baselines(), seed=seed, progress=progress)
        of = {"of": self.identity, "seed": seed}
        save_arrays(self.path / "draws.safetensors", found.arrays(), of)
        self.write_json("assessment.json", {**of, "findings": list(found), **found.to_dict()})
        return found

    def saved_assessment(self, seed: int) -> Assessment | None:
        """The assessment of this very model and data by this seed, if one was saved."""
        file, of_draws = self.path / "assessment.json", self.path / "draws.safetensors"
        if not (file.exists() and of_draws.exists()):
            return None
        content = self.read_json("assessment.json", f"delete it and run: unnorm evaluate {self.path}")
        arrays, notes = load_arrays(of_draws)
        own = {"of": self.identity, "seed": seed}
        if any(found.get(name) != value for found in (content, notes) for name, value in own.items()):
            return None
        return Assessment.restored(content["findings"], content, arrays, self.prepared.space)

    @property
    def identity(self) -> str:
        """A hash of the model and of the rows: what was found out about others does not count."""
        # The checksum of what the checkpoint holds; its bytes depend on the order they were written in.
        content = labels_of(self.checkpoint.read_bytes()).get("sha256", "")
        return hashlib.sha256(f"{content}{self.settings.fingerprint}".encode()).hexdigest()

    # ---------------------------------------------------------------------------------------------------- small files

    def write_json(self, name: str, content: Any) -> None:
        """A small JSON file of the run, atomically."""
        write_atomically(self.path / name, (json.dumps(content, indent=2) + "\n").encode())

    def read_json(self, name: str, advice: str) -> dict[str, Any]:
        """What `write_json` wrote; what is not JSON is refused with the advice."""
        try:
            return json.loads((self.path / name).read_text())
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path / name} is damaged; {advice}") from error

    def record(self) -> tuple[dict[str, Any], tuple[str, ...], Outcome, float]:
        """The learning curves, events, outcome and seconds of training."""
        arrays, notes = load_arrays(self.checkpoint)
        history = {name.removeprefix("history/"): a for name, a in arrays.items() if name.startswith("history/")}
        if not (self.path / "outcome.json").exists():
            step = int(arrays["state.step"])
            unfinished = Outcome(OutcomeCode.UNFINISHED, step, "training was interrupted", "Continue it with --resume.")
            return history, tuple(notes["events"]), unfinished, 0.0
        saved = self.read_json("outcome.json", "delete it and go on with --resume")
        seconds, events = saved.pop("seconds"), saved.pop("events")
        return history, tuple(events), Outcome.from_dict(saved), seconds


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
