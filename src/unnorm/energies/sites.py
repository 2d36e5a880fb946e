"""Sites that know nothing of each other: the simplest density on zeros and ones, or on categories."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, Shaped

from unnorm.energies.base import AbstractNormalised, Point, Scalar
from unnorm.energies.factorised import AbstractFactorised, AbstractSitewise, array_space, drawn, values_of
from unnorm.errors import require
from unnorm.spaces import AbstractArray, AbstractSpace


def picked(table: Float[Array, "... k"], x: Point) -> Float[Array, "..."]:
    """The entry of every site's row that its value points to; of two entries, as a function that has a slope in x."""
    if table.shape[-1] == 2:
        share = x.astype(table.dtype)
        return (1 - share) * table[..., 0] + share * table[..., 1]
    return jnp.take_along_axis(table, x.astype(int)[..., None], axis=-1)[..., 0]


class IndependentSites(AbstractNormalised, AbstractFactorised, AbstractSitewise):
    """p(x) = prod_i softmax(logits_i)(x_i): every site has a law of its own.

    `logits` has the shape of a point and, along a last axis, one entry for each value.

    >>> from unnorm.spaces import Binary
    >>> coins = IndependentSites(Binary((2,)), jnp.log(jnp.array([[0.5, 0.5], [0.2, 0.8]])))
    >>> round(float(jnp.exp(coins.log_prob(jnp.ones(2)))), 4)
    0.4
    """

    logits: Float[Array, "... k"]
    space: AbstractArray = eqx.field(static=True)

    def __init__(self, space: AbstractSpace, logits: Float[Array, "... k"]):
        self.space = array_space(space)
        self.logits = jnp.asarray(logits, float)
        expected = (*self.space.shape, values_of(space))
        require(
            self.logits.shape == expected,
            f"sites of {space} have logits of shape {expected}, one for every value, not {self.logits.shape}",
        )

    @property
    def blocks(self) -> tuple[np.ndarray, ...]:
        return (np.arange(self.space.size),)

    def __call__(self, x: Point) -> Scalar:
        return -jnp.sum(picked(jax.nn.log_softmax(self.logits), x))

    def sample(self, *, key: PRNGKeyArray) -> Point:
        return drawn(self.logits, key).astype(self.space.struct().dtype)

    def conditional_logits(self, block: int, x: Point) -> Float[Array, "sites k"]:
        return self.logits.reshape(-1, self.logits.shape[-1])

    def site_logits(self, site: int | Int[Array, ""], x: Point) -> Float[Array, " k"]:
        return self.logits.reshape(-1, self.logits.shape[-1])[site]


def uniform(space: AbstractSpace) -> IndependentSites:
    """Every point of a Binary or Categorical space alike: E(x) = size log k.

    >>> from unnorm.spaces import Categorical
    >>> round(float(uniform(Categorical((2,), 3))(jnp.zeros(2, int))), 4)
    2.1972
    """
    array = array_space(space)
    return IndependentSites(array, jnp.zeros((*array.shape, values_of(space))))


def counts_of(rows: Point, k: int) -> Float[np.ndarray, "... k"]:
    """How often every site of the rows has each of k values."""
    values = np.asarray(rows).astype(np.int64)
    return np.stack([(values == value).sum(axis=0) for value in range(k)], axis=-1).astype(np.float64)


def fit_sites(space: AbstractSpace, rows: Shaped[ArrayLike, "n ..."], *, prior: float = 1.0) -> IndependentSites:
    """The law of every site by its frequencies in the rows, with `prior` rows added for each value of each site.

    Without that addition a value that the rows do not show would be impossible.

    >>> from unnorm.spaces import Binary
    >>> jnp.exp(fit_sites(Binary((1,)), jnp.array([[1.0], [1.0]])).logits).round(2).tolist()
    [[0.25, 0.75]]
    """
    require(prior >= 0, f"the rows added for each value cannot be fewer than none, not {prior}")
    array = array_space(space)
    counts = counts_of(array.cast(rows, "training"), values_of(space)) + prior
    return IndependentSites(array, jnp.asarray(np.log(counts / counts.sum(axis=-1, keepdims=True))))
