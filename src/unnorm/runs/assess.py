"""What is known about a fitted model: likelihood against baselines, mode weights, draws and their diagnostics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unnorm.data.splits import copies
from unnorm.energies import (
    AbstractEnergy,
    AbstractNormalised,
    Blend,
    FunctionEnergy,
    GaussianDensity,
    GaussianMixture,
    Tilted,
    best_mixture,
    fit_gaussian,
)
from unnorm.estimate import Estimate
from unnorm.evaluation import defensive, expectations, log_likelihood, log_partition, mmd
from unnorm.runs.prepare import Prepared
from unnorm.samplers import HMC, ImportanceResampling, Resampled, Trace, sample

#: The weights of modes are shown up to this many modes.
MAX_MODES = 40
#: Independent draws of an assessment; chains give what they give.
DRAWS = 2000


@dataclass(frozen=True, eq=False)
class References:
    """The baselines, in unit coordinates: what a model must beat, and what its log Z is measured from."""

    gaussian: AbstractNormalised
    mixture: GaussianMixture
    components: int
    proposal: GaussianMixture


def references_of(prepared: Prepared, *, seed: int) -> References:
    """One Gaussian, and a Gaussian mixture whose size the validation rows choose."""
    mixture, components = best_mixture(prepared.train, prepared.valid, key=jax.random.key(seed))
    return references_from(mixture, components, prepared)


def references_from(mixture: GaussianMixture, components: int, prepared: Prepared) -> References:
    """The same of a mixture that was fitted before."""
    return References(fit_gaussian(prepared.train), mixture, components, defensive(mixture, prepared.train))


@dataclass(frozen=True, eq=False)
class Assessment:
    """Everything an assessment found; log-likelihoods are nats per row in the data's own units."""

    log_z: Estimate
    log_likelihood: Estimate
    baselines: Mapping[str, Estimate]
    truth: Estimate | None
    weights: tuple[tuple[float, Estimate], ...]
    mmd: Estimate
    sampled: Trace | Resampled
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the draws."""
        return {
            "log_z": self.log_z.to_dict(),
            "log_likelihood": self.log_likelihood.to_dict(),
            "baselines": {name: value.to_dict() for name, value in self.baselines.items()},
            "true_log_likelihood": None if self.truth is None else self.truth.to_dict(),
            "weights": [{"truth": truth, **value.to_dict()} for truth, value in self.weights],
            "mmd": self.mmd.to_dict(),
            "sampler": figures_of(self.sampled),
            "warnings": list(self.warnings),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any], sampled: Trace | Resampled) -> "Assessment":
        """The inverse of `to_dict`, with the draws."""
        truth = data["true_log_likelihood"]
        return Assessment(
            Estimate.from_dict(data["log_z"]),
            Estimate.from_dict(data["log_likelihood"]),
            {name: Estimate.from_dict(value) for name, value in data["baselines"].items()},
            None if truth is None else Estimate.from_dict(truth),
            tuple((value["truth"], Estimate.from_dict(value)) for value in data["weights"]),
            Estimate.from_dict(data["mmd"]),
            sampled,
            tuple(data["warnings"]),
        )


def figures_of(sampled: Trace | Resampled) -> dict[str, Any]:
    """How far to trust draws, as plain numbers."""
    if isinstance(sampled, Resampled):
        return {
            "kind": "independent",
            "proposals": sampled.proposals,
            "effective_share": sampled.effective,
            "repeated": sampled.repeated,
        }
    worst = sampled.diagnostics
    return {
        "kind": "chains",
        "acceptance": float(np.mean(sampled.acceptance)),
        "divergences": sampled.divergences,
        "rhat": worst.worst_rhat,
        "ess_bulk": worst.worst_ess_bulk,
        "ess_tail": worst.worst_ess_tail,
    }


def proposal_for(model: AbstractEnergy, prepared: Prepared, references: References) -> AbstractNormalised:
    """What log Z is measured from: a tilted model's own reference, which is closer to it than any other density.

    A tenth of the draws come from a wider density, so that no weight is large where the tilt raises the tails.
    """
    if not isinstance(model, Tilted):
        return references.proposal
    if isinstance(model.reference, GaussianDensity | GaussianMixture):
        return defensive(model.reference, prepared.train)
    return Blend((model.reference, references.proposal), jnp.log(jnp.array([0.9, 0.1])))


def in_unit_coordinates(energy: AbstractEnergy, prepared: Prepared) -> AbstractEnergy:
    """An energy on the data's own units as one on standardised points (same value, not renormalised)."""
    mean = jnp.asarray(prepared.standardiser.mean, float)
    scale = jnp.asarray(prepared.standardiser.scale, float)
    return FunctionEnergy(lambda z: energy(z * scale + mean), prepared.space)


def mode_weights(
    model: AbstractEnergy, prepared: Prepared, proposal: AbstractNormalised, *, seed: int
) -> tuple[tuple[float, Estimate], ...]:
    """For a problem that is a mixture: each mode's true weight, and the mass the model puts nearest to it."""
    truth = prepared.problem.truth if prepared.problem is not None else None
    if not isinstance(truth, GaussianMixture) or len(truth.weights) > MAX_MODES:
        return ()
    mean = jnp.asarray(prepared.standardiser.mean, float)
    scale = jnp.asarray(prepared.standardiser.scale, float)

    def nearest(z):
        return jax.nn.one_hot(truth.assign(z * scale + mean), len(truth.weights))

    learnt = expectations(model, nearest, proposal, key=jax.random.key(seed))
    return tuple(zip((float(w) for w in np.asarray(truth.weights)), learnt, strict=True))


def draws_of(model: AbstractEnergy, prepared: Prepared, *, seed: int, progress: bool) -> Trace | Resampled:
    """Independent draws of a model with a reference; of another one chains, started at training rows."""
    key = jax.random.key(seed)
    if isinstance(model, Tilted):
        return ImportanceResampling()(model, DRAWS, key=key, progress=progress)
    chains = 64
    start = prepared.train[np.random.default_rng(seed - 2).integers(len(prepared.train), size=chains)]
    return sample(model, HMC(), chains=chains, steps=200, start=start, key=key, progress=progress)


def _thinned(sampled: Trace | Resampled) -> np.ndarray:
    """At most 2000 draws, far apart in their chains."""
    draws = (
        sampled.draws if isinstance(sampled, Resampled) else sampled.draws[:, :: max(1, sampled.draws.shape[1] // 25)]
    )
    return draws.reshape(-1, draws.shape[-1])[:2000]


def assess(
    model: AbstractEnergy,
    prepared: Prepared,
    rows: np.ndarray | None = None,
    *,
    references: References | None = None,
    seed: int,
    progress: bool = True,
) -> Assessment:
    """Judge a model on held-out rows (unit coordinates; default the run's own test rows).

    The run's own rows err together where they are copies or of one group, and errors count that.
    """
    groups = prepared.test_together if rows is None else copies(rows)
    rows = prepared.test if rows is None else rows
    references = references_of(prepared, seed=seed) if references is None else references
    volume = prepared.standardiser.log_volume
    proposal = proposal_for(model, prepared, references)
    log_z = log_partition(model, base=proposal, key=jax.random.key(seed + 1))
    exact = Estimate(0.0, 0.0, "known exactly")
    baselines = {
        "one Gaussian": log_likelihood(references.gaussian, rows, exact, log_volume=volume, groups=groups),
        f"mixture of {references.components}": log_likelihood(
            references.mixture, rows, exact, log_volume=volume, groups=groups
        ),
    }
    problem = prepared.problem
    truth = None
    if problem is not None and problem.truth is not None:
        truth = log_likelihood(in_unit_coordinates(problem.truth, prepared), rows, exact, groups=groups)
    sampled = draws_of(model, prepared, seed=seed + 2, progress=progress)
    return Assessment(
        log_z=log_z,
        log_likelihood=log_likelihood(model, rows, log_z, log_volume=volume, groups=groups),
        baselines=baselines,
        truth=truth,
        weights=mode_weights(model, prepared, proposal, seed=seed + 3),
        mmd=mmd(_thinned(sampled), rows[:2000]),
        sampled=sampled,
        warnings=(*log_z.warnings, *sampled.warnings),
    )
