"""What a model must beat, and what its log Z is measured from: densities that are simple on the space at hand."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax

from unnorm.energies import AbstractEnergy, AbstractNormalised, GaussianMixture, best_mixture, fit_gaussian, fit_sites
from unnorm.evaluation import defensive
from unnorm.runs.prepare import Prepared
from unnorm.spaces import Binary, Categorical, Real


@dataclass(frozen=True, eq=False)
class References:
    """Densities of points by the name of the baseline, each with log Z = 0, and what log Z is measured from."""

    baselines: Mapping[str, AbstractEnergy]
    proposal: AbstractNormalised | None = None


#: The mixture that rows of real numbers are compared with, and its size: what takes time to make, and is kept.
Made = tuple[GaussianMixture, int]


def made_for(prepared: Prepared, *, seed: int) -> Made | None:
    """A Gaussian mixture whose size the validation rows choose; None where points are no vectors of real numbers."""
    if not are_vectors(prepared) or prepared.schema.condition is not None:
        return None
    return best_mixture(prepared.train, prepared.valid, key=jax.random.key(seed))


def are_vectors(prepared: Prepared) -> bool:
    """Whether points are vectors of real numbers."""
    space = prepared.space
    return isinstance(space, Real) and len(space.shape) == 1


def references_of(prepared: Prepared, *, seed: int) -> References:
    """The baselines of points of this space; none where nothing simple is known."""
    return references_from(made_for(prepared, seed=seed), prepared)


def references_from(made: Made | None, prepared: Prepared) -> References:
    """The same of what was made before."""
    if made is not None:
        mixture, components = made
        baselines = {"one Gaussian": fit_gaussian(prepared.train), f"mixture of {components}": mixture}
        return References(baselines, defensive(mixture, prepared.train))
    space = prepared.space
    if isinstance(space, Binary | Categorical) and prepared.schema.condition is None:
        sites = fit_sites(space, prepared.train)
        return References({"independent columns": sites})
    return References({})
