"""What a run's score over noise levels can do beside draws: codes of rows, rows between, parts that are unknown."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unnorm.catalogue.diffusion import LAST
from unnorm.errors import require
from unnorm.generators import decode, encode, impute, slerp
from unnorm.runs.folder import Run
from unnorm.runs.generating import conditions_for
from unnorm.runs.prepare import points_of
from unnorm.scores import AbstractLevelledScore
from unnorm.spaces import Conditioned

#: Below this level a picture's noise is less than a step of its values.
LEAST = 1e-3


def levelled_of(run: Run) -> AbstractLevelledScore:
    """The model of a run, if it is a score over noise levels."""
    model = run.model
    require(
        isinstance(model, AbstractLevelledScore),
        f"codes and imputation by levels need a diffusion, and the model of {run.path} is an energy; "
        "fit one with --model diffusion",
    )
    assert isinstance(model, AbstractLevelledScore)
    return model


def least_of(score: AbstractLevelledScore) -> float:
    """The level at which codes begin."""
    return max(float(score.noise.least_level()), LEAST)


def codes_of(run: Run, rows: Any, tolerance: float) -> tuple[np.ndarray, Any]:
    """The codes of rows in unit coordinates, and the conditions beside them."""
    score = levelled_of(run)
    points = jnp.asarray(points_of(rows))
    conditions = jax.tree.map(jnp.asarray, rows.condition) if isinstance(rows, Conditioned) else None
    found = encode(score, points, conditions=conditions, tolerance=tolerance, least=least_of(score), last=LAST)
    return found.points, conditions


def rows_of_codes(run: Run, codes: Any, conditions: Any, tolerance: float) -> np.ndarray:
    """The points of codes, in unit coordinates."""
    score, shape = levelled_of(run), run.prepared.space.struct().shape
    codes = jnp.asarray(codes, float)
    require(codes.shape[1:] == shape, f"a code has the shape of a point, {shape}, not {codes.shape[1:]}")
    return decode(score, codes, conditions=conditions, tolerance=tolerance, least=least_of(score), last=LAST).points


def between(run: Run, rows: Any, n: int, tolerance: float) -> np.ndarray:
    """n + 2 points from the first of two rows to the second, along the arc of their codes, as the first is told."""
    codes, conditions = codes_of(run, rows, tolerance)
    require(len(codes) == 2 and n >= 0, f"points lie between two rows, not {len(codes)}, and are none or more, not {n}")
    arc = jnp.stack([slerp(jnp.asarray(codes[0]), jnp.asarray(codes[1]), share) for share in np.linspace(0, 1, n + 2)])
    if conditions is not None:
        conditions = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[0], (n + 2, *leaf.shape[1:])), conditions)
    return rows_of_codes(run, arc, conditions, tolerance)


def completed(
    run: Run, row: Any, known: Any, n: int, given: Mapping[str, Any], steps: int, corrections: int, seed: int
) -> np.ndarray:
    """n draws of a row of which a part is known, in unit coordinates; the mask has the shape of a point."""
    score = levelled_of(run)
    point = jnp.asarray(points_of(row))[0]
    mask = jnp.broadcast_to(jnp.asarray(known, bool), point.shape)
    conditions = conditions_for(run.prepared, n, given, seed=seed)
    if isinstance(row, Conditioned) and not given:
        conditions = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[0], (n, *leaf.shape[1:])), row.condition)
    made = impute(
        score, point, mask, levels=np.linspace(LAST, least_of(score), steps + 1), n=n, corrections=corrections,
        condition=conditions, key=jax.random.key(seed),
    )  # fmt: skip
    require(made.lost == 0, f"{made.lost} of {n} draws are not finite; use more steps")
    return made.points
