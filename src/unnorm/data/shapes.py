"""Densities with a shape: rings, a Swiss roll, a funnel; each exactly normalised and exactly drawn from."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractNormalised, Scalar
from unnorm.errors import require
from unnorm.spaces import Real


def length(x: Float[Array, " d"]) -> Scalar:
    """|x|, with gradient 0 instead of NaN at the origin."""
    squared = jnp.sum(x**2)
    away = squared > 0
    return jnp.where(away, jnp.sqrt(jnp.where(away, squared, 1.0)), 0.0)


class Rings(AbstractNormalised):
    """Concentric circles of radii r_k in the plane, blurred by N(0, s^2 I).

    p(x) = sum_k w_k exp(-(|x|^2 + r_k^2) / (2 s^2)) I_0(|x| r_k / s^2) / (2 pi s^2): a uniform angle
    integrated out of a Gaussian leaves the Bessel function I_0 (Rice, 1945), smooth even at the origin.

    >>> import jax.numpy as jnp
    >>> rings = Rings([0.5, 0.5], [1.0, 2.0], 0.1)
    >>> bool(rings.log_prob(jnp.array([0.0, 1.0])) > rings.log_prob(jnp.array([0.0, 1.5])))
    True
    """

    logits: Float[Array, " k"]
    radii: Float[Array, " k"]
    scale: Scalar
    space: Real = eqx.field(static=True)

    def __init__(self, weights: object, radii: object, scale: float):
        weights = np.asarray(weights, dtype=np.float64)
        radii = np.asarray(radii, dtype=np.float64)
        require(
            weights.ndim == 1 and weights.shape == radii.shape,
            f"rings need one weight per radius, not shapes {weights.shape} and {radii.shape}",
        )
        require(bool(np.all(weights > 0)), "ring weights must be positive")
        require(bool(np.all(radii > 0)), f"radii must be positive, not {radii}")
        require(scale > 0, f"a standard deviation must be positive, not {scale}")
        self.logits = jnp.asarray(np.log(weights / weights.sum()), float)
        self.radii = jnp.asarray(radii, float)
        self.scale = jnp.asarray(scale, float)
        self.space = Real((2,))

    @property
    def weights(self) -> Float[Array, " k"]:
        return jax.nn.softmax(self.logits)

    def component_log_probs(self, x: Float[Array, " 2"]) -> Float[Array, " k"]:
        """log w_k + log p_k(x) for every ring."""
        radius, variance = length(x), self.scale**2
        # i0e(z) = exp(-z) I_0(z): the exponential goes into the square, so nothing overflows.
        bessel = jnp.log(jax.scipy.special.i0e(radius * self.radii / variance))
        square = (radius - self.radii) ** 2 / (2 * variance)
        return jax.nn.log_softmax(self.logits) - square + bessel - jnp.log(2 * math.pi * variance)

    def __call__(self, x: Float[Array, " 2"]) -> Scalar:
        return -jax.nn.logsumexp(self.component_log_probs(x))

    def assign(self, x: Float[Array, " 2"]) -> Array:
        """The ring most responsible for x."""
        return jnp.argmax(self.component_log_probs(x))

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " 2"]:
        which, turn, noise = jax.random.split(key, 3)
        radius = self.radii[jax.random.categorical(which, self.logits)]
        angle = 2 * math.pi * jax.random.uniform(turn, (), self.radii.dtype)
        circle = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        return circle + self.scale * jax.random.normal(noise, (2,), self.radii.dtype)


class SwissRoll(AbstractNormalised):
    """A spiral in the plane, blurred by N(0, s^2 I): an equal mixture of Gaussians along the curve.

    p(x) = (1/K) sum_k N(x; c(t_k), s^2 I), c(t) = t (cos t, sin t) / 5, with t_k the midpoints of K
    equal parts of [3 pi/2, 9 pi/2]. This sum is the density, not an approximation to it. The curve is that of
    `sklearn.datasets.make_swiss_roll` without its height (Marsland, 2009, Ch. 10), divided by 5.

    >>> SwissRoll().centres.shape
    (256, 2)
    """

    centres: Float[Array, "k 2"]
    scale: Scalar
    space: Real = eqx.field(static=True)

    def __init__(self, scale: float = 0.2, centres: int = 256):
        require(scale > 0, f"a standard deviation must be positive, not {scale}")
        require(centres >= 1, f"a roll needs at least 1 centre, not {centres}")
        t = 1.5 * math.pi * (1 + 2 * (np.arange(centres) + 0.5) / centres)
        self.centres = jnp.asarray(np.stack([t * np.cos(t), t * np.sin(t)], axis=1) / 5, float)
        self.scale = jnp.asarray(scale, float)
        self.space = Real((2,))

    def __call__(self, x: Float[Array, " 2"]) -> Scalar:
        squares = jnp.sum((x - self.centres) ** 2, axis=1) / (2 * self.scale**2)
        constant = math.log(len(self.centres)) + jnp.log(2 * math.pi * self.scale**2)
        return constant - jax.nn.logsumexp(-squares)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " 2"]:
        which, noise = jax.random.split(key)
        centre = self.centres[jax.random.randint(which, (), 0, len(self.centres))]
        return centre + self.scale * jax.random.normal(noise, (2,), centre.dtype)


class Funnel(AbstractNormalised):
    """Neal's funnel: x_0 = v ~ N(0, s^2) sets the scale of the other coordinates, x_i | v ~ N(0, exp(v)).

    E(x) = v^2 / (2 s^2) + log s + sum_{i>0} (x_i^2 exp(-v) + v) / 2 + (d/2) log 2 pi. No single step size
    suits both the mouth and the neck (Neal, 2003, Slice sampling, Sec. 8, with s = 3 and d = 10).

    >>> Funnel(10, 3.0).space
    Real(shape=(10,))
    """

    scale: Scalar
    space: Real = eqx.field(static=True)

    def __init__(self, dimension: int = 2, scale: float = 1.5):
        require(dimension >= 2, f"a funnel needs at least 2 dimensions, not {dimension}")
        require(scale > 0, f"a standard deviation must be positive, not {scale}")
        self.scale = jnp.asarray(scale, float)
        self.space = Real((dimension,))

    def __call__(self, x: Float[Array, " d"]) -> Scalar:
        v, others = x[0], x[1:]
        neck = 0.5 * (v / self.scale) ** 2 + jnp.log(self.scale)
        return neck + 0.5 * jnp.sum(others**2 * jnp.exp(-v) + v) + 0.5 * x.shape[0] * math.log(2 * math.pi)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " d"]:
        white = jax.random.normal(key, self.space.shape, self.scale.dtype)
        v = self.scale * white[0]
        return jnp.concatenate([v[None], jnp.exp(v / 2) * white[1:]])

    def entropy(self) -> float:
        """(d/2) log(2 pi e) + log s, exactly: the mean of v is 0, so the other scales cancel."""
        return 0.5 * self.space.size * math.log(2 * math.pi * math.e) + math.log(float(self.scale))
