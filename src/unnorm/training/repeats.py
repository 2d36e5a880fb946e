"""Hundreds of fits in one compiled call, for standard errors that come from repetition."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.errors import require
from unnorm.objectives import AbstractObjective
from unnorm.objectives.base import rows_of
from unnorm.training.loop import _recipe
from unnorm.training.optimisers import Schedule, rates
from unnorm.training.points import require_shape
from unnorm.training.state import Recipe, many_steps, split, start

Model = TypeVar("Model", bound=eqx.Module)

#: The learning rate of the default optimiser, for the small models that are fitted many times.
USUAL_RATE = 1e-2


def fit_repeats(
    model: Model,
    objective: AbstractObjective,
    data: Float[Array, "repeats n ..."],
    *,
    steps: int = 2000,
    batch: int = 256,
    rate: float | None = None,
    average: float = 0.99,
    schedule: Schedule | None = None,
    optimiser: optax.GradientTransformation | None = None,
    key: PRNGKeyArray,
) -> Model:
    """The same model fitted to each of several data sets; every array of the result has a leading axis of repeats.

    The options are those of `fit`, but that Adam's rate is 0.01 if none is given, and the average's decay 0.99.

    >>> import jax, unnorm as un
    >>> data = jax.random.normal(jax.random.key(0), (3, 100, 2))
    >>> fits = fit_repeats(
    ...     un.energies.standard_gaussian(2),
    ...     un.objectives.DSM(un.noises.Gaussian(1.0)),
    ...     data,
    ...     steps=2,
    ...     key=jax.random.key(1),
    ... )
    >>> fits.mean.shape
    (3, 2)
    """
    require(data.ndim >= 3, f"data for repeats have axes (repeat, row, ...), and shape {data.shape} has too few")
    require_shape(type(model).__name__, rows_of(model), data.shape[2:], "training")
    rate, schedule = rates(rate, schedule, optimiser, USUAL_RATE)
    recipe = _recipe(model, objective, min(batch, data.shape[1]), steps, rate, average, schedule, optimiser)

    learnt = _run(recipe, split(model)[0], data, jax.random.split(key, len(data)))
    return eqx.combine(learnt, recipe.skeleton)


@compiled
def _run(recipe: Recipe, weights: Any, data: Array, keys: Array) -> Any:
    """All fits side by side: one program for every recipe of the same make, whatever its numbers."""
    model = eqx.combine(weights, recipe.skeleton)

    def one(points: Array, key: PRNGKeyArray) -> Any:
        return many_steps(recipe, start(model, recipe, points, key), points, recipe.steps).state.average

    return eqx.filter_vmap(one)(data, keys)
