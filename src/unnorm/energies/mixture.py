"""Mixtures of Gaussians: the exact densities that problems with known answers are made of."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unnorm.energies.base import AbstractNormalised, Scalar
from unnorm.energies.gaussian import GaussianDensity, pack_factor, precision_factor
from unnorm.errors import require
from unnorm.estimate import Estimate, mean_estimate
from unnorm.spaces import Real


class GaussianMixture(AbstractNormalised):
    """p(x) = sum_k w_k N(x; mean_k, (P_k P_k')^-1), with w = softmax(logits).

    `jax.grad` of its energy is the exact score -grad log p with responsibilities as weights.

    >>> import jax.numpy as jnp
    >>> mixture = gaussian_mixture([0.5, 0.5], [[-1.0], [1.0]], 0.1)
    >>> float(mixture(jnp.array([1.0]))) == float(mixture(jnp.array([-1.0])))
    True
    """

    logits: Float[Array, " k"]
    components: GaussianDensity
    space: Real = eqx.field(static=True)

    def __init__(self, logits: Float[Array, " k"], means: Float[Array, "k d"], factors: Float[Array, "k d d"]):
        """`factors` are packed precision factors as in `GaussianDensity`."""
        self.logits = logits
        self.components = jax.vmap(GaussianDensity)(means, factors)
        self.space = Real((means.shape[1],))

    @property
    def means(self) -> Float[Array, "k d"]:
        return self.components.mean

    @property
    def weights(self) -> Float[Array, " k"]:
        return jax.nn.softmax(self.logits)

    def component_log_probs(self, x: Float[Array, " d"]) -> Float[Array, " k"]:
        """log w_k + log N_k(x) for every component."""
        return jax.nn.log_softmax(self.logits) - jax.vmap(lambda c: c(x))(self.components)

    def __call__(self, x: Float[Array, " d"]) -> Scalar:
        return -jax.nn.logsumexp(self.component_log_probs(x))

    def assign(self, x: Float[Array, " d"]) -> Int[Array, ""]:
        """The component most responsible for x."""
        return jnp.argmax(self.component_log_probs(x))

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " d"]:
        which, noise = jax.random.split(key)
        k = jax.random.categorical(which, self.logits)
        return jax.tree.map(lambda leaf: leaf[k], self.components).sample(key=noise)

    def entropy(self, n: int = 10_000, *, key: PRNGKeyArray) -> Estimate:
        """-E log p by Monte Carlo, with its error."""
        return mean_estimate(jax.vmap(self)(self.samples(n, key=key)), "Monte Carlo")


def gaussian_mixture(weights: object, means: object, scale: object) -> GaussianMixture:
    """A mixture from weights, means (k x d), and a common standard deviation, one per component, or k covariances."""
    weights = np.asarray(weights, dtype=np.float64)
    means = np.asarray(means, dtype=np.float64)
    scale = np.asarray(scale, dtype=np.float64)
    require(
        means.ndim == 2 and weights.shape == (len(means),),
        f"a mixture needs k weights and k x d means, not shapes {weights.shape} and {means.shape}",
    )
    require(bool(np.all(weights > 0)), "mixture weights must be positive")
    k, d = means.shape
    if scale.ndim <= 1:
        require(bool(np.all(scale > 0)), f"a standard deviation must be positive, not {scale}")
        deviations = np.broadcast_to(scale, (k,))
        factors = -np.log(deviations)[:, None, None] * np.eye(d)
    else:
        require(scale.shape == (k, d, d), f"{k} covariances of {d} x {d} are needed, not shape {scale.shape}")
        factors = np.stack([pack_factor(precision_factor(c)) for c in scale])
    logits = np.log(weights) - math.log(weights.sum())
    return GaussianMixture(jnp.asarray(logits, float), jnp.asarray(means, float), jnp.asarray(factors, float))
