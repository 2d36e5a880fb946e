"""Importance sampling: log Z and expectations under an unnormalised target, from draws of a density that is known."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.energies import AbstractEnergy, AbstractNormalised, GaussianDensity, GaussianMixture, fit_gaussian
from unnorm.errors import require
from unnorm.estimate import Estimate, log_mean_exp_estimate, require_weights
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.partition.pairs import point_of, require_pair
from unnorm.evaluation.partition.rounding import with_rounding
from unnorm.evaluation.partition.tails import judged

#: Draws looked at together: bounds memory whatever the number of draws.
BLOCK = 4096


@compiled
def _draw_block(target: AbstractEnergy, proposal: AbstractNormalised, n: int, key: PRNGKeyArray):
    xs = proposal.samples(n, key=key)
    if jnp.issubdtype(xs.dtype, jnp.floating):
        # A proposal may have been made in other numbers than those that are in use.
        xs = xs.astype(float)
    energies = jax.vmap(target)(xs)
    return xs, jax.vmap(proposal)(xs) - energies, energies


class WeightedDraws(NamedTuple):
    """Draws x ~ q, their log-weights -E(x) - log q(x), and E(x)."""

    points: np.ndarray
    log_weights: np.ndarray
    energies: np.ndarray

    def log_z(self) -> Estimate:
        """log of the mean weight, with all that is to be known about the weights."""
        estimate = judged(log_mean_exp_estimate(self.log_weights, "importance sampling"), self.log_weights)
        return with_rounding(estimate, self.energies, self.log_weights)


def weighted_draws(target: AbstractEnergy, proposal: AbstractNormalised, n: int, *, key: PRNGKeyArray) -> WeightedDraws:
    """At least n draws x ~ q and their log-weights -E(x) - log q(x), in blocks."""
    require_pair(target, proposal)
    (n,) = whole_numbers(draws=n)
    require(n >= 2, f"importance sampling needs at least 2 draws, not {n}")
    block = min(n, BLOCK)
    parts = [_draw_block(target, proposal, block, jax.random.fold_in(key, i)) for i in range(-(-n // block))]
    return WeightedDraws(*(np.concatenate([np.asarray(p[i]) for p in parts]) for i in range(3)))


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
    return weighted_draws(target, proposal, draws, key=key).log_z()


def _shape_of(statistic: Callable[[Array], Any], proposal: AbstractNormalised) -> tuple[int, ...]:
    found: Any = jax.eval_shape(lambda x: jnp.asarray(statistic(x)), point_of(proposal))
    return found.shape


def expectations(
    target: AbstractEnergy,
    statistic: Callable[[Array], Float[Array, " k"]],
    proposal: AbstractNormalised,
    *,
    draws: int = 20_000,
    key: PRNGKeyArray,
) -> tuple[Estimate, ...]:
    """E_p[h(x)] = sum w h / sum w of a vector h, with the delta-method errors sqrt(sum w^2 (h - mean)^2) / sum w.

    What h is at points of weight 0, outside the target, does not matter.
    """
    require_pair(target, proposal)
    shape = _shape_of(statistic, proposal)
    require(
        len(shape) == 1,
        f"expectations needs a function that returns a vector, but this one returned shape {shape}; for one number use "
        "expectation",
    )
    found = weighted_draws(target, proposal, draws, key=key)
    require_weights(found.log_weights)
    values = np.asarray(jax.vmap(statistic)(jnp.asarray(found.points)), dtype=np.float64)
    logs = found.log_weights.astype(np.float64)
    weights = np.exp(logs - logs.max())
    values, weights = values[weights > 0], weights[weights > 0] / weights.sum()
    bad = int((~np.isfinite(values)).any(axis=1).sum())
    require(
        bad == 0,
        f"the function is not finite at {bad} of {len(values)} points where the target has mass, so that its "
        "expectation is not known; mend it",
    )
    means = weights @ values
    errors = np.sqrt(weights**2 @ (values - means) ** 2)
    # What is to be known about the weights is the same as for log Z.
    log_z = found.log_z()
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
    require_pair(target, proposal)
    shape = _shape_of(statistic, proposal)
    require(
        shape == (),
        f"expectation needs a function that returns one number, but this one returned shape {shape}; for a vector use "
        "expectations",
    )
    return expectations(target, lambda x: jnp.asarray(statistic(x))[None], proposal, draws=draws, key=key)[0]


def defensive(reference: GaussianDensity | GaussianMixture, data: Any, share: float = 0.1) -> GaussianMixture:
    """The reference blended with a share of a wide Gaussian, so that no region of the data has a tiny proposal.

    Hesterberg's (1995) defence: weights are bounded wherever the wide Gaussian (covariance 4 times the data's) covers.
    """
    wide = fit_gaussian(data)
    if isinstance(reference, GaussianDensity):
        reference = GaussianMixture(jnp.zeros(1), reference.mean[None], reference.factor[None])
    logits = jnp.concatenate([jnp.log1p(-share) + jax.nn.log_softmax(reference.logits), jnp.log(jnp.asarray([share]))])
    means = jnp.concatenate([reference.means, wide.mean[None]])
    # Twice the standard deviation: the packed factor holds the precision's logs on its diagonal.
    spread = jnp.tril(wide.factor, -1) / 2 + jnp.diag(jnp.diagonal(wide.factor) - jnp.log(2.0))
    factors = jnp.concatenate([reference.components.factor, spread[None]])
    return GaussianMixture(logits, means, factors)
