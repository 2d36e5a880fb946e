"""Dropout in networks of one point: who trains gives the key, and without one nothing is dropped."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from unnorm.errors import require
from unnorm.parts import AbstractPartlyFixed

Network = TypeVar("Network")


class Dropout(AbstractPartlyFixed):
    """Each number is 0 with probability `rate`, else divided by 1 - rate (Srivastava et al. 2014); as it is without a key.

    A network of one point is mapped over many with one key, so what is dropped follows from the key and the numbers
    themselves: points with other numbers lose others.

    >>> Dropout(0.5)(jnp.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    key: Shaped[Array, "..."] | None
    rate: float = eqx.field(static=True)

    def __init__(self, rate: float, key: PRNGKeyArray | None = None):
        require(0 <= rate < 1, f"the share that is dropped lies in [0, 1), not {rate}")
        self.rate, self.key = rate, key

    def fixed_parts(self) -> tuple[Any, ...]:
        return (self.key,)

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        if self.key is None or self.rate == 0:
            return x
        seen = jax.lax.stop_gradient(jnp.sum(x)).astype(jnp.float32)
        key = jax.random.fold_in(self.key, jax.lax.bitcast_convert_type(seen, jnp.uint32))
        kept = jax.random.bernoulli(key, 1 - self.rate, x.shape)
        return jnp.where(kept, x / (1 - self.rate), jnp.zeros((), x.dtype))


def dropping(network: Network, *, key: PRNGKeyArray) -> Network:
    """The same network, or model, with a key for every `Dropout` in it.

    >>> bool((dropping(Dropout(0.5), key=jax.random.key(0))(jnp.ones(100)) == 0).any())
    True
    """

    def is_layer(node: Any) -> bool:
        return isinstance(node, Dropout)

    leaves, structure = jax.tree.flatten(network, is_leaf=is_layer)
    keyed = [
        Dropout(leaf.rate, jax.random.fold_in(key, i)) if isinstance(leaf, Dropout) else leaf
        for i, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, keyed)
