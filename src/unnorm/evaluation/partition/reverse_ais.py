"""Annealing from draws of the target back to the base: log Z from above, so that two runs bracket it."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.devices import require_divisible
from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.errors import require
from unnorm.estimate import Estimate, log_mean_exp_estimate
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.partition.ais import anneal_along
from unnorm.evaluation.partition.annealing import Path, annealing_moves, between, difference, gained, tuned_path
from unnorm.evaluation.partition.chains import Draws, as_chains, mean_of_chains
from unnorm.evaluation.partition.pairs import point_of
from unnorm.evaluation.partition.rounding import with_rounding
from unnorm.evaluation.partition.tails import judged
from unnorm.samplers import AbstractSampler
from unnorm.samplers.moves import moved, points_of

#: One level in so many, next to the base, is walked forwards.
FORWARD = 10


@compiled
def _cool(base, target, betas: Array, samplers: Any, xs: Array, moves: int, key: PRNGKeyArray):
    """log v of chains that start at the target: weigh from a level to the one below, then move there."""

    def level(carry, inputs):
        xs, log_weights = carry
        b, lower, sampler, key = inputs
        log_weights = log_weights - gained(b - lower, difference(base, target, xs))
        xs, acceptance = moved(between(base, target, lower), sampler, xs, moves, key)
        return (xs, log_weights), acceptance

    energies = jax.vmap(target)(xs)
    # The sampler of level k is the (k - 1)th; at the first level nothing is left to move for.
    below = jax.tree.map(lambda leaf: leaf[:-1], samplers)
    inputs = (betas[2:], betas[1:-1], below, jax.random.split(key, len(betas) - 2))
    (xs, log_weights), acceptance = jax.lax.scan(level, (xs, jnp.zeros(len(xs))), inputs, reverse=True)
    log_weights = log_weights - (betas[1] - betas[0]) * difference(base, target, xs)
    return log_weights, energies, jnp.mean(acceptance)


def cool_along(
    path: Path, target: AbstractEnergy, base: AbstractNormalised, draws: Draws, *, moves: int, key: PRNGKeyArray
) -> Estimate:
    """`reverse_ais` along a path that is already tuned."""
    chains = as_chains(draws, point_of(base).shape, "reverse AIS")
    xs = points_of(target.space, chains.reshape(-1, *chains.shape[2:]))
    (moves,) = whole_numbers(moves=moves)
    require_divisible(len(xs), "draws")
    down, up = jax.random.split(key)
    meeting = max(1, (len(path.betas) - 1) // FORWARD)
    below, above = path.parted(meeting)
    found, energies, acceptance = _cool(base, target, above.betas, above.samplers, xs, moves, down)
    log_weights = np.asarray(found, np.float64)
    first = anneal_along(below, target, base, chains=len(xs), moves=moves, key=up)
    estimate = judged(log_mean_exp_estimate(log_weights, "reverse AIS"), log_weights)
    # Neighbours of a chain begin alike, so their weights are alike too.
    mean = mean_of_chains(np.exp(log_weights - log_weights.max()).reshape(chains.shape[:2]))
    diagnostics = {**estimate.diagnostics, "levels": float(len(path.betas) - 1), "acceptance": float(acceptance)}
    found = replace(
        estimate,
        value=first.value - estimate.value,
        stderr=math.hypot(mean.stderr / mean.value, first.stderr) if mean.value > 0 else math.inf,
        diagnostics={**diagnostics, "effective_draws": mean.effective},
        warnings=estimate.warnings + first.warnings,
    )
    return with_rounding(found, energies)


def _check(target, base, sampler, draws: Draws, levels: int, betas: Float[Array, " k"] | None) -> None:
    """Refuse what cannot be walked before anything is compiled for it."""
    annealing_moves(target, base, sampler, 1)
    as_chains(draws, point_of(base).shape, "reverse AIS")
    (levels,) = whole_numbers(levels=levels)
    count = levels if betas is None else max(0, np.size(betas) - 1)
    require(count >= 3, f"annealing backwards needs at least 3 levels, not {count}")


def reverse_ais(
    target: AbstractEnergy,
    base: AbstractNormalised,
    draws: Draws,
    *,
    levels: int = 200,
    moves: int = 1,
    leapfrogs: int = 5,
    sampler: AbstractSampler | None = None,
    betas: Float[Array, " levels"] | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """log Z = log Z_m - log E[v], log v = -sum_k>m (b_k - b_{k-1}) (E_base - E_target)(x_k), x_K a draw of the target.

    v is unbiased for Z_m / Z, so that log Z is on average too high (Grosse, Ghahramani and Adams 2015): with `ais`,
    which is on average too low, it makes a bracket. That holds for exact draws of the target. Draws of one part of it,
    of mass p, give log Z + log(p / r) with r the share of `ais` chains that end there: above or below. `draws` is a
    `Trace` or an array of independent points.

    The source walks down to the base, m = 0. Its last steps weigh by exp((b_k - b_{k-1}) E_target) where b_k is more
    than twice b_{k-1}: for a target with much lighter tails than the base, such as a banana, those weights have no
    variance for any levels. So the tenth of the levels next to the base is walked forwards, by as many chains of `ais`,
    where weights are bounded; the bias that this adds, half its squared error and downwards, is far below the rest.

    >>> import jax, unnorm as un
    >>> target = un.energies.FunctionEnergy(lambda x: 2 * (x**2).sum(), un.spaces.Real((2,)))
    >>> draws = un.energies.standard_gaussian(2, 0.5).samples(512, key=jax.random.key(1))
    >>> found = reverse_ais(target, un.energies.standard_gaussian(2), draws, levels=50, key=jax.random.key(0))
    >>> found.covers(0.4515827, 0.999)
    True
    """
    _check(target, base, sampler, draws, levels, betas)
    place, tune, run = jax.random.split(key, 3)
    path = tuned_path(
        target, base, levels=levels, moves=moves, leapfrogs=leapfrogs, sampler=sampler, betas=betas, place=place,
        tune=tune,
    )  # fmt: skip
    return cool_along(path, target, base, draws, moves=moves, key=run)


class Bracket(NamedTuple):
    """log Z from below and from above, each on average; each with its error."""

    lower: Estimate
    upper: Estimate

    @property
    def gap(self) -> Estimate:
        """upper - lower: never negative on average, and small when both runs walked slowly enough."""
        return self.upper.minus(self.lower)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with either run, and whether they contradict each other."""
        found = [*self.lower.warnings, *(w for w in self.upper.warnings if w not in self.lower.warnings)]
        if self.gap.value < -4 * self.gap.stderr:
            found.append(
                f"The upper bound is below the lower one by {-self.gap.value:.2g} nats: the draws do not come from the "
                "whole target; run the sampler longer or from other starting points."
            )
        return tuple(found)


def bracket(
    target: AbstractEnergy,
    base: AbstractNormalised,
    draws: Draws,
    *,
    chains: int = 1024,
    levels: int = 200,
    moves: int = 1,
    leapfrogs: int = 5,
    sampler: AbstractSampler | None = None,
    betas: Float[Array, " levels"] | None = None,
    key: PRNGKeyArray,
) -> Bracket:
    """`ais` and `reverse_ais` along one path; `sampler` is that of `ais`.

    >>> import jax, unnorm as un
    >>> target = un.energies.FunctionEnergy(lambda x: 2 * (x**2).sum(), un.spaces.Real((2,)))
    >>> draws = un.energies.standard_gaussian(2, 0.5).samples(512, key=jax.random.key(1))
    >>> found = bracket(target, un.energies.standard_gaussian(2), draws, levels=50, key=jax.random.key(0))
    >>> abs(found.gap.value) < 5 * found.gap.stderr, found.warnings
    (True, ())
    """
    chains, moves = whole_numbers(chains=chains, moves=moves)
    require_divisible(chains, "chains")
    _check(target, base, sampler, draws, levels, betas)
    place, tune, up, down = jax.random.split(key, 4)
    path = tuned_path(
        target, base, levels=levels, moves=moves, leapfrogs=leapfrogs, sampler=sampler, betas=betas, place=place,
        tune=tune,
    )  # fmt: skip
    return Bracket(
        anneal_along(path, target, base, chains=chains, moves=moves, key=up),
        cool_along(path, target, base, draws, moves=moves, key=down),
    )
