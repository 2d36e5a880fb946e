"""The energy of points alone: a model's own, or what is left of it where its conditions are given."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from unnorm.energies import AbstractEnergy, FunctionEnergy
from unnorm.errors import require
from unnorm.runs.folder import Run
from unnorm.spaces import Conditioned, WithCondition


def conditioned_at(model: AbstractEnergy, condition: Any) -> AbstractEnergy:
    """E(. | c) of an energy on rows (x, c): an energy of x.

    >>> from unnorm.spaces import Real
    >>> rows = WithCondition(Real((1,)), Real((1,)))
    >>> slope = FunctionEnergy(lambda row: jnp.sum((row.x - row.condition) ** 2), rows)
    >>> float(conditioned_at(slope, jnp.ones(1))(jnp.ones(1)))
    0.0
    """
    space = model.space
    assert isinstance(space, WithCondition)
    condition = jax.tree.map(jnp.asarray, condition)

    def of_point(x: Any) -> Any:
        row: Any = Conditioned(x, condition)
        return model(row)

    return FunctionEnergy(of_point, space.space)


def energy_of_points(run: Run, given: Mapping[str, Any]) -> AbstractEnergy:
    """The energy that draws of a run follow, with a value given for each of its conditions."""
    names = run.prepared.schema.conditions
    if isinstance(run.model.space, WithCondition):
        shown = ", ".join(repr(name) for name in names)
        require(bool(given), f"the model of {run.path} is one given {shown}; say what is given, as in given={{...}}")
        return conditioned_at(run.energy, run.prepared.schema.given(given))
    require(
        not given,
        f"the model of {run.path} was fitted without conditions, so nothing can be given to it; "
        "fit it again with --condition and the column's name",
    )
    return run.energy
