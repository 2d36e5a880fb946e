"""The clean point given a noisy one: x~ = x + sigma z, seen from the density q~ of x~ (Tweedie; Meng et al. 2021).

    E[x | x~] = x~ + v s1(x~),   Cov[x | x~] = v I + v^2 s2(x~),   v = sigma^2,

with s1 = grad log q~ and s2 its derivative. Whoever takes noise off a point by a score does it by these formulas.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import Point, Scalar
from unnorm.errors import require
from unnorm.scores.base import AbstractScore
from unnorm.scores.second_order import AbstractSecondOrder
from unnorm.small_matrices import symmetric_eigen


def posterior_mean(noisy: Point, slope: Point, variance: Scalar | float) -> Point:
    """E[x | x~] = x~ + v s1(x~), of the score at x~.

    >>> posterior_mean(jnp.ones(2), -jnp.ones(2) / 2, 1.0).tolist()
    [0.5, 0.5]
    """
    return noisy + variance * slope


def slope_of_mean(noisy: Point, mean: Point, variance: Scalar | float) -> Point:
    """s1(x~) = (E[x | x~] - x~) / v: the score that a denoiser's mean stands for.

    >>> slope_of_mean(jnp.ones(2), jnp.ones(2) / 2, 1.0).tolist()
    [-0.5, -0.5]
    """
    return (mean - noisy) / variance


def posterior_covariance(unit: Any, curved: Any, variance: Scalar | float) -> Any:
    """v u + v^2 s2 u, of any u and s2 u: a vector and its product, the diagonals, the whole matrices.

    >>> posterior_covariance(jnp.eye(2), -jnp.eye(2) / 2, 1.0).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    return variance * (unit + variance * curved)


def posterior_deviate(
    curvature: Float[Array, "d d"],
    variance: Scalar | float,
    noisy: Point,
    *,
    floor: float,
    key: PRNGKeyArray,
) -> tuple[Point, Scalar]:
    """A draw of N(0, v I + v^2 s2), symmetrised, and how many of its eigenvalues were raised to `floor` v.

    A learnt s2 can have a covariance that is none.

    >>> _, raised = posterior_deviate(-2 * jnp.eye(2), 1.0, jnp.zeros(2), floor=0.0, key=jax.random.key(0))
    >>> float(raised)
    2.0
    """
    unit = jnp.eye(noisy.size, dtype=noisy.dtype)
    values, vectors = symmetric_eigen(unit + 0.5 * variance * (curvature + curvature.T))
    low = values < floor
    scales = jnp.sqrt(variance * jnp.where(low, floor, values))
    white = jax.random.normal(key, (noisy.size,), noisy.dtype)
    return (vectors @ (scales * white)).reshape(noisy.shape), jnp.sum(low).astype(float)


class DenoisingPosterior(eqx.Module):
    """The clean point x given x~ = x + sigma z: its mean, its covariance, and the Gaussian that has both.

    Mean (Tweedie; Song 2022, Eq. 4.4): x~ + sigma^2 s1. Covariance (Eq. 4.18): sigma^2 I + sigma^4 s2.
    Exact for the exact scores of the noisy density; the Gaussian is exact for Gaussian data.

    >>> import jax.numpy as jnp, unnorm as un
    >>> noisy = un.energies.standard_gaussian(2, scale=2**0.5)  # data N(0, I) with noise of sigma = 1
    >>> posterior = DenoisingPosterior(un.scores.FromScore(noisy), 1.0)
    >>> [round(float(number), 4) for number in posterior.mean(jnp.ones(2))]
    [0.5, 0.5]
    >>> [round(float(number), 4) for number in posterior.variances(jnp.ones(2))]
    [0.5, 0.5]
    """

    score: AbstractSecondOrder
    sigma: float = eqx.field(static=True)

    def __check_init__(self):
        require(self.sigma > 0, f"the noise that is taken away must have a positive sigma, not {self.sigma}")

    def mean(self, noisy: Point) -> Point:
        """E[x | x~]."""
        return posterior_mean(noisy, self.score(jnp.zeros(()), noisy), self.sigma**2)

    def variances(self, noisy: Point) -> Point:
        """The diagonal of Cov[x | x~], in the shape of x~."""
        return posterior_covariance(jnp.ones_like(noisy), self.score.diagonal(noisy), self.sigma**2)

    def apply(self, noisy: Point, v: Point) -> Point:
        """Cov[x | x~] v."""
        return posterior_covariance(v, self.score.apply(noisy, v), self.sigma**2)

    def covariance(self, noisy: Point) -> Float[Array, "d d"]:
        """Cov[x | x~], D x D: for small D only."""
        return posterior_covariance(jnp.eye(noisy.size), self.score.matrix(noisy), self.sigma**2)

    def sample(self, noisy: Point, *, key: PRNGKeyArray) -> tuple[Point, Float[Array, ""]]:
        """A draw from the Gaussian of this mean and covariance, and how many eigenvalues were negative.

        A learnt s2 can have a covariance that is none; its negative eigenvalues are taken as 0 and counted.
        """
        curvature = self.score.matrix(noisy)
        step, negative = posterior_deviate(curvature, self.sigma**2, noisy, floor=0.0, key=key)
        return self.mean(noisy) + step, negative


def posterior_moment(score: AbstractScore, sigma: float | Scalar, noisy: Float[Array, " d"], order: int) -> Array:
    """E[x (x) ... (x) x | x~], `order` factors, a polynomial of s1 and its derivatives (Song 2022, Thm 4.3, Lemma A.6).

    M_{n+1} = sigma^2 dM_n / dx~ + M_n (x) (x~ + sigma^2 s1), M_0 = 1: only the score of the noisy density is needed.
    The result has D^order numbers.

    >>> import jax.numpy as jnp, unnorm as un
    >>> noisy = un.scores.EnergyScore(un.energies.standard_gaussian(1, scale=2**0.5))
    >>> [round(float(posterior_moment(noisy, 1.0, jnp.ones(1), n).sum()), 4) for n in (1, 2, 3)]
    [0.5, 0.75, 0.875]
    """
    require(order >= 1, f"the order of a moment must be at least 1, not {order}")

    def mean(y):
        return posterior_mean(y, score(jnp.zeros(()), y), sigma**2)

    def raise_order(moment):
        return lambda y: sigma**2 * jax.jacfwd(moment)(y) + jnp.tensordot(moment(y), mean(y), axes=0)

    moment = mean
    for _ in range(order - 1):
        moment = raise_order(moment)
    return moment(noisy)
