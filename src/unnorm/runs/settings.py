"""What was asked for: everything that defines a run, checked before anything is written."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from unnorm import __version__
from unnorm.catalogue import MODELS, OBJECTIVES, find, read_options
from unnorm.errors import require
from unnorm.runs.prepare import Prepared

VERSION = 2


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Named(_Frozen):
    """A name of the catalogue and its options."""

    name: str
    options: dict[str, Any] = {}


class Training(_Frozen):
    """How long and how fast."""

    steps: int = Field(default=3000, ge=1)
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
    group: str | None = None
    test_source: str | None = None
    fingerprint: str
    columns: tuple[str, ...]
    decimals: tuple[int | None, ...] = ()
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    standardiser: dict[str, list[float]]
    scales: dict[str, float]
    version: int = VERSION
    unnorm: str = __version__


def settings_of(prepared: Prepared, model: Named, objective: Named, training: Training, seed: int) -> RunSettings:
    """The settings of a new run; names and options are checked here, before anything is written."""
    for entries, named, what in ((MODELS, model, "model"), (OBJECTIVES, objective, "objective")):
        read_options(find(entries, named.name, what), named.options)
    entry = find(OBJECTIVES, objective.name, "objective")
    learnt = [one.name for one in MODELS if entry.suits(one)]
    require(model.name in learnt, f"{objective.name} learns only {' or '.join(learnt)} models, not {model.name}")
    return RunSettings(
        model=model,
        objective=objective,
        training=training,
        seed=seed,
        source=prepared.source,
        group=prepared.group,
        test_source=prepared.test_source,
        fingerprint=prepared.fingerprint,
        columns=prepared.columns,
        decimals=prepared.decimals,
        remarks=prepared.remarks,
        warnings=prepared.warnings,
        standardiser=prepared.standardiser.to_dict(),
        scales={"bandwidth": prepared.scales.bandwidth, "length": prepared.scales.length},
    )
