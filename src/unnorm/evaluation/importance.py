"""Importance sampling: log Z and expectations under an unnormalised target, from draws of a density that is known."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.energies import AbstractEnergy, AbstractNormalised, Gaussian, GaussianMixture, fit_gaussian
from unnorm.errors import require
from unnorm.estimate import Estimate, log_mean_exp_estimate, require_weights
from unnorm.evaluation.pairs import require_pair
from unnorm.evaluation.tails import judged

#: Draws looked at together: bounds memory whatever the number of draws.
BLOCK = 4096


@compiled
def _draw_block(target: AbstractEnergy, proposal: AbstractNormalised, n: int, key: PRNGKeyArray):
    xs = proposal.samples(n, key=key)
    return xs, jax.vmap(proposal)(xs) - jax.vmap(target)(xs)


def weighted_draws(
    target: AbstractEnergy, proposal: AbstractNormalised, n: int, *, key: PRNGKeyArray
) -> tuple[np.ndarray, np.ndarray]:
    """At least n draws x ~ q and their log-weights -E(x) - log q(x), in blocks."""
    require_pair(target, proposal)
    require(n >= 2, f"importance sampling needs at least 2 draws, not {n}")
    block = min(n, BLOCK)
    parts = [_draw_block(target, proposal, block, jax.random.fold_in(key, i)) for i in range(-(-n // block))]
    xs, log_weights = (np.concatenate([np.asarray(p[i]) for p in parts]) for i in (0, 1))
    return xs, log_weights


def importance(
    target: AbstractEnergy, proposal: AbstractNormalised, *, draws: int = 20_000, key: PRNGKeyArray
) -> Estimate:
    """log Z = log E_q[exp(-E(x)) / q(x)].

    Unbiased for Z; the error is that of the delta method, right when the proposal covers the target (`pareto_k` among
    the diagnostics is below 1/2).

    >>> import jax, unnorm as un
    >>> target = un.energies.FunctionEnergy(lambda x: 0.5 * (x**2).sum(), un.spaces.Real((1,)))
    >>> estimate = importance(target, un.energies.standard_gaussian(1, 1.5), key=jax.random.key(0))
    >>> estimate.covers(0.9189385, level=0.999)
    True
    """
    _, log_weights = weighted_draws(target, proposal, draws, key=key)
    return judged(log_mean_exp_estimate(log_weights, "importance sampling"), log_weights)


def expectations(
    target: AbstractEnergy,
    statistic: Callable[[Array], Float[Array, " k"]],
    proposal: AbstractNormalised,
    *,
    draws: int = 20_000,
    key: PRNGKeyArray,
) -> tuple[Estimate, ...]:
    """E_p[h(x)] = sum w h / sum w of a vector h, with the delta-method errors sqrt(sum w^2 (h - mean)^2) / sum w."""
    xs, log_weights = weighted_draws(target, proposal, draws, key=key)
    require_weights(log_weights)
    values = np.asarray(jax.vmap(statistic)(jnp.asarray(xs)), dtype=np.float64)
    weights = np.exp(log_weights.astype(np.float64) - log_weights.max())
    weights /= weights.sum()
    means = weights @ values
    errors = np.sqrt(weights**2 @ (values - means) ** 2)
    # What is to be known about the weights is the same as for log Z.
    log_z = judged(log_mean_exp_estimate(log_weights, "importance sampling"), log_weights)
    return tuple(replace(log_z, value=float(m), stderr=float(e)) for m, e in zip(means, errors, strict=True))


def expectation(
    target: AbstractEnergy,
    statistic: Callable[[Array], Float[Array, ""]],
    proposal: AbstractNormalised,
    *,
    draws: int = 20_000,
    key: PRNGKeyArray,
) -> Estimate:
    """E_p[h(x)] of a number h, as `expectations`."""
    return expectations(target, lambda x: jnp.asarray(statistic(x))[None], proposal, draws=draws, key=key)[0]


def defensive(reference: Gaussian | GaussianMixture, data: Any, share: float = 0.1) -> GaussianMixture:
    """The reference blended with a share of a wide Gaussian, so that no region of the data has a tiny proposal.

    Hesterberg's (1995) defence: weights are bounded wherever the wide Gaussian (covariance 4 times the data's) covers.
    """
    wide = fit_gaussian(data)
    if isinstance(reference, Gaussian):
        reference = GaussianMixture(jnp.zeros(1), reference.mean[None], reference.factor[None])
    logits = jnp.concatenate([jnp.log1p(-share) + jax.nn.log_softmax(reference.logits), jnp.log(jnp.asarray([share]))])
    means = jnp.concatenate([reference.means, wide.mean[None]])
    # Twice the standard deviation: the packed factor holds the precision's logs on its diagonal.
    spread = jnp.tril(wide.factor, -1) / 2 + jnp.diag(jnp.diagonal(wide.factor) - jnp.log(2.0))
    factors = jnp.concatenate([reference.components.factor, spread[None]])
    return GaussianMixture(logits, means, factors)
