"""Networks of a point, a noise level and a condition, for points that are vectors."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from unnorm.errors import InputError
from unnorm.networks.mlp import MLP
from unnorm.networks.resnet import ResNet
from unnorm.spaces import AbstractSpace, Categorical, Mixed

Scalar = Float[Array, ""]
#: Makes a network of so many inputs and outputs.
Maker = Callable[..., Callable[[Array], Array]]


def level_features(t: Scalar, octaves: int) -> Float[Array, " features"]:
    """t, and sin and cos of 2^k pi t for k below `octaves`.

    >>> level_features(jnp.asarray(0.5), 1).shape
    (3,)
    """
    angles = jnp.pi * t * 2.0 ** jnp.arange(octaves, dtype=float)
    return jnp.concatenate([t[None], jnp.sin(angles), jnp.cos(angles)])


def condition_features(space: AbstractSpace, condition: Any) -> Float[Array, " features"]:
    """Numbers that say the condition: labels by ones at their place, all else as it is, laid end to end.

    The label one past the last is "no label", and all its numbers are zero.

    >>> from unnorm.spaces import Categorical, Real
    >>> condition_features(Categorical((), 3), jnp.asarray(1)).tolist()
    [0.0, 1.0, 0.0]
    >>> condition_features(Categorical((), 3), jnp.asarray(3)).tolist()
    [0.0, 0.0, 0.0]
    """
    if isinstance(space, Mixed):
        return jnp.concatenate([condition_features(*pair) for pair in zip(space.parts, condition, strict=True)])
    if isinstance(space, Categorical):
        return jax.nn.one_hot(condition, space.categories).reshape(-1)
    if isinstance(space.struct(), jax.ShapeDtypeStruct):
        return jnp.asarray(condition, float).reshape(-1)
    raise InputError(f"a network on vectors is not told points of {space}; give labels or arrays of numbers")


class LevelledNetwork(eqx.Module):
    """f(x, level, c): a network of one vector, which is x, features of the level and those of the condition end to end.

    `condition` is the space of c; None: there is none.

    >>> network = LevelledNetwork(MLP(2 + 7, 2, width=8, depth=1, key=jax.random.key(0)))
    >>> network(jnp.zeros(2), jnp.asarray(0.5)).shape
    (2,)
    """

    network: Callable[[Array], Array]
    octaves: int = eqx.field(static=True, default=3)
    condition: AbstractSpace | None = eqx.field(static=True, default=None)

    def __call__(self, x: Shaped[Array, "..."], level: Scalar, condition: Any = None) -> Float[Array, " outputs"]:
        told = [x.reshape(-1), level_features(level, self.octaves)]
        if self.condition is not None:
            if condition is None:
                raise InputError(f"this network is told a condition on {self.condition}; pass one")
            told.append(condition_features(self.condition, condition).astype(x.dtype))
        return self.network(jnp.concatenate(told))


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


def levelled_network(
    inputs: int,
    outputs: int,
    *,
    width: int = 128,
    depth: int = 3,
    octaves: int = 3,
    condition: AbstractSpace | None = None,
    make: Maker = silent_mlp,
    key: PRNGKeyArray,
) -> LevelledNetwork:
    """A network of `inputs` numbers, a level and a condition that begins at zero.

    A perceptron, or with `make=silent_resnet` a residual network of `depth` blocks.

    >>> from unnorm.spaces import Categorical
    >>> network = levelled_network(2, 2, width=8, depth=1, condition=Categorical((), 3), key=jax.random.key(0))
    >>> network(jnp.zeros(2), jnp.asarray(0.5), jnp.asarray(1)).tolist()
    [0.0, 0.0]
    """
    features = 1 + 2 * octaves
    if condition is not None:
        features += condition_features(condition, _first(condition)).size
    return LevelledNetwork(make(inputs + features, outputs, width=width, depth=depth, key=key), octaves, condition)


def _first(space: AbstractSpace) -> Any:
    """Some point, for the number of its features."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), space.struct())
