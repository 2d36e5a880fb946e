"""What was asked for: everything that defines a run, checked before anything is written."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from unnorm import __version__
from unnorm.catalogue import MODELS, OBJECTIVES, find, read_options, require_works
from unnorm.errors import require
from unnorm.noises import Scales
from unnorm.runs.prepare import Prepared

VERSION = 3


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
    #: What the loop scales by its rate: Adam's direction, or Muon's for kernels of convolutions.
    direction: Literal["adam", "muon"] = "adam"
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
    kind: str = "table"
    #: Whether the kind was named, and not recognised.
    forced: bool = False
    conditions: tuple[str, ...] = ()
    #: The way from and to what people wrote: what the kind makes its schema of again.
    data: dict[str, Any]
    scales: dict[str, float] | None
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    version: int = VERSION
    unnorm: str = __version__


def lengths_of(scales: Scales) -> dict[str, float]:
    """The lengths of scales, without the dimension that the rows have anyway."""
    return {"bandwidth": scales.bandwidth, "length": scales.length}


def settings_of(prepared: Prepared, model: Named, objective: Named, training: Training, seed: int) -> RunSettings:
    """The settings of a new run; names and options are checked here, before anything is written."""
    for entries, named, what in ((MODELS, model, "model"), (OBJECTIVES, objective, "objective")):
        read_options(find(entries, named.name, what), named.options)
    made, entry = find(MODELS, model.name, "model"), find(OBJECTIVES, objective.name, "objective")
    space, condition = prepared.space, prepared.schema.condition
    require_works(MODELS, made, space, condition, "model")
    learnt = [one.name for one in MODELS if entry.suits(one) and one.works(space)]
    require(model.name in learnt, f"{objective.name} learns only {' or '.join(learnt)} models, not {model.name}")
    require_works(OBJECTIVES, entry, space, condition, "objective")
    for one, options in ((made, model.options), (entry, objective.options)):
        one.check(read_options(one, options), space)
    return RunSettings(
        model=model,
        objective=objective,
        training=training,
        seed=seed,
        source=prepared.source,
        group=prepared.group,
        test_source=prepared.test_source,
        fingerprint=prepared.fingerprint,
        kind=prepared.kind.name,
        forced=prepared.forced,
        conditions=prepared.schema.conditions,
        data=prepared.schema.to_dict(),
        scales=None if prepared.scales is None else lengths_of(prepared.scales),
        remarks=prepared.remarks,
        warnings=prepared.warnings,
    )
