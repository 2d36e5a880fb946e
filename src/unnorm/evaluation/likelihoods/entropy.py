"""Entropies and divergences of what a score is the score of, from losses over levels alone.

With g^2 / sigma^2 the rate of F = log(sigma^2 / alpha^2) and E over rows, levels uniform in F (total Z) and noise,

    H(p_least) = H(p_1) - D log(alpha_1 / alpha_least) - Z/2 E[sigma^2 |s(t, x(t))|^2],
    KL(p, q) = Z/2 E[sigma^2 |s_p - s_q|^2] + KL(p_1, q_1)

(Song et al. 2021, Thms 1 and 4; Song 2022, Thms 9.2 and A.1, whose remark prints the clean x where x(t) is meant).
H(p_1) is taken to be -E log pi(x_1), above it by KL(p_1, pi).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.compiling import compiled
from unnorm.errors import InputError, require
from unnorm.estimate import Estimate, mean_estimate
from unnorm.noises import same_noise
from unnorm.noises.times import likelihood_mass
from unnorm.scores import AbstractLevelledScore

#: Rows that are looked at side by side.
BLOCK = 256


@compiled
def _squares(
    score: AbstractLevelledScore,
    other: AbstractLevelledScore | None,
    rows: Float[Array, "n ..."],
    keys: Array,
    levels: int,
    last: Array,
) -> Float[Array, " n"]:
    """E sigma^2 |s - s'|^2 for each row, less D where there is no other."""
    noise = score.noise
    least = noise.least_level().astype(rows.dtype)
    mass = likelihood_mass(noise, least, last)

    def one(x, key):
        shift, draw = jax.random.split(key)
        at = (jnp.arange(levels) + jax.random.uniform(shift, (), x.dtype)) / levels

        def each(total, inputs):
            share, k = inputs
            t = noise.level_at(noise.log_ratio(least) - 0.5 * mass * share)
            z = jax.random.normal(k, x.shape, x.dtype)
            y = noise.alpha(t) * x + noise.sigma(t) * z
            slope = score(t, y)
            # Of the square alone D is taken away, and what N(0, I) data would have beside it.
            apart = slope if other is None else slope - other(t, y)
            own = 0.0 if other is not None else x.size
            return total + noise.variance(t) * jnp.sum(apart**2) - own, None

        total, _ = jax.lax.scan(each, jnp.zeros((), x.dtype), (at, jax.random.split(draw, levels)))
        return 0.5 * mass * total / levels

    return jax.vmap(one)(rows, keys)


def _all(
    score: AbstractLevelledScore, other: AbstractLevelledScore | None, rows: Any, levels: int, last: float, key: Array
) -> tuple[np.ndarray, Float[Array, "n ..."]]:
    for each in (score, other):
        if each is not None and not isinstance(each, AbstractLevelledScore):
            raise InputError(f"this is an integral over the levels of a noise, and a {type(each).__name__} has none")
    require_count(levels, 1, "levels a row")
    rows = jnp.asarray(rows, float)
    keys, found = jax.random.split(key, len(rows)), []
    for begin in range(0, len(rows), BLOCK):
        part = slice(begin, begin + BLOCK)
        found.append(np.asarray(_squares(score, other, rows[part], keys[part], int(levels), jnp.asarray(last, float))))
    return np.concatenate(found).astype(np.float64), rows


def flow_entropy(
    score: AbstractLevelledScore,
    rows: Any,
    *,
    levels: int = 200,
    last: float = 1.0,
    log_volume: float = 0.0,
    groups: np.ndarray | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """The entropy of what the rows are draws of, in nats, by their score: no density is computed.

    It is that of the rows with the noise of the least level, and right as far as the score is. `log_volume` is the log
    Jacobian of a standardisation. The error is that of rows, levels and noise together.

    >>> import unnorm as un
    >>> noise = un.noises.VariancePreserving()
    >>> score = un.scores.LevelledFunction(lambda t, x: -x, noise)  # data N(0, I)
    >>> found = flow_entropy(score, jax.random.normal(jax.random.key(0), (200, 1)), key=jax.random.key(1))
    >>> abs(found.value - 1.4189) < 4 * found.stderr
    True
    """
    squares, points = _all(score, None, rows, levels, last, key)
    noise, size = score.noise, int(np.prod(points.shape[1:]))
    least, end = noise.least_level().astype(float), jnp.asarray(last, float)
    alpha, variance = float(noise.alpha(end)), float(noise.variance(end))
    mass = float(likelihood_mass(noise, least, end))
    lengths = np.asarray(jnp.sum(points.reshape(len(points), -1) ** 2, axis=1), np.float64)
    top = 0.5 * (alpha**2 * lengths / variance + size + size * np.log(2 * np.pi * variance))
    shrinks = size * float(jnp.log(noise.alpha(end) / noise.alpha(least)))
    values = top - shrinks - squares - 0.5 * mass * size
    found = mean_estimate(values, f"entropy by the score, {levels} levels", groups)
    return Estimate(found.value + log_volume, found.stderr, found.method, found.diagnostics)


def score_divergence(
    score: AbstractLevelledScore,
    other: AbstractLevelledScore,
    rows: Any,
    *,
    levels: int = 200,
    last: float = 1.0,
    groups: np.ndarray | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """KL(p, q) in nats from rows of p and both scores, less what is left of it at the last level.

    With a learnt score for q it is the bound KL(p, q) <= this + KL(p_1, pi) (Song 2022, Thm 9.1), and what the paths of
    two reverse processes differ by (Chen et al. 2023).

    >>> import unnorm as un
    >>> noise = un.noises.VariancePreserving()
    >>> wide, narrow = (un.scores.LevelledFunction(lambda t, x, s=s: -s * x, noise) for s in (1.0, 1.0))
    >>> score_divergence(wide, narrow, jnp.ones((9, 1)), key=jax.random.key(1)).value
    0.0
    """
    if isinstance(score, AbstractLevelledScore) and isinstance(other, AbstractLevelledScore):
        require(same_noise(score.noise, other.noise), "two scores are compared over the levels of one noise")
    squares, _ = _all(score, other, rows, levels, last, key)
    return mean_estimate(squares, f"divergence by scores, {levels} levels", groups)
