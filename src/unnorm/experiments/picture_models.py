"""What experiments on pictures share: the diffusion that `unnorm fit` would train, draws in lots, and sheets."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from unnorm.catalogue import MODELS, find
from unnorm.catalogue.diffusion import levels_of
from unnorm.data.pictures import PictureSchema, shades
from unnorm.errors import require
from unnorm.experiments.base import Job
from unnorm.generators import AbstractTransition, DPMSolver, generate
from unnorm.runs import Prepared, Training, settings_of
from unnorm.runs.build import train
from unnorm.runs.settings import Named
from unnorm.scores import AbstractLevelledScore

#: Points that walk side by side.
AT_ONCE = 256


def trained_diffusion(
    job: Job, name: str, prepared: Prepared, training: Mapping[str, Any], options: Mapping[str, Any] | None = None
) -> AbstractLevelledScore:
    """The score that `unnorm fit` learns of these pictures, with other steps if told so; a killed training goes on."""
    usual = find(MODELS, "diffusion", "model").training(prepared.space)
    settings = settings_of(
        prepared, Named(name="diffusion", options=dict(options or {})), Named(name="denoise-levels"),
        Training(**{**usual, **training}), job.seed,
    )  # fmt: skip
    file = job.folder / f"{name}.safetensors"
    fitted = train(settings, prepared, checkpoint=file, resume=file.exists(), progress=job.progress)
    require(fitted.outcome.ok, f"training of {name} {fitted.outcome}")
    assert isinstance(fitted.model, AbstractLevelledScore)
    return fitted.model


def drawn(
    score: AbstractLevelledScore,
    n: int,
    *,
    steps: int,
    seed: int,
    solver: str = "dpm++",
    transition: AbstractTransition | None = None,
    conditions: np.ndarray | None = None,
) -> np.ndarray:
    """n points by a solver of so many steps, in lots that share a program."""
    step, size, parts = transition or DPMSolver(), min(n, AT_ONCE), []
    levels = levels_of(score.noise, solver, steps)
    for first in range(0, n, size):
        which = np.minimum(np.arange(first, first + size), n - 1)
        beside = None if conditions is None else conditions[which]
        key = jax.random.fold_in(jax.random.key(seed), first)
        found = generate(score, step, levels=levels, n=size, condition=beside, key=key)
        parts.append(found.points[: n - first])
    return np.concatenate(parts)


def told_apart(rows: Any, schema: PictureSchema) -> list[Any]:
    """Pictures as whole numbers from 0 (black) to 255, for a result's series."""
    return shades(schema.to_written(np.asarray(rows)), schema).tolist()


def tiles(images: Any, across: int) -> np.ndarray:
    """Pictures of height x width x channels side by side, so many in a line.

    >>> tiles(np.zeros((4, 2, 3, 1)), 2).shape
    (4, 6, 1)
    """
    found = np.asarray(images, float)
    n, height, width, channels = found.shape
    down = -(-n // across)
    page = np.full((down * across, height, width, channels), 255.0)
    page[:n] = found
    page = page.reshape(down, across, height, width, channels).swapaxes(1, 2)
    return page.reshape(down * height, across * width, channels)
