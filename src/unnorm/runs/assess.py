"""What is known about a fitted model: each finding that the model and its space allow.

log Z and likelihood of an energy whose space has a base to measure from; weights of modes where they are known; draws
of whatever chains can walk, and how far they are from held-out rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from unnorm.data.kinds import taken
from unnorm.data.splits import copies
from unnorm.energies import (
    AbstractEnergy,
    AbstractNormalised,
    Blend,
    FunctionEnergy,
    GaussianDensity,
    GaussianMixture,
    Tilted,
    count_points,
)
from unnorm.estimate import Estimate
from unnorm.evaluation import defensive, expectations, log_likelihood, log_partition, mmd
from unnorm.evaluation.partition.log_partition import FEW_POINTS
from unnorm.runs.diffusions import Fidelity, FlowLikelihood, find_fidelity, find_flow, find_generated
from unnorm.runs.findings import (
    THINNED,
    AbstractDraws,
    AbstractFinding,
    Assessment,
    Discrepancy,
    Exact,
    Likelihood,
    LogZ,
    ModeWeights,
    draws_finding,
)
from unnorm.runs.picture_features import FeatureFidelity, find_features
from unnorm.runs.prepare import Prepared, points_of, table_schema
from unnorm.runs.references import References, references_of
from unnorm.runs.trees import numbers_of
from unnorm.runs.walks import chains_of, has_chains
from unnorm.samplers import ImportanceResampling, Resampled, Trace, sample
from unnorm.scores import AbstractLevelledScore
from unnorm.spaces import Binary, Categorical

#: The weights of modes are shown up to this many modes.
MAX_MODES = 40
#: Independent draws of an assessment; chains give what they give.
DRAWS = 2000
#: Chains of an assessment, and their steps.
CHAINS, STEPS = 64, 200
EXACT = Estimate(0.0, 0.0, "known exactly")


@dataclass
class Case:
    """A model, what it is judged by, and what was found out about it so far."""

    model: Any
    prepared: Prepared
    rows: Any
    groups: np.ndarray | None
    references: References
    seed: int
    progress: bool
    found: dict[type[AbstractFinding], AbstractFinding] = field(default_factory=dict)

    @property
    def energy(self) -> AbstractEnergy | None:
        """The model, if it is an energy of points by themselves."""
        model = self.model
        return model if isinstance(model, AbstractEnergy) and model.space == self.prepared.space else None


def proposal_for(model: AbstractEnergy, prepared: Prepared, references: References) -> AbstractNormalised | None:
    """What log Z is measured from: a tilted model's own reference, which is closer to it than any other density.

    A tenth of the draws come from a wider density, so that no weight is large where the tilt raises the tails.
    """
    if references.proposal is None or not isinstance(model, Tilted):
        return references.proposal
    if isinstance(model.reference, GaussianDensity | GaussianMixture):
        return defensive(model.reference, prepared.train)
    return Blend((model.reference, references.proposal), jnp.log(jnp.array([0.9, 0.1])))


def log_z_of_model(
    model: AbstractEnergy, prepared: Prepared, references: References, *, key: PRNGKeyArray
) -> Estimate | None:
    """log Z of an energy of the prepared points; None where nothing here can tell."""
    if not has_log_z(model, references):
        return None
    if isinstance(model, Tilted) and isinstance(model.space, Binary | Categorical):
        # Where all points can be summed, nothing need be drawn.
        few = (count_points(model.space) or math.inf) <= FEW_POINTS
        return log_partition(model, base=None if few else model.reference, key=key)
    return log_partition(model, base=proposal_for(model, prepared, references), key=key)


def has_log_z(model: AbstractEnergy, references: References) -> bool:
    """Whether log Z can be told: from a base, exactly, or on sites.

    There `log_partition` sums all points where they are few, and finds a base of its own where they are many.
    """
    exact = isinstance(model, AbstractNormalised)
    return exact or references.proposal is not None or isinstance(model.space, Binary | Categorical)


def in_unit_coordinates(energy: AbstractEnergy, prepared: Prepared) -> AbstractEnergy:
    """An energy on the data's own units as one on standardised points (same value, not renormalised)."""
    standardiser = table_schema(prepared).standardiser
    mean, scale = jnp.asarray(standardiser.mean, float), jnp.asarray(standardiser.scale, float)
    return FunctionEnergy(lambda z: energy(z * scale + mean), prepared.space)


def mode_weights(
    model: AbstractEnergy, prepared: Prepared, proposal: AbstractNormalised, *, seed: int
) -> tuple[tuple[float, Estimate], ...]:
    """For a problem that is a mixture: each mode's true weight, and the mass the model puts nearest to it."""
    truth = prepared.problem.truth if prepared.problem is not None else None
    if not isinstance(truth, GaussianMixture) or len(truth.weights) > MAX_MODES:
        return ()
    standardiser = table_schema(prepared).standardiser
    mean, scale = jnp.asarray(standardiser.mean, float), jnp.asarray(standardiser.scale, float)

    def nearest(z):
        return jax.nn.one_hot(truth.assign(z * scale + mean), len(truth.weights))

    learnt = expectations(model, nearest, proposal, key=jax.random.key(seed))
    return tuple(zip((float(w) for w in np.asarray(truth.weights)), learnt, strict=True))


def draws_of(model: AbstractEnergy, prepared: Prepared, *, seed: int, progress: bool) -> Trace | Resampled:
    """Independent draws of a model with a reference; of another one chains, started at training rows."""
    key = jax.random.key(seed)
    if isinstance(model, Tilted):
        return ImportanceResampling()(model, DRAWS, key=key, progress=progress)
    train = points_of(prepared.train)
    start = taken(train, np.random.default_rng(seed - 2).integers(len(train), size=CHAINS))
    sampler = chains_of(model.space)
    return sample(model, sampler, chains=CHAINS, steps=STEPS, start=start, key=key, progress=progress)


# ----------------------------------------------------------------------------------------- one function per finding


def find_log_z(case: Case) -> LogZ | None:
    """log Z, where the space has a base to measure from."""
    if case.energy is None:
        return None
    found = log_z_of_model(case.energy, case.prepared, case.references, key=jax.random.key(case.seed + 1))
    return None if found is None else LogZ(found)


def find_likelihood(case: Case) -> Likelihood | None:
    """Held-out log-likelihood beside that of the baselines and of the truth; it needs log Z."""
    log_z = case.found.get(LogZ)
    if case.energy is None or not isinstance(log_z, LogZ):
        return None
    prepared, groups, rows = case.prepared, case.groups, points_of(case.rows)
    volume = prepared.schema.log_volume
    baselines = {
        name: log_likelihood(density, rows, EXACT, log_volume=volume, groups=groups)
        for name, density in case.references.baselines.items()
    }
    truth = None if prepared.problem is None else prepared.problem.truth
    known = None if truth is None else log_likelihood(in_unit_coordinates(truth, prepared), rows, EXACT, groups=groups)
    model = log_likelihood(case.energy, rows, log_z.estimate, log_volume=volume, groups=groups)
    return Likelihood(model, baselines, known)


def find_weights(case: Case) -> ModeWeights | None:
    """The weights of the modes, where the truth has some; measured from where log Z is."""
    if case.energy is None or case.references.proposal is None:
        return None
    proposal = proposal_for(case.energy, case.prepared, case.references)
    assert proposal is not None
    return ModeWeights(mode_weights(case.energy, case.prepared, proposal, seed=case.seed + 3))


def find_flow_likelihood(case: Case) -> FlowLikelihood | None:
    """Held-out log-likelihood of a score over noise levels, by the flow and by its bound."""
    if not isinstance(case.model, AbstractLevelledScore):
        return None
    return find_flow(case.model, case.prepared, case.rows, case.groups, seed=case.seed + 4)


def find_picture_fidelity(case: Case) -> Fidelity | None:
    """How good pictures are."""
    draws = next((found for found in case.found.values() if isinstance(found, AbstractDraws)), None)
    return None if draws is None else find_fidelity(case.prepared, case.rows, draws, seed=case.seed + 5)


def find_feature_fidelity(case: Case) -> FeatureFidelity | None:
    """How good labelled pictures are to a classifier."""
    draws = next((found for found in case.found.values() if isinstance(found, AbstractDraws)), None)
    return None if draws is None else find_features(case.prepared, case.rows, draws, seed=case.seed + 6)


def find_draws(case: Case) -> AbstractDraws | None:
    """Draws, of whatever a sampler or a solver walks."""
    if isinstance(case.model, AbstractLevelledScore):
        return find_generated(case.model, case.prepared, seed=case.seed + 2, progress=case.progress)
    if case.energy is None:
        return None
    if not has_chains(case.energy.space):
        if not isinstance(case.energy, AbstractNormalised):
            return None
        draws = case.energy.samples(DRAWS, key=jax.random.key(case.seed + 2))
        return Exact(jax.tree.map(np.asarray, draws))
    return draws_finding(draws_of(case.energy, case.prepared, seed=case.seed + 2, progress=case.progress))


def find_discrepancy(case: Case) -> Discrepancy | None:
    """How far the draws are from held-out rows."""
    draws = next((found for found in case.found.values() if isinstance(found, AbstractDraws)), None)
    if draws is None:
        return None
    space, rows = case.prepared.space, taken(points_of(case.rows), slice(THINNED))
    return Discrepancy(mmd(numbers_of(space, draws.thinned()), numbers_of(space, rows)))


Find = Callable[[Case], AbstractFinding | None]
#: What is tried in turn: a later one may look at what earlier ones found.
TRIED: tuple[Find, ...] = (
    find_log_z, find_likelihood, find_flow_likelihood, find_draws, find_weights, find_discrepancy,
    find_picture_fidelity, find_feature_fidelity,
)  # fmt: skip


def assess(
    model: Any,
    prepared: Prepared,
    rows: Any = None,
    *,
    references: References | None = None,
    seed: int,
    progress: bool = True,
) -> Assessment:
    """Judge a model on held-out rows (default the run's own test rows) by all that it and its space allow.

    The run's own rows err together where they are copies or of one group, and errors count that.
    """
    groups = prepared.test_together if rows is None else copies(rows)
    rows = prepared.test if rows is None else rows
    references = references_of(prepared, seed=seed) if references is None else references
    case = Case(model, prepared, rows, groups, references, seed, progress)
    for step in TRIED:
        found = step(case)
        if found is not None:
            case.found[type(found)] = found
    # Draws stand last: the rest is about figures.
    return Assessment.of(*sorted(case.found.values(), key=lambda found: isinstance(found, AbstractDraws)))
