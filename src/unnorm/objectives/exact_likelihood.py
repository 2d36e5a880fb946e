"""Maximum likelihood where the density is known, or its constant can be summed."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from unnorm.energies import AbstractEnergy, AbstractNormalised, enumerated_log_z, every_point
from unnorm.errors import require
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_energy


class EnumeratedLikelihood(AbstractObjective):
    """L = mean E(x) + log sum_x' exp(-E(x')): maximum likelihood on a small discrete space, point by point.

    >>> import unnorm as un
    >>> coins = un.energies.uniform(un.spaces.Binary((3,)))
    >>> round(float(EnumeratedLikelihood()(coins, None, jnp.zeros((4, 3)), key=jax.random.key(0))[0]), 4)
    2.0794
    """

    comparable: ClassVar[bool] = True

    def init(self, model: AbstractEnergy, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a space with too many points is refused."""
        require_energy(model, "EnumeratedLikelihood")
        every_point(model.space)
        return None

    def __call__(
        self, model: AbstractEnergy, state: None, batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        return jnp.mean(jax.vmap(model)(batch)) + enumerated_log_z(model), (None, {})


class MLE(AbstractObjective):
    """L = -mean log p(x), for models that are normalised: Gaussians, mixtures, flows.

    >>> import unnorm as un
    >>> gaussian = un.energies.standard_gaussian(2)
    >>> round(float(MLE()(gaussian, None, jnp.zeros((3, 2)), key=jax.random.key(0))[0]), 4)
    1.8379
    """

    comparable: ClassVar[bool] = True

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; an energy of unknown constant is refused here."""
        require(
            isinstance(model, AbstractNormalised),
            f"MLE needs a normalised model, and {type(model).__name__} is not normalised; use CNCE, SSM or PCD",
        )
        return None

    def __call__(
        self, model: AbstractNormalised, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        return jnp.mean(jax.vmap(model)(batch)), (None, {})
