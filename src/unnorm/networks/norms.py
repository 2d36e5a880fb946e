"""Instance norm that keeps how bright channels are beside each other, for each noise level or for all alike."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unnorm.arguments import require_count

Image = Float[Array, "h w c"]


class InstanceNormPlus(eqx.Module):
    """z = gamma (x - mu) / s + beta + alpha (mu - m) / v (InstanceNorm++: Song and Ermon 2019, B.3.1).

    mu and s are the mean and deviation of each channel over the picture, m and v those of the means over channels: plain
    instance norm forgets mu, and colours drift. With several `levels` each has its own gamma, beta and alpha.

    >>> norm = InstanceNormPlus(3, key=jax.random.key(0))
    >>> norm(jnp.ones((4, 4, 3)), jnp.asarray(0)).shape
    (4, 4, 3)
    """

    gain: Float[Array, "levels c"]
    bias: Float[Array, "levels c"]
    shift: Float[Array, "levels c"]
    floor: float = eqx.field(static=True, default=1e-5)

    def __init__(self, channels: int, *, levels: int = 1, floor: float = 1e-5, key: PRNGKeyArray):
        require_count(levels, 1, "the levels of a norm")
        one, two = jax.random.split(key)
        shape = (levels, channels)
        self.gain = 1 + 0.02 * jax.random.normal(one, shape)
        self.shift = 1 + 0.02 * jax.random.normal(two, shape)
        self.bias, self.floor = jnp.zeros(shape), floor

    def __call__(self, x: Image, level: Int[Array, ""]) -> Image:
        mean, variance = jnp.mean(x, axis=(0, 1)), jnp.var(x, axis=(0, 1))
        middle, spread = jnp.mean(mean), jnp.var(mean)
        scale = self.gain[level] * jax.lax.rsqrt(variance + self.floor)
        beside = self.shift[level] * (mean - middle) * jax.lax.rsqrt(spread + self.floor)
        return x * scale[None, None] + (self.bias[level] + beside - mean * scale)[None, None]
