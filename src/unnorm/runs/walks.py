"""Which chains walk a space when nobody says."""

from unnorm.errors import InputError
from unnorm.samplers import HMC, AbstractSampler, Gibbs
from unnorm.samplers.base import walker_of
from unnorm.spaces import AbstractSpace, Binary, Categorical


def has_chains(space: AbstractSpace) -> bool:
    """Whether some sampler walks this space.

    >>> from unnorm.spaces import Real
    >>> has_chains(Real((2,))), has_chains(Binary((2,)))
    (True, True)
    """
    return space.continuous or isinstance(space, Binary | Categorical)


def chains_of(space: AbstractSpace) -> AbstractSampler:
    """The sampler whose chains an assessment looks at: Hamiltonian steps on real numbers, sweeps of Gibbs on sites."""
    if space.continuous:
        return HMC()
    if isinstance(space, Binary | Categorical):
        return Gibbs()
    raise InputError(f"no chains walk {space}; {walker_of(space)}")
