"""Markov chain Monte Carlo maximum likelihood: draws of an anchor model, reweighted to the model being learnt."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from unnorm.arguments import require_count
from unnorm.energies import AbstractEnergy
from unnorm.errors import require
from unnorm.objectives.base import AbstractObjective, AbstractStateRemarks, Info, Scalar
from unnorm.objectives.checks import require_sampler, require_walk
from unnorm.objectives.contrastive_divergence import move_chains
from unnorm.parts import held, trainable
from unnorm.samplers.base import AbstractSampler
from unnorm.samplers.langevin import Langevin


class GeyerState(eqx.Module):
    """The anchor's weights, draws from the anchor, steps since it was set, and how often the weights collapsed."""

    anchor: Any
    draws: Shaped[Array, "chains ..."]
    age: Int[Array, ""]
    collapses: Int[Array, ""]


def effective_share(log_weights: Float[Array, " n"]) -> Scalar:
    """(sum w)^2 / (n sum w^2): 1 for equal weights, 1/n if one carries all.

    >>> float(effective_share(jnp.zeros(5)))
    1.0
    """
    log_weights = log_weights - jnp.max(log_weights)
    weights = jnp.exp(log_weights)
    return jnp.sum(weights) ** 2 / (len(weights) * jnp.sum(weights**2))


class Geyer(AbstractObjective, AbstractStateRemarks):
    """L = -mean_i log f(y_i)/f_a(y_i) + log mean_j f(x_j)/f_a(x_j),  x_j from the anchor f_a by Markov chain.

    Its gradient is E_data[dE] - sum_j w_j dE(x_j) with normalised weights w proportional to f/f_a: that of the negative
    log-likelihood as the draws grow. The anchor becomes the present model, and its draws move `moves` sampler steps to
    follow, every `every` steps, or at once when the weights' effective share falls below `least`; the latter is
    counted in the state as a collapse, and said among the events of the fit. Draws begin at data points, and the first
    anchor is the model untrained: give `burn_in` steps enough to reach it. Geyer and Thompson 1992.

    >>> import unnorm as un
    >>> Geyer(un.samplers.MALA(0.1), chains=512, every=20).every
    20
    """

    comparable: ClassVar[bool] = False
    sampler: AbstractSampler = eqx.field(default_factory=lambda: Langevin(0.01))
    chains: int = eqx.field(static=True, default=512)
    moves: int = eqx.field(static=True, default=50)
    every: int = eqx.field(static=True, default=20)
    least: float = eqx.field(static=True, default=0.3)
    burn_in: int = eqx.field(static=True, default=200)

    def __check_init__(self):
        require_sampler(self.sampler, "Geyer")
        require_count(self.chains, 2, "draws of the anchor")
        require_count(self.moves, 1, "moves of the draws")
        require_count(self.every, 1, "the steps between two anchors")
        require(0 <= self.least < 1, f"the least effective share lies in [0, 1), not {self.least}")
        require_count(self.burn_in, 1, "the moves of the first draws")

    def init(self, model: AbstractEnergy, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> GeyerState:
        """The model as it stands is the first anchor."""
        require_walk(self.sampler, model, "Geyer")
        where, walk = jax.random.split(key)
        start = data[jax.random.randint(where, (self.chains,), 0, len(data))]
        draws = move_chains(self.sampler, model, start, self.burn_in, walk)
        zero = jnp.zeros((), jnp.int32)
        return GeyerState(eqx.filter(model, trainable(model)), draws, zero, zero)

    def __call__(
        self, model: AbstractEnergy, state: GeyerState, batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[GeyerState, Info]]:
        weights, rest = eqx.partition(model, trainable(model))
        weights = held(weights)
        still = eqx.combine(weights, rest)
        before = effective_share(self._log_weights(still, eqx.combine(state.anchor, rest), state.draws))
        # Written so that a share that is not a number counts as a collapse.
        collapsed = ~(before >= self.least)

        def renew(_):
            return weights, move_chains(self.sampler, still, state.draws, self.moves, key)

        due = (state.age >= self.every) | collapsed
        anchor, draws = jax.lax.cond(due, renew, lambda _: (state.anchor, state.draws), None)
        reference = eqx.combine(held(anchor), rest)
        log_weights = self._log_weights(model, reference, draws)
        of_data = jnp.mean(jax.vmap(model)(batch) - jax.vmap(reference)(batch))
        loss = of_data + jax.nn.logsumexp(log_weights) - jnp.log(len(draws))
        moved = GeyerState(anchor, draws, jnp.where(due, 0, state.age) + 1, state.collapses + collapsed)
        info = {"effective_share": effective_share(log_weights), "collapsed": collapsed.astype(float)}
        return loss, (moved, info)

    def remarks(self, state: GeyerState) -> tuple[str, ...]:
        times = int(state.collapses)
        if times == 0:
            return ()
        return (
            f"The importance weights collapsed {times} time{'s' if times > 1 else ''} (effective share below "
            f"{self.least:g}) and the anchor was set anew at once: the model runs away from its anchor; try a smaller "
            "learning rate, more chains, or a smaller `every`.",
        )

    def _log_weights(
        self, model: AbstractEnergy, anchor: AbstractEnergy, draws: Shaped[Array, "chains ..."]
    ) -> Float[Array, " chains"]:
        return jax.vmap(anchor)(draws) - jax.vmap(model)(draws)
