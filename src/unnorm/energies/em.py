"""Gaussians and Gaussian mixtures fitted by maximum likelihood: the baselines every energy must beat.

Expectation-maximisation (Dempster, Laird and Rubin 1977) started from k-means++ seeds, compiled whole. They double as
proposals for log Z, where a fitted mixture is close enough for importance sampling to work.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.energies.base import AbstractNormalised
from unnorm.energies.gaussian import GaussianDensity, gaussian
from unnorm.energies.kde import any_row
from unnorm.energies.mixture import GaussianMixture
from unnorm.errors import require
from unnorm.small_matrices import cholesky, inverse_lower


def fit_gaussian(data: Any, ridge: float = 1e-6) -> GaussianDensity:
    """The maximum-likelihood Gaussian of n x d points; `ridge` times the mean variance is added to its covariance."""
    data = np.asarray(data, dtype=np.float64)
    require(len(data) >= 2, "a Gaussian needs at least 2 points to be fitted")
    covariance = np.atleast_2d(np.cov(data.T, bias=True))
    covariance = covariance + ridge * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    return gaussian(data.mean(0), covariance)


def moment_gaussian(data: Float[Array, "n d"], widen: float = 1.0, ridge: float = 1e-6) -> GaussianDensity:
    """The Gaussian with the data's mean and `widen` times its standard deviations, inside compiled code too."""
    offset = data - data.mean(0, keepdims=True)
    covariance = widen**2 * offset.T @ offset / len(data)
    covariance = covariance + ridge * jnp.trace(covariance) / len(covariance) * jnp.eye(len(covariance))
    return GaussianDensity(data.mean(0), _packed(covariance))


def _packed(covariance: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The packed precision factor of a covariance."""
    # With rows and columns reversed, the inverse of a Cholesky factor is the factor of the inverse.
    lower = inverse_lower(cholesky(covariance[::-1, ::-1]))[::-1, ::-1].T
    return jnp.tril(lower, -1) + jnp.diag(jnp.log(jnp.diagonal(lower)))


def _spread_seeds(data: Array, k: int, key: PRNGKeyArray) -> Array:
    """k-means++: each next centre is a data point drawn with probability proportional to its squared distance."""
    first, rest = jax.random.split(key)
    start = any_row(data, key=first)

    def pick(carry, key):
        nearest, latest = carry
        nearest = jnp.minimum(nearest, jnp.sum((data - latest[None]) ** 2, 1))
        chosen = data[jax.random.categorical(key, jnp.log(nearest + 1e-30))]
        return (nearest, chosen), chosen

    _, others = jax.lax.scan(pick, (jnp.full(len(data), jnp.inf), start), jax.random.split(rest, k - 1))
    return jnp.concatenate([start[None], others])


def _mixture(weights: Array, means: Array, covariances: Array) -> GaussianMixture:
    # An empty component gets a finite logarithm: infinities would meet zeros in the responsibilities.
    logits = jnp.where(weights > 0, jnp.log(jnp.maximum(weights, 1e-30)), -1e30)
    return GaussianMixture(logits, means, jax.vmap(_packed)(covariances))


class Covariance(NamedTuple):
    """What a component's covariance is made of: shares that add up to one.

    `full` keeps what EM finds; `diagonal` its diagonal; `spherical` its mean variance; `tied` the average of all
    components. In between lies shrinkage, which helps where a component has few rows for its d (d + 1) / 2 numbers.

    >>> SPHERICAL.of(jnp.diag(jnp.array([1.0, 3.0]))[None], jnp.ones(1)).tolist()
    [[[2.0, 0.0], [0.0, 2.0]]]
    """

    full: float | Array = 0.0
    diagonal: float | Array = 0.0
    spherical: float | Array = 0.0
    tied: float | Array = 0.0

    def of(self, covariances: Float[Array, "k d d"], weights: Float[Array, " k"]) -> Float[Array, "k d d"]:
        """The covariances EM found, for components of these weights, in the form wanted."""
        unit = jnp.eye(covariances.shape[-1], dtype=covariances.dtype)[None]
        diagonal = covariances * unit
        spherical = jnp.trace(covariances, axis1=1, axis2=2)[:, None, None] / unit.shape[-1] * unit
        tied = jnp.einsum("k,kij->ij", weights / weights.sum(), covariances)[None]
        return self.full * covariances + self.diagonal * diagonal + self.spherical * spherical + self.tied * tied


FULL, DIAGONAL, SPHERICAL, TIED = (
    Covariance(full=1.0),
    Covariance(diagonal=1.0),
    Covariance(spherical=1.0),
    Covariance(tied=1.0),
)

#: Mixtures are fitted with this many components, those above the number asked for empty: few programs serve all.
_PADDED = (16, 64)

#: Rows looked at together in a pass over the data: bounds memory by this times components times dimension.
BLOCK = 2048


class _Sums(NamedTuple):
    """What a pass over the data leaves: log-likelihood, and responsibilities' moments about the current means."""

    log_likelihood: Float[Array, ""]
    counts: Float[Array, " k"]
    first: Float[Array, "k d"]
    second: Float[Array, "k d d"]


def _pass(mixture: GaussianMixture, rows: Float[Array, "blocks block d"], real: Float[Array, "blocks block"]) -> _Sums:
    """Responsibilities of every row, summed into moments one block at a time. `real` is 0 for rows that only pad."""

    def block(sums: _Sums, inputs) -> tuple[_Sums, None]:
        points, counted = inputs
        parts = jax.vmap(mixture.component_log_probs)(points)
        total = jax.nn.logsumexp(parts, axis=1)
        shares = jnp.exp(parts - total[:, None]) * counted[:, None]
        # About the means rather than about 0: the difference of large squares would lose a narrow component.
        offsets = points[:, None] - mixture.means[None]
        weighted = shares[:, :, None] * offsets
        found = _Sums(
            jnp.sum(total * counted),
            shares.sum(0),
            weighted.sum(0),
            jnp.einsum("nki,nkj->kij", weighted, offsets),
        )
        return jax.tree.map(jnp.add, sums, found), None

    k, d = mixture.means.shape
    nothing = _Sums(jnp.zeros(()), jnp.zeros(k), jnp.zeros((k, d)), jnp.zeros((k, d, d)))
    return jax.lax.scan(block, jax.tree.map(lambda a: a.astype(rows.dtype), nothing), (rows, real))[0]


def _blocks(data: Float[Array, "n d"]) -> tuple[Array, Array]:
    n, d = data.shape
    count = -(-n // BLOCK)
    size = -(-n // count)
    padding = count * size - n
    rows = jnp.concatenate([data, jnp.broadcast_to(data[:1], (padding, d))]).reshape(count, size, d)
    real = (jnp.arange(count * size) < n).astype(data.dtype).reshape(count, size)
    return rows, real


class _Settings(NamedTuple):
    """Arrays, so that no setting compiles anew."""

    components: Array
    steps: Array
    ridge: Array
    tolerance: Array
    covariance: Covariance
    #: A component that fewer rows than this answer to is given up.
    least: Array


@compiled
def _fit(data: Array, size: int, settings: _Settings, key: PRNGKeyArray) -> GaussianMixture:
    """EM from spread seeds, until a step gains less than `tolerance` nats per row or `steps` are taken.

    Of `size` components those beyond the number asked for are empty. Seeds are drawn one after another, so the first k
    of many are those that k alone would have been.
    """
    (n, d), k = data.shape, settings.components
    seeds = _spread_seeds(data, size, key)
    alive = jnp.arange(size) < k
    centred = data - data.mean(0, keepdims=True)
    spread = jnp.broadcast_to(centred.T @ centred / n / k ** (2 / d) + _floor(data, settings), (size, d, d))
    return _climbed(_mixture(alive / k, seeds, settings.covariance.of(spread, alive / k)), data, settings)


@compiled
def _go_on(mixture: GaussianMixture, data: Array, settings: _Settings) -> GaussianMixture:
    """EM from a mixture that is there."""
    return _climbed(mixture, data, settings)


def _floor(data: Array, settings: _Settings) -> Array:
    """What is added to every covariance."""
    return settings.ridge * jnp.mean(jnp.var(data, 0)) * jnp.eye(data.shape[1], dtype=data.dtype)


def _climbed(start: GaussianMixture, data: Array, settings: _Settings) -> GaussianMixture:
    n = len(data)
    alive = jnp.arange(len(start.logits)) < settings.components
    floor = _floor(data, settings)
    rows, real = _blocks(data)

    def go_on(carry):
        _, before, now, step, _ = carry
        return (step < settings.steps) & ((step < 2) | (now - before > settings.tolerance))

    def climb(carry):
        mixture, _, now, step, alive = carry
        sums = _pass(mixture, rows, real)
        alive = alive & (sums.counts >= settings.least)
        counts = sums.counts + 1e-6
        shift = sums.first / counts[:, None]
        covariances = sums.second / counts[:, None, None] - shift[:, :, None] * shift[:, None, :]
        counts = jnp.where(alive, counts, 0.0)
        shaped = settings.covariance.of(covariances, counts) + floor[None]
        moved = _mixture(counts / counts.sum(), mixture.means + shift, shaped)
        return moved, now, sums.log_likelihood / n, step + 1, alive

    low = jnp.asarray(-jnp.inf, data.dtype)
    return jax.lax.while_loop(go_on, climb, (start, low, low, jnp.asarray(0), alive))[0]


def fit_mixture(
    data: Float[Array, "n d"],
    k: int,
    *,
    steps: int = 100,
    ridge: float = 1e-3,
    tolerance: float = 1e-5,
    covariance: Covariance = FULL,
    key: PRNGKeyArray,
) -> GaussianMixture:
    """A k-component mixture by EM. `ridge` times the mean variance is added to every covariance.

    It ends after `steps`, or when a step gains less than `tolerance` nats per row.

    >>> import jax
    >>> points = jax.random.normal(jax.random.key(0), (500, 2))
    >>> fit_mixture(points, 3, key=jax.random.key(1)).means.shape
    (3, 2)
    """
    return trimmed(
        fit_padded(data, k, steps=steps, ridge=ridge, tolerance=tolerance, covariance=covariance, key=key), k
    )


def fit_padded(
    data: Float[Array, "n d"],
    k: int,
    *,
    steps: int = 100,
    ridge: float = 1e-3,
    tolerance: float = 1e-5,
    covariance: Covariance = FULL,
    key: PRNGKeyArray,
) -> GaussianMixture:
    """`fit_mixture` with empty components behind its k: mixtures of many sizes that share the programs they go through.

    >>> import jax
    >>> points = jax.random.normal(jax.random.key(0), (500, 2))
    >>> fit_padded(points, 3, key=jax.random.key(1)).means.shape
    (16, 2)
    """
    require(1 <= k <= len(data), f"{len(data)} rows cannot be fitted by {k} components")
    size = next((size for size in _PADDED if k <= size), k)
    numbers = jax.tree.map(jnp.asarray, (k, steps, float(ridge), float(tolerance), covariance, 0.0))
    return _fit(data, size, _Settings(*numbers), key)


def fit_on(
    mixture: GaussianMixture,
    data: Float[Array, "n d"],
    *,
    steps: int = 100,
    ridge: float = 1e-3,
    tolerance: float = 1e-5,
    covariance: Covariance = FULL,
) -> GaussianMixture:
    """EM from a mixture that was fitted to other rows: what it was told by those that are not here is forgotten.

    A component to which no row answers any more is given up. It would stay where it stood, on the row that it was made
    for, as narrow as the ridge allows.

    >>> points = jax.random.normal(jax.random.key(0), (500, 2))
    >>> start = fit_mixture(points, 3, key=jax.random.key(1))
    >>> fit_on(start, points[:400]).means.shape
    (3, 2)
    """
    k = len(mixture.logits)
    numbers = jax.tree.map(jnp.asarray, (k, steps, float(ridge), float(tolerance), covariance, 1.0))
    return _go_on(mixture, data, _Settings(*numbers))


def trimmed(mixture: GaussianMixture, k: int) -> GaussianMixture:
    """Its first k components."""
    # By NumPy, which has no program to compile for each size.
    parts = (mixture.logits, mixture.means, mixture.components.factor)
    return GaussianMixture(*(jnp.asarray(np.asarray(part)[:k]) for part in parts))


def mean_log_prob(density: AbstractNormalised, rows: Float[Array, "n d"]) -> float:
    """The mean log density of rows."""
    return float(_mean_log_prob(density, jnp.asarray(rows)))


_mean_log_prob = compiled(lambda density, rows: jnp.mean(jax.vmap(density.log_prob)(rows)))


def best_mixture(
    train: Float[ArrayLike, "n d"],
    valid: Float[ArrayLike, "m d"],
    *,
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16),
    key: PRNGKeyArray,
) -> tuple[GaussianMixture, int]:
    """The mixture, and its number of components, with the highest held-out log-likelihood among `sizes`."""
    train, valid = jnp.asarray(train), jnp.asarray(valid)
    sizes = tuple(k for k in sizes if k * 5 <= len(train)) or (1,)
    candidates = [fit_padded(train, k, key=jax.random.fold_in(key, k)) for k in sizes]
    scores = [mean_log_prob(mixture, valid) for mixture in candidates]
    best = int(np.argmax([s if np.isfinite(s) else -np.inf for s in scores]))
    return trimmed(candidates[best], sizes[best]), sizes[best]


def random_mixture(dimension: int, components: int, *, key: PRNGKeyArray) -> GaussianMixture:
    """A mixture to start learning from: unit covariances, standard normal means, equal weights."""
    means = jax.random.normal(key, (components, dimension))
    return GaussianMixture(jnp.zeros(components), means, jnp.zeros((components, dimension, dimension)))
