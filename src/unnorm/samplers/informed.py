"""Moves on zeros and ones and on categories that know where downhill is: one site at a time, or all at once.

Both look at log p(x with x_i = c) - log p(x) of every site and value. An energy that knows its sites gives these
differences exactly; of a network they are guessed from one gradient, and the correction makes good what is wrong.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import positive
from unnorm.energies import AbstractEnergy, AbstractRelaxed, Shifted, Sum, Tempered, every_site
from unnorm.energies.base import Point
from unnorm.energies.factorised import AbstractFactorised, AbstractSitewise, values_of
from unnorm.energies.site_network import shares_of
from unnorm.errors import InputError
from unnorm.samplers.base import AbstractSampler, Info, Target, require_energy, walker_of
from unnorm.spaces import Binary, Categorical


def differences(energy: AbstractEnergy, x: Point) -> Float[Array, "sites k"]:
    """log p(x with x_i = c) - log p(x) for every site i and value c: exact if the energy knows it, else by its slope.

    The slope of an energy on zeros and ones is that of its formula at real numbers, times the change.

    >>> from unnorm.energies import FunctionEnergy
    >>> energy = FunctionEnergy(lambda x: 2.0 * x[0] * x[1], Binary((2,)))
    >>> differences(energy, jnp.ones(2)).tolist()
    [[2.0, 0.0], [2.0, 0.0]]
    """
    k = values_of(energy.space)
    logits = _guessed(energy, x, k)
    return logits - jnp.sum(logits * shares_of(x, k), axis=-1, keepdims=True)


def _guessed(energy: AbstractEnergy, x: Point, k: int) -> Float[Array, "sites k"]:
    """The differences, but for a constant at every site."""
    if isinstance(energy, AbstractFactorised | AbstractSitewise):
        return every_site(energy, x)
    if isinstance(energy, Tempered):
        return energy.inverse_temperature * _guessed(energy.energy, x, k)
    if isinstance(energy, Shifted):
        return _guessed(energy.energy, x, k)
    if isinstance(energy, Sum):
        first, *others = (_guessed(term, x, k) for term in energy.terms)
        return sum(others, first)
    if isinstance(energy, AbstractRelaxed):
        return -jax.grad(energy.relaxed)(shares_of(x, k))
    if isinstance(energy.space, Binary):
        slope = -jax.grad(energy)(x.astype(float)).reshape(-1)
        return jnp.stack([jnp.zeros_like(slope), slope], axis=-1)
    return every_site(energy, x)


def _check(target: Target, who: str) -> None:
    space = require_energy(target, who).space
    if not isinstance(space, Binary | Categorical):
        raise InputError(f"{who} changes zeros and ones or categories, and {space} has neither; {walker_of(space)}")


def _accepted(target: AbstractEnergy, x: Point, y: Point, back: Array, there: Array, key: PRNGKeyArray):
    """x or y by Metropolis's rule, and the probability of y."""
    log_odds = target(x) - target(y) + back - there
    chance = jnp.where(jnp.isnan(log_odds), 0.0, jnp.exp(jnp.minimum(log_odds, 0.0)))
    moved = jnp.where(jax.random.uniform(key) < chance, y, x)
    return moved, Info(chance, jnp.isnan(log_odds))


class GibbsWithGradients(AbstractSampler):
    """One site takes another value: (i, c) with probability softmax(d_ic / 2), d the differences, then accept or not.

    The proposal is nearly in balance by itself, so that most are accepted, and it goes where the energy asks for it
    (Zanella 2020; Grathwohl et al. 2021).

    >>> import unnorm as un
    >>> spins = un.energies.Ising(un.energies.lattice((2, 2)), 0.2, 1.0)
    >>> un.sample(spins, GibbsWithGradients(), chains=4, steps=10, key=jax.random.key(0)).draws.shape
    (4, 10, 2, 2)
    """

    def check(self, target: Target) -> None:
        _check(target, "GibbsWithGradients")

    def init(self, target: AbstractEnergy, x: Point) -> Array:
        return x

    def step(self, target: AbstractEnergy, state: Array, *, key: PRNGKeyArray) -> tuple[Array, Info]:
        which, toss = jax.random.split(key)
        there = self._proposal(target, state)
        chosen = jax.random.categorical(which, there)
        k = values_of(target.space)
        site, value = chosen // k, chosen % k
        flat = state.reshape(-1)
        y = flat.at[site].set(value.astype(state.dtype)).reshape(state.shape)
        back = self._proposal(target, y)[site * k + flat[site].astype(int)]
        return _accepted(target, state, y, back, there[chosen], toss)

    def _proposal(self, target: AbstractEnergy, x: Array) -> Float[Array, " moves"]:
        """log q of every site and value; the value that a site has is not among them."""
        k = values_of(target.space)
        logits = jnp.where(shares_of(x, k) > 0, -jnp.inf, 0.5 * differences(target, x))
        return jax.nn.log_softmax(logits.reshape(-1))

    def position(self, state: Array) -> Array:
        return state


class DiscreteLangevin(AbstractSampler):
    """Every site at once: y_i = c with probability softmax_c(d_ic / 2 - 1[c != x_i] / (2 h)), d the differences.

    Langevin's proposal, restricted to the values that sites have: step size h says how many sites change (Zhang, Liu
    and Liu 2022). With `corrected` a proposal is accepted by Metropolis's rule; without, the chain has a bias that
    falls with h.

    >>> import unnorm as un
    >>> spins = un.energies.Ising(un.energies.lattice((2, 2)), 0.2, 1.0)
    >>> un.sample(spins, DiscreteLangevin(0.2), chains=4, steps=10, key=jax.random.key(0)).draws.shape
    (4, 10, 2, 2)
    """

    step_size: Float[Array, ""] = eqx.field(
        converter=lambda h: positive(h, "the step size of DiscreteLangevin"), default=0.2
    )
    corrected: bool = eqx.field(static=True, default=True)

    def check(self, target: Target) -> None:
        _check(target, "DiscreteLangevin")

    def init(self, target: AbstractEnergy, x: Point) -> Array:
        return x

    def step(self, target: AbstractEnergy, state: Array, *, key: PRNGKeyArray) -> tuple[Array, Info]:
        which, toss = jax.random.split(key)
        k = values_of(target.space)
        there = self._laws(target, state)
        y = jax.random.categorical(which, there, axis=-1).astype(state.dtype).reshape(state.shape)
        if not self.corrected:
            return y, Info(jnp.ones(()), jnp.asarray(False))
        forth = jnp.sum(there * shares_of(y, k))
        back = jnp.sum(self._laws(target, y) * shares_of(state, k))
        return _accepted(target, state, y, back, forth, toss)

    def _laws(self, target: AbstractEnergy, x: Array) -> Float[Array, "sites k"]:
        moves = 1 - shares_of(x, values_of(target.space))
        return jax.nn.log_softmax(0.5 * differences(target, x) - moves / (2 * self.step_size))

    def position(self, state: Array) -> Array:
        return state
