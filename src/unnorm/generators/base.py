"""The protocol of every generator's step: from noise level t to level s."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_weight
from unnorm.noises.base import Level, Point, Scalar
from unnorm.scores import AbstractLevelledScore

if TYPE_CHECKING:
    # The type checker takes equinox's own for a field.
    from typing import ClassVar as AbstractClassVar
else:
    from equinox import AbstractClassVar


#: Numbers that are worth counting, by name: each is summed over the walk and over all points.
Info = Mapping[str, Float[Array, ""]]
#: The axis along which many points walk, for those that look at one another.
WALKERS = "walkers"


class Walker(NamedTuple):
    """Where one point stands, and what a solver of several steps remembers of the way."""

    x: Point
    memory: Any = None


class AbstractTransition(eqx.Module):
    """One point at level t -> the point at level s, guided by a score over the levels of a noise."""

    #: Whether a step looks at the other points, along an axis of `jax.vmap` called "walkers".
    together: AbstractClassVar[bool]

    @abstractmethod
    def init(self, score: AbstractLevelledScore, t: Level, x: Point) -> Walker:
        """A walker that begins at level t."""

    @abstractmethod
    def step(
        self, score: AbstractLevelledScore, t: Level, s: Level, state: Walker, *, key: PRNGKeyArray
    ) -> tuple[Walker, Info]:
        """One transition, and the same names of counts whatever the point."""

    def position(self, state: Walker) -> Point:
        """Where the walker stands."""
        return state.x


class AbstractOneStep(AbstractTransition):
    """A transition that remembers nothing of its steps, and goes its way alone."""

    together: ClassVar[bool] = False

    @abstractmethod
    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        """The point at level s."""

    def init(self, score: AbstractLevelledScore, t: Level, x: Point) -> Walker:
        return Walker(x)

    def step(
        self, score: AbstractLevelledScore, t: Level, s: Level, state: Walker, *, key: PRNGKeyArray
    ) -> tuple[Walker, Info]:
        x, info = self.move(score, t, s, state.x, key=key)
        return Walker(x), info


class AbstractWhiteStep(AbstractOneStep):
    """A transition of moves x <- mean + spread z with z ~ N(0, temperature I).

    What it says of mean and spread is enough for other noise than fresh noise (`mixed_walks`).
    """

    temperature: eqx.AbstractVar[float]
    #: How many such moves a step makes.
    steps: eqx.AbstractVar[int]

    def __check_init__(self):
        check_temperature(self.temperature)

    @abstractmethod
    def parts(self, score: AbstractLevelledScore, t: Level, s: Level, x: Point) -> tuple[Point, Scalar]:
        """Mean and spread of one move."""

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        def once(x: Point, key: PRNGKeyArray) -> tuple[Point, None]:
            mean, spread = self.parts(score, t, s, x)
            return mean + spread * white(x, self.temperature, key=key), None

        if self.steps == 1:
            return once(x, key)[0], {}
        return jax.lax.scan(once, x, jax.random.split(key, self.steps))[0], {}


class Then(AbstractTransition):
    """One transition after another: predictor-corrector is `Then(predictor, corrector)`.

    Each keeps its own memory of the steps, and goes on from where the other one went.
    """

    first: AbstractTransition
    second: AbstractTransition

    @property
    def together(self) -> bool:
        """Whether either looks at the other points."""
        return self.first.together or self.second.together

    def init(self, score: AbstractLevelledScore, t: Level, x: Point) -> Walker:
        return Walker(x, (self.first.init(score, t, x).memory, self.second.init(score, t, x).memory))

    def step(
        self, score: AbstractLevelledScore, t: Level, s: Level, state: Walker, *, key: PRNGKeyArray
    ) -> tuple[Walker, Info]:
        one, two = jax.random.split(key)
        mine, theirs = state.memory
        first, before = self.first.step(score, t, s, Walker(state.x, mine), key=one)
        second, after = self.second.step(score, t, s, Walker(first.x, theirs), key=two)
        return Walker(second.x, (first.memory, second.memory)), added(before, after)


def white(x: Point, temperature: float, *, key: PRNGKeyArray) -> Point:
    """sqrt(temperature) z, z ~ N(0, I) in the shape of x."""
    return temperature**0.5 * jax.random.normal(key, x.shape, x.dtype)


def check_temperature(temperature: float) -> None:
    """Refuse a temperature below zero."""
    require_weight(temperature, "the temperature of a walk")


def added(one: Info, other: Info) -> Info:
    """Counts of the same name summed.

    >>> found = added({"a": jnp.ones(())}, {"a": jnp.ones(()), "b": jnp.ones(())})
    >>> {name: float(count) for name, count in found.items()}
    {'a': 2.0, 'b': 1.0}
    """
    nothing = jnp.zeros(())
    return {name: one.get(name, nothing) + other.get(name, nothing) for name in {**one, **other}}
