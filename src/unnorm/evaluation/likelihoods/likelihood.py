"""Held-out log-likelihood with its error."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unnorm.compiling import compiled
from unnorm.energies import AbstractEnergy
from unnorm.estimate import Estimate, mean_estimate
from unnorm.spaces import AbstractArray, Mixed, WithCondition

_energies_of = compiled(lambda model, xs: jax.vmap(model)(xs))

#: Rows looked at together.
BLOCK = 8192


def energies(model: AbstractEnergy, data: Any) -> np.ndarray:
    """E of every row, in blocks; rows are an array, or a PyTree of arrays where the model's points are one."""
    space = model.space
    if not isinstance(space, Mixed | WithCondition):
        data = np.asarray(data, space.struct().dtype if isinstance(space, AbstractArray) else float)
    count = len(jax.tree.leaves(data)[0])
    blocks = (jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i : i + BLOCK]), data) for i in range(0, count, BLOCK))
    parts = [_energies_of(model, block) for block in blocks]
    return np.concatenate([np.asarray(p, dtype=np.float64) for p in parts])


def log_likelihood(
    model: AbstractEnergy,
    data: Any,
    log_z: Estimate,
    *,
    log_volume: float = 0.0,
    groups: np.ndarray | None = None,
) -> Estimate:
    """Mean of -E(x) - log Z over the rows, in nats per row.

    The error adds, in squares, the sampling error of the rows and the error of log Z. `log_volume` is the log
    Jacobian of a standardisation, sum log scale, so that the density is one of the original units. `groups` labels rows
    that belong together and err together (`estimate.mean_estimate`).
    """
    found = -energies(model, data)
    rows = mean_estimate(found, f"mean over {len(found)} rows, log Z by {log_z.method}", groups)
    total = rows.minus(log_z)
    return Estimate(total.value - log_volume, total.stderr, rows.method, log_z.diagnostics, log_z.warnings)
