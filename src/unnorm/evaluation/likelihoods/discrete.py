"""Likelihoods of values that were rounded, by a score of points over noise levels and where they are taken to lie.

log P(v) >= E_q[ log p(y) - log q(u | v) ] + D log h  (`energies.dequantiser`), with log p(y) by the probability flow or
bounded from below in its turn.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.energies import AbstractDequantiser
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation.likelihoods.bounds import pointwise_bound
from unnorm.evaluation.likelihoods.flow import flow_log_prob
from unnorm.scores import AbstractLevelledScore


@compiled
def _spread(dequantiser: AbstractDequantiser, values: Any, keys: Any) -> Any:
    return jax.vmap(lambda value, key: dequantiser(value, key=key))(values, keys)


def dequantised(dequantiser: AbstractDequantiser, values: Any, *, key: PRNGKeyArray) -> tuple[np.ndarray, np.ndarray]:
    """A point for each rounded value, and log q(u | v) - D log h: the density of that point, as q has it.

    >>> from unnorm.energies import UniformDequantiser
    >>> points, logs = dequantised(UniformDequantiser(1.0), np.arange(3.0)[:, None], key=jax.random.key(0))
    >>> points.round().ravel().tolist(), logs.tolist()
    ([0.0, 1.0, 2.0], [0.0, 0.0, 0.0])
    """
    values = jnp.asarray(values, float)
    points, logs = _spread(dequantiser, values, jax.random.split(key, len(values)))
    size = int(np.prod(values.shape[1:]))
    return np.asarray(points), np.asarray(logs, np.float64) - size * np.log(dequantiser.step)


def discrete_log_likelihood(
    score: AbstractLevelledScore,
    values: Any,
    dequantiser: AbstractDequantiser,
    *,
    conditions: Any = None,
    probes: int | None = None,
    tolerance: float = 1e-5,
    groups: np.ndarray | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """A lower bound on the mean log P(v) by the probability flow, in nats per row, one point drawn for each value.

    Its error is that of rows, of the points drawn for them and of the probes: the spread over rows shows them together.
    """
    draw, run = jax.random.split(key)
    points, logs = dequantised(dequantiser, values, key=draw)
    found, asked = flow_log_prob(score, points, conditions=conditions, probes=probes, tolerance=tolerance, key=run)
    told = mean_estimate(found - logs, f"probability flow, {type(dequantiser).__name__}", groups)
    return Estimate(told.value, told.stderr, told.method, {**told.diagnostics, "evaluations": float(asked.mean())})


def discrete_bound(
    score: AbstractLevelledScore,
    values: Any,
    dequantiser: AbstractDequantiser,
    *,
    conditions: Any = None,
    levels: int = 1000,
    groups: np.ndarray | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """A lower bound on the mean log P(v) of the reverse process, in nats per row, with its error."""
    draw, run = jax.random.split(key)
    points, logs = dequantised(dequantiser, values, key=draw)
    found = pointwise_bound(score, points, conditions=conditions, levels=levels, key=run)
    return mean_estimate(-found - logs, f"bound by denoising, {type(dequantiser).__name__}", groups)
