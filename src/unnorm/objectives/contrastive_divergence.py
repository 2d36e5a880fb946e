"""Likelihood by contrast with the model's own samples.

The gradient of the negative log-likelihood is E_data[dE] - E_p[dE]. The second term needs draws of the model; the
objectives here differ in where their chains begin: where the last step left them (`PCD`), at the batch (`CD`), or at
noise, every time anew (`ShortRun`).
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, Shaped

from unnorm.arguments import require_count, require_positive, require_weight
from unnorm.devices import split_over_devices
from unnorm.energies import AbstractEnergy
from unnorm.errors import require
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_real, require_sampler, require_walk
from unnorm.parts import held
from unnorm.samplers.base import AbstractSampler
from unnorm.samplers.langevin import Langevin


def move_chains(
    sampler: AbstractSampler, model: AbstractEnergy, chains: Shaped[Array, "chains ..."], moves: int, key: PRNGKeyArray
) -> Shaped[Array, "chains ..."]:
    """The chains after some sampler steps under the model as it stands; no gradient flows through the walk."""
    target = held(model)

    def move(states, key):
        keys = jax.random.split(key, len(chains))
        states, _ = jax.vmap(lambda s, k: sampler.step(target, s, key=k))(states, keys)
        return states, None

    states = jax.vmap(lambda x: sampler.init(target, x))(jax.lax.stop_gradient(chains))
    states, _ = jax.lax.scan(move, states, jax.random.split(key, moves))
    return jax.vmap(sampler.position)(states)


def contrast_with(
    model: AbstractEnergy, batch: Shaped[Array, "b ..."], chains: Shaped[Array, "chains ..."], magnitude: float
) -> tuple[Scalar, Info]:
    """mean E(batch) - mean E(chains), plus `magnitude` times the mean squares of both."""
    # One pass over data and chains together: one large matrix product instead of two.
    energies = jax.vmap(model)(jnp.concatenate([batch, chains]))
    of_data, of_chains = energies[: len(batch)], energies[len(batch) :]
    contrast = jnp.mean(of_data) - jnp.mean(of_chains)
    penalty = magnitude * (jnp.mean(of_data**2) + jnp.mean(of_chains**2)) if magnitude else 0.0
    return contrast + penalty, {"contrast": contrast}


class PCD(AbstractObjective):
    """Persistent contrastive divergence: L = mean E(x_data) - mean E(x_chains), chains held fixed.

    Its gradient is that of the negative log-likelihood, E_data[dE] - E_p[dE], when the chains follow p. The chains are
    the state: they start as data points, move `moves` sampler steps under the current model before each update, and
    a share `restart` of them starts afresh from the batch, or from N(0, restart_scale^2 I) if that is given (Tieleman
    2008; Du and Mordatch 2019). `buffer` keeps that many chains, of which `chains`, drawn at random, move at each step:
    a replay buffer. `magnitude` adds that multiple of mean E^2 over data and chains, which holds the free constant of
    the energy near zero.

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
    buffer: int | None = eqx.field(static=True, default=None)
    restart_scale: float | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        require_sampler(self.sampler, "PCD")
        require_count(self.chains, 1, "the chains of PCD")
        require_count(self.moves, 1, "moves per step")
        require_weight(self.magnitude, "the weight of mean E^2")
        require(0 <= self.restart <= 1, f"the share of restarted chains lies in [0, 1], not {self.restart}")
        require(
            self.buffer is None or self.buffer >= self.chains,
            f"a buffer of {self.buffer} cannot hold the {self.chains} chains that move at each step",
        )
        require(
            self.restart_scale is None or self.restart_scale > 0,
            f"the noise that chains restart from needs a positive scale, not {self.restart_scale}",
        )
        require(
            self.restart_scale is None or self.restart > 0,
            f"restart_scale {self.restart_scale} has no effect while restart is 0; give the share of chains to restart",
        )

    def init(
        self, model: AbstractEnergy, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray
    ) -> Shaped[Array, "kept ..."]:
        """The chains, started at data points drawn with replacement."""
        require_walk(self.sampler, model, "PCD")
        if self.restart_scale is not None:
            require_real(model.space, "PCD with restart_scale", "begins chains at Gaussian noise")
        return data[jax.random.randint(key, (self.buffer or self.chains,), 0, len(data))]

    def __call__(
        self,
        model: AbstractEnergy,
        state: Shaped[Array, "kept ..."],
        batch: Shaped[Array, "b ..."],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Scalar, tuple[Shaped[Array, "kept ..."], Info]]:
        who, where, walk = jax.random.split(key, 3)
        rows = None
        if len(state) > self.chains:
            rows = jax.random.permutation(jax.random.fold_in(key, 1), len(state))[: self.chains]
        chains = state if rows is None else state[rows]
        restarted = jax.random.bernoulli(who, self.restart, (self.chains,) + (1,) * (state.ndim - 1))
        chains = split_over_devices(jnp.where(restarted, self._fresh(batch, where), chains))
        chains = move_chains(self.sampler, model, chains, self.moves, walk)
        loss, info = contrast_with(model, batch, chains, self.magnitude)
        return loss, (chains if rows is None else state.at[rows].set(chains), info)

    def _fresh(self, batch: Shaped[Array, "b ..."], key: PRNGKeyArray) -> Shaped[Array, "chains ..."]:
        if self.restart_scale is None:
            return batch[jax.random.randint(key, (self.chains,), 0, len(batch))]
        return self.restart_scale * jax.random.normal(key, (self.chains, *batch.shape[1:]), batch.dtype)


class CD(AbstractObjective):
    """Contrastive divergence: L = mean E(x) - mean E(x'), x' the batch after `moves` sampler steps, held fixed.

    Hinton 2002. The objective behind it, KL(p_data || p) - KL(Pi p_data || p) with Pi the sampler's kernel, has one
    more gradient term, through the model that Pi depends on; it is dropped. What is left is the gradient of no function
    (its Jacobian is not symmetric), and vanishes at the truth if the sampler leaves the model invariant. Few moves see
    only the slopes around the data: mass elsewhere is not pushed away.

    >>> import unnorm as un
    >>> CD(un.samplers.MALA(0.1), moves=1).moves
    1
    """

    comparable: ClassVar[bool] = False
    sampler: AbstractSampler = eqx.field(default_factory=lambda: Langevin(0.01))
    moves: int = eqx.field(static=True, default=1)
    magnitude: float = eqx.field(static=True, default=0.0)

    def __check_init__(self):
        require_sampler(self.sampler, "CD")
        require_count(self.moves, 1, "moves per step")
        require_weight(self.magnitude, "the weight of mean E^2")

    def init(self, model: AbstractEnergy, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps."""
        require_walk(self.sampler, model, "CD")
        return None

    def __call__(
        self, model: AbstractEnergy, state: None, batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        chains = move_chains(self.sampler, model, batch, self.moves, key)
        loss, info = contrast_with(model, batch, chains, self.magnitude)
        return loss, (None, info)


class ShortRun(AbstractObjective):
    """Short-run maximum likelihood: chains begin at N(0, scale^2 I) for every update and take `moves` steps.

    Nijkamp et al. 2019. What is learnt is a generator, the walk of that many steps, rather than a density: the
    energy's own density agrees with the data only if the walk has time to reach it.

    >>> import unnorm as un
    >>> ShortRun(un.samplers.Langevin(0.01), moves=100, chains=64).scale
    1.0
    """

    comparable: ClassVar[bool] = False
    sampler: AbstractSampler = eqx.field(default_factory=lambda: Langevin(0.01))
    moves: int = eqx.field(static=True, default=100)
    chains: int = eqx.field(static=True, default=256)
    scale: float = eqx.field(static=True, default=1.0)
    magnitude: float = eqx.field(static=True, default=0.0)

    def __check_init__(self):
        require_sampler(self.sampler, "ShortRun")
        require_count(self.chains, 1, "the chains of short runs")
        require_count(self.moves, 1, "moves per step")
        require_weight(self.magnitude, "the weight of mean E^2")
        require_positive(self.scale, "the scale of the noise that short runs begin at")

    def init(self, model: AbstractEnergy, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps."""
        require_walk(self.sampler, model, "ShortRun")
        require_real(model.space, "ShortRun", "begins its chains at Gaussian noise")
        return None

    def __call__(
        self, model: AbstractEnergy, state: None, batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        begin, walk = jax.random.split(key)
        start = self.scale * jax.random.normal(begin, (self.chains, *batch.shape[1:]), batch.dtype)
        chains = move_chains(self.sampler, model, split_over_devices(start), self.moves, walk)
        loss, info = contrast_with(model, batch, chains, self.magnitude)
        return loss, (None, info)
