"""Whether an energy is so large that its own rounding exceeds the stated error.

E is known to eps |E| only, and a weight exp(-E) to as much in its log. A constant in the energy does not change the
spread of the weights, from which errors are computed: near 1e8 single precision has no numbers but multiples of 8.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from unnorm.estimate import Estimate

#: Rounding of fewer nats than this is not worth a word.
FEWEST_NATS = 1e-4
ADVICE = "the stated error is too small; take a constant off the energy, or use jax.enable_x64(True)."


def size_of_energies(energies: Any, log_weights: Any = None) -> float:
    """The mean of |E| where it is finite, under the weights: points of weight 0 may have any energy.

    >>> size_of_energies([1.0, -3.0, np.inf]), size_of_energies([1.0, 9.0], [0.0, -np.inf])
    (2.0, 1.0)
    """
    sizes = np.abs(np.asarray(energies, np.float64)).reshape(-1)
    logs = np.zeros(sizes.shape) if log_weights is None else np.asarray(log_weights, np.float64).reshape(-1)
    finite = np.isfinite(sizes) & np.isfinite(logs)
    if not finite.any():
        return 0.0
    return float(np.average(sizes[finite], weights=np.exp(logs[finite] - logs[finite].max())))


def rounding_of(energies: Any, log_weights: Any = None) -> float:
    """eps |E| of the numbers the energies are given in, in nats."""
    return float(jnp.finfo(jnp.asarray(energies).dtype).eps) * size_of_energies(energies, log_weights)


def with_rounding(estimate: Estimate, energies: Any, log_weights: Any = None) -> Estimate:
    """The estimate, with a warning if its error is below the rounding of these energies of the target; once.

    >>> found = with_rounding(Estimate(-1e8, 0.003, "AIS"), np.full(3, 1e8, np.float32))
    >>> found.warnings[0].split(":")[0]
    'The energy is about 1e+08, which float32 rounds by 12 nats'
    """
    rounding = rounding_of(energies, log_weights)
    said = any(warning.endswith(ADVICE) for warning in estimate.warnings)
    if said or not rounding > max(estimate.stderr, FEWEST_NATS):
        return estimate
    size, numbers = size_of_energies(energies, log_weights), jnp.asarray(energies).dtype
    warning = f"The energy is about {size:.2g}, which {numbers} rounds by {rounding:.2g} nats: {ADVICE}"
    return replace(estimate, warnings=(*estimate.warnings, warning))
