"""A density that is already good, and a network that says where it is wrong.

E(x) = -log q0(x) + network(x). The reference q0 is fitted first, by maximum likelihood, and does not move; the network
starts at zero, so that learning begins from q0 and not from nothing. Exponential tilting is an old idea (Esscher 1932);
noise-contrastive estimation against q0 itself makes it a classification whose log-odds are the network's output.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, AbstractNormalised, Point, Scalar
from unnorm.energies.site_network import input_size, site_inputs
from unnorm.errors import InputError
from unnorm.networks import MLP
from unnorm.parts import AbstractPartlyFixed, held
from unnorm.spaces import AbstractArray


class Tilted(AbstractEnergy, AbstractPartlyFixed):
    """E(x) = -log q0(x) + network(x): p is q0 tilted by exp(-network).

    The parameters of q0 are fixed under any objective and optimiser. A network of linear growth cannot undo the tails
    of a Gaussian or a mixture of them, so Z is finite. Of zeros and ones and of categories a network sees what
    `energies.SiteNetwork` does.

    >>> import jax, jax.numpy as jnp, unnorm as un
    >>> model = tilt(un.energies.standard_gaussian(2), key=jax.random.key(0))
    >>> float(model(jnp.ones(2)) - model.reference(jnp.ones(2)))
    0.0
    """

    reference: AbstractNormalised
    network: Callable[[Array], Array]
    space: AbstractArray = eqx.field(static=True)

    def __init__(self, reference: AbstractNormalised, network: Callable[[Array], Array]):
        if not isinstance(reference.space, AbstractArray):
            raise InputError(
                f"a tilted reference lives on arrays of numbers or of categories, not on {reference.space}"
            )
        self.reference = reference
        self.network = network
        self.space = reference.space

    def fixed_parts(self) -> tuple[Any, ...]:
        return (self.reference,)

    def tilt(self, x: Point) -> Scalar:
        """What the network adds to -log q0(x)."""
        return self.network(x.reshape(-1) if self.space.continuous else site_inputs(self.space, x))[0]

    def __call__(self, x: Point) -> Scalar:
        return held(self.reference)(x) + self.tilt(x)


def silenced(network: MLP) -> MLP:
    """The network with its last layer at zero: it says nothing until it has learnt something."""
    last = jax.tree.map(jnp.zeros_like, network.layers[-1])
    return eqx.tree_at(lambda n: n.layers[-1], network, last)


def tilt(reference: AbstractNormalised, *, width: int = 128, depth: int = 3, key: PRNGKeyArray) -> Tilted:
    """A reference tilted by a multilayer perceptron that starts at zero."""
    space = reference.space
    inputs = space.size if space.continuous else input_size(space)
    return Tilted(reference, silenced(MLP(inputs, 1, width=width, depth=depth, key=key)))
