"""One network for the scores of all noise levels."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import Point, Scalar
from unnorm.errors import require
from unnorm.networks import MLP
from unnorm.noises import AbstractGaussianNoise
from unnorm.noises.base import Level
from unnorm.scores.base import AbstractScore


class ConditionalScore(AbstractScore):
    """s(t, x) = -x / w^2 - (alpha S / (sigma w)) F(x / w, t),  w^2 = alpha^2 S^2 + sigma^2.

    The first term is the score of data N(0, S^2 I); the network F has only to learn how the data differ from that. Its
    inputs are of order one at every level, and so is what it should say under `objectives.DSM` (the scaling of Karras
    et al. 2022, for any alpha and sigma). The level enters as t and sines and cosines of pi t, 2 pi t, 4 pi t, ...
    Data are taken to lie about the origin with standard deviation `spread` S.

    >>> import unnorm as un
    >>> score = conditional_mlp(un.noises.VarianceExploding(0.1, 10.0), 2, key=jax.random.key(0))
    >>> score(1.0, jnp.ones(2)).shape
    (2,)
    """

    network: Callable[[Array], Array]
    noise: AbstractGaussianNoise
    spread: float = eqx.field(static=True, default=1.0)
    octaves: int = eqx.field(static=True, default=3)

    def __check_init__(self):
        require(self.spread > 0, f"the standard deviation of the data must be positive, not {self.spread}")
        require(self.octaves >= 0, f"the level needs a number of octaves from 0 up, not {self.octaves}")

    def __call__(self, t: Level, x: Point) -> Point:
        level = jnp.asarray(t, x.dtype)
        alpha, sigma = self.noise.alpha(level), self.noise.sigma(level)
        width = jnp.sqrt((alpha * self.spread) ** 2 + sigma**2)
        found = self.network(jnp.concatenate([x.reshape(-1) / width, level_features(level, self.octaves)]))
        return -x / width**2 - (alpha * self.spread / (sigma * width)) * found.reshape(x.shape)


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


def conditional_mlp(
    noise: AbstractGaussianNoise,
    dimension: int,
    *,
    spread: float = 1.0,
    width: int = 128,
    depth: int = 3,
    octaves: int = 3,
    key: PRNGKeyArray,
) -> ConditionalScore:
    """A conditional score on a perceptron whose last layer begins at zero: at first, the score of N(0, spread^2 I)."""
    network = widened(MLP(dimension + 1 + 2 * octaves, dimension, width=width, depth=depth, key=key))
    last = network.layers[-1]
    zeros = jax.tree.map(jnp.zeros_like, (last.weight, last.bias))
    network = eqx.tree_at(lambda net: (net.layers[-1].weight, net.layers[-1].bias), network, zeros)
    return ConditionalScore(network, noise, spread, octaves)
