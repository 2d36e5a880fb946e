"""A residual network on vectors, the architecture of the experiments of Yu et al. 2025."""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import require
from unnorm.networks.linear import affine


class Block(eqx.Module):
    """h + V activation(W activation(h))."""

    first: eqx.nn.Linear
    second: eqx.nn.Linear
    activation: Callable[[Array], Array]

    def __init__(self, width: int, activation: Callable[[Array], Array], *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.first = eqx.nn.Linear(width, width, key=one)
        self.second = eqx.nn.Linear(width, width, key=two)
        self.activation = activation

    def __call__(self, h: Float[Array, " width"]) -> Float[Array, " width"]:
        return h + affine(self.second, self.activation(affine(self.first, self.activation(h))))


class ResNet(eqx.Module):
    """Linear embedding, residual blocks, linear read-out.

    >>> import jax, jax.numpy as jnp
    >>> ResNet(20, 1, width=16, blocks=2, key=jax.random.key(0))(jnp.zeros(20)).shape
    (1,)
    """

    embed: eqx.nn.Linear
    blocks: tuple[Block, ...]
    read_out: eqx.nn.Linear
    activation: Callable[[Array], Array]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        width: int = 128,
        blocks: int = 4,
        activation: Callable[[Array], Array] = jax.nn.silu,
        key: PRNGKeyArray,
    ):
        require(width >= 1 and blocks >= 1, f"a ResNet needs a positive width and blocks, not {width} and {blocks}")
        keys = jax.random.split(key, blocks + 2)
        self.embed = eqx.nn.Linear(inputs, width, key=keys[0])
        self.blocks = tuple(Block(width, activation, key=k) for k in keys[1:-1])
        self.read_out = eqx.nn.Linear(width, outputs, key=keys[-1])
        self.activation = activation

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        h = affine(self.embed, x)
        for block in self.blocks:
            h = block(h)
        return affine(self.read_out, self.activation(h))
