"""Sums of objectives: one model, several reasons to be right."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, Shaped

from unnorm.arguments import require_positive
from unnorm.errors import require
from unnorm.objectives.base import AbstractObjective, AbstractStateRemarks, Info, Scalar, remarks_of
from unnorm.objectives.checks import require_kind


class WeightedSum(AbstractObjective, AbstractStateRemarks):
    """L = sum_i weight_i L_i, the state a tuple of the parts' states; written `0.5 * a + b`.

    A lower held-out loss means a better model only if it does so for every part. The parts' named numbers are kept
    under their place in the sum.

    >>> import unnorm as un
    >>> total = un.objectives.DSM(un.noises.Gaussian(0.1)) + 0.5 * un.objectives.CNCE(un.noises.GlobalJumps(0.1))
    >>> total.weights, total.comparable
    ((1.0, 0.5), True)
    """

    parts: tuple[AbstractObjective, ...]
    weights: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, parts: tuple[AbstractObjective, ...], weights: tuple[float, ...]):
        require(len(parts) == len(weights) > 0, f"{len(parts)} objectives need as many weights, not {len(weights)}")
        for part in parts:
            require_kind(part, AbstractObjective, "objectives are added to objectives, not to {}")
        for weight in weights:
            require_positive(weight, "the weight of an objective")
        self.parts = tuple(parts)
        self.weights = tuple(float(w) for w in weights)

    @property
    def comparable(self) -> bool:
        """Whether every part is."""
        return all(part.comparable for part in self.parts)

    def init(self, model: Any, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> tuple[Any, ...]:
        """The states of the parts."""
        keys = jax.random.split(key, len(self.parts))
        return tuple(part.init(model, data, key=k) for part, k in zip(self.parts, keys, strict=True))

    def __call__(
        self, model: Any, state: tuple[Any, ...], batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[tuple[Any, ...], Info]]:
        keys = jax.random.split(key, len(self.parts))
        found = [p(model, s, batch, key=k) for p, s, k in zip(self.parts, state, keys, strict=True)]
        loss = sum((w * part for w, (part, _) in zip(self.weights, found, strict=True)), jnp.zeros(()))
        info = {f"{i}.{name}": value for i, (_, (_, info)) in enumerate(found) for name, value in info.items()}
        info |= {f"{i}.loss": part for i, (part, _) in enumerate(found)}
        return loss, (tuple(s for _, (s, _) in found), info)

    def remarks(self, state: tuple[Any, ...]) -> tuple[str, ...]:
        return tuple(line for part, s in zip(self.parts, state, strict=True) for line in remarks_of(part, s))


def terms_of(objective: AbstractObjective) -> tuple[tuple[AbstractObjective, ...], tuple[float, ...]]:
    """The parts and weights of an objective, which is one part of weight 1 unless it is a sum."""
    if isinstance(objective, WeightedSum):
        return objective.parts, objective.weights
    return (objective,), (1.0,)


def add(a: AbstractObjective, b: AbstractObjective) -> WeightedSum:
    """a + b, sums flattened."""
    require_kind(b, AbstractObjective, "objectives are added to objectives, not to {}")
    (parts, weights), (more_parts, more_weights) = terms_of(a), terms_of(b)
    return WeightedSum(parts + more_parts, weights + more_weights)


def scale(weight: float, objective: AbstractObjective) -> WeightedSum:
    """weight * objective."""
    require_positive(weight, "the weight of an objective")
    parts, weights = terms_of(objective)
    return WeightedSum(parts, tuple(weight * w for w in weights))
