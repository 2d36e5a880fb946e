"""The kernel density estimate of a data set as a noise distribution: the global jump of seed 000."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import InputError, require
from unnorm.noises.base import AbstractKernel, AbstractNoise, Scalar


class KDE(AbstractKernel):
    """q(y | x) = (1/n) sum_i N(y; c_i, bandwidth^2 I), whatever x was.

    The log density runs over the n centres in blocks with a running log-sum-exp, so memory is bounded by
    batch x block, whatever n. Squared distances are expanded into a matrix product around the centres' mean, which is
    what makes it fast for a batch.

    >>> import jax.numpy as jnp
    >>> round(float(KDE(jnp.zeros((4, 1)), 1.0).log_prob(0.0, jnp.zeros(1), jnp.zeros(1))), 4)
    -0.9189
    """

    centres: Float[Array, "n d"]
    middle: Float[Array, " d"]
    blocks: Float[Array, "count block d"]
    offsets: Float[Array, "count block"]
    bandwidth: float = eqx.field(static=True)

    def __init__(self, centres: Float[Array, "n d"], bandwidth: float, *, block: int = 2048):
        """`block` centres are looked at together."""
        require(centres.ndim == 2, f"a KDE needs n x d points, not shape {centres.shape}")
        require(
            bandwidth > 0, f"a KDE with bandwidth {bandwidth} has no density; use DataJump for jumps without bandwidth"
        )
        require(block > 0, f"the block size must be positive, not {block}")
        n, d = centres.shape
        block = min(block, n)
        count = -(-n // block)
        self.centres = centres
        self.bandwidth = float(bandwidth)
        self.middle = centres.mean(0)
        padded = jnp.pad((centres - self.middle) / bandwidth, ((0, count * block - n), (0, 0)))
        # log kernel up to a constant of y: c.y - |c|^2/2; padding gets -inf so that it counts for nothing.
        offsets = jnp.where(jnp.arange(count * block) < n, -0.5 * jnp.sum(padded**2, 1), -jnp.inf)
        self.blocks = padded.reshape(count, block, d)
        self.offsets = offsets.reshape(count, block)

    def sample(self, t: Scalar, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
        which, spread = jax.random.split(key)
        centre = self.centres[jax.random.randint(which, (), 0, self.centres.shape[0])]
        return centre + self.bandwidth * jax.random.normal(spread, x.shape, x.dtype)

    def log_prob(self, t: Scalar, y: Float[Array, " d"], x: Float[Array, " d"]) -> Scalar:
        return self.log_density(y)

    def log_density(self, y: Float[Array, " d"]) -> Scalar:
        """log of the estimate at y."""
        n, d = self.centres.shape
        point = (y - self.middle) / self.bandwidth

        def add(carry, part):
            largest, total = carry
            exponents = part[0] @ point + part[1]
            top = jnp.maximum(largest, jnp.max(exponents))
            return (top, total * jnp.exp(largest - top) + jnp.sum(jnp.exp(exponents - top))), None

        # A start far below any exponent rather than -inf: the difference of two infinities is not a number.
        start = (jnp.asarray(-1e30, y.dtype), jnp.zeros((), y.dtype))
        (largest, total), _ = jax.lax.scan(add, start, (self.blocks, self.offsets))
        constant = math.log(n) + d * (math.log(self.bandwidth) + 0.5 * math.log(2 * math.pi))
        return largest + jnp.log(total) - 0.5 * jnp.sum(point**2) - constant


class DataJump(AbstractNoise):
    """y is another data point, drawn uniformly: the global jump with bandwidth 0.

    It has no density, but the ratio of the two directions is 1, since both points carry the same empirical weight.
    """

    centres: Float[Array, "n d"]

    def sample(self, t: Scalar, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
        return self.centres[jax.random.randint(key, (), 0, self.centres.shape[0])]

    def log_prob(self, t: Scalar, y: Float[Array, " d"], x: Float[Array, " d"]) -> Scalar:
        raise InputError("DataJump has no density; use KDE with a positive bandwidth where one is needed")

    def propose(self, t: Scalar, x: Float[Array, " d"], *, key: PRNGKeyArray) -> tuple[Float[Array, " d"], Scalar]:
        return self.sample(t, x, key=key), jnp.zeros((), x.dtype)
