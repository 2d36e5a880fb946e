"""Second-order scores, s2(x) = Hessian of log q(x); the posterior of denoising that they give is in `posterior`.

With D coordinates s2 has D^2 numbers, so nothing here forms it unless asked: a second-order score gives its diagonal
and its products with vectors. It is also a score, s1(x) = grad log q(x), of one noise level: t plays no part.
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
