"""Upper bounds on -log p of the reverse process, from losses over levels (Song et al. 2021, Thms 3 and B.1).

With F(t) = log(sigma^2 / alpha^2), which rises by Z from the least level to 1 at the rate g^2 / sigma^2, and levels
drawn uniformly in F:

    by denoising  L(x) = -E log pi(x_1) + Z/2 E | sigma s + z |^2 - Z D/2 - D log(alpha_1 / alpha_least)
    by slices     L(x) = -E log pi(x_1) + Z/2 E sigma^2 (2 div s + |s|^2) - D log(alpha_1 / alpha_least)

and what the levels below the least one hide costs c(x) = -D log alpha - D/2 + E | z + sigma s |^2 / 2 there. Both have
the same mean, and -log p(x) <= L(x) + c(x), with equality where s is the score of the model's own densities.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.compiling import compiled
from unnorm.errors import InputError
from unnorm.estimate import Estimate, mean_estimate
from unnorm.noises.times import likelihood_mass
from unnorm.scores import AbstractLevelledScore

#: Rows whose bounds are computed side by side.
BLOCK = 64


def likelihood_bound(
    score: AbstractLevelledScore,
    rows: Any,
    *,
    conditions: Any = None,
    levels: int = 1000,
    slices: bool = False,
    corrected: bool = True,
    last: float = 1.0,
    log_volume: float = 0.0,
    groups: np.ndarray | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """A lower bound on the mean log-likelihood of the reverse process, in nats per row, with its error.

    `levels` levels a row, spread evenly over log(sigma^2 / alpha^2) but for a common random shift. By denoising, or by
    `slices`: Hutchinson's estimate of div s, with one vector of random signs a level. `corrected` adds what is lost
    below the least one, without which it is a bound for points with that little noise. The error is that of rows and
    levels together.

    >>> import unnorm as un
    >>> noise = un.noises.VariancePreserving()
    >>> score = un.scores.LevelledFunction(lambda t, x: -x, noise)  # data N(0, I)
    >>> bound = likelihood_bound(score, jnp.zeros((20, 2)), levels=200, key=jax.random.key(0))
    >>> abs(bound.value + 1.8379) < 5 * bound.stderr
    True
    """
    values = pointwise_bound(
        score, rows, conditions=conditions, levels=levels, slices=slices, corrected=corrected, last=last, key=key
    )
    by = "slices" if slices else "denoising"
    found = mean_estimate(-values, f"bound by {by}, {levels} levels", groups)
    return Estimate(found.value - log_volume, found.stderr, found.method, found.diagnostics)


def pointwise_bound(
    score: AbstractLevelledScore,
    rows: Any,
    *,
    conditions: Any = None,
    levels: int = 1000,
    slices: bool = False,
    corrected: bool = True,
    last: float = 1.0,
    key: PRNGKeyArray,
) -> np.ndarray:
    """An unbiased estimate of the upper bound on -log p of each row; the arguments are those of `likelihood_bound`."""
    if not isinstance(score, AbstractLevelledScore):
        raise InputError(f"the bound runs over the levels of a noise, and a {type(score).__name__} has none")
    require_count(levels, 1, "levels a row")
    rows = jnp.asarray(rows, float)
    keys = jax.random.split(key, len(rows))
    parts = []
    for begin in range(0, len(rows), BLOCK):
        block = jax.tree.map(lambda a: a[begin : begin + BLOCK], (rows, keys, conditions))  # noqa: B023
        found = _bounds(score, block, int(levels), slices, corrected, jnp.asarray(last))
        parts.append(np.asarray(found, np.float64))
    return np.concatenate(parts)


@compiled
def _bounds(
    score: AbstractLevelledScore,
    block: tuple[Float[Array, "n ..."], Array, Any],
    levels: int,
    slices: bool,
    corrected: bool,
    last: Array,
) -> Float[Array, " n"]:
    (rows, keys, conditions), noise = block, score.noise
    least = noise.least_level().astype(rows.dtype)
    last = last.astype(rows.dtype)
    mass = likelihood_mass(noise, least, last)
    shrinks = jnp.log(noise.alpha(last) / noise.alpha(least))

    def one(x, key, condition):
        shift, draw, sign, below = jax.random.split(key, 4)
        size = x.size
        at = (jnp.arange(levels) + jax.random.uniform(shift, (), x.dtype)) / levels

        def each(carry, inputs):
            share, k, k_sign = inputs
            t = noise.level_at(noise.log_ratio(least) - 0.5 * mass * share)
            alpha, sigma = noise.alpha(t), noise.sigma(t)
            z = jax.random.normal(k, x.shape, x.dtype)
            y = alpha * x + sigma * z
            if not slices:
                # | z |^2 has the mean D: taken away as far as the residual of N(0, I) data would have it.
                own = (alpha**2 / (alpha**2 + sigma**2)) ** 2 * (jnp.sum(z**2) - size)
                return carry + jnp.sum((sigma * score(t, y, condition) + z) ** 2) - size - own, None
            v = jax.random.rademacher(k_sign, x.shape, x.dtype)
            slope, along = jax.jvp(lambda y: score(t, y, condition), (y,), (v,))
            return carry + sigma**2 * (2 * jnp.vdot(v, along) + jnp.sum(slope**2)), None

        inputs = (at, jax.random.split(draw, levels), jax.random.split(sign, levels))
        total, _ = jax.lax.scan(each, jnp.zeros((), x.dtype), inputs)
        sigma = noise.sigma(last)
        # E log pi(x_1) for pi = N(0, sigma(1)^2 I) has a closed form.
        spread = (noise.alpha(last) / sigma) ** 2 * jnp.sum(x**2) + size
        end = 0.5 * spread + size * (jnp.log(sigma) + 0.5 * jnp.log(2 * jnp.pi))
        bound = end + 0.5 * mass * total / levels - size * shrinks
        return bound + _below(score, least, x, condition, below) if corrected else bound

    return jax.vmap(one)(rows, keys, conditions)


def _below(score: AbstractLevelledScore, least: Array, x: Array, condition: Any, key: PRNGKeyArray) -> Array:
    """-E[log q(x | x') - log p(x' | x)] of a Gaussian step from the least level to none, over some draws of x'."""
    noise = score.noise
    alpha, sigma = noise.alpha(least), noise.sigma(least)

    def one(k):
        # | z + sigma s |^2 less | z |^2, whose mean D is known: what is left is small where sigma is.
        z = jax.random.normal(k, x.shape, x.dtype)
        told = sigma * score(least, alpha * x + sigma * z, condition)
        return 2 * jnp.vdot(z, told) + jnp.sum(told**2)

    return -x.size * jnp.log(alpha) + 0.5 * jnp.mean(jax.lax.map(one, jax.random.split(key, 16)))
