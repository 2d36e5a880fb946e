"""Likelihood by contrast with the model's own samples."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.devices import split_over_devices
from unnorm.energies import AbstractEnergy
from unnorm.errors import require
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.samplers.base import AbstractSampler
from unnorm.samplers.langevin import Langevin


class PCD(AbstractObjective):
    """Persistent contrastive divergence: L = mean E(x_data) - mean E(x_chains), chains held fixed.

    Its gradient is that of the negative log-likelihood, E_data[dE] - E_p[dE], when the chains follow p. The chains are
    the state: they start as data points, move `moves` sampler steps under the current model before each update, and
    a share `restart` of them starts afresh from the batch (Tieleman 2008; Du and Mordatch 2019). `magnitude` adds that
    multiple of mean E^2 over data and chains, which holds the free constant of the energy near zero.

    >>> import unnorm as un
    >>> PCD(un.samplers.Langevin(0.01), chains=256, moves=20).chains
    256
    """

    comparable: ClassVar[bool] = False
    sampler: AbstractSampler = eqx.field(default_factory=lambda: Langevin(0.01))
    chains: int = eqx.field(static=True, default=256)
    moves: int = eqx.field(static=True, default=10)
    restart: float = eqx.field(static=True, default=0.0)
    magnitude: float = eqx.field(static=True, default=0.0)

    def __check_init__(self):
        require(self.chains >= 1 and self.moves >= 1, "PCD needs at least one chain and one move per step")
        require(0 <= self.restart <= 1, f"the share of restarted chains lies in [0, 1], not {self.restart}")

    def init(
        self, model: AbstractEnergy, data: Float[Array, "n ..."], *, key: PRNGKeyArray
    ) -> Float[Array, "chains ..."]:
        """The chains, started at data points drawn with replacement."""
        return data[jax.random.randint(key, (self.chains,), 0, len(data))]

    def __call__(
        self,
        model: AbstractEnergy,
        state: Float[Array, "chains ..."],
        batch: Float[Array, "b ..."],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Scalar, tuple[Float[Array, "chains ..."], Info]]:
        who, where, walk = jax.random.split(key, 3)
        fresh = batch[jax.random.randint(where, (self.chains,), 0, len(batch))]
        restarted = jax.random.bernoulli(who, self.restart, (self.chains,) + (1,) * (state.ndim - 1))
        chains = split_over_devices(jnp.where(restarted, fresh, state))
        arrays, static = eqx.partition(model, eqx.is_array)
        chains = self._move(eqx.combine(jax.lax.stop_gradient(arrays), static), chains, walk)
        energies = jax.vmap(model)(jnp.concatenate([batch, chains]))
        of_data, of_chains = energies[: len(batch)], energies[len(batch) :]
        contrast = jnp.mean(of_data) - jnp.mean(of_chains)
        penalty = self.magnitude * (jnp.mean(of_data**2) + jnp.mean(of_chains**2)) if self.magnitude else 0.0
        return contrast + penalty, (chains, {"contrast": contrast})

    def _move(self, model: AbstractEnergy, chains: Float[Array, "chains ..."], key: PRNGKeyArray):
        def move(states, key):
            keys = jax.random.split(key, self.chains)
            states, _ = jax.vmap(lambda s, k: self.sampler.step(model, s, key=k))(states, keys)
            return states, None

        states = jax.vmap(lambda x: self.sampler.init(model, x))(chains)
        states, _ = jax.lax.scan(move, states, jax.random.split(key, self.moves))
        return jax.vmap(self.sampler.position)(states)
