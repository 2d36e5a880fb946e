"""Annealed importance sampling: log Z by a walk from a density that is known to the target."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.devices import require_divisible, split_over_devices
from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.energies.base import Scalar
from unnorm.errors import require
from unnorm.estimate import Estimate, log_mean_exp_estimate
from unnorm.evaluation.tails import judged
from unnorm.samplers import HMC

#: Chains of a pilot run.
PILOT = 64
#: The acceptance a pilot run steers to.
ACCEPTANCE = 0.85


def between(base: AbstractEnergy, target: AbstractEnergy, b: Scalar) -> AbstractEnergy:
    """(1 - b) E_base + b E_target: the geometric path."""
    return (1 - b) * base + b * target


def _difference(base, target, xs: Array) -> Float[Array, " chains"]:
    """E_base - E_target, the slope of the log-weights along the path."""
    return jax.vmap(base)(xs) - jax.vmap(target)(xs)


def _move(energy, sampler: HMC, xs: Array, moves: int, key: PRNGKeyArray):
    """HMC moves of every chain at one level; the new points and the mean acceptance."""

    def one(x, key):
        def move(state, key):
            state, info = sampler.step(energy, state, key=key)
            return state, info.acceptance

        state, acceptance = jax.lax.scan(move, sampler.init(energy, x), jax.random.split(key, moves))
        return sampler.position(state), jnp.mean(acceptance)

    xs, acceptance = jax.vmap(one)(xs, jax.random.split(key, len(xs)))
    return xs, jnp.mean(acceptance)


@eqx.filter_jit
def _pilot(base, target, betas: Array, moves: int, leapfrogs: int, key: PRNGKeyArray):
    """A small run that tunes: a sampler for every level, and how far the log-weights spread from one to the next.

    The mass comes from the base's own draws, so that units do not matter; the step follows the acceptance.
    """
    start, key = jax.random.split(key)
    xs = base.samples(PILOT, key=start)
    mass = jnp.var(xs.reshape(PILOT, -1), axis=0)

    def level(carry, inputs):
        xs, log_step = carry
        b, previous, key = inputs
        sampler = HMC(jnp.exp(log_step), mass, leapfrogs)
        before = jnp.std(_difference(base, target, xs))
        xs, acceptance = _move(between(base, target, b), sampler, xs, moves, key)
        after = jnp.std(_difference(base, target, xs))
        return (xs, log_step + acceptance - ACCEPTANCE), (sampler, (b - previous) * jnp.sqrt(before * after))

    inputs = (betas[1:], betas[:-1], jax.random.split(key, len(betas) - 1))
    _, (samplers, spread) = jax.lax.scan(level, (xs, jnp.zeros(())), inputs)
    return samplers, spread


def _even(betas: Array, spread: Array) -> Array:
    """As many levels, placed so that the log-weights spread equally from each to the next.

    This is the placing of least variance when moves mix (Gelman and Meng 1998).
    """
    length = np.concatenate([[0.0], np.cumsum(np.asarray(spread, np.float64))])
    if not 0 < length[-1] < np.inf:  # base and target agree, or a wall between them: nothing to go by
        return betas
    even = np.interp(np.linspace(0, length[-1], len(betas)), length, np.asarray(betas, np.float64))
    return jnp.asarray(even, betas.dtype)


@eqx.filter_jit
def _anneal(base, target, betas: Array, samplers: HMC, chains: int, moves: int, key: PRNGKeyArray):
    start, key = jax.random.split(key)

    def level(carry, inputs):
        xs, log_weights = carry
        b, previous, sampler, key = inputs
        log_weights = log_weights + (b - previous) * _difference(base, target, xs)
        xs, acceptance = _move(between(base, target, b), sampler, xs, moves, key)
        return (xs, log_weights), acceptance

    xs = split_over_devices(base.samples(chains, key=start))
    inputs = (betas[1:], betas[:-1], samplers, jax.random.split(key, len(betas) - 1))
    (xs, log_weights), acceptance = jax.lax.scan(level, (xs, jnp.zeros(chains, xs.dtype)), inputs)
    return xs, log_weights, jnp.mean(acceptance)


def ais(
    target: AbstractEnergy,
    base: AbstractNormalised,
    *,
    chains: int = 1024,
    levels: int = 200,
    moves: int = 1,
    leapfrogs: int = 5,
    betas: Float[Array, " levels"] | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """log Z = log E[w], log w = sum_k (b_k - b_{k-1}) (E_base(x_k) - E_target(x_k)), x_k moved by HMC at level b_{k-1}.

    Unbiased for Z whatever the moves (Neal 2001); the better they mix, the smaller the error. Pilot runs of 64 chains
    place the levels and tune the step of each; they are thrown away, so that the main run stays unbiased. `betas`
    (from 0 to 1) are kept as given.

    >>> import jax, unnorm as un
    >>> target = un.energies.FunctionEnergy(lambda x: 2 * (x**2).sum(), un.spaces.Real((2,)))
    >>> ais(target, un.energies.standard_gaussian(2), levels=50, key=jax.random.key(0)).covers(0.4515827, 0.999)
    True
    """
    require(chains >= 2 and levels >= 1, f"AIS needs at least 2 chains and 1 level, not {chains} and {levels}")
    require_divisible(chains, "chains")
    place, tune, run = jax.random.split(key, 3)
    if betas is None:
        # A base is mostly wider than its target, so that the path changes fastest near the base.
        betas = jnp.linspace(0, 1, levels + 1) ** 2
        betas = _even(betas, _pilot(base, target, betas, moves, leapfrogs, place)[1])
    betas = jnp.asarray(betas, float)
    require(bool((betas[0] == 0) & (betas[-1] == 1) & jnp.all(jnp.diff(betas) >= 0)), "betas must rise from 0 to 1")
    samplers, _ = _pilot(base, target, betas, moves, leapfrogs, tune)
    _, log_weights, acceptance = _anneal(base, target, betas, samplers, chains, moves, run)
    estimate = judged(log_mean_exp_estimate(log_weights, "AIS"), log_weights)
    diagnostics = {**estimate.diagnostics, "levels": float(len(betas) - 1), "acceptance": float(acceptance)}
    return replace(estimate, diagnostics=diagnostics)
