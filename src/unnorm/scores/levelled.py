"""One network for the scores, or the energies, of all noise levels: a network, a noise, and what its answers mean."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Point, Scalar
from unnorm.networks.levelled import Maker, levelled_network, silent_mlp
from unnorm.noises import AbstractGaussianNoise
from unnorm.noises.base import Level
from unnorm.parts import AbstractPartlyFixed, held
from unnorm.scores.base import AbstractLevelledScore, LevelScore, require_condition
from unnorm.scores.preconditioning import AbstractPreconditioning, Reading, Scaled
from unnorm.spaces import AbstractSpace, Real


class AbstractLevelledEnergy(AbstractLevelledScore):
    """An energy at every level of a noise: its score is a gradient, and what needs a density can have one."""

    @abstractmethod
    def energy(self, t: Level, x: Point, condition: Any = None) -> Scalar:
        """E(t, x) of one point."""

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        return -jax.grad(self.energy, argnums=1)(t, x, condition)

    def at(self, t: Level, condition: Any = None) -> "LevelEnergy":
        """The energy of one level, under this condition if there is one."""
        assert isinstance(self.space, Real)
        return LevelEnergy(levelled=self, level=jnp.asarray(t, float), space=self.space, settled=condition)


class AbstractNetworkScore(AbstractLevelledScore, AbstractPartlyFixed):
    """A network called as network(x, level, condition), the noise, and a preconditioning: what it is shown and means.

    Where a process starts without noise, numbers such as alpha / sigma are infinite at t = 0. Levels below the noise's
    `least_level` (1e-5 there, 0 elsewhere) are that level: what is learnt at it is what is said at 0.
    """

    network: eqx.AbstractVar[Callable[[Point, Scalar, Any], Array]]
    preconditioning: eqx.AbstractVar[AbstractPreconditioning]

    def fixed_parts(self) -> tuple[Any, ...]:
        # The noise is given, not learnt, though its scale may be an array; and so is what is made of an answer.
        return (self.noise, self.preconditioning)

    def answered(self, t: Level, x: Point, condition: Any) -> tuple[Reading, Array]:
        """The numbers of this level, or of the least one with noise, and what the network says there."""
        noise = held(self.noise)
        level, least = jnp.asarray(t, x.dtype), noise.least_level().astype(x.dtype)
        # Not `maximum`, which halves the derivative in t where the two are equal.
        level = jnp.where(level < least, least, level)
        reading = held(self.preconditioning).read(noise, level)
        return reading, self.network(x / reading.width, reading.level, condition)


class LevelledScore(AbstractNetworkScore):
    """s(t, x) = -x / own^2 - (ratio / width) F(x / width, t, c), with the numbers of a preconditioning at this level.

    By default that is `Scaled()`: the score of N(0, S^2 I) with the noise of the level, and what the data differ from
    that. With a condition beside the point the network is told it, and the score is that of p_t(x | c).

    >>> import unnorm as un
    >>> score = levelled_score(un.noises.VarianceExploding(0.1, 10.0), 2, key=jax.random.key(0))
    >>> score(1.0, jnp.ones(2)).shape, score.noise.high
    ((2,), 10.0)
    """

    network: Callable[[Point, Scalar, Any], Array]
    noise: AbstractGaussianNoise
    preconditioning: AbstractPreconditioning = Scaled()
    space: AbstractSpace | None = eqx.field(static=True, default=None)
    condition: AbstractSpace | None = eqx.field(static=True, default=None)

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        reading, found = self.answered(t, x, condition)
        return -x / reading.own**2 - (reading.ratio / reading.width) * found.reshape(x.shape)

    def at(self, t: Level, condition: Any = None) -> LevelScore:
        """The score of one level."""
        return LevelScore(score=self, level=t, space=self.space, settled=condition)


class LevelledEnergy(AbstractNetworkScore, AbstractLevelledEnergy):
    """s(t, x) = -grad_x E(t, x),  E(t, x) = |x|^2 / (2 own^2) + ratio f(x / width, t, c), f a number.

    The gradient of the second term is that of `LevelledScore` with F = grad f: a score that is a gradient, with a
    symmetric derivative at every level, and a density at each of them: `at(t)` is its energy. Trained by `DSM` over the
    levels it is the energy diffusion of Yu et al. 2025 (Eq. 2); `objectives.AtLevel` adds what only an energy can
    learn, the weights of far modes.

    Finite at t = 0 under every noise, but steep in the network where sigma is small there: alpha S / sigma is 1,000 at
    the least level of `VariancePreserving()`. Smaller steps, or a level such as 0.01, learn an energy at ease.

    >>> import unnorm as un
    >>> model = levelled_energy(un.noises.VarianceExploding(0.1, 10.0), 2, key=jax.random.key(0))
    >>> model(1.0, jnp.ones(2)).shape, model.at(0.0).space
    ((2,), Real(shape=(2,)))
    """

    network: Callable[[Point, Scalar, Any], Array]
    noise: AbstractGaussianNoise
    space: Real = eqx.field(static=True)
    preconditioning: AbstractPreconditioning = Scaled()
    condition: AbstractSpace | None = eqx.field(static=True, default=None)

    def energy(self, t: Level, x: Point, condition: Any = None) -> Scalar:
        """E(t, x) of one point."""
        reading, found = self.answered(t, x, condition)
        return 0.5 * jnp.sum((x / reading.own) ** 2) + reading.ratio * found.reshape(())


class LevelEnergy(AbstractEnergy, AbstractPartlyFixed):
    """E(x) = E(t, x) at one level t of a levelled energy, whose parameters are its own."""

    levelled: AbstractLevelledEnergy
    level: Scalar
    space: Real = eqx.field(static=True)
    settled: Any = None

    def __check_init__(self):
        require_condition(self.levelled, self.settled)

    def fixed_parts(self) -> tuple[Any, ...]:
        # Level and condition are given, not learnt, though arrays: others compile nothing.
        return (self.level, self.settled)

    def __call__(self, x: Point) -> Scalar:
        return self.levelled.energy(held(self.level), x, held(self.settled))


def levelled_score(
    noise: AbstractGaussianNoise,
    dimension: int,
    *,
    spread: float = 1.0,
    preconditioning: AbstractPreconditioning | None = None,
    condition: AbstractSpace | None = None,
    width: int = 128,
    depth: int = 3,
    octaves: int = 3,
    make: Maker = silent_mlp,
    key: PRNGKeyArray,
) -> LevelledScore:
    """A levelled score of vectors on a network that begins at zero: at first, the score of N(0, spread^2 I).

    A perceptron, or with `make=silent_resnet` a residual network of `depth` blocks; told a condition if its space is
    given. `preconditioning` stands in for `Scaled(spread)`.
    """
    options = {"width": width, "depth": depth, "octaves": octaves, "condition": condition, "make": make}
    network = levelled_network(dimension, dimension, **options, key=key)
    chosen = Scaled(spread) if preconditioning is None else preconditioning
    space = Real((dimension,))
    return LevelledScore(network=network, noise=noise, preconditioning=chosen, space=space, condition=condition)


def levelled_energy(
    noise: AbstractGaussianNoise,
    dimension: int,
    *,
    spread: float = 1.0,
    preconditioning: AbstractPreconditioning | None = None,
    condition: AbstractSpace | None = None,
    width: int = 128,
    depth: int = 3,
    octaves: int = 3,
    make: Maker = silent_mlp,
    key: PRNGKeyArray,
) -> LevelledEnergy:
    """A levelled energy, at first that of N(0, spread^2 I) with the noise of each level; the rest as above."""
    options = {"width": width, "depth": depth, "octaves": octaves, "condition": condition, "make": make}
    network = levelled_network(dimension, 1, **options, key=key)
    chosen = Scaled(spread) if preconditioning is None else preconditioning
    space = Real((dimension,))
    return LevelledEnergy(network=network, noise=noise, preconditioning=chosen, space=space, condition=condition)
