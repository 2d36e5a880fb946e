"""An energy on a small discrete space, known exactly: the truth that estimates are held against."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from unnorm.compiling import compiled
from unnorm.energies import AbstractEnergy
from unnorm.energies.enumeration import enumerated_energies, every_point
from unnorm.errors import require
from unnorm.estimate import Estimate
from unnorm.evaluation.partition.pairs import require_energy, require_number
from unnorm.evaluation.partition.rounding import with_rounding

_energies_of = compiled(enumerated_energies)


@dataclass(frozen=True, eq=False)
class Enumerated:
    """All points of a small discrete space with their probabilities p = exp(-E) / Z, and log Z.

    `probabilities` follow `points`, which are in the order of `energies.every_point`.
    """

    points: Shaped[np.ndarray, "n ..."]
    probabilities: Float[np.ndarray, " n"]
    log_z: float

    def mean(self, function: Callable[[Any], Any]) -> Float[np.ndarray, "..."]:
        """E_p[f(x)], f a function of one point."""
        values = np.asarray(jax.vmap(function)(jnp.asarray(self.points)), np.float64)
        return np.tensordot(self.probabilities, values, axes=1)

    def entropy(self) -> float:
        """-sum p log p, in nats."""
        kept = self.probabilities[self.probabilities > 0]
        return float(-(kept * np.log(kept)).sum())

    def divergence(self, other: "Enumerated") -> float:
        """KL(p, other) = sum p log(p / other); infinite where the other has no mass and this one has."""
        require(
            self.points.shape == other.points.shape,
            f"two laws are compared on one space, not on points of {self.points.shape} and {other.points.shape}",
        )
        kept = self.probabilities > 0
        with np.errstate(divide="ignore"):
            ratios = np.log(self.probabilities[kept]) - np.log(other.probabilities[kept])
        return float((self.probabilities[kept] * ratios).sum())

    def draws(self, n: int, *, seed: int = 0) -> Shaped[np.ndarray, "n ..."]:
        """n independent exact draws."""
        return self.points[np.random.default_rng(seed).choice(len(self.points), size=n, p=self.probabilities)]


def enumerated(energy: AbstractEnergy) -> Enumerated:
    """The law of an energy on a Binary, Categorical or Graph space of at most four million points, by summing them all.

    >>> import unnorm as un
    >>> spins = un.energies.FunctionEnergy(lambda x: -2.0 * x[0] * x[1], un.spaces.Binary((2,)))
    >>> law = enumerated(spins)
    >>> round(law.log_z, 4), law.mean(lambda x: x).round(4).tolist()
    (2.3408, [0.8075, 0.8075])
    """
    require_energy(energy)
    require_number(energy, energy.space.struct())
    points = every_point(energy.space)
    log_weights = -np.asarray(_energies_of(energy, jnp.asarray(points)), np.float64)
    bad = int((np.isnan(log_weights) | np.isposinf(log_weights)).sum())
    require(bad == 0, f"the energy is NaN or minus infinity at {bad} of {len(points)} points; mend it")
    largest = log_weights.max()
    require(bool(np.isfinite(largest)), f"the energy is infinite at all of {len(points)} points; mend it")
    weights = np.exp(log_weights - largest)
    return Enumerated(points, weights / weights.sum(), float(largest + np.log(weights.sum())))


def summed(energy: AbstractEnergy) -> Estimate:
    """log Z without error: the sum over all points."""
    law = enumerated(energy)
    estimate = Estimate(law.log_z, 0.0, "enumeration", {"points": float(len(law.points))})
    return with_rounding(estimate, np.asarray(-np.log(np.maximum(law.probabilities, 1e-300)) - law.log_z, np.float32))
