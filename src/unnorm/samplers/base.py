"""The protocol of every sampler: draws from one fixed target."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Point
from unnorm.errors import InputError
from unnorm.scores import AbstractScore

State = Any


class Info(NamedTuple):
    """What one step tells: the probability of acceptance, and whether the trajectory left the target for good.

    `clipped` counts the variances that a step had to raise to a floor (denoising Gibbs with a learnt score).
    """

    acceptance: Float[Array, ""]
    divergent: Bool[Array, ""]
    clipped: Float[Array, ""] | float = 0.0


class AbstractSampler(eqx.Module):
    """A Markov chain on one point that leaves exp(-E) (nearly) invariant.

    The target is an argument of every call, because it moves during training.
    """

    @abstractmethod
    def init(self, target: AbstractEnergy, x: Point) -> State:
        """The state of a chain that stands at x."""

    @abstractmethod
    def step(self, target: AbstractEnergy, state: State, *, key: PRNGKeyArray) -> tuple[State, Info]:
        """One transition."""

    @abstractmethod
    def position(self, state: State) -> Point:
        """Where the chain stands."""

    @abstractmethod
    def check(self, target: AbstractEnergy | AbstractScore) -> None:
        """Refuse, in one sentence, a target whose space this sampler cannot walk."""


class AbstractOutspoken(eqx.Module):
    """A part of a sampler that knows what an acceptance of its own kind means for the draws."""

    @abstractmethod
    def remarks(self, acceptance: float) -> tuple[str, ...]:
        """What is wrong with a run of this mean acceptance, in sentences; empty if nothing is."""


class AbstractGradientSampler(AbstractSampler):
    """A sampler that follows grad E, and so needs a Real space."""

    def check(self, target: AbstractEnergy | AbstractScore) -> None:
        if isinstance(target, AbstractScore):
            raise InputError(f"{type(self).__name__} needs an energy, not a score; use samplers.DenoisingGibbs there")
        if not target.space.continuous:
            raise InputError(
                f"{type(self).__name__} follows gradients, and {target.space} has none; use samplers.Gibbs there"
            )


class AbstractAdaptiveSampler(AbstractGradientSampler):
    """A sampler that tunes its own step during warm-up, and runs as it was made without one."""

    @abstractmethod
    def warm_up(
        self, target: AbstractEnergy, x: Point, *, steps: int, key: PRNGKeyArray
    ) -> tuple["AbstractAdaptiveSampler", Point]:
        """The tuned sampler of one chain, and where its warm-up ended."""
