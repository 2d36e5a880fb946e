"""From settings and rows to a model, its objective, and a fit of the one by the other."""

from pathlib import Path
from typing import Any

import jax

from unnorm.catalogue import MODELS, OBJECTIVES, Context, find, read_options
from unnorm.data import AbstractTransform, DropLabel, InTurn
from unnorm.energies import AbstractEnergy
from unnorm.energies.reference import Chosen
from unnorm.objectives import AbstractObjective
from unnorm.runs.prepare import Prepared
from unnorm.runs.settings import RunSettings
from unnorm.scores import AbstractLevelledScore, LevelledScore
from unnorm.spaces import Categorical
from unnorm.training import Fit, adam, fit, muon

DIRECTIONS = {"adam": adam, "muon": muon}


def _context(settings: RunSettings, prepared: Prepared, reference: AbstractEnergy | None = None) -> Context:
    key, condition = jax.random.key(settings.seed), prepared.schema.condition
    makes = find(MODELS, settings.model.name, "model").makes
    return Context(prepared.space, prepared.scales, key, prepared.train, prepared.valid, reference, condition, makes)


def fit_reference(settings: RunSettings, prepared: Prepared, *, progress: bool) -> Chosen | None:
    """The density that the model starts from, for a model that has one."""
    entry = find(MODELS, settings.model.name, "model")
    if entry.reference is None:
        return None
    return entry.reference(read_options(entry, settings.model.options), _context(settings, prepared), progress)


def build(
    settings: RunSettings, prepared: Prepared, reference: AbstractEnergy | None = None
) -> tuple[AbstractEnergy | LevelledScore, AbstractObjective]:
    """The model before training, and its objective; a reference that is needed and not given is fitted."""
    context = _context(settings, prepared, reference)
    model = find(MODELS, settings.model.name, "model")
    objective = find(OBJECTIVES, settings.objective.name, "objective")
    return (
        model.build(read_options(model, settings.model.options), context),
        objective.build(read_options(objective, settings.objective.options), context),
    )


def transform_of(model: Any, prepared: Prepared) -> AbstractTransform | None:
    """What is done to a row each time a score over noise levels meets it; nothing to rows of other models.

    Values that were rounded are spread over their step, and a tenth of the labels left out, for guidance.
    """
    if not isinstance(model, AbstractLevelledScore):
        return None
    rounding, condition = prepared.schema.rounding, prepared.schema.condition
    parts: tuple[AbstractTransform, ...] = () if rounding is None else (rounding,)
    if isinstance(condition, Categorical) and condition.shape == ():
        parts += (DropLabel(condition.categories),)
    return InTurn(parts) if parts else None


def train(
    settings: RunSettings,
    prepared: Prepared,
    *,
    reference: AbstractEnergy | None = None,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    progress: bool = True,
) -> Fit[AbstractEnergy | LevelledScore]:
    """Fit what the settings describe."""
    model, objective = build(settings, prepared, reference)
    return fit(
        model,
        objective,
        prepared.train,
        valid=prepared.valid,
        transform=transform_of(model, prepared),
        **settings.training.model_dump(exclude={"direction"}),
        direction=DIRECTIONS[settings.training.direction](),
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        resume=resume,
        key=jax.random.key(settings.seed + 1),
        progress=progress,
    )
