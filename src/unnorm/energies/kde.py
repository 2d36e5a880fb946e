"""The kernel density estimate of a data set, as a normalised density."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractNormalised, Scalar
from unnorm.errors import require
from unnorm.small_matrices import inverse_lower
from unnorm.spaces import Real

#: Centres looked at together.
BLOCK = 2048


def any_row(rows: Float[Array, "n d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
    """A row drawn uniformly, but for a relative excess of n / 2^32 of some rows over others.

    One pass of the generator; `jax.random.randint` takes three, and four times as long to compile.

    >>> import jax, jax.numpy as jnp
    >>> float(any_row(jnp.full((5, 1), 3.0), key=jax.random.key(0))[0])
    3.0
    """
    return rows[jax.random.bits(key, (), jnp.uint32) % len(rows)]


def _whitening(shape: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The inverse of a lower-triangular matrix, made once, in double precision where its numbers are known."""
    if isinstance(shape, Tracer):
        return inverse_lower(shape)
    return jnp.asarray(np.tril(np.linalg.inv(np.tril(np.asarray(shape, np.float64)))), shape.dtype)


class KDE(AbstractNormalised):
    """p(x) = (1/n) sum_i N(x; c_i, bandwidth^2 S), with S = I unless a `shape` is given.

    The log density runs over the n centres in blocks, a log-sum-exp of each and one over all, so memory is bounded by
    batch x block, whatever n. Squared distances are expanded into a matrix product, which is what makes it fast for a
    batch, around the centres' mean, which keeps the terms that cancel small: the error is about 1e-7 of the largest
    squared distance to that mean in bandwidths.

    >>> import jax.numpy as jnp
    >>> round(float(KDE(jnp.zeros((4, 1)), 1.0).log_prob(jnp.zeros(1))), 4)
    -0.9189
    """

    centres: Float[Array, "n d"]
    middle: Float[Array, " d"]
    shape: Float[Array, "d d"] | None
    whitening: Float[Array, "d d"] | None
    blocks: Float[Array, "count d+1 block"]
    bandwidth: Float[Array, ""]
    space: Real = eqx.field(static=True)

    def __init__(
        self,
        centres: Float[Array, "n d"],
        bandwidth: float,
        *,
        shape: Float[Array, "d d"] | None = None,
        block: int = BLOCK,
    ):
        """At most `block` centres are looked at together; `shape` is a lower-triangular A with A A' = S."""
        require(centres.ndim == 2, f"a KDE needs n x d points, not shape {centres.shape}")
        require(
            bandwidth > 0, f"a KDE with bandwidth {bandwidth} has no density; use DataJump for jumps without bandwidth"
        )
        require(block > 0, f"the block size must be positive, not {block}")
        n, d = centres.shape
        count = -(-n // block)
        block = -(-n // count)
        self.centres = centres
        # An array, so that estimates of several widths share one program.
        self.bandwidth = jnp.asarray(bandwidth, centres.dtype)
        self.middle = centres.mean(0)
        self.shape = shape
        self.whitening = None if shape is None else _whitening(shape)
        self.space = Real((d,))
        scaled = jax.vmap(self._scaled)(centres)
        # Log kernel up to a term of y alone: c.y - |c|^2/2 = (c, -|c|^2/2).(y, 1), one product and no pass to add the
        # second term. Padding counts for nothing; its exponent is finite because a gradient may multiply it by zero.
        rows = jnp.concatenate([scaled, -0.5 * jnp.sum(scaled**2, 1, keepdims=True)], 1)
        padding = jnp.zeros((count * block - n, d + 1), rows.dtype).at[:, -1].set(-1e30)
        # Transposed, so that each point's exponents lie side by side in memory, where they are summed.
        self.blocks = jnp.concatenate([rows, padding]).reshape(count, block, d + 1).swapaxes(1, 2)

    def _scaled(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        offset = (x - self.middle) / self.bandwidth
        return offset if self.whitening is None else self.whitening @ offset

    def _log_constant(self) -> Scalar:
        d = self.centres.shape[1]
        volume = 0.0 if self.shape is None else jnp.sum(jnp.log(jnp.diagonal(self.shape)))
        return d * (jnp.log(self.bandwidth) + 0.5 * math.log(2 * math.pi)) + volume

    def __call__(self, x: Float[Array, " d"]) -> Scalar:
        scaled = self._scaled(x)
        point = jnp.append(scaled, 1.0)
        parts = jax.lax.map(lambda block: jax.nn.logsumexp(point @ block), self.blocks)
        total = jax.nn.logsumexp(parts) - 0.5 * jnp.sum(scaled**2)
        return math.log(len(self.centres)) + self._log_constant() - total

    def leave_one_out(self, x: Float[Array, " d"]) -> Scalar:
        """log of the estimate at x made from the other rows, where x is one of the centres.

        A kernel stands on every centre, so the estimate at its own rows is too high: in 20 dimensions by most of its
        value. Every centre equal to x, bit for bit, is left out, since copies of a row tell no more than the row; the
        rest are averaged over their number. A point that is no centre sees all n.
        """
        n, d = self.centres.shape
        require(n >= 2, "leaving one out needs at least 2 centres")
        count, _, block = self.blocks.shape
        scaled = self._scaled(x)
        point = jnp.append(scaled, 1.0)
        # Equality is asked of the rows as they were given, where no rounding comes between; padding equals nothing.
        rows = jnp.pad(self.centres, ((0, count * block - n), (0, 0)), constant_values=jnp.inf)

        def part(inputs):
            block, rows = inputs
            same = jnp.all(rows == x[None], axis=1)
            return jax.nn.logsumexp(jnp.where(same, -1e30, point @ block)), jnp.sum(same)

        parts, copies = jax.lax.map(part, (self.blocks, rows.reshape(count, block, d)))
        # Left out of the sum, not subtracted: one kernel taken off a sum that is all but that kernel leaves rounding.
        others = jax.nn.logsumexp(parts) - 0.5 * jnp.sum(scaled**2)
        left = n - copies.sum()
        found = others - jnp.log(jnp.maximum(left, 1).astype(others.dtype)) - self._log_constant()
        return jnp.where(left > 0, found, -jnp.inf)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " d"]:
        which, spread = jax.random.split(key)
        centre = any_row(self.centres, key=which)
        white = jax.random.normal(spread, centre.shape, centre.dtype)
        return centre + self.bandwidth * (white if self.shape is None else self.shape @ white)
