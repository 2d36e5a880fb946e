"""Neural energies: a network plus a learnt quadratic that keeps the density normalisable.

With activations of linear growth (SiLU, softplus, ReLU) a bare network's exp(-E) need not have a finite integral, and
then no log Z exists to be estimated. Adding exp(a) |x|^2 / 2 makes it finite for every value of the parameters.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Point, Scalar
from unnorm.errors import InputError, require
from unnorm.networks import MLP, ResNet
from unnorm.spaces import AbstractSpace, Real


class NeuralEnergy(AbstractEnergy):
    """E(x) = (exp(a) |x|^2 / 2 + network(x)) / s^2.

    `scale` s is the length over which the density changes: energies to be learnt are of order 1/s^2, and dividing by it
    keeps the network's own output of order one (see `noises.scales_of`). `a` is learnt.

    >>> import jax, jax.numpy as jnp
    >>> network = MLP(2, 1, width=8, depth=1, key=jax.random.key(0))
    >>> NeuralEnergy(Real((2,)), network)(jnp.zeros(2)).shape
    ()
    """

    network: Callable[[Array], Array]
    log_confinement: Float[Array, ""]
    space: AbstractSpace = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    def __init__(
        self, space: AbstractSpace, network: Callable[[Array], Array], *, scale: float = 1.0, confinement: float = 1.0
    ):
        require(scale > 0, f"the scale of an energy must be positive, not {scale}")
        require(confinement > 0, f"the confinement of an energy must be positive, not {confinement}")
        self.space = space
        self.network = network
        self.scale = float(scale)
        self.log_confinement = jnp.log(jnp.asarray(confinement, float))

    def __call__(self, x: Point) -> Scalar:
        flat = x.reshape(-1)
        quadratic = 0.5 * jnp.exp(self.log_confinement) * jnp.sum(flat**2)
        return (quadratic + self.network(flat)[0]) / self.scale**2


def _vector_size(space: AbstractSpace, what: str) -> int:
    if not isinstance(space, Real):
        raise InputError(f"{what} is an energy on a Real space, not on {space}")
    return space.size


def MLPEnergy(
    space: AbstractSpace, *, width: int = 128, depth: int = 3, scale: float = 1.0, key: PRNGKeyArray
) -> NeuralEnergy:
    """A neural energy on a multilayer perceptron."""
    network = MLP(_vector_size(space, "MLPEnergy"), 1, width=width, depth=depth, key=key)
    return NeuralEnergy(space, network, scale=scale)


def ResNetEnergy(
    space: AbstractSpace, *, width: int = 128, blocks: int = 4, scale: float = 1.0, key: PRNGKeyArray
) -> NeuralEnergy:
    """A neural energy on a residual network (the choice of Yu et al. 2025)."""
    network = ResNet(_vector_size(space, "ResNetEnergy"), 1, width=width, blocks=blocks, key=key)
    return NeuralEnergy(space, network, scale=scale)
