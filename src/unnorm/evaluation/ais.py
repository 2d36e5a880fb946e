"""Annealed importance sampling: log Z by a walk from a density that is known to the target."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.devices import split_over_devices
from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.energies.base import Scalar
from unnorm.errors import require
from unnorm.estimate import Estimate, log_mean_exp_estimate
from unnorm.samplers import HMC


def between(base: AbstractEnergy, target: AbstractEnergy, b: Scalar) -> AbstractEnergy:
    """(1 - b) E_base + b E_target: the geometric path."""
    return (1 - b) * base + b * target


def _move(base, target, b, step, xs: Array, moves: int, leapfrogs: int, key: PRNGKeyArray):
    """HMC moves of every chain at one level; the new points and the mean acceptance."""
    energy, sampler = between(base, target, b), HMC(step, leapfrogs=leapfrogs)

    def one(x, key):
        def move(state, key):
            state, info = sampler.step(energy, state, key=key)
            return state, info.acceptance

        state, acceptance = jax.lax.scan(move, sampler.init(energy, x), jax.random.split(key, moves))
        return sampler.position(state), jnp.mean(acceptance)

    xs, acceptance = jax.vmap(one)(xs, jax.random.split(key, len(xs)))
    return xs, jnp.mean(acceptance)


@eqx.filter_jit
def _pilot(base, target, betas: Array, chains: int, moves: int, leapfrogs: int, step: Array, key: PRNGKeyArray):
    """Step sizes per level, tuned by a small run towards an acceptance of 0.75."""
    start, key = jax.random.split(key)

    def level(carry, inputs):
        xs, log_step = carry
        b, key = inputs
        xs, acceptance = _move(base, target, b, jnp.exp(log_step), xs, moves, leapfrogs, key)
        return (xs, log_step + 0.5 * (acceptance - 0.75)), log_step

    inputs = (betas[1:], jax.random.split(key, len(betas) - 1))
    _, log_steps = jax.lax.scan(level, (base.samples(chains, key=start), jnp.log(step)), inputs)
    return jnp.exp(log_steps)


@eqx.filter_jit
def _anneal(base, target, betas: Array, steps: Array, chains: int, moves: int, leapfrogs: int, key: PRNGKeyArray):
    start, key = jax.random.split(key)

    def level(carry, inputs):
        xs, log_weights = carry
        b, previous, step, key = inputs
        difference = jax.vmap(base)(xs) - jax.vmap(target)(xs)
        log_weights = log_weights + (b - previous) * difference
        xs, acceptance = _move(base, target, b, step, xs, moves, leapfrogs, key)
        return (xs, log_weights), acceptance

    xs = split_over_devices(base.samples(chains, key=start))
    inputs = (betas[1:], betas[:-1], steps, jax.random.split(key, len(betas) - 1))
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

    Unbiased for Z whatever the moves (Neal 2001); the better they mix, the smaller the error. A pilot run of 64 chains
    tunes the step size of every level and is thrown away, so that the main run stays unbiased. Levels are spaced
    quadratically, denser at the base, unless `betas` (from 0 to 1) are given.

    >>> import jax, unnorm as un
    >>> target = un.energies.FunctionEnergy(lambda x: 2 * (x**2).sum(), un.spaces.Real((2,)))
    >>> ais(target, un.energies.standard_gaussian(2), levels=50, key=jax.random.key(0)).covers(0.4515827, 0.999)
    True
    """
    require(chains >= 2 and levels >= 1, f"AIS needs at least 2 chains and 1 level, not {chains} and {levels}")
    if betas is None:
        betas = jnp.linspace(0, 1, levels + 1) ** 2
    require(bool((betas[0] == 0) & (betas[-1] == 1) & jnp.all(jnp.diff(betas) > 0)), "betas must rise from 0 to 1")
    tune, run = jax.random.split(key)
    steps = _pilot(base, target, betas, 64, moves, leapfrogs, jnp.asarray(0.3), tune)
    _, log_weights, acceptance = _anneal(base, target, betas, steps, chains, moves, leapfrogs, run)
    estimate = log_mean_exp_estimate(log_weights, "AIS")
    diagnostics = {**estimate.diagnostics, "levels": float(len(betas) - 1), "acceptance": float(acceptance)}
    return Estimate(estimate.value, estimate.stderr, estimate.method, diagnostics, estimate.warnings)
