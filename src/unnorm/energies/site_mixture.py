"""Mixtures of products: several laws of independent sites, one of them chosen for every point; fitted by EM."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, Shaped

from unnorm.arguments import require_count
from unnorm.compiling import compiled
from unnorm.energies.base import AbstractNormalised, Point, Scalar
from unnorm.energies.factorised import array_space, drawn, values_of
from unnorm.energies.site_network import shares_of
from unnorm.errors import require
from unnorm.spaces import AbstractArray, AbstractSpace

#: Steps of EM at the most, and the change of every probability below which it stops.
MOST_STEPS, LEAST_CHANGE = 2000, 1e-5
#: Numbers of components that are tried.
COUNTS = (1, 2, 4, 8, 16, 32, 64)


class SiteMixture(AbstractNormalised):
    """p(x) = sum_m softmax(logits)_m prod_i softmax(tables_mi)(x_i): latent classes (Lazarsfeld and Henry 1968).

    >>> from unnorm.spaces import Binary
    >>> coins = SiteMixture(Binary((2,)), jnp.zeros(2), jnp.zeros((2, 2, 2)))
    >>> round(float(jnp.exp(coins.log_prob(jnp.ones(2)))), 4)
    0.25
    """

    logits: Float[Array, " m"]
    tables: Float[Array, "m sites k"]
    space: AbstractArray = eqx.field(static=True)

    def __init__(self, space: AbstractSpace, logits: Any, tables: Any):
        self.space = array_space(space)
        self.logits, self.tables = jnp.asarray(logits, float), jnp.asarray(tables, float)
        expected = (len(self.logits), space.size, values_of(space))
        require(
            self.tables.shape == expected,
            f"a mixture has a table of {expected} for its components, sites and values, not {self.tables.shape}",
        )

    def _parts(self, x: Point) -> Float[Array, " m"]:
        laws = jax.nn.log_softmax(self.tables)
        ones = shares_of(x, self.tables.shape[-1])
        return jax.nn.log_softmax(self.logits) + jnp.sum(laws * ones[None], axis=(1, 2))

    def __call__(self, x: Point) -> Scalar:
        return -jax.nn.logsumexp(self._parts(x))

    def responsibilities(self, x: Point) -> Float[Array, " m"]:
        """p(m | x): how likely each component has made this point."""
        return jax.nn.softmax(self._parts(x))

    def sample(self, *, key: PRNGKeyArray) -> Point:
        which, what = jax.random.split(key)
        table = self.tables[jax.random.categorical(which, self.logits)]
        return drawn(table, what).astype(self.space.struct().dtype).reshape(self.space.shape)


@compiled
def _em(start: SiteMixture, rows: Float[Array, "n sites k"], prior: float):
    """Expectation and maximisation in turn, until no probability changes any more; and the mean log-likelihood."""
    n = len(rows)

    def parts(weights: Array, tables: Array) -> Float[Array, "n m"]:
        return weights[None] + jnp.einsum("mik,nik->nm", tables, rows)

    def unfinished(carry):
        return (carry[2] > LEAST_CHANGE) & (carry[3] < MOST_STEPS)

    def step(carry):
        weights, tables, _, count = carry
        shares = jax.nn.softmax(parts(weights, tables), axis=1)
        counts = jnp.einsum("nm,nik->mik", shares, rows) + prior
        later = jnp.log(shares.sum(0) + prior) - jnp.log(n + prior * shares.shape[1])
        laws = jnp.log(counts) - jnp.log(counts.sum(-1, keepdims=True))
        change = jnp.maximum(
            jnp.max(jnp.abs(jnp.exp(later) - jnp.exp(weights))), jnp.max(jnp.abs(jnp.exp(laws) - jnp.exp(tables)))
        )
        return later, laws, change, count + 1

    first = (jax.nn.log_softmax(start.logits), jax.nn.log_softmax(start.tables), jnp.asarray(1.0), 0)
    weights, tables, _, _ = jax.lax.while_loop(unfinished, step, first)
    found = eqx.tree_at(lambda model: (model.logits, model.tables), start, (weights, tables))
    return found, jnp.mean(jax.nn.logsumexp(parts(weights, tables), axis=1))


def fit_site_mixture(
    space: AbstractSpace,
    rows: Shaped[ArrayLike, "n ..."],
    components: int,
    *,
    prior: float = 0.5,
    starts: int = 3,
    key: PRNGKeyArray,
) -> SiteMixture:
    """A mixture of products by EM: the best of some `starts`, each from tables at random rows.

    `prior` rows are added for each value of each site of each component, so that nothing is impossible.

    >>> from unnorm.spaces import Binary
    >>> rows = jnp.concatenate([jnp.zeros((50, 4)), jnp.ones((50, 4))])
    >>> fitted = fit_site_mixture(Binary((4,)), rows, 2, key=jax.random.key(0))
    >>> bool(fitted.log_prob(jnp.ones(4)) > 2 * jnp.log(0.5))
    True
    """
    require_count(components, 1, "the components of a mixture")
    require(prior > 0, f"the rows added for each value must be more than none, not {prior}")
    array, k = array_space(space), values_of(space)
    ones = jax.vmap(lambda x: shares_of(x, k))(array.cast(rows, "training"))
    best, most = None, -np.inf
    for start in jax.random.split(key, starts if components > 1 else 1):
        centres = ones[jax.random.choice(start, len(ones), (components,), replace=len(ones) < components)]
        tables = jnp.log(0.5 * centres + 0.5 * ones.mean(0)[None] + 0.01)
        begun = SiteMixture(array, jnp.zeros(components), jax.nn.log_softmax(tables))
        found, value = _em(begun, ones, prior)
        if best is None or float(value) > most:
            best, most = found, float(value)
    assert best is not None
    return best


def refit_site_mixture(mixture: SiteMixture, rows: Shaped[ArrayLike, "n ..."], *, prior: float = 0.5) -> SiteMixture:
    """A mixture fitted on to other rows by EM, from where it is.

    >>> from unnorm.spaces import Binary
    >>> apart = SiteMixture(Binary((2,)), jnp.zeros(1), jnp.zeros((1, 2, 2)))
    >>> jnp.exp(refit_site_mixture(apart, jnp.array([[0.0, 1.0]])).tables[0, :, 1]).tolist()
    [0.25, 0.75]
    """
    require(prior > 0, f"the rows added for each value must be more than none, not {prior}")
    k = values_of(mixture.space)
    ones = jax.vmap(lambda x: shares_of(x, k))(mixture.space.cast(rows, "training"))
    return _em(mixture, ones, prior)[0]


def best_site_mixture(
    space: AbstractSpace,
    train: Shaped[ArrayLike, "n ..."],
    valid: Shaped[ArrayLike, "m ..."],
    *,
    counts: tuple[int, ...] = COUNTS,
    key: PRNGKeyArray,
) -> SiteMixture:
    """The mixture of products with the number of components that held-out rows like best.

    More are tried until one is worse than the best so far by more than its error.

    >>> from unnorm.spaces import Binary
    >>> rows = jnp.concatenate([jnp.zeros((50, 4)), jnp.ones((50, 4))])
    >>> len(best_site_mixture(Binary((4,)), rows[::2], rows[1::2], key=jax.random.key(0)).logits)
    2
    """
    array = array_space(space)
    rows = array.cast(valid, "validation")
    best, most = None, np.empty(0)
    for count, start in zip(counts, jax.random.split(key, len(counts)), strict=True):
        found = fit_site_mixture(array, train, count, key=start)
        values = -np.asarray(jax.vmap(found)(rows), np.float64)
        gain = values - most if best is not None else values
        if best is None or gain.mean() > 0:
            best, most = found, values
        elif gain.mean() < -2 * gain.std() / np.sqrt(len(gain)):
            break
    assert best is not None
    return best
