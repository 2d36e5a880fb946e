"""Learning a deep Boltzmann machine: the hidden units of data by mean field, those of the model by chains."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.devices import split_over_devices
from unnorm.energies import DeepBoltzmann, blocks_of
from unnorm.energies.factorised import redrawn
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_kind, require_sampler
from unnorm.objectives.contrastive_divergence import move_chains
from unnorm.parts import held
from unnorm.samplers.base import AbstractSampler
from unnorm.samplers.gibbs import Gibbs
from unnorm.spaces import Binary


def mean_field(model: DeepBoltzmann, x: Float[Array, " visible"], sweeps: int) -> tuple[Array, ...]:
    """The layers of a machine with its visible units at x: hidden ones at mu_l = sigmoid(b_l + inputs from both sides).

    The fixed point is the best law q(h) = prod_j q(h_j) by KL(q, p(h | x)), found layer by layer from 1/2; it is exact
    if there is one hidden layer.

    >>> machine = DeepBoltzmann((jnp.ones((2, 1)),), (jnp.zeros(2), jnp.zeros(1)))
    >>> round(float(mean_field(machine, jnp.ones(2), 1)[1][0]), 4)
    0.8808
    """
    layers = [x.astype(float), *(jnp.full(bias.shape, 0.5) for bias in model.biases[1:])]

    def sweep(_, layers):
        layers = list(layers)
        for layer in range(1, len(layers)):
            layers[layer] = jax.nn.sigmoid(model.inputs(layer, layers))
        return tuple(layers)

    return jax.lax.fori_loop(0, sweeps, sweep, tuple(layers))


class MeanFieldPCD(AbstractObjective):
    """L = mean E(x, mu(x)) - mean E(chains): rows with their hidden units at mean field, less chains over all units.

    E is linear in every layer, so that E(x, mu) is its mean under the factorised law q of the hidden units: the
    gradient is that of a lower bound of the likelihood, with persistent chains for the constant (Salakhutdinov and
    Hinton 2009). mu and the chains are held fixed. Rows are visible units alone.

    >>> MeanFieldPCD(chains=100).sweeps
    10
    """

    comparable: ClassVar[bool] = False
    sampler: AbstractSampler = eqx.field(default_factory=Gibbs)
    chains: int = eqx.field(static=True, default=256)
    moves: int = eqx.field(static=True, default=5)
    sweeps: int = eqx.field(static=True, default=10)

    def __check_init__(self):
        require_sampler(self.sampler, "MeanFieldPCD")
        require_count(self.chains, 1, "the chains of MeanFieldPCD")
        require_count(self.moves, 1, "moves per step")
        require_count(self.sweeps, 1, "sweeps of mean field")

    def rows(self, model: DeepBoltzmann) -> Binary:
        _require_deep(model)
        return Binary((model.visible,))

    def init(
        self, model: DeepBoltzmann, data: Float[Array, "n visible"], *, key: PRNGKeyArray
    ) -> Float[Array, "chains units"]:
        """The chains: visible units at data points drawn with replacement, hidden ones drawn to go with them."""
        _require_deep(model)
        self.sampler.check(model)
        which, coins, up = jax.random.split(key, 3)
        rows = data[jax.random.randint(which, (self.chains,), 0, len(data))].astype(float)
        hidden = jax.random.bernoulli(coins, 0.5, (self.chains, model.space.size - model.visible)).astype(float)
        blocks = blocks_of(model)
        assert blocks is not None
        # The odd layers, with fair coins above them: with one hidden layer this is its law.
        points, keys = jnp.concatenate([rows, hidden], axis=1), jax.random.split(up, self.chains)
        return jax.vmap(lambda x, k: redrawn(blocks, 1, x, key=k))(points, keys)

    def __call__(
        self,
        model: DeepBoltzmann,
        state: Float[Array, "chains units"],
        batch: Float[Array, "b visible"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Scalar, tuple[Float[Array, "chains units"], Info]]:
        still = held(model)
        filled = jax.vmap(lambda x: jnp.concatenate(mean_field(still, x, self.sweeps)))(batch)
        chains = move_chains(self.sampler, model, split_over_devices(state), self.moves, key)
        contrast = jnp.mean(jax.vmap(model)(filled)) - jnp.mean(jax.vmap(model)(chains))
        return contrast, (chains, {"contrast": contrast})


def _require_deep(model: DeepBoltzmann) -> None:
    require_kind(model, DeepBoltzmann, "MeanFieldPCD trains an energies.DeepBoltzmann, not {}; PCD trains any energy")
