"""Held-out log-likelihood with its error."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unnorm.compiling import compiled
from unnorm.energies import AbstractEnergy
from unnorm.estimate import Estimate, mean_estimate
from unnorm.spaces import AbstractArray

_energies_of = compiled(lambda model, xs: jax.vmap(model)(xs))

#: Rows looked at together.
BLOCK = 8192


def energies(model: AbstractEnergy, data: Float[np.ndarray | Array, "n ..."]) -> np.ndarray:
    """E of every row, in blocks."""
    numbers = model.space.struct().dtype if isinstance(model.space, AbstractArray) else float
    parts = [_energies_of(model, jnp.asarray(data[i : i + BLOCK], numbers)) for i in range(0, len(data), BLOCK)]
    return np.concatenate([np.asarray(p, dtype=np.float64) for p in parts])


def log_likelihood(
    model: AbstractEnergy,
    data: Float[np.ndarray | Array, "n ..."],
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
    rows = mean_estimate(-energies(model, data), f"mean over {len(data)} rows, log Z by {log_z.method}", groups)
    total = rows.minus(log_z)
    return Estimate(total.value - log_volume, total.stderr, rows.method, log_z.diagnostics, log_z.warnings)
