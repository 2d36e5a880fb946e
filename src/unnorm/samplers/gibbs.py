"""Heat-bath Gibbs for binary points."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from unnorm.arguments import at_least
from unnorm.energies.base import AbstractEnergy, Point
from unnorm.errors import InputError
from unnorm.samplers.base import AbstractSampler, Info, Target, require_energy, walker_of
from unnorm.spaces import Binary


class Gibbs(AbstractSampler):
    """`sites` random coordinates in turn are redrawn: P(x_i = 1 | rest) = sigmoid(E(x_i=0) - E(x_i=1)).

    Exact for any energy on a Binary space; each site costs two energies (Geman and Geman 1984).
    """

    sites: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        at_least(1, self.sites, "Gibbs needs at least one site per step")

    def check(self, target: Target) -> None:
        space = require_energy(target, "Gibbs").space
        if not isinstance(space, Binary):
            raise InputError(f"Gibbs redraws zeros and ones, and points of {space} are none; {walker_of(space)}")

    def init(self, target: AbstractEnergy, x: Point) -> Array:
        return x

    def step(self, target: AbstractEnergy, state: Array, *, key: PRNGKeyArray) -> tuple[Array, Info]:
        def redraw(x, key):
            where, which = jax.random.split(key)
            flat = x.reshape(-1)
            site = jax.random.randint(where, (), 0, flat.size)
            off, on = (flat.at[site].set(value).reshape(x.shape) for value in (0, 1))
            turn_on = jax.random.bernoulli(which, jax.nn.sigmoid(target(off) - target(on)))
            return jnp.where(turn_on, on, off), None

        state, _ = jax.lax.scan(redraw, state, jax.random.split(key, self.sites))
        return state, Info(jnp.ones(()), jnp.asarray(False))

    def position(self, state: Array) -> Array:
        return state
