"""The protocol of every objective."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from unnorm.spaces import AbstractOnRows, AbstractSpace, AnyNumbers

Scalar = Float[Array, ""]
State = Any
Info = Mapping[str, Scalar]


class AbstractObjective(eqx.Module):
    """A loss with a state.

    Whatever must persist between steps (chains, a learnt log Z, the data a noise is built on) lives in the state, so
    one training loop serves every objective and a checkpoint misses nothing. Objectives add up: `0.5 * a + b`.
    """

    #: Whether a lower loss on held-out data means a better model. A contrast with the model's own chains does not.
    comparable: eqx.AbstractClassVar[bool]

    def rows(self, model: Any) -> AbstractSpace | None:
        """The space whose points a row is: the model's own rows, unless the objective says otherwise.

        With a condition beside each point it is `spaces.WithCondition`; None: real numbers of a shape nobody knows.
        """
        return rows_of(model)

    @abstractmethod
    def init(self, model: Any, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> State:
        """The state before the first step; `data` is the whole training set."""

    @abstractmethod
    def __call__(
        self, model: Any, state: State, batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[State, Info]]:
        """The loss on a batch, and the next state with named numbers worth showing."""

    # The sum is an objective itself, defined in terms of this class: imported when first used.
    def __add__(self, other: "AbstractObjective") -> "AbstractObjective":
        from unnorm.objectives.weighted import add

        return add(self, other)

    def __rmul__(self, weight: float) -> "AbstractObjective":
        from unnorm.objectives.weighted import scale

        return scale(weight, self)


def rows_of(model: Any) -> AbstractSpace | None:
    """The space whose points the rows of a model are; a model that says nothing of them takes any finite numbers."""
    return model.rows_space() if isinstance(model, AbstractOnRows) else AnyNumbers()


class AbstractStateRemarks(eqx.Module):
    """A part of an objective whose state after training tells something that its reader should know."""

    @abstractmethod
    def remarks(self, state: State) -> tuple[str, ...]:
        """That, in sentences; empty if there is nothing to say."""


def remarks_of(objective: AbstractObjective, state: State) -> tuple[str, ...]:
    """What the objective says of its state; most have nothing to say."""
    return objective.remarks(state) if isinstance(objective, AbstractStateRemarks) else ()
