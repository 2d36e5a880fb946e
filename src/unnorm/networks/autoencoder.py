"""Encoders and decoders of latent-variable models: x to z, and z to a law of x."""

import math
from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import require
from unnorm.networks.mlp import MLP
from unnorm.spaces import AbstractOnRealRows

Point = Float[Array, "..."]
Latent = Float[Array, " k"]
Scalar = Float[Array, ""]


class AbstractEncoder(eqx.Module):
    """q(z | x), known at least by its draws."""

    @abstractmethod
    def sample(self, x: Point, *, key: PRNGKeyArray) -> Latent:
        """z ~ q(. | x), differentiable in the encoder's parameters."""


class ImplicitEncoder(AbstractEncoder):
    """z = network(x, eps), eps ~ N(0, I): easy to draw from, with a density nobody knows.

    >>> import jax, jax.numpy as jnp
    >>> implicit_encoder(6, 2, width=8, key=jax.random.key(0)).sample(jnp.zeros(6), key=jax.random.key(1)).shape
    (2,)
    """

    network: Callable[[Array, Array], Array]
    noise: int = eqx.field(static=True)

    def sample(self, x: Point, *, key: PRNGKeyArray) -> Latent:
        flat = x.reshape(-1)
        return self.network(flat, jax.random.normal(key, (self.noise,), flat.dtype))


class GaussianEncoder(AbstractEncoder):
    """q(z | x) = N(mean(x), diag exp(2 log_std(x))), both from one network of 2 k outputs.

    >>> import jax, jax.numpy as jnp
    >>> float(GaussianEncoder(lambda x: jnp.zeros(4)).divergence(jnp.zeros(6)))  # the prior itself
    0.0
    """

    network: Callable[[Array], Array]

    def moments(self, x: Point) -> tuple[Latent, Latent]:
        """The mean and the logarithm of the standard deviations."""
        mean, log_std = jnp.split(self.network(x.reshape(-1)), 2)
        return mean, log_std

    def sample(self, x: Point, *, key: PRNGKeyArray) -> Latent:
        mean, log_std = self.moments(x)
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)

    def divergence(self, x: Point) -> Scalar:
        """KL( q(z | x) || N(0, I) )."""
        mean, log_std = self.moments(x)
        return 0.5 * jnp.sum(mean**2 + jnp.exp(2 * log_std) - 1 - 2 * log_std)


class PointEncoder(AbstractEncoder):
    """z = network(x): no noise, so that only the aggregate of z over the data has a density."""

    network: Callable[[Array], Array]

    def sample(self, x: Point, *, key: PRNGKeyArray) -> Latent:
        return self.network(x.reshape(-1))


class AbstractDecoder(eqx.Module):
    """p(x | z)."""

    @abstractmethod
    def mean(self, z: Latent) -> Float[Array, " d"]:
        """E[x | z], flat."""

    @abstractmethod
    def log_prob(self, x: Point, z: Latent) -> Scalar:
        """log p(x | z)."""


class BernoulliDecoder(AbstractDecoder):
    """Independent pixels in {0, 1} with log-odds network(z)."""

    network: Callable[[Array], Array]

    def mean(self, z: Latent) -> Float[Array, " d"]:
        return jax.nn.sigmoid(self.network(z))

    def log_prob(self, x: Point, z: Latent) -> Scalar:
        logits = self.network(z)
        return jnp.sum(x.reshape(-1) * logits - jax.nn.softplus(logits))


class GaussianDecoder(AbstractDecoder):
    """p(x | z) = N(network(z), sigma^2 I).

    >>> import jax.numpy as jnp
    >>> round(float(GaussianDecoder(lambda z: jnp.zeros(1), 1.0).log_prob(jnp.zeros(1), jnp.zeros(2))), 4)
    -0.9189
    """

    network: Callable[[Array], Array]
    sigma: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        require(self.sigma > 0, f"the standard deviation of a decoder must be positive, not {self.sigma}")

    def mean(self, z: Latent) -> Float[Array, " d"]:
        return self.network(z)

    def log_prob(self, x: Point, z: Latent) -> Scalar:
        offset = (x.reshape(-1) - self.network(z)) / self.sigma
        return -0.5 * jnp.sum(offset**2) - offset.size * (math.log(self.sigma) + 0.5 * math.log(2 * math.pi))


class Autoencoder(AbstractOnRealRows):
    """An encoder and a decoder, trained together."""

    encoder: AbstractEncoder
    decoder: AbstractDecoder


class ScoredAutoencoder(AbstractOnRealRows):
    """An autoencoder beside a network h for the score of the latent code.

    Where the code is drawn for each x, h sees x and z together and stands for grad_z log q(z | x); where only the
    aggregate of z counts, h sees z alone and stands for grad log q(z).
    """

    encoder: AbstractEncoder
    decoder: AbstractDecoder
    score: Callable[..., Array]


def _tanh(inputs: int, outputs: int, width: int, key: PRNGKeyArray) -> MLP:
    return MLP(inputs, outputs, width=width, depth=2, activation=jnp.tanh, key=key)


def implicit_encoder(size: int, latent: int, *, width: int = 256, key: PRNGKeyArray) -> ImplicitEncoder:
    """(size + k)-width-width-k with tanh (Song 2022, Table B.5)."""
    return ImplicitEncoder(_tanh(size + latent, latent, width, key), latent)


def gaussian_autoencoder(size: int, latent: int, *, width: int = 256, key: PRNGKeyArray) -> Autoencoder:
    """A Gaussian encoder and a Bernoulli decoder of two hidden layers each (Song 2022, Table B.5)."""
    one, two = jax.random.split(key)
    encoder = GaussianEncoder(_tanh(size, 2 * latent, width, one))
    return Autoencoder(encoder, BernoulliDecoder(_tanh(latent, size, width, two)))


def implicit_autoencoder(size: int, latent: int, *, width: int = 256, key: PRNGKeyArray) -> ScoredAutoencoder:
    """An implicit encoder, a Bernoulli decoder and h(x, z), of two hidden layers each (Song 2022, Table B.5)."""
    one, two, three = jax.random.split(key, 3)
    decoder = BernoulliDecoder(_tanh(latent, size, width, two))
    score = _tanh(size + latent, latent, width, three)
    return ScoredAutoencoder(implicit_encoder(size, latent, width=width, key=one), decoder, score)


def wasserstein_autoencoder(size: int, latent: int, *, width: int = 256, key: PRNGKeyArray) -> ScoredAutoencoder:
    """A point encoder, a Bernoulli decoder and h(z), of two hidden layers each (Song 2022, Table B.5)."""
    one, two, three = jax.random.split(key, 3)
    decoder = BernoulliDecoder(_tanh(latent, size, width, two))
    return ScoredAutoencoder(
        PointEncoder(_tanh(size, latent, width, one)), decoder, _tanh(latent, latent, width, three)
    )
