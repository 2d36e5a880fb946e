"""Noise-contrastive estimation of a tilted density against the reference it tilts."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, Shaped

from unnorm.arguments import require_positive
from unnorm.energies.tilted import Tilted
from unnorm.errors import InputError
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.nce import classification


class TiltNCE(AbstractObjective):
    """`NCE` whose noise is the model's own reference: the log-odds that a row is data are -network(x) + log(n/m).

    The densities cancel in the log-odds, so neither is computed. The noise could not be closer to the model: the
    classification is never trivial, and log Z (learnt, so near 0) is easy to check by importance sampling from the
    reference. Gutmann and Hyvarinen 2012 recommend such noise.

    >>> TiltNCE(ratio=2.0).ratio
    2.0
    """

    comparable: ClassVar[bool] = True
    ratio: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        require_positive(self.ratio, "the number of noise points per datum")

    def init(self, model: Tilted, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; the noise is the model's reference, which does not move."""
        if not isinstance(model, Tilted):
            raise InputError(
                f"this objective tells data from the reference of a tilted energy, and {type(model).__name__} has "
                "none; use NCE with a noise of its own, or tilt a reference with energies.tilt"
            )

    def __call__(
        self, model: Tilted, state: None, batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        n = len(batch)
        m = max(1, round(self.ratio * n))
        noise = jax.lax.stop_gradient(model.reference.samples(m, key=key)).astype(batch.dtype)
        tilts = jax.vmap(model.tilt)(jnp.concatenate([batch, noise]))
        log_odds = jnp.log(n / m) - tilts
        loss, accuracy = classification(log_odds[:n], log_odds[n:])
        return loss, (state, {"accuracy": accuracy})
