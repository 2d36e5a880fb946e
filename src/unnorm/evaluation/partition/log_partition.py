"""log Z of any energy: the method is chosen, said, and escalated when it is not good enough."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import jax
from jaxtyping import PRNGKeyArray

from unnorm.energies import AbstractEnergy, AbstractHidden, AbstractNormalised, count_points
from unnorm.estimate import Estimate
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.partition.ais import ais
from unnorm.evaluation.partition.enumeration import summed
from unnorm.evaluation.partition.importance import importance
from unnorm.evaluation.partition.pairs import require_energy
from unnorm.evaluation.partition.reference import reference_of, reference_on_sites
from unnorm.evaluation.partition.smc import smc
from unnorm.evaluation.partition.tails import UNUSABLE, VARIANCE
from unnorm.spaces import Binary, Categorical

#: Importance sampling is believed when at least this share of its draws is effective.
ENOUGH = 0.05
#: Up to so many points of a discrete space are summed.
FEW_POINTS = 2**16
#: Annealed importance sampling is believed when at least this many of its chains are effective.
CHAINS = 100


def _because(estimate: Estimate, why: str, tried: Mapping[str, float]) -> Estimate:
    """The estimate with what was tried before it and, in words, why it is the one that is given."""
    return replace(estimate, diagnostics={**estimate.diagnostics, **tried}, why=why)


def log_partition(
    target: AbstractEnergy, *, base: AbstractNormalised | None = None, draws: int = 20_000, key: PRNGKeyArray
) -> Estimate:
    """log Z = log of the integral (on discrete spaces the sum) of exp(-E), with its error.

    A normalised energy has log Z = 0 exactly, and up to 65,536 points are summed. Otherwise importance sampling from
    `base` is tried; if fewer than 5% of its draws are effective, or its weights have no variance, annealed importance
    sampling takes over from the same base; if fewer than 100 of its chains are effective, or its weights are too heavy,
    sequential Monte Carlo. The method is in the result, and so is `why`, a sentence.

    Without a base, one is fitted to a short run of parallel tempering from N(0, I), with the tail of a Cauchy law for
    importance sampling. A mode that neither this run nor the base visits is missing from the answer, and no error
    tells of it. A warning says so where the chains of the run disagree (`reference_rhat` above 1.2), or where more
    than 1% of the integral lies 32 standard deviations away from them (`far_share`): a density that cannot be
    integrated has an estimate too, finite and wrong. Of 200 intervals of 95% for a Cauchy law, 189 held its log Z.
    On zeros and ones and on categories the base is a law for every site, from such a run.

    >>> import jax, unnorm as un
    >>> un.log_partition(un.energies.standard_gaussian(2), key=jax.random.key(0)).value
    0.0
    """
    require_energy(target)
    (draws,) = whole_numbers(draws=draws)
    if isinstance(target, AbstractNormalised):
        return _because(Estimate(0.0, 0.0, "known exactly"), "The energy is normalised.", {})
    look, *run = jax.random.split(key, 3)
    if base is not None:
        return _escalated(target, base, base, draws, run)
    same = (target, *target.equivalents()) if isinstance(target, AbstractHidden) else (target,)
    small = next((energy for energy in same if (count_points(energy.space) or math.inf) <= FEW_POINTS), None)
    if small is not None:
        return _because(summed(small), "All points were summed.", {})
    if isinstance(same[-1].space, Binary | Categorical):
        return _on_sites(same[-1], draws, look, run)
    reference = reference_of(target, key=look)
    estimate = _escalated(target, reference.tailed, reference.near, draws, run)
    share = reference.far_share(target, draws, key=run[0])
    diagnostics = {**estimate.diagnostics, "reference_rhat": reference.rhat, "far_share": share}
    return replace(estimate, diagnostics=diagnostics, warnings=(*estimate.warnings, *reference.warnings(share)))


def _on_sites(target: AbstractEnergy, draws: int, look: PRNGKeyArray, run: Sequence[PRNGKeyArray]) -> Estimate:
    """On zeros and ones, or on categories."""
    found = reference_on_sites(target, key=look)
    estimate = _escalated(target, found.density, found.density, draws, run)
    diagnostics = {**estimate.diagnostics, "reference_rhat": found.rhat}
    return replace(estimate, diagnostics=diagnostics, warnings=(*estimate.warnings, *found.warnings))


def _escalated(
    target: AbstractEnergy,
    base: AbstractNormalised,
    near: AbstractNormalised,
    draws: int,
    keys: Sequence[PRNGKeyArray],
) -> Estimate:
    """Importance sampling from `base` if that is good enough, or else annealing from `near`."""
    first, second = keys
    quick = importance(target, base, draws=draws, key=first)
    share = quick.diagnostics["effective_samples"] / quick.diagnostics["samples"]
    k = quick.diagnostics.get("pareto_k", 0.0)
    if share >= ENOUGH and k <= VARIANCE:
        return _because(
            quick, f"{share:.0%} of the draws of the base are effective, and their weights have a variance.", {}
        )
    if share < ENOUGH:
        why = f"Only {share:.2g} of the draws of the base are effective for importance sampling."
    else:
        why = f"Importance weights from the base have no variance (tail index {k:.2f})."
    tried = {"importance_effective_share": share, "importance_pareto_k": k}
    annealed = ais(target, near, key=second)
    effective = annealed.diagnostics["effective_samples"]
    heavy = annealed.diagnostics.get("pareto_k", 0.0)
    if effective >= CHAINS and heavy <= UNUSABLE:
        return _because(annealed, why, tried)
    if effective < CHAINS:
        why += f" Of {annealed.diagnostics['samples']:.0f} annealed chains only {effective:.0f} are effective."
    else:
        why += f" Annealed weights are too heavy (tail index {heavy:.2f})."
    tried |= {"ais_value": annealed.value, "ais_effective_samples": effective}
    return _because(smc(target, near, key=jax.random.fold_in(second, 1)), why, tried)
