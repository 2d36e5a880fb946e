"""One loop that runs any sampler: many chains, one compiled program, draws with their diagnostics."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PRNGKeyArray, Shaped

from unnorm.devices import require_divisible, split_over_devices
from unnorm.energies.base import AbstractEnergy
from unnorm.errors import InputError, require
from unnorm.progress import progress as progress_bar
from unnorm.samplers.base import AbstractAdaptiveSampler, AbstractSampler
from unnorm.samplers.diagnostics import Diagnostics, summarise
from unnorm.scores import AbstractScore
from unnorm.spaces import Binary, Real


@dataclass(frozen=True)
class Trace:
    """The draws of a run, chains x steps x point, and how far to trust them."""

    draws: np.ndarray
    acceptance: np.ndarray
    divergences: int
    sampler: AbstractSampler
    clipped: int = 0

    @property
    def flat(self) -> np.ndarray:
        """All draws of all chains along one axis."""
        return self.draws.reshape(-1, *self.draws.shape[2:])

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """R-hat and effective sample sizes per coordinate."""
        return summarise(self.draws)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with this run, in sentences; empty if nothing was seen."""
        found = list(self.diagnostics.warnings())
        if self.divergences:
            found.append(
                f"{self.divergences} transitions diverged: the step is too large for part of the target; "
                "use a smaller step or a longer warm-up."
            )
        if self.clipped:
            found.append(
                f"{self.clipped} variances or curvatures were clipped: there the target is not of the form that "
                f"{type(self.sampler).__name__} takes it for."
            )
        return tuple(found)


def _start(target: AbstractEnergy | AbstractScore, chains: int, key: PRNGKeyArray) -> Array:
    """Where chains begin when nobody says: standard normal, or fair coins."""
    if isinstance(target, AbstractScore):
        raise InputError("a score does not say what its points look like; pass start=")
    if isinstance(target.space, Real):
        return jax.random.normal(key, (chains, *target.space.shape))
    if isinstance(target.space, Binary):
        return jax.random.bernoulli(key, 0.5, (chains, *target.space.shape)).astype(float)
    raise InputError(f"chains on {target.space} need starting points; pass start=")


_energies_of = eqx.filter_jit(lambda target, xs: jax.vmap(target)(xs))


def _check_start(target: AbstractEnergy | AbstractScore, start: Array) -> None:
    if isinstance(target, AbstractScore):
        return
    if isinstance(target.space, Real | Binary):
        expected, given = target.space.shape, start.shape[1:]
        require(given == expected, f"a starting point on {target.space} has shape {expected}, not {given}")
    shape = jax.eval_shape(target, start[0]).shape
    require(shape == (), f"an energy returns one number per point, but this one returned shape {shape}")
    energies = _energies_of(target, start)
    bad = int(jnp.sum(~jnp.isfinite(energies)))
    require(
        bad == 0,
        f"the energy is not finite at {bad} of {len(start)} starting points; pass start= with points inside the target",
    )


@eqx.filter_jit
def _warm_up(sampler: AbstractAdaptiveSampler, target: AbstractEnergy, xs: Array, steps: int, key: PRNGKeyArray):
    keys = jax.random.split(key, len(xs))
    return eqx.filter_vmap(lambda x, k: sampler.warm_up(target, x, steps=steps, key=k))(split_over_devices(xs), keys)


@eqx.filter_jit
def _init(samplers: AbstractSampler, per_chain: bool, target: AbstractEnergy, xs: Array):
    axis = eqx.if_array(0) if per_chain else None
    return eqx.filter_vmap(lambda s, x: s.init(target, x), in_axes=(axis, 0))(samplers, split_over_devices(xs))


@eqx.filter_jit
def _advance(samplers, per_chain: bool, target, states, counts: tuple[Array, Array, Array], key, size: int):
    """`count` <= `size` draws, each after `thin` steps, numbered from `first`; one program for every count."""
    first, count, thin = counts
    axis = eqx.if_array(0) if per_chain else None
    chains = jax.tree.leaves(states)[0].shape[0]
    step = eqx.filter_vmap(lambda s, x, k: s.step(target, x, key=k), in_axes=(axis, 0, 0))
    position = eqx.filter_vmap(lambda s, x: s.position(x), in_axes=(axis, 0))

    def move(number, carry):
        states, accepted, divergences, clipped = carry
        states, info = step(samplers, states, jax.random.split(jax.random.fold_in(key, number), chains))
        return states, accepted + info.acceptance, divergences + info.divergent, clipped + info.clipped

    def draw(i, carry):
        inner, draws = carry
        start = (first + i) * thin
        inner = jax.lax.fori_loop(start, start + thin, move, inner)
        return inner, draws.at[i].set(position(samplers, inner[0]))

    shape = jax.eval_shape(position, samplers, states)
    draws = split_over_devices(jnp.zeros((size, *shape.shape), shape.dtype), axis=1)
    inner = split_over_devices((states, jnp.zeros(chains), jnp.zeros(chains, int), jnp.zeros(chains)))
    (states, accepted, divergences, clipped), draws = jax.lax.fori_loop(0, count, draw, (inner, draws))
    return states, draws, accepted, jnp.sum(divergences), jnp.sum(clipped)


def _counts(first: int, count: int, thin: int) -> tuple[Array, Array, Array]:
    """Whole numbers as arrays, so that the compiler does not bake them in."""
    return jnp.asarray(first), jnp.asarray(count), jnp.asarray(thin)


def sample(
    target: AbstractEnergy | AbstractScore,
    sampler: AbstractSampler,
    *,
    chains: int = 64,
    steps: int = 1000,
    warmup: int | None = None,
    thin: int = 1,
    start: Shaped[ArrayLike, "chains ..."] | None = None,
    key: PRNGKeyArray,
    progress: bool = True,
) -> Trace:
    """Run `chains` chains, keep `steps` draws of each, one after every `thin` transitions.

    Adaptive samplers (MALA, HMC, NUTS) spend `warmup` steps (default 500) on tuning; the others (default 0) just
    discard them. The same target and shapes compile nothing on a second call.

    >>> import jax, unnorm as un
    >>> target = un.energies.standard_gaussian(2)
    >>> un.sample(target, un.samplers.MALA(), chains=4, steps=10, key=jax.random.key(0)).draws.shape
    (4, 10, 2)
    """
    require(chains >= 1, f"at least one chain is needed, not {chains}")
    require(steps >= 1 and thin >= 1, f"steps and thin must be positive, not {steps} and {thin}")
    sampler.check(target)
    # The check has settled it: from here on the target is one that this sampler walks.
    walked: Any = target
    require_divisible(chains, "chains")
    start_key, warm_key, key = jax.random.split(key, 3)
    xs = _start(target, chains, start_key) if start is None else jnp.asarray(start)
    if isinstance(target, AbstractScore) or target.space.continuous:
        xs = xs.astype(float)  # whole numbers have no gradient
    require(len(xs) == chains, f"{chains} chains need {chains} starting points, not {len(xs)}")
    _check_start(target, xs)
    per_chain = isinstance(sampler, AbstractAdaptiveSampler)
    if isinstance(sampler, AbstractAdaptiveSampler):
        warmup = 500 if warmup is None else warmup
        require(warmup >= 20, f"{type(sampler).__name__} needs at least 20 warm-up steps to tune itself, not {warmup}")
        with progress_bar("warm-up", 1, show=progress) as advance:
            sampler, xs = jax.block_until_ready(_warm_up(sampler, walked, xs, warmup, warm_key))
            advance(1)
    states = _init(sampler, per_chain, walked, xs)
    # Every call of the compiled loop costs about a millisecond: few of them where nobody watches.
    size = -(-steps // (25 if progress else 5))
    if not per_chain and warmup:
        states, _, _, _, _ = _advance(sampler, per_chain, walked, states, _counts(0, 1, warmup), warm_key, size)
    draws, accepted, divergences, clipped = [], np.zeros(chains), 0, 0
    with progress_bar("sampling", steps, show=progress) as advance:
        for first in range(0, steps, size):
            count = min(size, steps - first)
            states, part, accept, diverged, raised = _advance(
                sampler, per_chain, walked, states, _counts(first, count, thin), key, size
            )
            draws.append(np.asarray(part)[:count])
            accepted += np.asarray(accept)
            divergences += int(diverged)
            clipped += int(raised)
            advance(count)
    stacked = np.moveaxis(np.concatenate(draws), 0, 1)
    return Trace(stacked, accepted / (steps * thin), divergences, sampler, clipped)
