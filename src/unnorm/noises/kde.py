"""The kernel density estimate of a data set as a noise distribution: the global jump of seed 000."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractNormalised
from unnorm.errors import InputError, require
from unnorm.noises.base import AbstractKernel, AbstractNoise, Scalar


class KDE(AbstractKernel):
    """q(y | x) = (1/n) sum_i N(y; c_i, bandwidth^2 I), whatever x was.

    The log density runs over the n centres in blocks, a log-sum-exp of each and one over all, so memory is bounded by
    batch x block, whatever n. Squared distances are expanded into a matrix product, which is what makes it fast for a
    batch, around the centres' mean, which keeps the terms that cancel small: the error is about 1e-7 of the largest
    squared distance to that mean in bandwidths.

    >>> import jax.numpy as jnp
    >>> round(float(KDE(jnp.zeros((4, 1)), 1.0).log_prob(0.0, jnp.zeros(1), jnp.zeros(1))), 4)
    -0.9189
    """

    centres: Float[Array, "n d"]
    middle: Float[Array, " d"]
    blocks: Float[Array, "count d+1 block"]
    bandwidth: float = eqx.field(static=True)

    def __init__(self, centres: Float[Array, "n d"], bandwidth: float, *, block: int = 2048):
        """At most `block` centres are looked at together."""
        require(centres.ndim == 2, f"a KDE needs n x d points, not shape {centres.shape}")
        require(
            bandwidth > 0, f"a KDE with bandwidth {bandwidth} has no density; use DataJump for jumps without bandwidth"
        )
        require(block > 0, f"the block size must be positive, not {block}")
        n, d = centres.shape
        count = -(-n // block)
        block = -(-n // count)
        self.centres = centres
        self.bandwidth = float(bandwidth)
        self.middle = centres.mean(0)
        scaled = (centres - self.middle) / bandwidth
        # Log kernel up to a term of y alone: c.y - |c|^2/2 = (c, -|c|^2/2).(y, 1), one product and no pass to add the
        # second term. Padding counts for nothing; its exponent is finite because a gradient may multiply it by zero.
        rows = jnp.concatenate([scaled, -0.5 * jnp.sum(scaled**2, 1, keepdims=True)], 1)
        padding = jnp.zeros((count * block - n, d + 1), rows.dtype).at[:, -1].set(-1e30)
        # Transposed, so that each point's exponents lie side by side in memory, where they are summed.
        self.blocks = jnp.concatenate([rows, padding]).reshape(count, block, d + 1).swapaxes(1, 2)

    def sample(self, t: Scalar, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
        which, spread = jax.random.split(key)
        centre = self.centres[jax.random.randint(which, (), 0, self.centres.shape[0])]
        return centre + self.bandwidth * jax.random.normal(spread, x.shape, x.dtype)

    def log_prob(self, t: Scalar, y: Float[Array, " d"], x: Float[Array, " d"]) -> Scalar:
        return self.log_density(y)

    def log_density(self, y: Float[Array, " d"]) -> Scalar:
        """log of the estimate at y."""
        n, d = self.centres.shape
        scaled = (y - self.middle) / self.bandwidth
        point = jnp.append(scaled, 1.0)
        parts = jax.lax.map(lambda block: jax.nn.logsumexp(point @ block), self.blocks)
        return jax.nn.logsumexp(parts) - 0.5 * jnp.sum(scaled**2) - math.log(n) - self._log_kernel_constant(d)

    def leave_one_out(self, x: Float[Array, " d"]) -> Scalar:
        """log of the estimate at x made from the other rows, where x is one of the centres.

        A kernel stands on every centre, so the estimate at its own rows is too high: in 20 dimensions by most of its
        value. Exactly one centre equal to x, bit for bit, is left out and the rest are averaged over n - 1; of a row
        that occurs m times, m - 1 copies stay, for they are other data. A point that is no centre sees all n.
        """
        n, d = self.centres.shape
        require(n >= 2, "leaving one out needs at least 2 centres")
        count, _, block = self.blocks.shape
        scaled = (x - self.middle) / self.bandwidth
        point = jnp.append(scaled, 1.0)
        # Equality is asked of the rows as they were given, where no rounding comes between; padding equals nothing.
        rows = jnp.pad(self.centres, ((0, count * block - n), (0, 0)), constant_values=jnp.inf)

        def part(inputs):
            block, rows = inputs
            same = jnp.all(rows == x, axis=1)
            return jax.nn.logsumexp(jnp.where(same, -1e30, point @ block)), jnp.sum(same)

        parts, copies = jax.lax.map(part, (self.blocks, rows.reshape(count, block, d)))
        others = jax.nn.logsumexp(parts) - 0.5 * jnp.sum(scaled**2)
        # Added, not subtracted: one kernel taken off a sum that is all but that kernel would leave rounding.
        copies = copies.sum()
        kept = jnp.where(copies > 1, jnp.log(jnp.maximum(copies - 1, 1).astype(others.dtype)), -jnp.inf)
        return jnp.logaddexp(others, kept) - jnp.log(n - (copies > 0)) - self._log_kernel_constant(d)

    def _log_kernel_constant(self, d: int) -> float:
        return d * (math.log(self.bandwidth) + 0.5 * math.log(2 * math.pi))


class LeaveOneOut(AbstractNoise):
    """Draws of a KDE, with a ratio that does not count the data point's own kernel.

    log q(y) is the whole estimate's, log q(x) is that of the other centres (`KDE.leave_one_out`): x is one of the rows
    the estimate was made of, y is not, and a contrast of the two must not mistake that for a property of the density.

    >>> import jax.numpy as jnp
    >>> kde = KDE(jnp.array([[0.0], [1.0]]), 1.0)
    >>> round(float(kde.log_density(jnp.zeros(1)) - kde.leave_one_out(jnp.zeros(1))), 4)
    0.2809
    """

    kde: KDE

    def sample(self, t: Scalar, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
        return self.kde.sample(t, x, key=key)

    def log_prob(self, t: Scalar, y: Float[Array, " d"], x: Float[Array, " d"]) -> Scalar:
        return self.kde.log_density(y)

    def propose(self, t: Scalar, x: Float[Array, " d"], *, key: PRNGKeyArray) -> tuple[Float[Array, " d"], Scalar]:
        y = self.kde.sample(t, x, key=key)
        return y, self.kde.log_density(y) - self.kde.leave_one_out(x)


class Independent(AbstractKernel):
    """q(y | x) = q(y): draws of a normalised density, whatever x was.

    >>> import jax.numpy as jnp, unnorm as un
    >>> noise = Independent(un.energies.standard_gaussian(1))
    >>> round(float(noise.log_prob(0.0, jnp.zeros(1), jnp.ones(1))), 4)
    -0.9189
    """

    density: AbstractNormalised

    def sample(self, t: Scalar, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
        return self.density.sample(key=key).astype(x.dtype)

    def log_prob(self, t: Scalar, y: Float[Array, " d"], x: Float[Array, " d"]) -> Scalar:
        return self.density.log_prob(y)


class DataJump(AbstractNoise):
    """y is another data point, drawn uniformly: the global jump with bandwidth 0.

    It has no density, but the ratio of the two directions is 1, since both points carry the same empirical weight. So
    an objective learns from it that all data are equally likely, which evens out the modes; it is a regulariser beside
    other noise and no way to estimate a density. A KDE is.
    """

    centres: Float[Array, "n d"]

    def sample(self, t: Scalar, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
        return self.centres[jax.random.randint(key, (), 0, self.centres.shape[0])]

    def log_prob(self, t: Scalar, y: Float[Array, " d"], x: Float[Array, " d"]) -> Scalar:
        raise InputError("DataJump has no density; use KDE with a positive bandwidth where one is needed")

    def propose(self, t: Scalar, x: Float[Array, " d"], *, key: PRNGKeyArray) -> tuple[Float[Array, " d"], Scalar]:
        return self.sample(t, x, key=key), jnp.zeros((), x.dtype)
