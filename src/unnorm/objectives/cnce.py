"""Conditional noise-contrastive estimation: tell each point from a corrupted copy of it."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, Shaped

from unnorm.arguments import named, require_count
from unnorm.energies import AbstractEnergy
from unnorm.noises import AbstractGaussianNoise, AbstractNoise, AbstractNoiseFromData, AbstractSymmetricNoise
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import (
    require_energy,
    require_finite,
    require_kind,
    require_real,
    require_sigma,
)


class CNCE(AbstractObjective):
    """L = (2 / (N K)) sum_ij softplus(-F_ij),  F = E(y) - E(x) + log q(y|x) - log q(x|y),  y_ij ~ q(.|x_i).

    No log Z appears: it cancels in E(y) - E(x). The noise decides the variant: `noises.Gaussian` is local CNCE,
    `noises.GlobalJumps` global, `noises.Jumps` the mix of both, `noises.BlendedJumps` one mixture kernel. A noise with
    levels is taken at level 0.
    Ceylan and Gutmann 2018; Yu et al. 2025, Eq. 3 and 13.

    >>> import unnorm as un
    >>> CNCE(un.noises.Jumps(local=0.1, bandwidth=0.1)).draws
    1
    """

    comparable: ClassVar[bool] = True
    noise: AbstractNoise | AbstractNoiseFromData
    draws: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        require_kind(
            self.noise,
            (AbstractNoise, AbstractNoiseFromData),
            "CNCE corrupts points by a noise such as noises.Jumps(local=0.1, bandwidth=0.1), and {} is not one; a "
            "density is for NCE, or becomes a noise by noises.Independent",
        )
        require_count(self.draws, 1, "noise points per datum")
        if isinstance(self.noise, AbstractGaussianNoise):
            require_sigma(self.noise, 0.0, "CNCE")

    def init(self, model: AbstractEnergy, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> AbstractNoise:
        """The noise itself, fitted to the data where it needs them."""
        require_energy(model, "CNCE")
        fitted = self.noise.fit(data) if isinstance(self.noise, AbstractNoiseFromData) else self.noise
        if isinstance(fitted, AbstractSymmetricNoise):
            fitted.check(model.space)
        if fitted.makes_real_numbers:
            require_real(model.space, f"CNCE with {named(self.noise)}", "makes noise of real numbers")
        require_finite(fitted, "CNCE", self.noise)
        return fitted

    def __call__(
        self, model: AbstractEnergy, state: AbstractNoise, batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[AbstractNoise, Info]]:
        xs = jnp.tile(batch, (self.draws,) + (1,) * (batch.ndim - 1))
        ys, log_ratios = state.propose_each(jnp.zeros(()), xs, key=key)
        # One pass of the network over data and noise together: one large matrix product instead of two.
        energies = jax.vmap(model)(jnp.concatenate([batch, jax.lax.stop_gradient(ys)]))
        of_data, of_noise = energies[: len(batch)], energies[len(batch) :]
        log_odds = of_noise - jnp.tile(of_data, self.draws) + jax.lax.stop_gradient(log_ratios)
        loss = 2 * jnp.mean(jax.nn.softplus(-log_odds))
        return loss, (state, {"accuracy": jnp.mean(log_odds > 0)})
