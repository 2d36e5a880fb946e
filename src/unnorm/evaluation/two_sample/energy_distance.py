"""The energy distance between two samples, with its error and a p-value.

2 E|x - y| - E|x - x'| - E|y - y'| is zero only when the laws agree (Székely and Rizzo 2013). It is the maximum mean
discrepancy of the kernel -|x - y|, which has no bandwidth to choose.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.estimate import Estimate
from unnorm.evaluation.two_sample.kernel_statistic import kernel_estimate, permutation_p_value, squared_distances


class NegativeDistance(eqx.Module):
    """k(x, y) = -|x - y|."""

    def __call__(self, a: Float[Array, "n d"], b: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return -jnp.sqrt(squared_distances(a, b))


#: Points among which the shortest distance that matters is looked for.
LOOKED_AT = 256


class Distances:
    """-|x - y| in any unit."""

    degree = 1

    def in_unit(self, unit: float) -> NegativeDistance:
        """Distances have the unit of the points: the kernel is the same in all."""
        return NegativeDistance()

    def finest(self, points: Float[np.ndarray, "n d"], unit: float) -> float:
        """The median distance to the nearest of some other points, none of them in the same place."""
        # Loaded here: nothing else in this module needs it.
        from scipy.spatial.distance import cdist

        some = points[np.linspace(0, len(points) - 1, min(LOOKED_AT, len(points))).astype(int)]
        apart = cdist(some, some)
        nearest = np.where(apart > 0, apart, np.inf).min(axis=1)
        # Points that are all in one place have no distance that could be rounded.
        return float(np.median(nearest))


def energy_distance(x: Any, y: Any, *, block: int = 1024) -> Estimate:
    """2 E|x - y| - E|x - x'| - E|y - y'| from independent points, without bias, with its standard error.

    As for `mmd`: it may be negative where the laws agree, and is skewed to the right there. The laws need a finite
    variance for the error to be right. In the units of the data.

    >>> import numpy as np
    >>> x, y = np.random.default_rng(0).normal(size=(2, 500, 2))
    >>> found = energy_distance(x, y + 1)
    >>> found.value > 5 * found.stderr
    True
    """
    return kernel_estimate(Distances(), x, y, block=block, method="unbiased energy distance")


def energy_test(x: Any, y: Any, *, permutations: int = 500, block: int = 1024, key: PRNGKeyArray) -> Estimate:
    """`energy_distance` with a `p_value` among its diagnostics, from relabellings of the pooled points.

    >>> import jax, numpy as np
    >>> x, y = np.random.default_rng(0).normal(size=(2, 200, 2))
    >>> round(energy_test(x, y + 1, key=jax.random.key(0)).diagnostics["p_value"], 3)
    0.002
    """
    p = permutation_p_value(Distances(), x, y, permutations=permutations, block=block, key=key)
    found = energy_distance(x, y, block=block)
    return replace(found, diagnostics={**found.diagnostics, "p_value": p, "permutations": float(permutations)})
