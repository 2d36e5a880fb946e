"""Gaussians and Gaussian mixtures fitted by maximum likelihood: the baselines every energy must beat.

Expectation-maximisation (Dempster, Laird and Rubin 1977) with full covariances, started from k-means++ seeds, compiled
whole. They double as proposals for log Z, where a fitted mixture is close enough for importance sampling to work.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from unnorm.energies.base import AbstractNormalised
from unnorm.energies.gaussian import Gaussian, gaussian
from unnorm.energies.mixture import GaussianMixture
from unnorm.errors import require


def fit_gaussian(data: Any, ridge: float = 1e-6) -> Gaussian:
    """The maximum-likelihood Gaussian of n x d points; `ridge` times the mean variance is added to its covariance."""
    data = np.asarray(data, dtype=np.float64)
    require(len(data) >= 2, "a Gaussian needs at least 2 points to be fitted")
    covariance = np.atleast_2d(np.cov(data.T, bias=True))
    covariance = covariance + ridge * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    return gaussian(data.mean(0), covariance)


def moment_gaussian(data: Float[Array, "n d"], widen: float = 1.0, ridge: float = 1e-6) -> Gaussian:
    """The Gaussian with the data's mean and `widen` times its standard deviations, inside compiled code too."""
    offset = data - data.mean(0)
    covariance = widen**2 * offset.T @ offset / len(data)
    covariance = covariance + ridge * jnp.trace(covariance) / len(covariance) * jnp.eye(len(covariance))
    return Gaussian(data.mean(0), _packed(covariance))


def _packed(covariance: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The packed precision factor of a covariance."""
    lower = jnp.linalg.cholesky(jnp.linalg.inv(covariance))
    return jnp.tril(lower, -1) + jnp.diag(jnp.log(jnp.diagonal(lower)))


@partial(jax.jit, static_argnums=1)
def _spread_seeds(data: Array, k: int, key: PRNGKeyArray) -> Array:
    """k-means++: each next centre is a data point drawn with probability proportional to its squared distance."""
    first, rest = jax.random.split(key)
    start = data[jax.random.randint(first, (), 0, len(data))]

    def pick(carry, key):
        nearest, latest = carry
        nearest = jnp.minimum(nearest, jnp.sum((data - latest) ** 2, 1))
        chosen = data[jax.random.categorical(key, jnp.log(nearest + 1e-30))]
        return (nearest, chosen), chosen

    _, others = jax.lax.scan(pick, (jnp.full(len(data), jnp.inf), start), jax.random.split(rest, k - 1))
    return jnp.concatenate([start[None], others])


def _mixture(weights: Array, means: Array, covariances: Array) -> GaussianMixture:
    return GaussianMixture(jnp.log(weights), means, jax.vmap(_packed)(covariances))


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
        offsets = points[:, None] - mixture.means
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


@eqx.filter_jit
def _fit(data: Array, seeds: Float[Array, "k d"], steps: Array, ridge: Array, tolerance: Array) -> GaussianMixture:
    """EM from the given means, until a step gains less than `tolerance` nats per row or `steps` are taken."""
    (n, d), k = data.shape, len(seeds)
    floor = ridge * jnp.mean(jnp.var(data, 0)) * jnp.eye(d, dtype=data.dtype)
    centred = data - data.mean(0)
    rows, real = _blocks(data)
    spread = jnp.broadcast_to(centred.T @ centred / n / k ** (2 / d) + floor, (k, d, d))
    start = _mixture(jnp.full(k, 1.0 / k, data.dtype), seeds, spread)

    def go_on(carry):
        _, before, now, step = carry
        return (step < steps) & ((step < 2) | (now - before > tolerance))

    def climb(carry):
        mixture, _, now, step = carry
        sums = _pass(mixture, rows, real)
        counts = sums.counts + 1e-6
        shift = sums.first / counts[:, None]
        covariances = sums.second / counts[:, None, None] - shift[:, :, None] * shift[:, None, :] + floor
        moved = _mixture(counts / counts.sum(), mixture.means + shift, covariances)
        return moved, now, sums.log_likelihood / n, step + 1

    low = jnp.asarray(-jnp.inf, data.dtype)
    return jax.lax.while_loop(go_on, climb, (start, low, low, jnp.asarray(0)))[0]


def fit_mixture(
    data: Float[Array, "n d"],
    k: int,
    *,
    steps: int = 100,
    ridge: float = 1e-3,
    tolerance: float = 1e-5,
    key: PRNGKeyArray,
) -> GaussianMixture:
    """A k-component mixture by EM. `ridge` times the mean variance is added to every covariance.

    It ends after `steps`, or when a step gains less than `tolerance` nats per row.

    >>> import jax
    >>> points = jax.random.normal(jax.random.key(0), (500, 2))
    >>> fit_mixture(points, 3, key=jax.random.key(1)).means.shape
    (3, 2)
    """
    seeds = _spread_seeds(data, k, key)
    return _fit(data, seeds, jnp.asarray(steps), jnp.asarray(ridge), jnp.asarray(tolerance))


def committee(
    data: Float[ArrayLike, "n d"], k: int, *, members: int = 4, ridge: float = 1e-2, key: PRNGKeyArray
) -> GaussianMixture:
    """The average density of `members` mixtures of k components, each climbed to from other seeds.

    Where one mixture overfits or misses, the others do not: by Jensen's inequality the average's log-likelihood is at
    least the members' mean, on any data, and on held-out rows it is often above the best of them by a wide margin. It
    is a mixture itself, of members x k components.

    >>> import jax
    >>> points = jax.random.normal(jax.random.key(0), (500, 2))
    >>> len(committee(points, 2, members=3, key=jax.random.key(1)).weights)
    6
    """
    require(members >= 1, f"a committee needs at least one member, not {members}")
    data = jnp.asarray(data)
    # One after another: at a time they would need as many times the memory, and are no faster.
    fits = [fit_mixture(data, k, ridge=ridge, key=one) for one in jax.random.split(key, members)]
    return GaussianMixture(
        jnp.concatenate([jax.nn.log_softmax(fit.logits) for fit in fits]),
        jnp.concatenate([fit.means for fit in fits]),
        jnp.concatenate([fit.components.factor for fit in fits]),
    )


def mean_log_prob(density: AbstractNormalised, rows: Float[Array, "n d"]) -> float:
    """The mean log density of rows."""
    return float(_mean_log_prob(density, jnp.asarray(rows)))


_mean_log_prob = eqx.filter_jit(lambda density, rows: jnp.mean(jax.vmap(density.log_prob)(rows)))


def best_committee(
    train: Float[ArrayLike, "n d"],
    valid: Float[ArrayLike, "m d"],
    *,
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64),
    ridges: tuple[float, ...] = (1e-2, 1e-3, 1e-4),
    members: int = 4,
    key: PRNGKeyArray,
) -> tuple[GaussianMixture, int]:
    """The committee, and its members' size, with the highest held-out log-likelihood.

    Sizes are tried upwards and given up once two in a row have not improved, or when a component would have fewer than
    d + 2 rows to live on; at each size the ridge falls for as long as that helps.
    """
    train, valid = jnp.asarray(train), jnp.asarray(valid)
    enough = max(5, train.shape[1] + 2)
    sizes = tuple(k for k in sizes if k * enough <= len(train)) or (1,)
    best: tuple[GaussianMixture, int] | None = None
    highest, worse = -np.inf, 0
    for k in sizes:
        before, of_size = highest, -np.inf
        for ridge in ridges:
            # One Gaussian has nothing to disagree about.
            jury = 1 if k == 1 else members
            found = committee(train, k, members=jury, ridge=ridge, key=jax.random.fold_in(key, k))
            score = mean_log_prob(found, valid)
            if best is None or score > highest:
                best, highest = (found, k), score
            if not score > of_size:
                break
            of_size = score
        worse = 0 if highest > before else worse + 1
        if worse == 2:
            break
    assert best is not None
    return best


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
    candidates = [(fit_mixture(train, k, key=jax.random.fold_in(key, k)), k) for k in sizes]
    scores = [mean_log_prob(m, valid) for m, _ in candidates]
    finite = [s if np.isfinite(s) else -np.inf for s in scores]
    return candidates[int(np.argmax(finite))]


def random_mixture(dimension: int, components: int, *, key: PRNGKeyArray) -> GaussianMixture:
    """A mixture to start learning from: unit covariances, standard normal means, equal weights."""
    means = jax.random.normal(key, (components, dimension))
    return GaussianMixture(jnp.zeros(components), means, jnp.zeros((components, dimension, dimension)))
