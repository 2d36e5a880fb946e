"""Laws of log Z without a base: far modes are found, heavy tails are covered, and what has no integral is doubted."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import coverage, halved, near
from jaxtyping import Array

import unnorm as un
from unnorm.energies import AbstractEnergy, fit_gaussian, standard_gaussian
from unnorm.evaluation import defensive, importance
from unnorm.evaluation.partition.reference import tailed
from unnorm.samplers import HMC, sample
from unnorm.spaces import Real

pytestmark = pytest.mark.optimised

NAMES = ["modes", "Cauchy", "flat", "no integral"]


class OneOfThese(AbstractEnergy):
    """Members of one family, told apart by numbers, so that all share a program; y is standard normal, or flat."""

    which: Array
    distance: Array
    space: Real = eqx.field(static=True, default=Real((2,)))

    def __call__(self, x):
        # Where the modes are one standard deviation wide; 1 / (1 + x^2); N(0, 1) with y flat; 1 / sqrt(1 + x^2).
        modes = -jnp.logaddexp(-0.5 * x[0] ** 2, -0.5 * (x[0] - self.distance) ** 2) + 0.5 * x[1] ** 2
        cauchy = jnp.log1p(x[0] ** 2) + 0.5 * x[1] ** 2
        return jnp.stack([modes, cauchy, 0.5 * x[0] ** 2, 0.5 * jnp.log1p(x[0] ** 2) + 0.5 * x[1] ** 2])[self.which]


def target(name: str, distance: float = 0.0) -> OneOfThese:
    return OneOfThese(jnp.asarray(NAMES.index(name)), jnp.asarray(distance))


KEYS = jax.random.split(jax.random.key(0), 8)


def from_one_temperature(energy: AbstractEnergy, key) -> un.Estimate:
    """The control: a base fitted to chains that stay where they began."""
    look, run = jax.random.split(key)
    trace = sample(energy, HMC(), chains=64, steps=100, warmup=300, key=look, progress=False)
    return importance(energy, defensive(fit_gaussian(trace.flat), trace.flat, share=0.5), key=run)


@pytest.mark.parametrize("distance", [12.0, 30.0])
def test_far_modes_are_found(distance):
    """Two equal modes of width 1: log Z = log(2 * 2 pi), and half of it for who sees only one."""
    energy, truth = target("modes", distance), math.log(4 * math.pi)
    found = [un.log_partition(energy, key=key) for key in KEYS]
    assert all(near(estimate, truth) for estimate in found)
    assert all(estimate.stderr < 0.1 and estimate.warnings == () for estimate in found)
    alone = [from_one_temperature(energy, key) for key in KEYS]
    assert sum(near(estimate, truth) for estimate in alone) < len(alone)
    assert any(near(estimate, truth - math.log(2)) for estimate in alone)


@pytest.mark.parametrize("name", [pytest.param("flat", marks=pytest.mark.thorough), "no integral"])
def test_what_has_no_integral_is_doubted(name):
    for key in KEYS[:4]:
        warnings = un.log_partition(target(name), key=key).warnings
        assert any("may not be integrable" in sentence for sentence in warnings)
    # Negative control: of a density that has one nothing is said.
    assert un.log_partition(target("modes", 3.0), key=KEYS[0]).warnings == ()


def test_a_cauchy_law_is_covered():
    """log Z = log pi + log(2 pi) / 2: intervals of 95% hold it as often as 40 of them should, by 3 standard errors."""
    energy, truth = target("Cauchy"), math.log(math.pi) + 0.5 * math.log(2 * math.pi)
    found = [un.log_partition(energy, key=key) for key in jax.random.split(jax.random.key(1), 40)]
    lowest = 0.95 - 3 * math.sqrt(0.95 * 0.05 / 40)
    assert coverage(found, truth) >= lowest
    assert coverage(halved(found), truth) < lowest
    assert all(estimate.warnings == () for estimate in found)


def test_the_tail_is_a_density_that_falls_as_one_over_r():
    base = tailed(standard_gaussian(1), 6)
    axis, step = np.linspace(-500, 500, 200_001, retstep=True)
    heights = np.exp(-un.evaluation.energies(base, axis[:, None]))
    assert abs(heights.sum() * step - 1) < 1e-4
    beyond = [heights[np.abs(axis) > r].sum() * step for r in (4.0, 8.0, 16.0)]
    # Halved when r doubles, to within the ripple of the parts; a Gaussian's would fall by far more.
    assert all(0.4 < b / a < 0.6 for a, b in itertools.pairwise(beyond))
    assert math.erfc(8 / math.sqrt(2)) / math.erfc(4 / math.sqrt(2)) < 1e-6
