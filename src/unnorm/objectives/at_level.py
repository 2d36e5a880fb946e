"""An objective of one level of a model that has an energy at every level."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import InputError
from unnorm.objectives.base import AbstractObjective, AbstractStateRemarks, Info, Scalar, remarks_of
from unnorm.scores import LevelledEnergy


class AtLevel(AbstractObjective, AbstractStateRemarks):
    """L(E(t, .)): the objective of the energy at one level t of a `scores.LevelledEnergy`.

    A regularised diffusion (Yu et al. 2025) is `DSM(noise) + weight * AtLevel(CNCE(jumps), 0.0)`: denoising at every
    level, which cannot tell the weights of far modes at small noise, and jumps between them at the smallest, which can.
    A process that starts without noise has its smallest level at 1e-5 (`least_level`), which level 0 then stands for.

    >>> import unnorm as un
    >>> un.objectives.AtLevel(un.objectives.CNCE(un.noises.GlobalJumps(0.1)), 0.0).level
    0.0
    """

    objective: AbstractObjective
    level: float = eqx.field(static=True)

    def __init__(self, objective: AbstractObjective, level: float = 0.0):
        self.objective, self.level = objective, level

    @property
    def comparable(self) -> bool:
        """As the objective's."""
        return self.objective.comparable

    def init(self, model: LevelledEnergy, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> Any:
        """As the objective's."""
        if not isinstance(model, LevelledEnergy):
            raise InputError(
                f"AtLevel trains one level of a scores.LevelledEnergy, and {type(model).__name__} has no levels; "
                "use the objective itself"
            )
        return self.objective.init(model.at(self.level), data, key=key)

    def remarks(self, state: Any) -> tuple[str, ...]:
        return remarks_of(self.objective, state)

    def __call__(
        self, model: LevelledEnergy, state: Any, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[Any, Info]]:
        return self.objective(model.at(self.level), state, batch, key=key)
