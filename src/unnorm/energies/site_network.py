"""Networks as energies of zeros and ones or of categories."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Point, Scalar
from unnorm.energies.factorised import array_space, values_of
from unnorm.networks import MLP
from unnorm.spaces import AbstractArray, AbstractSpace


def shares_of(x: Point, k: int) -> Float[Array, "sites k"]:
    """Every site as zeros and a one, at its value."""
    if k == 2:
        flat = x.reshape(-1).astype(float)
        return jnp.stack([1 - flat, flat], axis=-1)
    return jax.nn.one_hot(x.reshape(-1).astype(int), k)


class AbstractRelaxed(AbstractEnergy):
    """An energy that is smooth between zeros and ones: its slope guesses what another value of a site would do."""

    @abstractmethod
    def relaxed(self, shares: Float[Array, "sites k"]) -> Scalar:
        """The energy where every site has a share of each value; at zeros and ones it is that of the point."""


class SiteNetwork(AbstractRelaxed):
    """E(x) = network(z)[0], with z the sites as numbers: -1 and 1 for two values, k zeros and ones for k of them.

    >>> import jax
    >>> from unnorm.spaces import Categorical
    >>> energy = mlp_on_sites(Categorical((2, 2), 3), width=8, depth=1, key=jax.random.key(0))
    >>> energy(jnp.zeros((2, 2), int)).shape, energy.network.layers[0].in_features
    ((), 12)
    """

    network: Callable[[Array], Array]
    space: AbstractArray = eqx.field(static=True)

    def __init__(self, space: AbstractSpace, network: Callable[[Array], Array]):
        self.space, self.network = array_space(space), network

    def relaxed(self, shares: Float[Array, "sites k"]) -> Scalar:
        return self.network(_inputs(shares))[0]

    def __call__(self, x: Point) -> Scalar:
        return self.relaxed(shares_of(x, values_of(self.space)))


def _inputs(shares: Float[Array, "sites k"]) -> Float[Array, " inputs"]:
    return shares[:, 1] - shares[:, 0] if shares.shape[1] == 2 else shares.reshape(-1)


def site_inputs(space: AbstractSpace, x: Point) -> Float[Array, " inputs"]:
    """What a network sees of a point: -1 and 1 for two values, k zeros and ones for k of them."""
    return _inputs(shares_of(x, values_of(space)))


def input_size(space: AbstractSpace) -> int:
    """How many numbers a network sees of a point."""
    k = values_of(space)
    return space.size * (1 if k == 2 else k)


def mlp_on_sites(space: AbstractSpace, *, width: int = 128, depth: int = 3, key: PRNGKeyArray) -> SiteNetwork:
    """A multilayer perceptron as an energy of zeros and ones or of categories."""
    return SiteNetwork(space, MLP(input_size(space), 1, width=width, depth=depth, key=key))
