"""The protocol of every sampler: draws from one fixed target."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Point
from unnorm.errors import InputError
from unnorm.scores import AbstractLevelScore, AbstractScore
from unnorm.spaces import AbstractSpace, Binary, Categorical

State = Any
Target = AbstractEnergy | AbstractScore


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
    def check(self, target: Target) -> None:
        """Refuse, in one sentence, a target whose space this sampler cannot walk."""


class AbstractAcceptanceRemarks(eqx.Module):
    """A part of a sampler that knows what an acceptance of its own kind means for the draws."""

    @abstractmethod
    def remarks(self, acceptance: float) -> tuple[str, ...]:
        """What is wrong with a run of this mean acceptance, in sentences; empty if nothing is."""


def walker_of(space: AbstractSpace) -> str:
    """Which sampler walks this space, for the end of a sentence.

    >>> from unnorm.spaces import Categorical, Real
    >>> walker_of(Real((2,))), walker_of(Binary((2,))), walker_of(Categorical((2,), 3))
    ('use samplers.NUTS there', 'use samplers.Gibbs there', 'use samplers.Gibbs there')
    """
    if space.continuous:
        return "use samplers.NUTS there"
    return "use samplers.Gibbs there" if isinstance(space, Binary | Categorical) else "no sampler walks that space yet"


def require_gradients(space: AbstractSpace | None, who: str) -> None:
    """Refuse a space without gradients, by naming a sampler that works there; one that nobody knows may have some."""
    if space is not None and not space.continuous:
        raise InputError(f"{who} follows gradients, and {space} has none; {walker_of(space)}")


def require_energy(target: Target, who: str) -> AbstractEnergy:
    """The target, refused if it is a score."""
    if isinstance(target, AbstractScore):
        raise InputError(
            f"{who} needs an energy, not a score; use samplers.Langevin with score.at(t), or samplers.DenoisingGibbs"
        )
    return target


class AbstractGradientSampler(AbstractSampler):
    """A sampler that follows grad E and weighs by E: it needs an energy on a Real space."""

    def check(self, target: Target) -> None:
        require_gradients(require_energy(target, type(self).__name__).space, type(self).__name__)


class AbstractScoreSampler(AbstractSampler):
    """A sampler that follows the score alone: it walks an energy on a Real space, or a score at one level."""

    def check(self, target: Target) -> None:
        who = type(self).__name__
        if not isinstance(target, AbstractEnergy | AbstractLevelScore):
            raise InputError(f"{who} walks a score at one level, and this one has many; pass score.at(t)")
        require_gradients(target.space, who)


class AbstractAdaptiveSampler(AbstractSampler):
    """A sampler that tunes its own step during warm-up, and runs as it was made without one."""

    @abstractmethod
    def warm_up(
        self, target: AbstractEnergy, x: Point, *, steps: int, key: PRNGKeyArray
    ) -> tuple["AbstractAdaptiveSampler", Point]:
        """The tuned sampler of one chain, and where its warm-up ended."""
