"""The targets of the race for log Z, and their log Z."""

import math
from functools import cache

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from unnorm.data.shapes import Funnel
from unnorm.energies import AbstractEnergy, FunctionEnergy, MLPEnergy, gaussian, gaussian_mixture
from unnorm.evaluation import energies
from unnorm.spaces import Real

PLANE = Real((2,))


CURVE, TIGHT = 0.7, 0.4


def _banana(x: Float[Array, " 2"]) -> Float[Array, ""]:
    """A Gaussian bent along a parabola; the map that bends keeps areas, so that log Z = log(2 pi TIGHT)."""
    return 0.5 * x[0] ** 2 + 0.5 * ((x[1] - CURVE * (x[0] ** 2 - 1)) / TIGHT) ** 2


def _network() -> AbstractEnergy:
    """A random network, its read-out made larger so that it bends the density."""
    energy = MLPEnergy(PLANE, width=16, depth=2, key=jax.random.key(3))
    return eqx.tree_at(lambda e: e.network.layers[-1].weight, energy, replace_fn=lambda w: 20 * w)


class OneOf(AbstractEnergy):
    """One of several energies, chosen by a number: every method is compiled once for all targets."""

    which: Int[Array, ""]
    parts: tuple[AbstractEnergy, ...]
    space: Real = eqx.field(static=True, default=PLANE)

    def __call__(self, x: Float[Array, " 2"]) -> Float[Array, ""]:
        # Plain functions: JAX hashes the branches, and modules of traced arrays have no hash.
        return jax.lax.switch(self.which, [lambda x, part=part: part(x) for part in self.parts], x)


MODES = [[-2.5, 0.0], [2.5, 0.0], [0.0, 2.5], [0.0, -2.5]]


#: The energy and the width of the base it starts from.
TARGETS: dict[str, float] = {"Gaussian": 2.0, "four modes": 3.0, "funnel": 1.5, "banana": 2.0, "network": 2.0}


@cache
def all_parts() -> tuple[AbstractEnergy, ...]:
    return (
        gaussian([0.0, 0.0], [[1.0, 0.9], [0.9, 1.0]]),
        gaussian_mixture([0.1, 0.2, 0.3, 0.4], MODES, 0.5),
        Funnel(2, 0.5),
        FunctionEnergy(_banana, PLANE),
        _network(),
    )


@cache
def true_log_z(name: str) -> float:
    """Closed forms, and for the network a rule on a grid that has converged far beyond the errors here."""
    if name != "network":
        return math.log(2 * math.pi * TIGHT) if name == "banana" else 0.0
    axis, step = np.linspace(-8, 8, 321, retstep=True)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return math.log(np.exp(-energies(all_parts()[-1], grid)).sum() * step**2)
