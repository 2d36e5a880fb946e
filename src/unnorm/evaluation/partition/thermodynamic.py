"""Thermodynamic integration: log Z as the integral of a mean along the path from a base to the target."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.devices import require_divisible, split_over_devices
from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.errors import require
from unnorm.estimate import Estimate, log_mean_exp_estimate, mean_estimate
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.partition.annealing import between, difference, starts, tuned_path
from unnorm.evaluation.partition.rounding import with_rounding
from unnorm.samplers import AbstractSampler
from unnorm.samplers.moves import moved


@compiled
def _slopes(base, target, betas: Array, samplers: Any, chains: int, moves: int, key: PRNGKeyArray):
    """E_base - E_target of every chain at every level after each of its last moves, and the annealed log-weights."""
    start, key = jax.random.split(key)
    keep = moves // 2

    def level(carry, inputs):
        xs, log_weights = carry
        b, previous, sampler, key = inputs
        log_weights = log_weights + (b - previous) * difference(base, target, xs)

        def again(xs, key):
            xs, acceptance = moved(between(base, target, b), sampler, xs, 1, key)
            return xs, (difference(base, target, xs), acceptance)

        xs, (slopes, acceptance) = jax.lax.scan(again, xs, jax.random.split(key, moves))
        return (xs, log_weights), (slopes[moves - keep :], acceptance)

    # Draws of the base are exact, so they may be fresh ones.
    fresh, start = jax.random.split(start)
    at_base = difference(base, target, starts(base, chains * keep, fresh)).reshape(1, keep, chains)
    xs = split_over_devices(starts(base, chains, start))
    inputs = (betas[1:], betas[:-1], samplers, jax.random.split(key, len(betas) - 1))
    (xs, log_weights), (slopes, acceptance) = jax.lax.scan(level, (xs, jnp.zeros(chains)), inputs)
    return jnp.concatenate([at_base, slopes]), log_weights, jax.vmap(target)(xs), jnp.mean(acceptance)


def corrected_trapezoid(
    betas: Float[np.ndarray, " k"], slopes: Float[np.ndarray, "k chains"], variances: Float[np.ndarray, "k chains"]
) -> Float[np.ndarray, " chains"]:
    """sum_k h_k (u_k + u_{k+1}) / 2 - h_k^2 (u'_{k+1} - u'_k) / 12, with u' the variance of the slope at the level.

    The error of the trapezoid is of order h^2, and of order h^4 with the second term (Friel, Hurn and Wyse 2014).

    >>> t = np.linspace(0, 1, 3)
    >>> float(corrected_trapezoid(t, t[:, None] ** 3, 3 * t[:, None] ** 2)[0])
    0.25
    """
    steps = np.diff(betas)[:, None]
    trapezoid = 0.5 * steps * (slopes[1:] + slopes[:-1])
    return np.sum(trapezoid - steps**2 / 12 * (variances[1:] - variances[:-1]), axis=0)


def thermodynamic(
    target: AbstractEnergy,
    base: AbstractNormalised,
    *,
    chains: int = 256,
    levels: int = 40,
    moves: int = 10,
    leapfrogs: int = 5,
    sampler: AbstractSampler | None = None,
    betas: Float[Array, " levels"] | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """log Z = int_0^1 E_b[E_base - E_target] db, by the trapezoid with its second-order correction.

    Independent chains walk up the path; at every level half of the `moves` are for settling and the others are kept.
    Each chain gives one value of the whole integral, so that their spread holds all autocorrelation (`monte_carlo` in
    the diagnostics). `discretisation` is a fifteenth of the difference to every second level, as for any rule of fourth
    order; the stated error adds both in squares. Chains that lag behind their level are seen by comparing with the
    annealed weights of the same run, which cannot lag. `sampler` is that of `ais`. Gelman and Meng 1998; Friel, Hurn
    and Wyse 2014.

    >>> import jax, unnorm as un
    >>> target = un.energies.FunctionEnergy(lambda x: 2 * (x**2).sum(), un.spaces.Real((2,)))
    >>> thermodynamic(target, un.energies.standard_gaussian(2), key=jax.random.key(0)).covers(0.4515827, 0.999)
    True
    """
    chains, levels, moves = whole_numbers(chains=chains, levels=levels, moves=moves)
    require(
        chains >= 8 and levels >= 2 and moves >= 2,
        f"thermodynamic integration needs 8 chains, 2 levels and 2 moves at least, not {chains}, {levels} and {moves}",
    )
    require_divisible(chains, "chains")
    # Every second level makes the coarser grid, so there is an even number of them.
    levels = levels + levels % 2 if betas is None else max(0, np.size(betas) - 1)
    require(levels >= 2 and levels % 2 == 0, f"thermodynamic integration needs an even number of levels, not {levels}")
    place, tune, run = jax.random.split(key, 3)
    path = tuned_path(
        target, base, levels=levels, moves=moves, leapfrogs=leapfrogs, sampler=sampler, betas=betas, place=place,
        tune=tune,
    )  # fmt: skip
    found, log_weights, energies, acceptance = _slopes(base, target, path.betas, path.samplers, chains, moves, run)
    slopes, grid = np.asarray(found, np.float64), np.asarray(path.betas, np.float64)
    require(
        bool(np.isfinite(slopes).all()),
        "the target's energy is not finite on the path, so its mean is not either; use AIS or SMC",
    )
    means = slopes.mean(axis=1)
    squares = ((slopes - slopes.mean(axis=(1, 2), keepdims=True)) ** 2).mean(axis=1)
    fine = corrected_trapezoid(grid, means, squares)
    coarse = corrected_trapezoid(grid[::2], means[::2], squares[::2])
    estimate = mean_estimate(fine, "thermodynamic integration")
    discretisation = abs(float(np.mean(fine - coarse))) / 15
    stderr = math.hypot(estimate.stderr, discretisation)
    annealed = log_mean_exp_estimate(log_weights, "AIS")
    diagnostics = {
        "chains": float(chains),
        "levels": float(levels),
        "monte_carlo": estimate.stderr,
        "discretisation": discretisation,
        "acceptance": float(acceptance),
        "annealed": annealed.value,
    }
    warnings = []
    if discretisation > estimate.stderr:
        warnings.append(
            f"The grid of {levels} levels is too coarse: its error ({discretisation:.2g}) exceeds that of the draws "
            f"({estimate.stderr:.2g}); use more levels."
        )
    if abs(annealed.value - estimate.value) > 4 * math.hypot(stderr, annealed.stderr) and not annealed.warnings:
        warnings.append(
            f"The chains lag behind their levels: annealed weights of the same run give {annealed.value:.4g}; "
            "use more moves or more levels."
        )
    estimate = replace(estimate, stderr=stderr, diagnostics=diagnostics, warnings=tuple(warnings))
    return with_rounding(estimate, energies, log_weights)
