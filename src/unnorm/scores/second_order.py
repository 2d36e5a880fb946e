"""Second-order scores, s2(x) = Hessian of log q(x), and the posterior of denoising that they give.

With D coordinates s2 has D^2 numbers, so nothing here forms it unless asked: a second-order score gives its diagonal
and its products with vectors. It is also a score, s1(x) = grad log q(x), of one noise level: t plays no part.

Denoising x~ = x + sigma z is where the two meet (Tweedie): E[x | x~] = x~ + sigma^2 s1(x~) and
Cov[x | x~] = sigma^2 I + sigma^4 s2(x~), with s1 and s2 those of the noisy density (Meng et al. 2021).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Point, Scalar
from unnorm.errors import require
from unnorm.networks import MLP
from unnorm.noises.base import Level
from unnorm.scores.base import AbstractLevelScore, AbstractPlainScore, AbstractScore, as_score
from unnorm.small_matrices import symmetric_eigen
from unnorm.spaces import AbstractSpace


class FreeScore(AbstractPlainScore):
    """s(t, x) = network(x): a vector field of its own, no gradient of anything, the same at every level.

    >>> import jax, jax.numpy as jnp
    >>> FreeScore(MLP(2, 2, width=8, depth=1, key=jax.random.key(0)))(0.0, jnp.zeros(2)).shape
    (2,)
    """

    network: Callable[[Array], Array]

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        return self.network(x.reshape(-1)).reshape(x.shape)


class AbstractSecondOrder(AbstractScore):
    """s1(x) when called (t is ignored), and s2(x) through its diagonal and its products."""

    space: ClassVar[None] = None
    condition: ClassVar[None] = None

    @abstractmethod
    def diagonal(self, x: Point) -> Point:
        """The diagonal of s2, in the shape of x."""

    @abstractmethod
    def apply(self, x: Point, v: Point) -> Point:
        """s2(x) v, in the shape of x."""

    def matrix(self, x: Point) -> Float[Array, "d d"]:
        """s2(x) itself, D x D: for small D only."""
        basis = jnp.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
        return jax.vmap(lambda v: self.apply(x, v).reshape(-1))(basis).T


class LevelSecondOrder(AbstractLevelScore):
    """s1 and the diagonal of s2 at one level: what `samplers.Ozaki` needs, and nothing is left to differentiate.

    >>> import jax, jax.numpy as jnp
    >>> pair = diagonal_mlp(5, key=jax.random.key(0)).at(0.0)
    >>> pair(0.0, jnp.zeros(5)).shape, pair.diagonal(jnp.zeros(5)).shape
    ((5,), (5,))
    """

    score: AbstractSecondOrder
    level: Scalar = eqx.field(converter=lambda t: jnp.asarray(t, float))
    space: AbstractSpace | None = eqx.field(static=True, default=None)

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        return self.score(jax.lax.stop_gradient(self.level), x)

    def diagonal(self, x: Point) -> Point:
        """The diagonal of s2, in the shape of x."""
        return self.score.diagonal(x)


class FromScore(AbstractSecondOrder):
    """The derivative of a score (or of an energy's): s2 = d s1 / dx, by automatic differentiation.

    A product costs one pass, the diagonal and the matrix D of them. The Jacobian of a free network need not be
    symmetric, and is given as it is.

    >>> import jax.numpy as jnp, unnorm as un
    >>> FromScore(un.energies.standard_gaussian(3, scale=0.5)).diagonal(jnp.ones(3)).tolist()
    [-4.0, -4.0, -4.0]
    """

    score: AbstractScore = eqx.field(converter=as_score)

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        return self.score(t, x)

    def at(self, t: Level, condition: Any = None) -> AbstractEnergy | AbstractLevelScore:
        """The level of the score it is made of: whoever needs its derivative takes it."""
        return self.score.at(t)

    def apply(self, x: Point, v: Point) -> Point:
        return jax.jvp(lambda y: self.score(jnp.zeros(()), y), (x,), (v,))[1]

    def diagonal(self, x: Point) -> Point:
        # One coordinate after another: together they would take the memory of the whole matrix.
        def entry(i):
            unit = jnp.zeros(x.size, x.dtype).at[i].set(1).reshape(x.shape)
            return self.apply(x, unit).reshape(-1)[i]

        return jax.lax.map(entry, jnp.arange(x.size)).reshape(x.shape)


class AbstractFactored(AbstractSecondOrder):
    """s2(x) = diag(alpha(x)) + beta(x) beta(x)', beta of D x r: products cost O(D r).

    beta beta' is positive semi-definite and alpha is free, so that both signs are within reach.
    """

    @abstractmethod
    def factors(self, x: Point) -> tuple[Float[Array, " d"], Float[Array, "d r"]]:
        """alpha and beta at x."""

    def at(self, t: Level, condition: Any = None) -> LevelSecondOrder:
        """The pair at the level it was learnt for."""
        return LevelSecondOrder(score=self, level=t)

    def diagonal(self, x: Point) -> Point:
        alpha, beta = self.factors(x)
        return (alpha + jnp.sum(beta**2, axis=1)).reshape(x.shape)

    def apply(self, x: Point, v: Point) -> Point:
        alpha, beta = self.factors(x)
        flat = v.reshape(-1)
        return (alpha * flat + beta @ (beta.T @ flat)).reshape(x.shape)


class LowRankSecondOrder(AbstractFactored):
    """alpha and beta from networks of D and D r outputs, beside a score s1 (Meng et al. 2021, section 4).

    >>> import jax, jax.numpy as jnp
    >>> model = low_rank_mlp(5, rank=2, key=jax.random.key(0))
    >>> model(0.0, jnp.zeros(5)).shape, model.apply(jnp.zeros(5), jnp.ones(5)).shape, model.matrix(jnp.zeros(5)).shape
    ((5,), (5,), (5, 5))
    """

    score: AbstractScore = eqx.field(converter=as_score)
    alpha: Callable[[Array], Array]
    beta: Callable[[Array], Array]
    rank: int = eqx.field(static=True)

    def __check_init__(self):
        require(self.rank >= 1, f"a low-rank second-order score needs a rank of at least 1, not {self.rank}")

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        return self.score(t, x)

    def factors(self, x: Point) -> tuple[Float[Array, " d"], Float[Array, "d r"]]:
        flat = x.reshape(-1)
        return self.alpha(flat), self.beta(flat).reshape(x.size, self.rank)


class DiagonalSecondOrder(AbstractFactored):
    """s2(x) taken as diag(alpha(x)): D numbers, which is what Ozaki's sampler and maps of uncertainty use.

    >>> import jax, jax.numpy as jnp
    >>> diagonal_mlp(5, key=jax.random.key(0)).diagonal(jnp.zeros(5)).shape
    (5,)
    """

    score: AbstractScore = eqx.field(converter=as_score)
    alpha: Callable[[Array], Array]

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        return self.score(t, x)

    def factors(self, x: Point) -> tuple[Float[Array, " d"], Float[Array, "d r"]]:
        return self.alpha(x.reshape(-1)), jnp.zeros((x.size, 0), x.dtype)


def _score_mlp(dimension: int, width: int, depth: int, key: PRNGKeyArray) -> FreeScore:
    return FreeScore(MLP(dimension, dimension, width=width, depth=depth, activation=jnp.tanh, key=key))


def low_rank_mlp(
    dimension: int, *, rank: int, width: int = 128, factor_width: int = 32, depth: int = 2, key: PRNGKeyArray
) -> LowRankSecondOrder:
    """Three perceptrons with tanh: s1 of `width` units, alpha and beta of `factor_width` (Song 2022, section 4.3)."""
    first, second, third = jax.random.split(key, 3)
    alpha = MLP(dimension, dimension, width=factor_width, depth=depth, activation=jnp.tanh, key=second)
    beta = MLP(dimension, dimension * rank, width=factor_width, depth=depth, activation=jnp.tanh, key=third)
    return LowRankSecondOrder(_score_mlp(dimension, width, depth, first), alpha, beta, rank)


def diagonal_mlp(
    dimension: int, *, width: int = 128, factor_width: int = 32, depth: int = 2, key: PRNGKeyArray
) -> DiagonalSecondOrder:
    """Two perceptrons with tanh: s1 of `width` units, alpha of `factor_width`."""
    first, second = jax.random.split(key)
    alpha = MLP(dimension, dimension, width=factor_width, depth=depth, activation=jnp.tanh, key=second)
    return DiagonalSecondOrder(_score_mlp(dimension, width, depth, first), alpha)


class DenoisingPosterior(eqx.Module):
    """The clean point x given x~ = x + sigma z: its mean, its covariance, and the Gaussian that has both.

    Mean (Tweedie; Song 2022, Eq. 4.4): x~ + sigma^2 s1. Covariance (Eq. 4.18): sigma^2 I + sigma^4 s2.
    Exact for the exact scores of the noisy density; the Gaussian is exact for Gaussian data.

    >>> import jax.numpy as jnp, unnorm as un
    >>> noisy = un.energies.standard_gaussian(2, scale=2**0.5)  # data N(0, I) with noise of sigma = 1
    >>> posterior = DenoisingPosterior(FromScore(noisy), 1.0)
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
        return noisy + self.sigma**2 * self.score(jnp.zeros(()), noisy)

    def variances(self, noisy: Point) -> Point:
        """The diagonal of Cov[x | x~], in the shape of x~."""
        return self.sigma**2 + self.sigma**4 * self.score.diagonal(noisy)

    def apply(self, noisy: Point, v: Point) -> Point:
        """Cov[x | x~] v."""
        return self.sigma**2 * v + self.sigma**4 * self.score.apply(noisy, v)

    def covariance(self, noisy: Point) -> Float[Array, "d d"]:
        """Cov[x | x~], D x D: for small D only."""
        return self.sigma**2 * jnp.eye(noisy.size) + self.sigma**4 * self.score.matrix(noisy)

    def sample(self, noisy: Point, *, key: PRNGKeyArray) -> tuple[Point, Float[Array, ""]]:
        """A draw from the Gaussian of this mean and covariance, and how many eigenvalues were negative.

        A learnt s2 can have a covariance that is none; its negative eigenvalues are taken as 0 and counted.
        """
        covariance = self.covariance(noisy)
        values, vectors = symmetric_eigen((covariance + covariance.T) / 2)
        white = jax.random.normal(key, (noisy.size,), noisy.dtype)
        step = vectors @ (jnp.sqrt(jnp.maximum(values, 0)) * white)
        return self.mean(noisy) + step.reshape(noisy.shape), jnp.sum(values < 0).astype(float)


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
        return y + sigma**2 * score(jnp.zeros(()), y)

    def raise_order(moment):
        return lambda y: sigma**2 * jax.jacfwd(moment)(y) + jnp.tensordot(moment(y), mean(y), axes=0)

    moment = mean
    for _ in range(order - 1):
        moment = raise_order(moment)
    return moment(noisy)
