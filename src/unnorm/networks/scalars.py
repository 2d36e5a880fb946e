"""Networks whose answer is one number, made of networks whose answer is as large as the point: energies.

Each is a network(x, level, condition) again, of `scores.LevelledEnergy` for instance, whose score is the gradient.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

Scalar = Float[Array, ""]
Network = Callable[[Array, Scalar, Any], Array]


class SumOfOutputs(eqx.Module):
    """f(x, level, c) = sum_i F_i(x, level, c).

    >>> float(SumOfOutputs(lambda x, level, condition: 2 * x)(jnp.ones(3), jnp.zeros(())))
    6.0
    """

    network: Network

    def __call__(self, x: Shaped[Array, "..."], level: Scalar, condition: Any = None) -> Scalar:
        return jnp.sum(self.network(x, level, condition))


class InnerProduct(eqx.Module):
    """f(x, level, c) = <x, F(x, level, c)>, whose gradient is F + (dF/dx)' x: a network of scores made one of energies.

    Where F is linear in x, as that of Gaussian data, its gradient is twice the symmetric part of F (Salimans and Ho
    2021 compare it with other forms).

    >>> float(InnerProduct(lambda x, level, condition: 2 * x)(jnp.ones(3), jnp.zeros(())))
    6.0
    """

    network: Network

    def __call__(self, x: Shaped[Array, "..."], level: Scalar, condition: Any = None) -> Scalar:
        return jnp.sum(x * self.network(x, level, condition))


class OneLevel(eqx.Module):
    """A network(x, level, condition) as one of a vector alone, at one level: what `energies.NeuralEnergy` is made of.

    Of an answer that is one number or a picture of them it makes a vector.

    >>> network = OneLevel(SumOfOutputs(lambda x, level, condition: x**2), (2, 2, 1))
    >>> network(jnp.ones(4)).tolist()
    [4.0]
    """

    network: Network
    shape: tuple[int, ...] = eqx.field(static=True)
    level: float = eqx.field(static=True)

    def __init__(self, network: Network, shape: Sequence[int], level: float = 0.0):
        self.network, self.shape, self.level = network, tuple(int(n) for n in shape), level

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, " outputs"]:
        found = self.network(x.reshape(self.shape), jnp.asarray(self.level, x.dtype), None)
        return jnp.reshape(found, -1)
