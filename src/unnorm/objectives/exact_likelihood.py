"""Maximum likelihood where the density is known."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies import AbstractNormalised
from unnorm.errors import require
from unnorm.objectives.base import AbstractObjective, Info, Scalar


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
