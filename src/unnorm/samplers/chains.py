"""Many chains as compiled programs: how they are tuned, and how they move.

On one processor with several cores the chains are shared out (`devices.parts_of`): every core runs one compiled program
on chains of its own. A chain's random numbers are those of its number among all chains, whoever runs beside it (with
JAX's own keys; those of `impl="rbg"` make other numbers in other shapes). Rounding may differ from part to part, and
chains magnify it: a run that goes on later goes on with the parts it began with.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from unnorm.devices import share, shares, side_by_side, split_over_devices, whole
from unnorm.samplers.base import AbstractAdaptiveSampler, AbstractSampler
from unnorm.samplers.moves import count_of


def is_tuned(sampler: AbstractSampler, warmup: int) -> TypeGuard[AbstractAdaptiveSampler]:
    """Whether warm-up makes a sampler of its own for every chain."""
    return isinstance(sampler, AbstractAdaptiveSampler) and warmup > 0


class Sum(NamedTuple):
    """A sum that does not forget what was too small to be added (Kahan 1965): `total` - `excess`, one for each chain.

    In 32 bits a plain sum of ones stands still at 2^24, which a long run passes.
    """

    total: Array
    excess: Array

    def plus(self, terms: Array | float) -> "Sum":
        owed = terms - self.excess
        total = self.total + owed
        return Sum(total, (total - self.total) - owed)

    def value(self) -> np.ndarray:
        return np.asarray(self.total, np.float64) - np.asarray(self.excess, np.float64)


class Span(NamedTuple):
    """`length` draws from number `first` on, one after every `thin` steps."""

    first: Any
    length: Any
    thin: Any


class Moved(NamedTuple):
    """Chains after a span: their states and draws (draws x chains), and what was counted for each of them."""

    states: Any
    draws: Any
    accepted: Sum
    clipped: Sum
    divergences: Any


@eqx.filter_jit
def _joined(parts: Sequence[Any]) -> Any:
    """The chains of all parts, in order."""
    return jax.tree.map(lambda *part: jnp.concatenate(part) if eqx.is_array(part[0]) else part[0], *parts)


@eqx.filter_jit
def _stand(sampler: AbstractSampler, target: Any, xs: Any) -> Any:
    return jax.vmap(lambda x: sampler.init(target, x))(split_over_devices(xs))


@eqx.filter_jit
def _warm_up(sampler: AbstractAdaptiveSampler, target: Any, xs: Any, warmup: int, key: PRNGKeyArray, first, size):
    def one(x, key):
        tuned, x = sampler.warm_up(target, x, steps=warmup, key=key)
        return tuned, tuned.init(target, x)

    mine = share((xs, jax.random.split(key, count_of(xs))), first, size)
    return eqx.filter_vmap(one)(*split_over_devices(mine))


def shapes(sampler: AbstractSampler, target: Any, xs: Any, warmup: int, key: PRNGKeyArray) -> tuple[Any, Any]:
    """What `begin` returns, with the shapes of arrays in their place."""
    if not is_tuned(sampler, warmup):
        return eqx.filter_eval_shape(lambda *args: (args[0], _stand(*args)), sampler, target, xs)
    return eqx.filter_eval_shape(_warm_up, sampler, target, xs, warmup, key, whole(0), count_of(xs))


def begin(
    sampler: AbstractSampler, target: Any, xs: Any, warmup: int, key: PRNGKeyArray, parts: int
) -> tuple[Any, Any]:
    """The sampler, tuned for every chain if it can be, and the states of chains that stand where tuning left them."""
    if not is_tuned(sampler, warmup):
        return sampler, _stand(sampler, target, xs)
    firsts, size = shares(count_of(xs), parts)
    found = side_by_side(lambda first: _warm_up(sampler, target, xs, warmup, key, first, size), firsts)
    return found[0] if parts == 1 else _joined(found)


@eqx.filter_jit
def _advance(samplers: Any, per_chain: bool, target: Any, states: Any, span: Span, key, size: int, first, chains: int):
    """`advance` for `chains` chains from number `first` on."""
    every = jax.tree.leaves(states)[0].shape[0]
    states = share(states, first, chains)
    samplers = share(samplers, first, chains) if per_chain else samplers
    axis = eqx.if_array(0) if per_chain else None
    step = eqx.filter_vmap(lambda s, x, k: s.step(target, x, key=k), in_axes=(axis, 0, 0))
    position = eqx.filter_vmap(lambda s, x: s.position(x), in_axes=(axis, 0))

    def move(number, carry: Moved) -> Moved:
        keys = share(jax.random.split(jax.random.fold_in(key, number), every), first, chains)
        states, info = step(samplers, carry.states, keys)
        # Every step is written down, over the one before unless it is `thin` steps old: one loop is faster than two.
        place = number // span.thin - span.first
        draws = jax.tree.map(
            lambda room, x: jax.lax.dynamic_update_index_in_dim(room, x, place, 0),
            carry.draws,
            position(samplers, states),
        )
        # Most samplers clip nothing and say so by a plain 0, which costs no time to add.
        none = isinstance(info.clipped, float) and info.clipped == 0
        clipped = carry.clipped if none else carry.clipped.plus(info.clipped)
        return Moved(
            states, draws, carry.accepted.plus(info.acceptance), clipped, carry.divergences + info.divergent
        )  # fmt: skip

    room = jax.tree.map(lambda s: jnp.zeros((size, *s.shape), s.dtype), jax.eval_shape(position, samplers, states))
    draws = split_over_devices(room, axis=1)
    nothing = Sum(jnp.zeros(chains), jnp.zeros(chains))
    states, none, divergences = split_over_devices((states, nothing, jnp.zeros(chains, int)))
    ends = span.first * span.thin, (span.first + span.length) * span.thin
    return jax.lax.fori_loop(*ends, move, Moved(states, draws, none, none, divergences))


def advance(samplers: Any, per_chain: bool, target: Any, states: Any, span: Span, key, size: int, parts: int) -> Moved:
    """The draws of a span, in an array that has room for `size` of them; one program for every span.

    `samplers` is one of them, or the tuned ones of all chains (`per_chain`).
    """
    firsts, chains = shares(jax.tree.leaves(states)[0].shape[0], parts)
    counts = Span(*map(whole, span))

    def part(first: np.ndarray) -> Moved:
        return _advance(samplers, per_chain, target, states, counts, key, size, first, chains)

    found = side_by_side(part, firsts)
    if parts == 1:
        return found[0]
    draws = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *[moved.draws for moved in found])
    rest = _joined([moved._replace(draws=None) for moved in found])
    return rest._replace(draws=draws)
