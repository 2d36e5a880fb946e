"""Densities that data are told apart from: the noise of noise-contrastive estimation, and recipes that make one.

A reference is drawn from and its log density is known, at its own draws and at training rows. The two differ only for a
kernel density estimate, whose own rows lie each under a kernel of their own.
"""

from abc import abstractmethod
from math import inf

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from unnorm.energies.base import AbstractNormalised, Point, Scalar
from unnorm.energies.em import fit_mixture, moment_gaussian
from unnorm.energies.gaussian import GaussianDensity
from unnorm.errors import require
from unnorm.noises.kde import REMEMBERED, KDEJump
from unnorm.noises.rows import Rows


class AbstractReference(eqx.Module):
    """A density to contrast with."""

    @abstractmethod
    def sample(self, *, key: PRNGKeyArray) -> Point:
        """One draw."""

    @abstractmethod
    def of_noise(self, y: Point) -> Scalar:
        """log q(y) at a draw of q."""

    @abstractmethod
    def of_data(self, x: Point) -> Scalar:
        """log q(x) at a row of data."""

    def of_rows(self, xs: Shaped[Array, "n ..."]) -> Float[Array, " n"]:
        """log q at many rows of data: a reference that can do better for many than for each alone says how."""
        return jax.vmap(self.of_data)(xs)


class Known(AbstractReference):
    """A normalised density.

    >>> import jax.numpy as jnp, unnorm as un
    >>> round(float(Known(un.energies.standard_gaussian(1)).of_data(jnp.zeros(1))), 4)
    -0.9189
    """

    density: AbstractNormalised

    def sample(self, *, key: PRNGKeyArray) -> Point:
        return self.density.sample(key=key)

    def of_noise(self, y: Point) -> Scalar:
        return self.density.log_prob(y)

    def of_data(self, x: Point) -> Scalar:
        return self.density.log_prob(x)


class LeftOutKernels(AbstractReference):
    """A kernel density estimate that does not count a training row's own kernel at that row."""

    kde: KDEJump
    #: The density at the rows it was made of, if it was computed beforehand.
    known: Rows | None = None

    def sample(self, *, key: PRNGKeyArray) -> Point:
        return self.kde.density.sample(key=key)

    def of_noise(self, y: Point) -> Scalar:
        return self.kde.log_density(y)

    def of_data(self, x: Point) -> Scalar:
        return self.kde.leave_one_out(x)

    def of_rows(self, xs: Shaped[Array, "n ..."]) -> Float[Array, " n"]:
        return super().of_rows(xs) if self.known is None else self.known.values_at(xs, self.of_data)


class AbstractReferenceFromData(eqx.Module):
    """A recipe that becomes a reference when it sees the training data."""

    @abstractmethod
    def fit(self, data: Float[Array, "n d"], *, key: PRNGKeyArray) -> AbstractReference:
        """The reference for this data set."""


def _isotropic(data: Float[Array, "n d"], scale: Scalar, at_zero: bool) -> Known:
    d = data.shape[1]
    mean = jnp.zeros(d, data.dtype) if at_zero else data.mean(0)
    return Known(GaussianDensity(mean, -jnp.log(scale) * jnp.eye(d, dtype=data.dtype)))


class MomentGaussian(AbstractReferenceFromData):
    """The Gaussian with the data's mean (or 0) and covariance, `widen` times as wide.

    >>> import jax, unnorm as un
    >>> points = jax.random.normal(jax.random.key(0), (100, 2))
    >>> MomentGaussian().fit(points, key=jax.random.key(1)).density.mean.shape
    (2,)
    """

    widen: float = eqx.field(static=True, default=1.0)
    at_zero: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        require(0 < self.widen < inf, f"a Gaussian can be widened by a positive and finite factor, not by {self.widen}")

    def fit(self, data: Float[Array, "n d"], *, key: PRNGKeyArray) -> Known:
        found = moment_gaussian(data, self.widen)
        return Known(GaussianDensity(jnp.zeros_like(found.mean), found.factor) if self.at_zero else found)


class UnitGaussian(AbstractReferenceFromData):
    """N(mean of the data or 0, I)."""

    at_zero: bool = eqx.field(static=True, default=True)

    def fit(self, data: Float[Array, "n d"], *, key: PRNGKeyArray) -> Known:
        return _isotropic(data, jnp.ones((), data.dtype), self.at_zero)


class SpanGaussian(AbstractReferenceFromData):
    """N(mean of the data or 0, r^2 I), r half the largest distance between two rows."""

    at_zero: bool = eqx.field(static=True, default=False)

    def fit(self, data: Float[Array, "n d"], *, key: PRNGKeyArray) -> Known:
        return _isotropic(data, 0.5 * jnp.sqrt(largest_squared_distance(data)), self.at_zero)


def largest_squared_distance(data: Float[Array, "n d"], block: int = 512) -> Scalar:
    """max_ij |x_i - x_j|^2, some rows at a time."""
    n, d = data.shape
    require(n >= 2, f"the largest distance needs at least 2 rows, not {n}")
    centred = data - data.mean(0)[None]
    squares = jnp.sum(centred**2, 1)
    count = -(-n // block)
    # Rows repeated to fill the last block change no maximum.
    rows = centred[jnp.arange(count * block) % n].reshape(count, block, d)

    def furthest(part):
        return jnp.max(jnp.sum(part**2, 1)[:, None] - 2 * part @ centred.T + squares[None])

    return jnp.max(jax.lax.map(furthest, rows))


class FittedKDE(AbstractReferenceFromData):
    """A Gaussian kernel density estimate of the data, evaluated at a row without that row."""

    bandwidth: float = eqx.field(static=True)
    block: int = eqx.field(static=True, default=2048)

    def __check_init__(self):
        require(0 < self.bandwidth < inf, f"a density needs a positive and finite bandwidth, not {self.bandwidth}")

    def fit(self, data: Float[Array, "n d"], *, key: PRNGKeyArray) -> LeftOutKernels:
        require(len(data) >= 2, f"a density that leaves a row out needs at least 2 rows, not {len(data)}")
        kde = KDEJump(data, self.bandwidth, block=self.block)
        return LeftOutKernels(kde, Rows(data, kde.leave_one_out) if len(data) <= REMEMBERED else None)


class FittedMixture(AbstractReferenceFromData):
    """A Gaussian mixture of `components` fitted by expectation-maximisation."""

    components: int = eqx.field(static=True)
    steps: int = eqx.field(static=True, default=100)

    def __check_init__(self):
        require(self.components >= 1, f"a mixture has at least one component, not {self.components}")

    def fit(self, data: Float[Array, "n d"], *, key: PRNGKeyArray) -> Known:
        return Known(fit_mixture(data, self.components, steps=self.steps, key=key))
