"""The plain multilayer perceptron."""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import require
from unnorm.networks.linear import affine


class MLP(eqx.Module):
    """h_{i+1} = activation(W_i h_i + b_i), the last layer linear.

    The default activation is SiLU: smooth, so that objectives which differentiate the score are well defined. Several
    inputs count as one, laid end to end; under `vmap` what an input that all have in common contributes to the first
    layer is computed once.

    >>> import jax, jax.numpy as jnp
    >>> MLP(2, 1, width=8, depth=2, key=jax.random.key(0))(jnp.zeros(2)).shape
    (1,)
    >>> MLP(5, 1, width=8, depth=2, key=jax.random.key(0))(jnp.zeros(2), jnp.zeros(3)).shape
    (1,)
    """

    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable[[Array], Array]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        width: int = 128,
        depth: int = 3,
        activation: Callable[[Array], Array] = jax.nn.silu,
        key: PRNGKeyArray,
    ):
        """`depth` hidden layers of `width` units."""
        require(width >= 1 and depth >= 1, f"an MLP needs a positive width and depth, not {width} and {depth}")
        sizes = [inputs, *[width] * depth, outputs]
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True))
        self.activation = activation

    def __call__(self, *inputs: Float[Array, " _"]) -> Float[Array, " outputs"]:
        x = affine(self.layers[0], *inputs)
        for layer in self.layers[1:]:
            x = affine(layer, self.activation(x))
        return x
