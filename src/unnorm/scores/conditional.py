"""One network for the scores, or the energies, of all noise levels."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Point, Scalar
from unnorm.errors import require
from unnorm.networks import MLP, ResNet
from unnorm.noises import AbstractGaussianNoise
from unnorm.noises.base import Level
from unnorm.parts import AbstractPartlyFixed, held
from unnorm.scores.base import AbstractScore, LevelScore
from unnorm.spaces import AbstractOnRealRows, Real


class AbstractConditional(AbstractScore, AbstractPartlyFixed):
    """What a network is told and what is made of its answer, so that both are of order one at every level.

    Data are taken to lie about the origin with standard deviation `spread` S; the marginal of Gaussian data then has
    the width w, w^2 = alpha^2 S^2 + sigma^2. The network sees x / w, and the level as t and sines and cosines of pi t,
    2 pi t, 4 pi t, ... (the scaling of Karras et al. 2022, for any alpha and sigma).

    Where a process starts without noise, alpha S / sigma is infinite at t = 0. Levels below the noise's `least_level`
    (1e-5 there, 0 elsewhere) are that level: what is learnt at it is what is said at 0.
    """

    network: eqx.AbstractVar[Callable[[Array], Array]]
    noise: eqx.AbstractVar[AbstractGaussianNoise]
    spread: eqx.AbstractVar[float]
    octaves: eqx.AbstractVar[int]

    def __check_init__(self):
        require(self.spread > 0, f"the standard deviation of the data must be positive, not {self.spread}")
        require(self.octaves >= 0, f"the level needs a number of octaves from 0 up, not {self.octaves}")

    def fixed_parts(self) -> tuple[Any, ...]:
        # The noise is given, not learnt, though its scale may be an array.
        return (self.noise,)

    def scaled(self, t: Level, x: Point) -> tuple[Scalar, Scalar, Array]:
        """w, alpha S / sigma and what the network says of x / w at this level, or at the least one with noise."""
        noise = held(self.noise)
        level, least = jnp.asarray(t, x.dtype), noise.least_level().astype(x.dtype)
        # Not `maximum`, which halves the derivative in t where the two are equal.
        level = jnp.where(level < least, least, level)
        alpha, sigma = noise.alpha(level), noise.sigma(level)
        width = jnp.sqrt((alpha * self.spread) ** 2 + sigma**2)
        found = self.network(jnp.concatenate([x.reshape(-1) / width, level_features(level, self.octaves)]))
        return width, alpha * self.spread / sigma, found


class ConditionalScore(AbstractConditional, AbstractOnRealRows):
    """s(t, x) = -x / w^2 - (alpha S / (sigma w)) F(x / w, t),  w^2 = alpha^2 S^2 + sigma^2.

    The first term is the score of data N(0, S^2 I); the network F has only to learn how the data differ from that.

    >>> import unnorm as un
    >>> score = conditional_score(un.noises.VarianceExploding(0.1, 10.0), 2, key=jax.random.key(0))
    >>> score(1.0, jnp.ones(2)).shape
    (2,)
    """

    network: Callable[[Array], Array]
    noise: AbstractGaussianNoise
    spread: float = eqx.field(static=True, default=1.0)
    octaves: int = eqx.field(static=True, default=3)

    def __call__(self, t: Level, x: Point) -> Point:
        width, ratio, found = self.scaled(t, x)
        return -x / width**2 - (ratio / width) * found.reshape(x.shape)

    def at(self, t: Level) -> LevelScore:
        """The score of one level."""
        return LevelScore(score=self, level=t)


class ConditionalEnergy(AbstractConditional):
    """s(t, x) = -grad_x E(t, x),  E(t, x) = |x|^2 / (2 w^2) + (alpha S / sigma) f(x / w, t), f a number.

    The gradient of the second term is that of `ConditionalScore` with F = grad f: a score that is a gradient, with a
    symmetric derivative at every level, and a density at each of them: `at(t)` is its energy. Trained by `DSM` over the
    levels it is the energy diffusion of seed 000 (Eq. 2); `objectives.AtLevel` adds what only an energy can learn, the
    weights of far modes.

    Finite at t = 0 under every noise, but steep in the network where sigma is small there: alpha S / sigma is 1,000 at
    the least level of `VariancePreserving()`. Smaller steps, or a level such as 0.01, learn an energy at ease.

    >>> import unnorm as un
    >>> model = conditional_energy(un.noises.VarianceExploding(0.1, 10.0), 2, key=jax.random.key(0))
    >>> model(1.0, jnp.ones(2)).shape, model.at(0.0).space
    ((2,), Real(shape=(2,)))
    """

    network: Callable[[Array], Array]
    noise: AbstractGaussianNoise
    space: Real = eqx.field(static=True)
    spread: float = eqx.field(static=True, default=1.0)
    octaves: int = eqx.field(static=True, default=3)

    def rows_space(self) -> Real:
        return self.space

    def energy(self, t: Level, x: Point) -> Scalar:
        """E(t, x) of one point."""
        width, ratio, found = self.scaled(t, x)
        return 0.5 * jnp.sum((x / width) ** 2) + ratio * found.reshape(())

    def __call__(self, t: Level, x: Point) -> Point:
        return -jax.grad(self.energy, argnums=1)(t, x)

    def at(self, t: Level) -> "LevelEnergy":
        """The energy of one level."""
        return LevelEnergy(conditional=self, level=jnp.asarray(t, float), space=self.space)


class LevelEnergy(AbstractEnergy, AbstractPartlyFixed):
    """E(x) = E(t, x) at one level t of a `ConditionalEnergy`, whose parameters are its own."""

    conditional: ConditionalEnergy
    level: Scalar
    space: Real = eqx.field(static=True)

    def fixed_parts(self) -> tuple[Any, ...]:
        # The level is given, not learnt, though an array: another one compiles nothing.
        return (self.level,)

    def __call__(self, x: Point) -> Scalar:
        return self.conditional.energy(held(self.level), x)


def level_features(t: Scalar, octaves: int) -> Float[Array, " features"]:
    """t, and sin and cos of 2^k pi t for k below `octaves`.

    >>> level_features(jnp.asarray(0.5), 1).shape
    (3,)
    """
    angles = jnp.pi * t * 2.0 ** jnp.arange(octaves, dtype=float)
    return jnp.concatenate([t[None], jnp.sin(angles), jnp.cos(angles)])


def widened(network: MLP) -> MLP:
    """The network with hidden weights of variance 2 / n (He et al. 2015), sqrt(6) times as wide as a new layer's.

    At a new layer's own width three layers of SiLU leave a function that is all but linear, and training on a density
    with symmetries (rings, four corners) may stay there for thousands of steps.

    >>> network = MLP(300, 1, width=8, depth=1, key=jax.random.key(0))
    >>> bool(abs(jnp.var(widened(network).layers[0].weight) * 300 - 2) < 0.3)
    True
    """
    hidden = range(len(network.layers) - 1)
    return eqx.tree_at(
        lambda net: [net.layers[i].weight for i in hidden], network, replace_fn=lambda weight: 6**0.5 * weight
    )


#: Makes a network of so many inputs and outputs.
Maker = Callable[..., Callable[[Array], Array]]


def silent_mlp(inputs: int, outputs: int, *, width: int = 128, depth: int = 3, key: PRNGKeyArray) -> MLP:
    """A perceptron of widened layers whose last one begins at zero."""
    network = widened(MLP(inputs, outputs, width=width, depth=depth, key=key))
    return eqx.tree_at(lambda net: net.layers[-1], network, _zero(network.layers[-1]))


def silent_resnet(inputs: int, outputs: int, *, width: int = 128, depth: int = 3, key: PRNGKeyArray) -> ResNet:
    """A residual network of `depth` blocks whose read-out begins at zero."""
    network = ResNet(inputs, outputs, width=width, blocks=depth, key=key)
    return eqx.tree_at(lambda net: net.read_out, network, _zero(network.read_out))


def _zero(layer: eqx.nn.Linear) -> eqx.nn.Linear:
    return jax.tree.map(jnp.zeros_like, layer)


def conditional_score(
    noise: AbstractGaussianNoise,
    dimension: int,
    *,
    spread: float = 1.0,
    width: int = 128,
    depth: int = 3,
    octaves: int = 3,
    make: Maker = silent_mlp,
    key: PRNGKeyArray,
) -> ConditionalScore:
    """A conditional score on a network that begins at zero: at first, the score of N(0, spread^2 I).

    A perceptron, or with `make=silent_resnet` a residual network of `depth` blocks.
    """
    network = make(dimension + 1 + 2 * octaves, dimension, width=width, depth=depth, key=key)
    return ConditionalScore(network, noise, spread, octaves)


def conditional_energy(
    noise: AbstractGaussianNoise,
    dimension: int,
    *,
    spread: float = 1.0,
    width: int = 128,
    depth: int = 3,
    octaves: int = 3,
    make: Maker = silent_mlp,
    key: PRNGKeyArray,
) -> ConditionalEnergy:
    """A conditional energy, at first that of N(0, spread^2 I) with the noise of each level; `make` as above."""
    network = make(dimension + 1 + 2 * octaves, 1, width=width, depth=depth, key=key)
    return ConditionalEnergy(network=network, noise=noise, space=Real((dimension,)), spread=spread, octaves=octaves)
