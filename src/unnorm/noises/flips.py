"""Noise on zeros and ones and on categories: some sites, or one, take another value."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.errors import InputError, require
from unnorm.noises.base import AbstractNoise, Level, Point, Scalar
from unnorm.spaces import AbstractSpace, Binary, Categorical


class AbstractSymmetricNoise(AbstractNoise):
    """A kernel with q(y | x) = q(x | y): the way back is another draw, and contrastive ratios are 0."""

    @abstractmethod
    def check(self, space: AbstractSpace) -> None:
        """Refuse, in one sentence, a space whose points it does not corrupt."""

    def propose(self, t: Level, x: Point, *, key: PRNGKeyArray) -> tuple[Point, Scalar]:
        return self.sample(t, x, key=key), jnp.zeros(())


def _check_values(categories: int, space: AbstractSpace, who: str) -> None:
    k = 2 if isinstance(space, Binary) else space.categories if isinstance(space, Categorical) else None
    if k is None:
        raise InputError(f"{who} changes zeros and ones, or categories, and points of {space} are neither")
    require(
        k == categories,
        f"{who} is made for {categories} values at every site, and points of {space} have {k}; pass categories={k}",
    )


def _other(values: Point, categories: int, key: PRNGKeyArray) -> Point:
    """Another value for every site, all others alike."""
    if categories == 2:
        return 1 - values
    shift = jax.random.randint(key, values.shape, 1, categories)
    return ((values.astype(int) + shift) % categories).astype(values.dtype)


class Flips(AbstractSymmetricNoise):
    """Every site takes another value with probability `rate`, all k - 1 others alike.

    log q(y | x) = c log(rate / (k - 1)) + (d - c) log(1 - rate) with c the number of sites where y differs. At a rate
    of (k - 1) / k nothing is left of x: y is uniform.

    >>> import math
    >>> quarter = Flips(0.25)
    >>> math.isclose(float(jnp.exp(quarter.log_prob(0.0, jnp.array([1.0, 0.0]), jnp.zeros(2)))), 0.1875, rel_tol=1e-5)
    True
    """

    rate: Float[Array, ""] | float
    categories: int = eqx.field(static=True, default=2)

    def __check_init__(self):
        require_count(self.categories, 2, "the values of a site")
        rate = self.rate
        require(
            not isinstance(rate, int | float) or 0 < rate <= (self.categories - 1) / self.categories,
            f"sites of {self.categories} values flip at a rate between 0 and {self.categories - 1}/{self.categories}, "
            f"at which nothing is left, not {rate}",
        )

    @property
    def makes_real_numbers(self) -> bool:
        return False

    def check(self, space: AbstractSpace) -> None:
        _check_values(self.categories, space, "Flips")

    def sample(self, t: Level, x: Point, *, key: PRNGKeyArray) -> Point:
        which, what = jax.random.split(key)
        return jnp.where(jax.random.bernoulli(which, self.rate, x.shape), _other(x, self.categories, what), x)

    def log_prob(self, t: Level, y: Point, x: Point) -> Scalar:
        changed, rate = jnp.sum((y != x).astype(float)), jnp.asarray(self.rate, float)
        return changed * jnp.log(rate / (self.categories - 1)) + (x.size - changed) * jnp.log1p(-rate)


class OneSite(AbstractSymmetricNoise):
    """One site, all alike, takes another value, all alike: y is a neighbour of x on the grid, one of d (k - 1).

    >>> OneSite().sample(0.0, jnp.zeros(3), key=jax.random.key(0)).sum().item()
    1.0
    """

    categories: int = eqx.field(static=True, default=2)

    def __check_init__(self):
        require_count(self.categories, 2, "the values of a site")

    @property
    def makes_real_numbers(self) -> bool:
        return False

    def check(self, space: AbstractSpace) -> None:
        _check_values(self.categories, space, "OneSite")

    def sample(self, t: Level, x: Point, *, key: PRNGKeyArray) -> Point:
        which, what = jax.random.split(key)
        here = jnp.arange(x.size).reshape(x.shape) == jax.random.randint(which, (), 0, x.size)
        return jnp.where(here, _other(x, self.categories, what), x)

    def log_prob(self, t: Level, y: Point, x: Point) -> Scalar:
        return jnp.where(jnp.sum(y != x) == 1, -jnp.log(float(x.size * (self.categories - 1))), -jnp.inf)
