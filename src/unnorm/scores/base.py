"""The score of one point at one noise level."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from unnorm.energies.base import AbstractEnergy, Point, Scalar
from unnorm.errors import InputError
from unnorm.noises.base import Level
from unnorm.spaces import AbstractOnRealRows, AbstractOnRows, AbstractSpace


class AbstractScore(AbstractOnRows):
    """s(t, x), meant to be grad_x log p_t(x)."""

    @abstractmethod
    def __call__(self, t: Level, x: Point) -> Point:
        """The score at level t of one point."""

    @abstractmethod
    def at(self, t: Level) -> "AbstractEnergy | AbstractLevelScore":
        """What a sampler walks at level t: the energy there if one is known, otherwise the score of that level."""


class AbstractLevelScore(AbstractScore):
    """The score of one level, which `samplers.Langevin` and `samplers.Ozaki` walk as they walk an energy.

    The level is settled, so that the t of a call plays no part. The space is None where nobody knows it.
    """

    space: eqx.AbstractVar[AbstractSpace | None]

    def rows_space(self) -> AbstractSpace | None:
        return self.space

    def at(self, t: Level) -> "AbstractLevelScore":
        """Itself: its level is settled."""
        return self


class LevelScore(AbstractLevelScore):
    """x -> s(level, x): what `at(level)` of a score returns.

    With its space it can be walked without `start=`.

    >>> import jax.numpy as jnp, unnorm as un
    >>> score = FunctionScore(lambda t, x: -x / (1 + t))
    >>> score.at(1.0)(0.0, jnp.ones(2)).tolist()
    [-0.5, -0.5]
    >>> LevelScore(score=score, level=1.0, space=un.spaces.Real((2,))).space.size
    2
    """

    score: AbstractScore
    level: Scalar = eqx.field(converter=lambda t: jnp.asarray(t, float))
    space: AbstractSpace | None = eqx.field(static=True, default=None)

    def __call__(self, t: Level, x: Point) -> Point:
        # The level is given, not learnt, though an array: another one compiles nothing.
        return self.score(jax.lax.stop_gradient(self.level), x)


class AbstractPlainScore(AbstractScore, AbstractOnRealRows):
    """A score of which nothing is known but its values: no energy, no curvature of its own, no shape of its points."""

    def at(self, t: Level) -> LevelScore:
        """The score of one level."""
        return LevelScore(score=self, level=t)


class EnergyScore(AbstractScore):
    """s(t, x) = -grad E(x), the same at every level.

    >>> import jax.numpy as jnp, unnorm as un
    >>> EnergyScore(un.energies.standard_gaussian(2))(0.0, jnp.ones(2)).tolist()
    [-1.0, -1.0]
    """

    energy: AbstractEnergy

    def rows_space(self) -> AbstractSpace:
        return self.energy.space

    def __call__(self, t: Level, x: Point) -> Point:
        return -jax.grad(self.energy)(x)

    def at(self, t: Level) -> AbstractEnergy:
        """The energy, which is the same at every level."""
        return self.energy


class FunctionScore(AbstractPlainScore):
    """Any callable (t, x) -> score; arrays inside it (if it is a pytree) are its parameters."""

    function: Callable[[Level, Point], Point]

    def __call__(self, t: Level, x: Point) -> Point:
        return self.function(t, x)


def as_score(model: AbstractEnergy | AbstractScore) -> AbstractScore:
    """The score of an energy, or the score itself."""
    if isinstance(model, AbstractScore):
        return model
    if isinstance(model, AbstractEnergy):
        if not model.space.continuous:
            raise InputError(f"a score needs a Real space, and {model.space} has no gradients")
        return EnergyScore(model)
    raise InputError(f"a score is needed, or an energy that has one, not {type(model).__name__}")
