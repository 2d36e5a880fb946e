"""log Z of any energy on a Real space: the method is chosen, said, and escalated when it is not good enough."""

from collections.abc import Mapping
from dataclasses import replace

import jax
from jaxtyping import PRNGKeyArray

from unnorm.energies import AbstractEnergy, AbstractNormalised, fit_gaussian
from unnorm.errors import InputError
from unnorm.estimate import Estimate
from unnorm.evaluation.ais import ais
from unnorm.evaluation.importance import defensive, importance
from unnorm.evaluation.smc import smc
from unnorm.evaluation.tails import UNUSABLE, VARIANCE
from unnorm.samplers import HMC, sample
from unnorm.spaces import Real

#: Importance sampling is believed when at least this share of its draws is effective.
ENOUGH = 0.05
#: Annealed importance sampling is believed when at least this many of its chains are effective.
CHAINS = 100


def reference_of(target: AbstractEnergy, *, key: PRNGKeyArray) -> AbstractNormalised:
    """A Gaussian fitted to a short HMC run, widened: where to start when nothing is known about the target."""
    if not isinstance(target.space, Real) or len(target.space.shape) != 1:
        raise InputError(f"log Z needs a base density on {target.space}; pass base=")
    trace = sample(target, HMC(), chains=64, steps=100, warmup=300, key=key, progress=False)
    return defensive(fit_gaussian(trace.flat), trace.flat, share=0.5)


def _because(estimate: Estimate, why: str, tried: Mapping[str, float]) -> Estimate:
    """The estimate with what was tried before it and, in words, why it is the one that is given."""
    return replace(estimate, diagnostics={**estimate.diagnostics, **tried}, why=why)


def log_partition(
    target: AbstractEnergy, *, base: AbstractNormalised | None = None, draws: int = 20_000, key: PRNGKeyArray
) -> Estimate:
    """log Z = log of the integral of exp(-E), with its error.

    A normalised energy has log Z = 0 exactly. Otherwise importance sampling from `base` (default: a Gaussian fitted to
    a short HMC run) is tried; if fewer than 5% of its draws are effective, or its weights have no variance, annealed
    importance sampling takes over from the same base; if fewer than 100 of its chains are effective, or its weights
    are too heavy, sequential Monte Carlo. The method is in the result, and so is `why`, a sentence.

    >>> import jax, unnorm as un
    >>> un.log_partition(un.energies.standard_gaussian(2), key=jax.random.key(0)).value
    0.0
    """
    if isinstance(target, AbstractNormalised):
        return _because(Estimate(0.0, 0.0, "known exactly"), "The energy is normalised.", {})
    reference_key, first, second = jax.random.split(key, 3)
    if base is None:
        base = reference_of(target, key=reference_key)
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
    annealed = ais(target, base, key=second)
    effective = annealed.diagnostics["effective_samples"]
    heavy = annealed.diagnostics.get("pareto_k", 0.0)
    if effective >= CHAINS and heavy <= UNUSABLE:
        return _because(annealed, why, tried)
    if effective < CHAINS:
        why += f" Of {annealed.diagnostics['samples']:.0f} annealed chains only {effective:.0f} are effective."
    else:
        why += f" Annealed weights are too heavy (tail index {heavy:.2f})."
    tried |= {"ais_value": annealed.value, "ais_effective_samples": effective}
    return _because(smc(target, base, key=jax.random.fold_in(second, 1)), why, tried)
