"""The run of a network on disk: settings, the network, what was fitted and what was found out, each kept as it is made.

RUN/run.json              the settings, readable
RUN/network.safetensors   the network, its attributes and covariates
RUN/fit.safetensors       the coefficients and all that belongs to them
RUN/draws.safetensors     graphs drawn from the model, and their statistics
RUN/goodness.safetensors  how such graphs compare with the network
RUN/result.json           what is known, readable
RUN/report.html           the same for people

A network is one point: it has no rows to train on, to choose by and to judge on. So its run is no `Run`, but is kept by
the same rules: written atomically, with a checksum and a version, never pickled. Every piece follows from the settings
and the network, so a run that was killed makes the pieces that it lacks again, with the same bits.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from unnorm import __version__
from unnorm.errors import InputError, require
from unnorm.files import alone, write_atomically
from unnorm.graphs import FittedGraph, Model, Network, fit, parse
from unnorm.runs.graph_data import PreparedGraph
from unnorm.runs.graph_saved import fit_arrays, fit_from_arrays, network_arrays, network_from_arrays
from unnorm.training.checkpoint import load_arrays, save_arrays

VERSION = 2
#: What a run that was killed before its settings were written may have left.
LEFTOVERS = ("network.safetensors", ".lock")


class GraphSettings(BaseModel):
    """All that defines the run of a network; equal settings and an equal network give equal bits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["graph"] = "graph"
    source: str
    terms: str
    #: Whether the terms were named, and not those that are usual.
    chosen: bool = True
    method: str = "auto"
    constraint: str | None = None
    seed: int = 0
    fingerprint: str
    nodes: str | None = None
    covariates: dict[str, str] = {}
    directed: bool | None = None
    remarks: tuple[str, ...] = ()
    version: int = VERSION
    unnorm: str = __version__


def graph_settings(
    prepared: PreparedGraph,
    terms: str | None,
    usual: str,
    *,
    method: str = "auto",
    constraint: str | None = None,
    seed: int = 0,
) -> GraphSettings:
    """The settings of a new run; terms are checked here, on the network, before anything is written."""
    found = terms if terms is not None else usual
    Model(parse(found, prepared.covariates), prepared.network)
    remarks = prepared.remarks
    if terms is None:
        remarks = (*remarks, f"No --terms were given: {usual} are fitted (unnorm list terms has the others).")
    return GraphSettings(
        source=prepared.source,
        terms=found,
        chosen=terms is not None,
        method=method,
        constraint=constraint,
        seed=seed,
        fingerprint=prepared.fingerprint,
        nodes=prepared.nodes,
        covariates=dict(prepared.covariate_sources),
        directed=prepared.asked_directed,
        remarks=remarks,
    )


def is_graph_run(path: Path) -> bool:
    """Whether this folder holds the run of a network."""
    try:
        raw = json.loads((Path(path) / "run.json").read_text())
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return False
    return isinstance(raw, dict) and raw.get("kind") == "graph"


@dataclass(frozen=True)
class GraphRun:
    """A folder that holds the fit of a network."""

    path: Path
    settings: GraphSettings

    @staticmethod
    def create_or_resume(path: Path, settings: GraphSettings, prepared: PreparedGraph, *, resume: bool) -> "GraphRun":
        """The run in this folder if it is to be taken up again and has the same settings, or a new one."""
        if resume and (path / "run.json").exists():
            run = GraphRun.open(path)
            run._continue_with(settings)
            return run
        if resume and path.is_dir():
            names = {entry.name for entry in path.iterdir()}
            require(
                all(name in LEFTOVERS or name.endswith(".part") for name in names),
                f"{path} holds no run to resume and is not empty; choose another --out",
            )
            for entry in path.iterdir():
                entry.unlink()
        require(
            not path.exists() or (path.is_dir() and not any(path.iterdir())),
            f"{path} already exists; choose another --out, or add --resume to continue that run",
        )
        path.mkdir(parents=True, exist_ok=True)
        save_arrays(path / "network.safetensors", *network_arrays(prepared))
        # The settings come last: a folder with run.json is complete.
        write_atomically(path / "run.json", (settings.model_dump_json(indent=2) + "\n").encode())
        return GraphRun(path, settings)

    @staticmethod
    def open(path: Path) -> "GraphRun":
        """A saved run of a network."""
        file = Path(path) / "run.json"
        try:
            raw = json.loads(file.read_text())
            require(
                raw.get("version") == VERSION,
                f"{file} has version {raw.get('version')} of a network's run, and this release reads version "
                f"{VERSION}; use the release that wrote it, or fit again",
            )
            return GraphRun(Path(path), GraphSettings.model_validate(raw))
        except (json.JSONDecodeError, UnicodeDecodeError, ValidationError) as error:
            raise InputError(f"{file} is damaged; restore it from a copy or fit again") from error

    def _continue_with(self, settings: GraphSettings) -> None:
        """Refuse to resume with other settings than the run was started with."""
        named = [("fingerprint", "network"), ("terms", "list of terms")]
        named += [(name, name) for name in ("method", "constraint", "seed")]
        for field, name in named:
            old, new = getattr(self.settings, field), getattr(settings, field)
            told = "" if field == "fingerprint" else f" ({old} then, {new} now)"
            require(
                old == new,
                f"{self.path} was started with another {name}{told}; repeat the original settings to resume, or choose "
                "another --out",
            )

    def discard(self) -> None:
        """Take back what `create_or_resume` made, if nothing was fitted since: refused terms leave no folder."""
        if (self.path / "fit.safetensors").exists():
            return
        for name in ("run.json", "network.safetensors"):
            (self.path / name).unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    @cached_property
    def _network(self) -> tuple[Network, dict[str, np.ndarray]]:
        return network_from_arrays(*load_arrays(self.path / "network.safetensors"))

    @property
    def network(self) -> Network:
        """The network that was fitted."""
        return self._network[0]

    @property
    def covariates(self) -> Mapping[str, np.ndarray]:
        """What is known of its pairs."""
        return self._network[1]

    @cached_property
    def missing(self) -> np.ndarray:
        """Its pairs of which it is not known whether they have an edge, by numbers, in rows."""
        return load_arrays(self.path / "network.safetensors")[0]["missing"]

    def learn(self) -> FittedGraph:
        """The fit: that of the folder, or else made now and kept."""
        settings, file = self.settings, self.path / "fit.safetensors"
        if not file.exists():
            with alone(self.path / ".lock", self.path):
                network, covariates = self._network
                fitted = fit(
                    network,
                    settings.terms,
                    key=settings.seed,
                    covariates=covariates,
                    method=settings.method,
                    constraint=settings.constraint,
                    missing=[tuple(network.labels[v] for v in pair) for pair in self.missing.tolist()] or None,
                )
                arrays, notes = fit_arrays(fitted)
                save_arrays(file, arrays, {**notes, "of": settings.fingerprint})
        return self.fitted

    @cached_property
    def fitted(self) -> FittedGraph:
        """What was fitted."""
        file = self.path / "fit.safetensors"
        require(file.exists(), f"{self.path} has no model yet; go on with: unnorm fit ... --resume, then try again")
        arrays, notes = load_arrays(file)
        require(
            notes.get("of") == self.settings.fingerprint,
            f"{file} was made of another network than that of {self.path}; delete it and go on with --resume",
        )
        network, covariates = self._network
        told = self.settings
        found = fit_from_arrays(arrays, notes, network, covariates, told.terms, told.constraint, told.seed)
        return replace(found, missing=self.missing)

    def kept(self, name: str, make: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and notes of this piece: those of the folder, or else made now, from the fit, and kept."""
        file, own = self.path / f"{name}.safetensors", {"of": self._identity}
        if file.exists():
            arrays, notes = load_arrays(file)
            if {key: notes.get(key) for key in own} == own:
                return arrays, notes
        arrays, notes = make()
        with alone(self.path / ".lock", self.path):
            save_arrays(file, arrays, {**notes, **own})
        return arrays, {**notes, **own}

    @cached_property
    def _identity(self) -> str:
        """What tells this fit from others: the checksum of what was found."""
        from unnorm.files import labels_of

        return labels_of((self.path / "fit.safetensors").read_bytes()).get("sha256", "")

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """A small JSON file of the run, atomically."""
        write_atomically(self.path / name, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())
