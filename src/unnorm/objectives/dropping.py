"""Training with dropout: the layers of a network are given a key at each step."""

from typing import Any

import jax
from jaxtyping import Array, PRNGKeyArray, Shaped

from unnorm.networks.dropout import dropping
from unnorm.objectives.base import AbstractObjective, AbstractStateRemarks, Info, Scalar, remarks_of


class Dropping(AbstractObjective, AbstractStateRemarks):
    """The objective of a model whose `networks.Dropout` layers drop, by a key of their own at every batch.

    Elsewhere they drop nothing: draws and likelihoods are those of the whole network. A held-out loss drops too, unless
    `training.fit` is given the objective itself as `judge`.

    >>> import unnorm as un
    >>> un.objectives.Dropping(un.objectives.DSM()).comparable
    True
    """

    objective: AbstractObjective

    @property
    def comparable(self) -> bool:
        """As the objective's."""
        return self.objective.comparable

    def init(self, model: Any, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> Any:
        """As the objective's."""
        return self.objective.init(model, data, key=key)

    def remarks(self, state: Any) -> tuple[str, ...]:
        return remarks_of(self.objective, state)

    def __call__(
        self, model: Any, state: Any, batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[Any, Info]]:
        drop, key = jax.random.split(key)
        return self.objective(dropping(model, key=drop), state, batch, key=key)
