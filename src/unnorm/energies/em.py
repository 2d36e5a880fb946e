"""Gaussians and Gaussian mixtures fitted by maximum likelihood: the baselines every energy must beat.

Expectation-maximisation (Dempster, Laird and Rubin 1977) with full covariances, started from k-means++ seeds, compiled
whole. They double as proposals for log Z, where a fitted mixture is close enough for importance sampling to work.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from unnorm.energies.gaussian import Gaussian, gaussian
from unnorm.energies.mixture import GaussianMixture
from unnorm.errors import require


def fit_gaussian(data: Any, ridge: float = 1e-6) -> Gaussian:
    """The maximum-likelihood Gaussian of n x d points; `ridge` times the mean variance is added to its covariance."""
    data = np.asarray(data, dtype=np.float64)
    require(len(data) >= 2, "a Gaussian needs at least 2 points to be fitted")
    covariance = np.atleast_2d(np.cov(data.T, bias=True))
    covariance = covariance + ridge * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    return gaussian(data.mean(0), covariance)


def moment_gaussian(data: Float[Array, "n d"], widen: float = 1.0, ridge: float = 1e-6) -> Gaussian:
    """The Gaussian with the data's mean and `widen` times its standard deviations, inside compiled code too."""
    offset = data - data.mean(0)
    covariance = widen**2 * offset.T @ offset / len(data)
    covariance = covariance + ridge * jnp.trace(covariance) / len(covariance) * jnp.eye(len(covariance))
    return Gaussian(data.mean(0), _packed(covariance))


def _packed(covariance: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The packed precision factor of a covariance."""
    lower = jnp.linalg.cholesky(jnp.linalg.inv(covariance))
    return jnp.tril(lower, -1) + jnp.diag(jnp.log(jnp.diagonal(lower)))


def _spread_seeds(data: Array, k: int, key: PRNGKeyArray) -> Array:
    """k-means++: each next centre is a data point drawn with probability proportional to its squared distance."""
    first, rest = jax.random.split(key)
    start = data[jax.random.randint(first, (), 0, len(data))]

    def pick(carry, key):
        nearest, latest = carry
        nearest = jnp.minimum(nearest, jnp.sum((data - latest) ** 2, 1))
        chosen = data[jax.random.categorical(key, jnp.log(nearest + 1e-30))]
        return (nearest, chosen), chosen

    _, others = jax.lax.scan(pick, (jnp.full(len(data), jnp.inf), start), jax.random.split(rest, k - 1))
    return jnp.concatenate([start[None], others])


def _mixture(weights: Array, means: Array, covariances: Array) -> GaussianMixture:
    return GaussianMixture(jnp.log(weights), means, jax.vmap(_packed)(covariances))


@eqx.filter_jit
def fit_mixture(
    data: Float[Array, "n d"], k: int, *, steps: int = 100, ridge: float = 1e-3, key: PRNGKeyArray
) -> GaussianMixture:
    """A k-component mixture by EM. `ridge` times the mean variance is added to every covariance.

    >>> import jax
    >>> points = jax.random.normal(jax.random.key(0), (500, 2))
    >>> fit_mixture(points, 3, key=jax.random.key(1)).means.shape
    (3, 2)
    """
    n, d = data.shape
    floor = ridge * jnp.mean(jnp.var(data, 0)) * jnp.eye(d)
    centred = data - data.mean(0)
    start = (
        jnp.full(k, 1.0 / k),
        _spread_seeds(data, k, key),
        jnp.broadcast_to(centred.T @ centred / n / k ** (2 / d) + floor, (k, d, d)),
    )

    def step(parameters, _):
        responsibilities = jax.nn.softmax(jax.vmap(_mixture(*parameters).component_log_probs)(data), axis=1)
        counts = responsibilities.sum(0) + 1e-6
        means = responsibilities.T @ data / counts[:, None]

        def covariance(mean, r, count):
            offset = data - mean
            return (r[:, None] * offset).T @ offset / count + floor

        # One component at a time: k x n x d at once would not be bounded.
        covariances = jax.lax.map(lambda a: covariance(*a), (means, responsibilities.T, counts))
        return (counts / counts.sum(), means, covariances), None

    fitted, _ = jax.lax.scan(step, start, length=steps)
    return _mixture(*fitted)


def best_mixture(
    train: Float[ArrayLike, "n d"],
    valid: Float[ArrayLike, "m d"],
    *,
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16),
    key: PRNGKeyArray,
) -> tuple[GaussianMixture, int]:
    """The mixture, and its number of components, with the highest held-out log-likelihood among `sizes`."""
    train, valid = jnp.asarray(train), jnp.asarray(valid)
    sizes = tuple(k for k in sizes if k * 5 <= len(train)) or (1,)
    candidates = [(fit_mixture(train, k, key=jax.random.fold_in(key, k)), k) for k in sizes]
    scores = [float(jnp.mean(jax.vmap(m.log_prob)(valid))) for m, _ in candidates]
    finite = [s if np.isfinite(s) else -np.inf for s in scores]
    return candidates[int(np.argmax(finite))]


def random_mixture(dimension: int, components: int, *, key: PRNGKeyArray) -> GaussianMixture:
    """A mixture to start learning from: unit covariances, standard normal means, equal weights."""
    means = jax.random.normal(key, (components, dimension))
    return GaussianMixture(jnp.zeros(components), means, jnp.zeros((components, dimension, dimension)))
