"""The score of one point at one noise level."""

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from unnorm.energies.base import AbstractEnergy, Point, Scalar
from unnorm.errors import InputError, require
from unnorm.noises.base import AbstractGaussianNoise, Level
from unnorm.spaces import AbstractOnRows, AbstractSpace, WithCondition

if TYPE_CHECKING:
    # The type checker takes equinox's own for a field.
    from typing import ClassVar as AbstractClassVar
else:
    from equinox import AbstractClassVar


class AbstractScore(AbstractOnRows):
    """s(t, x), meant to be grad_x log p_t(x); with a condition c beside it, s(t, x, c) = grad_x log p_t(x | c)."""

    # Declared as of the class because subclasses have them as fields or as properties.
    #: The space of x; None where nobody knows it.
    space: AbstractClassVar[AbstractSpace | None]
    #: The space of what is told beside x (a label, an observation); None: nothing is.
    condition: AbstractClassVar[AbstractSpace | None]

    def __check_init__(self):
        require(
            self.condition is None or self.space is not None,
            f"a {type(self).__name__} with a condition says the space of its points too; pass space=spaces.Real(...)",
        )

    @abstractmethod
    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        """The score at level t of one point."""

    @abstractmethod
    def at(self, t: Level, condition: Any = None) -> "AbstractEnergy | AbstractLevelScore":
        """What a sampler walks at level t: the energy there if one is known, otherwise the score of that level."""

    def rows_space(self) -> AbstractSpace | None:
        return self.space if self.condition is None or self.space is None else WithCondition(self.space, self.condition)


class AbstractLevelScore(AbstractScore):
    """The score of one level, which `samplers.Langevin` and `samplers.Ozaki` walk as they walk an energy.

    Level and condition are settled, so that the t of a call plays no part.
    """

    condition: ClassVar[None] = None

    def at(self, t: Level, condition: Any = None) -> "AbstractLevelScore":
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
    settled: Any = None

    def __check_init__(self):
        require_condition(self.score, self.settled)

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        # Level and condition are given, not learnt, though arrays: others compile nothing.
        level, settled = jax.lax.stop_gradient((self.level, self.settled))
        return self.score(level, x, settled)


class AbstractPlainScore(AbstractScore):
    """A score of which nothing is known but its values: no energy, no curvature of its own, no shape of its points."""

    space: ClassVar[None] = None
    condition: ClassVar[None] = None

    def at(self, t: Level, condition: Any = None) -> LevelScore:
        """The score of one level."""
        return LevelScore(score=self, level=t)


class EnergyScore(AbstractScore):
    """s(t, x) = -grad E(x), the same at every level.

    >>> import jax.numpy as jnp, unnorm as un
    >>> EnergyScore(un.energies.standard_gaussian(2))(0.0, jnp.ones(2)).tolist()
    [-1.0, -1.0]
    """

    energy: AbstractEnergy

    @property
    def space(self) -> AbstractSpace:
        return self.energy.space

    condition: ClassVar[None] = None

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        return -jax.grad(self.energy)(x)

    def at(self, t: Level, condition: Any = None) -> AbstractEnergy:
        """The energy, which is the same at every level."""
        return self.energy


class FunctionScore(AbstractScore):
    """Any callable (t, x) -> score; arrays inside it (if it is a pytree) are its parameters.

    With the space of a condition it is called with one: (t, x, c) -> score.

    >>> import jax.numpy as jnp
    >>> from unnorm.spaces import Categorical, Real
    >>> score = FunctionScore(lambda t, x, label: label - x, Real((2,)), Categorical((), 3))
    >>> score(0.0, jnp.ones(2), jnp.asarray(2)).tolist()
    [1.0, 1.0]
    """

    function: Callable[..., Point]
    space: AbstractSpace | None = eqx.field(static=True, default=None)
    condition: AbstractSpace | None = eqx.field(static=True, default=None)

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        return self.function(t, x) if self.condition is None else self.function(t, x, condition)

    def at(self, t: Level, condition: Any = None) -> LevelScore:
        """The score of one level."""
        return LevelScore(score=self, level=t, space=self.space, settled=condition)


class AbstractLevelledScore(AbstractScore):
    """A score over the levels of a noise, which it says: no other noise goes with it."""

    noise: AbstractClassVar[AbstractGaussianNoise]


class LevelledFunction(AbstractLevelledScore):
    """Any callable (t, x) -> score and the noise whose levels are its t; with the space of a condition, (t, x, c).

    >>> import jax.numpy as jnp, unnorm as un
    >>> noise = un.noises.VarianceExploding(0.1, 10.0)
    >>> score = LevelledFunction(lambda t, x: -x / (1 + noise.variance(t)), noise)  # data N(0, I)
    >>> round(float(score(0.0, jnp.ones(1))[0]), 4)
    -0.9901
    """

    function: Callable[..., Point]
    noise: AbstractGaussianNoise
    space: AbstractSpace | None = eqx.field(static=True, default=None)
    condition: AbstractSpace | None = eqx.field(static=True, default=None)

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        return self.function(t, x) if self.condition is None else self.function(t, x, condition)

    def at(self, t: Level, condition: Any = None) -> LevelScore:
        """The score of one level."""
        return LevelScore(score=self, level=t, space=self.space, settled=condition)


class Given(AbstractLevelledScore):
    """x -> s(t, x, c) with the condition c settled: a levelled score that takes none.

    >>> import jax.numpy as jnp, unnorm as un
    >>> from unnorm.spaces import Categorical, Real
    >>> noise = un.noises.VarianceExploding()
    >>> score = LevelledFunction(lambda t, x, label: label - x, noise, Real((2,)), Categorical((), 3))
    >>> Given(score, jnp.asarray(2))(0.0, jnp.ones(2)).tolist()
    [1.0, 1.0]
    """

    score: AbstractLevelledScore
    settled: Any

    def __check_init__(self):
        require_condition(self.score, self.settled)

    @property
    def noise(self) -> AbstractGaussianNoise:
        return self.score.noise

    @property
    def space(self) -> AbstractSpace | None:
        return self.score.space

    condition: ClassVar[None] = None

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        return self.score(t, x, self.settled)

    def at(self, t: Level, condition: Any = None) -> "AbstractEnergy | AbstractLevelScore":
        """The energy or the score of one level, under this condition."""
        return self.score.at(t, self.settled)


def as_score(model: AbstractEnergy | AbstractScore) -> AbstractScore:
    """The score of an energy, or the score itself."""
    if isinstance(model, AbstractScore):
        return model
    if isinstance(model, AbstractEnergy):
        if not model.space.continuous:
            raise InputError(f"a score needs a Real space, and {model.space} has no gradients")
        return EnergyScore(model)
    raise InputError(f"a score is needed, or an energy that has one, not {type(model).__name__}")


def require_condition(score: AbstractScore, condition: Any) -> None:
    """Refuse a condition where the score takes none, none where it takes one, and one of another make."""
    who = type(score).__name__
    if score.condition is None:
        require(condition is None, f"{who} takes no condition; leave it out")
        return
    require(condition is not None, f"{who} takes a condition on {score.condition}; pass condition=")
    require(
        score.condition.accepts(jax.tree.map(jnp.asarray, condition)),
        f"a condition of {who} is a point of {score.condition}, and this one is not; give its shape and kind",
    )
