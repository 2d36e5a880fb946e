"""Heat-bath Gibbs on zeros and ones and on categories: block by block where the energy factorises, or site by site."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from unnorm.arguments import at_least
from unnorm.energies.base import AbstractEnergy, Point
from unnorm.energies.factorised import AbstractHidden, blocks_of, drawn, redrawn, site_logits
from unnorm.errors import InputError
from unnorm.samplers.base import AbstractSampler, Info, Target, require_energy, walker_of
from unnorm.spaces import Binary, Categorical


class Gibbs(AbstractSampler):
    """x_i ~ p(. | rest), p(x_i = c | rest) = softmax_c(-E(x with x_i = c)), for one site i after the other.

    A step is a sweep: every site is redrawn once. Energies that factorise redraw a block at a time, those with hidden
    units draw these and then all sites; any other energy on a Binary or Categorical space takes an energy for every
    value of each site. With `sites` a step redraws that many sites, chosen at random, one by one; such a chain is
    reversible, which a sweep is not. Geman and Geman 1984.

    >>> import unnorm as un
    >>> coins = un.energies.uniform(Binary((3,)))
    >>> un.sample(coins, Gibbs(), chains=4, steps=10, key=jax.random.key(0)).draws.shape
    (4, 10, 3)
    """

    sites: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.sites is not None:
            at_least(1, self.sites, "Gibbs needs at least one site per step")

    def check(self, target: Target) -> None:
        energy = require_energy(target, "Gibbs")
        if isinstance(energy, AbstractHidden) and self.sites is None:
            return
        if not isinstance(energy.space, Binary | Categorical):
            raise InputError(
                f"Gibbs redraws sites that have values to choose from, and those of {energy.space} have none; "
                f"{walker_of(energy.space)}"
            )

    def init(self, target: AbstractEnergy, x: Point) -> Array:
        return x

    def step(self, target: AbstractEnergy, state: Array, *, key: PRNGKeyArray) -> tuple[Array, Info]:
        return self._moved(target, state, key), Info(jnp.ones(()), jnp.asarray(False))

    def _moved(self, target: AbstractEnergy, x: Array, key: PRNGKeyArray) -> Array:
        if self.sites is not None:
            where, key = jax.random.split(key)
            return _in_turn(target, x, jax.random.randint(where, (self.sites,), 0, x.size), key)
        if isinstance(target, AbstractHidden):
            return target.alternate(x, key=key)
        blocks = blocks_of(target)
        if blocks is None:
            return _in_turn(target, x, jnp.arange(x.size), key)
        for block, k in enumerate(jax.random.split(key, len(blocks.sites))):
            x = redrawn(blocks, block, x, key=k)
        return x

    def position(self, state: Array) -> Array:
        return state


def _in_turn(target: AbstractEnergy, x: Array, sites: Int[Array, " n"], key: PRNGKeyArray) -> Array:
    """The point after these sites have been redrawn, one after the other."""

    def redraw(x, inputs):
        site, key = inputs
        value = drawn(site_logits(target, site, x), key).astype(x.dtype)
        return x.reshape(-1).at[site].set(value).reshape(x.shape), None

    return jax.lax.scan(redraw, x, (sites, jax.random.split(key, len(sites))))[0]
