"""Annealed importance sampling: log Z by a walk from a density that is known to the target."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.devices import parts_of, require_divisible, share, shares, side_by_side, split_over_devices
from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.errors import require
from unnorm.estimate import Estimate, log_mean_exp_estimate
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.partition.annealing import Path, between, difference, gained, starts, tuned_path
from unnorm.evaluation.partition.rounding import with_rounding
from unnorm.evaluation.partition.tails import judged
from unnorm.samplers import AbstractSampler
from unnorm.samplers.moves import moved

#: Chains that move side by side where there are many targets: more would only take more memory.
AT_ONCE = 1024


@compiled
def _anneal(base, target, betas: Array, samplers: Any, chains: int, moves: int, key: PRNGKeyArray):
    start, key = jax.random.split(key)

    def level(carry, inputs):
        xs, log_weights = carry
        b, previous, sampler, key = inputs
        log_weights = log_weights + gained(b - previous, difference(base, target, xs))
        xs, acceptance = moved(between(base, target, b), sampler, xs, moves, key)
        return (xs, log_weights), acceptance

    xs = split_over_devices(starts(base, chains, start))
    inputs = (betas[1:], betas[:-1], samplers, jax.random.split(key, len(betas) - 1))
    (xs, log_weights), acceptance = jax.lax.scan(level, (xs, jnp.zeros(chains)), inputs)
    return jax.vmap(target)(xs), log_weights, jnp.mean(acceptance)


def anneal_along(
    path: Path, target: AbstractEnergy, base: AbstractNormalised, *, chains: int, moves: int, key: PRNGKeyArray
) -> Estimate:
    """`ais` along a path that is already tuned."""
    return _told(path, *_anneal(base, target, path.betas, path.samplers, chains, moves, key))


def _told(path: Path, energies: Array, log_weights: Array, acceptance: Array) -> Estimate:
    estimate = judged(log_mean_exp_estimate(log_weights, "AIS"), log_weights)
    estimate = with_rounding(estimate, energies, log_weights)
    diagnostics = {**estimate.diagnostics, "levels": float(len(path.betas) - 1), "acceptance": float(acceptance)}
    return replace(estimate, diagnostics=diagnostics)


@compiled
def _anneal_each(base, target_of, inputs: Array, path: Path, chains: int, moves: int, keys: Key[Array, " n"]):
    def one(pair):
        c, key = pair
        return _anneal(base, target_of(c), path.betas, path.samplers, chains, moves, key)

    return jax.lax.map(one, (inputs, keys), batch_size=max(1, AT_ONCE // chains))


def anneal_each(
    target_of: Callable[[Array], AbstractEnergy],
    inputs: Float[Array, "n ..."],
    path: Path,
    base: AbstractNormalised,
    *,
    chains: int,
    moves: int,
    key: PRNGKeyArray,
) -> list[Estimate]:
    """`anneal_along` to the target `target_of(c)` of every input c, along one path and in one program.

    Every input has random numbers of its own, so that errors are independent. Cores of a processor share the inputs.
    """
    keys = jax.random.split(key, len(inputs))
    firsts, size = shares(len(inputs), parts_of(len(inputs)))

    def part(first: np.ndarray):
        return _anneal_each(base, target_of, share(inputs, first, size), path, chains, moves, share(keys, first, size))

    parts = side_by_side(part, firsts)
    found = zip(*(jnp.asarray(np.concatenate([np.asarray(p[i]) for p in parts])) for i in range(3)), strict=True)
    return [_told(path, *of) for of in found]


def ais(
    target: AbstractEnergy,
    base: AbstractNormalised,
    *,
    chains: int = 1024,
    levels: int = 200,
    moves: int = 1,
    leapfrogs: int = 5,
    sampler: AbstractSampler | None = None,
    betas: Float[Array, " levels"] | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """log Z = log E[w], log w = sum_k (b_k - b_{k-1}) (E_base(x_k) - E_target(x_k)), x_k moved at level b_{k-1}.

    Unbiased for Z whatever the moves (Neal 2001); the better they mix, the smaller the error. Points move by `sampler`;
    without one by HMC of so many `leapfrogs` on real numbers, and by Gibbs on zeros and ones and categories. Pilot runs
    of 64 chains place the levels and tune the steps of HMC; they are thrown away, so that the main run stays unbiased.
    `betas` (from 0 to 1) are kept as given.

    >>> import jax, unnorm as un
    >>> target = un.energies.FunctionEnergy(lambda x: 2 * (x**2).sum(), un.spaces.Real((2,)))
    >>> ais(target, un.energies.standard_gaussian(2), levels=50, key=jax.random.key(0)).covers(0.4515827, 0.999)
    True
    """
    chains, levels, moves = whole_numbers(chains=chains, levels=levels, moves=moves)
    require(chains >= 2 and levels >= 1, f"AIS needs at least 2 chains and 1 level, not {chains} and {levels}")
    require_divisible(chains, "chains")
    place, tune, run = jax.random.split(key, 3)
    path = tuned_path(
        target, base, levels=levels, moves=moves, leapfrogs=leapfrogs, sampler=sampler, betas=betas, place=place,
        tune=tune,
    )  # fmt: skip
    return anneal_along(path, target, base, chains=chains, moves=moves, key=run)
