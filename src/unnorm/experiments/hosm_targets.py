"""The targets of Table 4.1: a normal whose precision has equal rank-one pieces, and a mixture of logistics.

The normal has correlated pairs of coordinates. With a correlation c each pair gives the precision one rank-one piece
off its diagonal, of squared norm 2 (c / (1 - c^2))^2: 0.352 for 0.364, which is what the printed errors tell.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

CORRELATION = 0.364


def correlated_pairs(dimension: int, pairs: int) -> Float[np.ndarray, "d d"]:
    """The identity with the first 2 * pairs coordinates correlated two by two."""
    covariance = np.eye(dimension)
    for i in range(pairs):
        covariance[2 * i, 2 * i + 1] = covariance[2 * i + 1, 2 * i] = CORRELATION
    return covariance


class LogisticMixture(eqx.Module):
    """Equally likely products of logistic densities; its scores are exact."""

    means: Float[Array, "k d"]
    scales: Float[Array, "k d"]

    def log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        u = (x - self.means) / self.scales
        log_components = jnp.sum(-u - 2 * jax.nn.softplus(-u) - jnp.log(self.scales), axis=1)
        return jax.nn.logsumexp(log_components) - jnp.log(len(self.means))

    def samples(self, n: int, *, key: PRNGKeyArray) -> Float[Array, "n d"]:
        which, noise = jax.random.split(key)
        k = jax.random.randint(which, (n,), 0, len(self.means))
        return self.means[k] + self.scales[k] * jax.random.logistic(noise, (n, self.means.shape[1]))


def logistic_mixture(dimension: int, components: int) -> LogisticMixture:
    """Means uniform on [-2, 2], scales uniform on [0.5, 1]."""
    generator = np.random.default_rng(80)
    shape = (components, dimension)
    return LogisticMixture(jnp.asarray(generator.uniform(-2, 2, shape)), jnp.asarray(generator.uniform(0.5, 1, shape)))


def best_of_rank(rank: int, pairs: int) -> float:
    """What the best diag(alpha) + beta beta' of this rank leaves of so many pairs: those it has no room for."""
    off_diagonal = CORRELATION / (1 - CORRELATION**2)
    return 2 * off_diagonal**2 * max(pairs - rank, 0)
