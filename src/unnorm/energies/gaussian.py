"""The Gaussian: the one density where everything is known."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractNormalised, Scalar
from unnorm.errors import require
from unnorm.small_matrices import inverse_lower, solve_lower_transposed
from unnorm.spaces import Real


def unpack_factor(raw: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """A lower-triangular matrix with positive diagonal from free numbers (the diagonal is in logs)."""
    return jnp.tril(raw, -1) + jnp.diag(jnp.exp(jnp.diagonal(raw)))


def pack_factor(lower: np.ndarray) -> np.ndarray:
    """The inverse of `unpack_factor`."""
    return np.tril(lower, -1) + np.diag(np.log(np.diagonal(lower)))


def precision_factor(covariance: np.ndarray) -> np.ndarray:
    """Lower-triangular P with P P' = covariance^-1, or a sentence about why there is none."""
    covariance = np.asarray(covariance, dtype=np.float64)
    eigenvalues = np.linalg.eigvalsh(covariance)
    require(
        bool(eigenvalues[0] > 0),
        f"a covariance must be positive definite, but its smallest eigenvalue is {eigenvalues[0]:.3g}",
    )
    return np.linalg.cholesky(np.linalg.inv(covariance))


class GaussianDensity(AbstractNormalised):
    """N(mean, (P P')^-1), parametrised by the lower-triangular factor P of its precision.

    E(x) = |P'(x - mean)|^2 / 2 - log det P + (d/2) log 2 pi. The precision factor makes the energy a
    matrix-vector product, with no solve inside a training loop.

    >>> import jax.numpy as jnp
    >>> round(float(standard_gaussian(1).log_prob(jnp.zeros(1))), 4)
    -0.9189
    """

    mean: Float[Array, " d"]
    factor: Float[Array, "d d"]
    space: Real = eqx.field(static=True)

    def __init__(self, mean: Float[Array, " d"], factor: Float[Array, "d d"]):
        """`factor` is packed: its diagonal holds logarithms. Use `gaussian` to start from a covariance."""
        self.mean = mean
        self.factor = factor
        self.space = Real(tuple(mean.shape))

    def __call__(self, x: Float[Array, " d"]) -> Scalar:
        white = unpack_factor(self.factor).T @ (x - self.mean)
        constant = 0.5 * x.shape[0] * math.log(2 * math.pi) - jnp.trace(self.factor)
        return 0.5 * jnp.sum(white**2) + constant

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " d"]:
        white = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + solve_lower_transposed(unpack_factor(self.factor), white)

    def samples(self, n: int, *, key: PRNGKeyArray) -> Float[Array, "n d"]:
        """n independent draws, along a leading axis: those of `sample`, by one inverse and one product for all."""
        white = jax.vmap(lambda k: jax.random.normal(k, self.mean.shape, self.mean.dtype))(jax.random.split(key, n))
        return self.mean[None] + white @ inverse_lower(unpack_factor(self.factor))

    @property
    def covariance(self) -> Float[Array, "d d"]:
        """(P P')^-1."""
        inverse = inverse_lower(unpack_factor(self.factor))
        return inverse.T @ inverse

    def entropy(self) -> float:
        """(d/2) log(2 pi e) - log det P, exactly."""
        return 0.5 * self.mean.shape[0] * math.log(2 * math.pi * math.e) - float(jnp.trace(self.factor))


def gaussian(mean: object, covariance: object) -> GaussianDensity:
    """The Gaussian with this mean and covariance."""
    mean = np.atleast_1d(np.asarray(mean, dtype=np.float64))
    covariance = np.asarray(covariance, dtype=np.float64)
    require(
        covariance.shape == (mean.size, mean.size),
        f"a mean of {mean.size} numbers needs a {mean.size} x {mean.size} covariance, not {covariance.shape}",
    )
    return GaussianDensity(jnp.asarray(mean, float), jnp.asarray(pack_factor(precision_factor(covariance)), float))


def standard_gaussian(dimension: int, scale: float = 1.0) -> GaussianDensity:
    """N(0, scale^2 I)."""
    require(scale > 0, f"a scale must be positive, not {scale}")
    return GaussianDensity(jnp.zeros(dimension), -math.log(scale) * jnp.eye(dimension))
