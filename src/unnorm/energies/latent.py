"""Energies on a latent code: a learnt prior, and the posterior of a decoder."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Scalar
from unnorm.energies.gaussian import GaussianDensity, standard_gaussian
from unnorm.networks import MLP
from unnorm.networks.autoencoder import AbstractDecoder
from unnorm.parts import AbstractPartlyFixed
from unnorm.spaces import Real


class LatentPrior(AbstractEnergy):
    """p(z) ∝ exp(-tilt(z)) N(z; 0, I): the codes of an autoencoder need not be normal, and the tilt says how not.

    Train it on encoded data, for instance by energy discrepancy (Pang et al. 2020). tilt(z) is the network's
    only output.

    >>> import jax, jax.numpy as jnp
    >>> latent_prior(3, key=jax.random.key(0))(jnp.zeros(3)).shape
    ()
    """

    tilt: Callable[[Array], Array]
    space: Real = eqx.field(static=True)

    def __init__(self, tilt: Callable[[Array], Array], dimension: int):
        self.tilt = tilt
        self.space = Real((dimension,))

    def __call__(self, x: Float[Array, " k"]) -> Scalar:
        return self.tilt(x)[0] + standard_gaussian(x.size)(x)


def latent_prior(dimension: int, *, width: int = 64, depth: int = 2, key: PRNGKeyArray) -> LatentPrior:
    """A tilt by a perceptron with tanh: bounded, so that the density is normalisable whatever the weights."""
    network = MLP(dimension, 1, width=width, depth=depth, activation=jnp.tanh, key=key)
    return LatentPrior(network, dimension)


class LatentPosterior(AbstractEnergy, AbstractPartlyFixed):
    """E(z) = -log p(x | z) - log p(z) at one x: its log Z is log p(x), the evidence.

    >>> import jax.numpy as jnp, unnorm as un
    >>> decoder = un.networks.GaussianDecoder(lambda z: z, 1.0)
    >>> round(float(LatentPosterior(decoder, jnp.zeros(1), standard_gaussian(1))(jnp.zeros(1))), 4)  # log 2 pi
    1.8379
    """

    decoder: AbstractDecoder
    x: Float[Array, "..."]
    prior: AbstractEnergy
    space: Real = eqx.field(static=True)

    def __init__(self, decoder: AbstractDecoder, x: Float[Array, "..."], prior: GaussianDensity | AbstractEnergy):
        self.decoder = decoder
        self.x = x
        self.prior = prior
        assert isinstance(prior.space, Real)
        self.space = prior.space

    def fixed_parts(self) -> tuple[Any, ...]:
        return (self.x,)

    def __call__(self, x: Float[Array, " k"]) -> Scalar:
        return self.prior(x) - self.decoder.log_prob(self.x, x)
