"""Conditional NCE whose noise is steps of a Markov chain under the model as it lately was."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, Shaped

from unnorm.arguments import require_count
from unnorm.energies import AbstractEnergy
from unnorm.errors import require
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_sampler, require_walk
from unnorm.objectives.contrastive_divergence import move_chains
from unnorm.parts import held
from unnorm.samplers.base import AbstractSampler
from unnorm.samplers.gibbs import Gibbs


class Anchored(NamedTuple):
    """The model that the noise is made by, and how many steps it has been so."""

    model: Any
    age: Int[Array, ""]


class AdaptedCNCE(AbstractObjective):
    """L = 2 mean softplus(-F), F = E(y) - E(x) + E'(x) - E'(y), y ~ Pi'^moves(. | x).

    Pi' is a step of the sampler under E', the model as it was up to `every` steps ago. A sampler that is reversible
    has Pi'(y | x) exp(-E'(x)) = Pi'(x | y) exp(-E'(y)), so that the ratio of noise there and back is known without its
    density, and any E' makes a conditional NCE that is right. At E' = E the gradient is dE(x) - dE(y): that of
    contrastive divergence, step for step (`every=1`; Ceylan 2017, Section 4.3; Yair and Michaeli 2021).

    A sweep over the sites in a fixed order is not reversible and is refused; `Gibbs(sites)` redraws sites at random.

    >>> AdaptedCNCE(Gibbs(4), moves=2).every
    1
    """

    comparable: ClassVar[bool] = False
    sampler: AbstractSampler = eqx.field(default_factory=lambda: Gibbs(1))
    moves: int = eqx.field(static=True, default=1)
    every: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        require_sampler(self.sampler, "AdaptedCNCE")
        require(
            not isinstance(self.sampler, Gibbs) or self.sampler.sites is not None,
            "AdaptedCNCE needs a walk that is as likely there as back, and a sweep of Gibbs is not; use Gibbs(1)",
        )
        require_count(self.moves, 1, "moves per step")
        require_count(self.every, 1, "steps between two models of the noise")

    def init(self, model: AbstractEnergy, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> Anchored:
        """The model itself makes the first noise."""
        require_walk(self.sampler, model, "AdaptedCNCE")
        return Anchored(eqx.filter(held(model), eqx.is_array), jnp.zeros((), int))

    def __call__(
        self, model: AbstractEnergy, state: Anchored, batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[Anchored, Info]]:
        own, rest = eqx.partition(held(model), eqx.is_array)
        fresh = state.age % self.every == 0
        anchor = jax.tree.map(lambda new, old: jnp.where(fresh, new, old), own, state.model)
        before = eqx.combine(anchor, rest)
        noise = move_chains(self.sampler, before, batch, self.moves, key)
        points = jax.lax.stop_gradient(jnp.concatenate([batch, noise.astype(batch.dtype)]))
        now, then = jax.vmap(model)(points), jax.lax.stop_gradient(jax.vmap(before)(points))
        b = len(batch)
        log_odds = now[b:] - now[:b] + then[:b] - then[b:]
        loss = 2 * jnp.mean(jax.nn.softplus(-log_odds))
        return loss, (Anchored(anchor, state.age + 1), {"accuracy": jnp.mean(log_odds > 0)})
