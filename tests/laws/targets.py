"""Targets in the plane whose log Z is known, exact draws of them, and small runs of each method.

They are members of one family, told apart by numbers, so that what is compiled for one serves the others: the Gaussian
is a mixture of two equal components. Only the funnel has a program of its own.
"""

import math
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import unnorm as un
from unnorm.data.shapes import Funnel
from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.estimate import Estimate
from unnorm.evaluation import bridge, reverse_ais, smc, thermodynamic
from unnorm.spaces import Real


class OneOf(AbstractEnergy):
    """One of several energies, less a constant."""

    which: Array
    lift: Array
    parts: tuple[AbstractEnergy, ...]
    space: Real = eqx.field(static=True, default=Real((2,)))

    def __call__(self, x):
        return jnp.stack([part(x) for part in self.parts])[self.which] - self.lift


COVARIANCE = np.linalg.inv(np.array([[4.0, 1.0], [1.0, 2.0]]))
GAUSSIAN = un.energies.gaussian_mixture([0.5, 0.5], np.zeros((2, 2)), np.stack([COVARIANCE, COVARIANCE]))
MIXTURE = un.energies.gaussian_mixture([0.3, 0.7], [[-1.5, 0.0], [1.5, 0.5]], 0.6)
FUNNEL = Funnel(2, 0.5)
LIFTS = {"Gaussian": 3.0, "mixture": 7.25, "funnel": -2.5, "network": 0.0}
EXACT: dict[str, AbstractNormalised] = {"Gaussian": GAUSSIAN, "mixture": MIXTURE, "funnel": FUNNEL}
BASE = un.energies.standard_gaussian(2, 2.0)
# Where the neck of the funnel is narrow its energy has no mean under a wide base.
BASES = dict.fromkeys(LIFTS, BASE) | {"funnel": un.energies.standard_gaussian(2, 1.5)}


def network() -> AbstractEnergy:
    """A small network, its read-out made larger so that it bends the density."""
    energy = un.energies.MLPEnergy(Real((2,)), width=16, depth=2, key=jax.random.key(3))
    return eqx.tree_at(lambda e: e.network.layers[-1].weight, energy, replace_fn=lambda w: 20 * w)


NETWORK = network()


def problem(name: str) -> OneOf:
    """The target of this name, with log Z = its lift."""
    known = EXACT.get(name, MIXTURE)
    return OneOf(jnp.asarray(int(name == "network")), jnp.asarray(LIFTS[name]), (known, NETWORK))


PROBLEMS = {name: problem(name) for name in LIFTS}


@cache
def quadrature() -> tuple[np.ndarray, np.ndarray, float]:
    """Points of a grid, the density of the network there, and the side of its cells."""
    axis, step = np.linspace(-8, 8, 321, retstep=True)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return grid, np.exp(-un.evaluation.energies(NETWORK, jnp.asarray(grid))), float(step)


@cache
def truth_of(problem: str) -> float:
    if problem != "network":
        return LIFTS[problem]
    _, heights, step = quadrature()
    truth = math.log(heights.sum() * step**2)
    # The rule has converged: on every second point it says the same.
    coarse = heights.reshape(321, 321)[::2, ::2].sum() * (2 * step) ** 2
    assert abs(math.log(coarse) - truth) < 1e-6
    return truth


def draws_of(problem: str, n: int, seed: int) -> np.ndarray:
    """Exact draws; of the network, cells of the grid and a uniform point in each."""
    if problem != "network":
        return np.asarray(EXACT[problem].samples(n, key=jax.random.key(seed)))
    rng = np.random.default_rng(seed)
    grid, heights, step = quadrature()
    cells = rng.choice(len(grid), size=n, p=heights / heights.sum())
    return (grid[cells] + step * rng.uniform(-0.5, 0.5, size=(n, 2))).astype(np.float32)


METHODS = ["SMC", "reverse AIS", "thermodynamic integration", "bridge sampling"]


def estimate_of(method: str, problem: str, seed: int, draws: np.ndarray) -> Estimate:
    """A small run; `draws` are used by those that need draws of the target."""
    target, base, key = PROBLEMS[problem], BASES[problem], jax.random.key(seed)
    if method == "SMC":
        return smc(target, base, islands=32, particles=64, key=key)
    if method == "reverse AIS":
        return reverse_ais(target, base, draws, levels=40, key=key)
    if method == "thermodynamic integration":
        return thermodynamic(target, base, chains=64, levels=20, moves=8, key=key)
    return bridge(target, base, draws, key=key)


def repeated(method: str, problem: str, repeats: int, seed: int, size: int = 400) -> list[Estimate]:
    draws = draws_of(problem, repeats * size, seed).reshape(repeats, size, 2)
    return [estimate_of(method, problem, seed * 10_000 + i, draws[i]) for i in range(repeats)]
