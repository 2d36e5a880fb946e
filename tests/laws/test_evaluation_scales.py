"""Laws of evaluation in any units: two-sample statistics do not depend on them, rounding is seen or said."""

import math
from contextlib import nullcontext

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.energies import FunctionEnergy, standard_gaussian
from unnorm.evaluation import (
    ais,
    bridge,
    energy_distance,
    energy_test,
    expectation,
    importance,
    median_bandwidth,
    mmd,
    mmd_test,
    reverse_ais,
    smc,
    thermodynamic,
)
from unnorm.evaluation.partition.rounding import with_rounding
from unnorm.evaluation.two_sample import kernel_statistic
from unnorm.evaluation.two_sample.energy_distance import Distances
from unnorm.spaces import Real

KEY = jax.random.key(0)
X, Y = np.random.default_rng(0).normal(size=(2, 100, 2))

# ------------------------------------------------------------------------------------------------- units of samples


@pytest.mark.parametrize("unit", [1e-200, 1e-25, 1e20, 1e300])
def test_two_sample_statistics_follow_the_units(unit):
    def energy(scale):
        found = energy_test(scale * X, scale * (Y + 0.2), permutations=99, key=KEY)
        return np.array([found.value, found.stderr, found.diagnostics["null_stderr"]]), found.diagnostics["p_value"]

    def gaussian(scale):
        found = mmd_test(scale * X, scale * (Y + 0.2), permutations=99, key=KEY)
        return np.array([found.value, found.stderr, found.diagnostics["null_stderr"]]), found.diagnostics["p_value"]

    assert np.allclose(energy(unit)[0] / unit, energy(1.0)[0], rtol=1e-4)
    assert np.allclose(gaussian(unit)[0], gaussian(1.0)[0], rtol=1e-4)
    for test in (energy, gaussian):
        assert 0.01 <= test(unit)[1] == test(1.0)[1]
    assert np.isclose(median_bandwidth(unit * X) / unit, median_bandwidth(X), rtol=1e-12)
    # A shift of one standard deviation is seen in any units.
    assert energy_test(unit * X, unit * (Y + 1), permutations=99, key=KEY).diagnostics["p_value"] == 0.01


def test_widths_are_in_the_units_of_the_data():
    for unit in (2.0**-80, 2.0**70):
        widths = tuple(unit * width for width in (0.5, 2.0))
        assert mmd(unit * X, unit * Y, bandwidths=widths).value == mmd(X, Y, bandwidths=(0.5, 2.0)).value
    # Negative control: widths left as they are.
    assert mmd(2.0**70 * X, 2.0**70 * Y, bandwidths=(0.5, 2.0)).value != mmd(X, Y, bandwidths=(0.5, 2.0)).value
    # Widths beyond any distance see nothing, and widths below see points in one place only.
    assert mmd(X, Y, bandwidths=1e30).value == mmd(X, Y, bandwidths=1e-30).value == 0
    assert np.isclose(mmd(X, X, bandwidths=1e-30).value, -2 / len(X))


BROKEN = jax.tree_util.Partial(lambda a, b: kernel_statistic.squared_distances(a, b) * np.nan)


def test_statistics_that_are_not_finite_have_no_p_value(monkeypatch):
    monkeypatch.setattr(Distances, "in_unit", lambda *_: BROKEN)
    with pytest.raises(un.InputError, match="the statistic is not finite for 100 of 100 relabellings"):
        energy_test(X, Y, permutations=99, key=KEY)
    with pytest.raises(un.InputError, match="is nan; rescale them"):
        energy_distance(X, Y)


# ------------------------------------------------------------------------------------------ clusters that are far apart

WIDTHS = (0.25, 0.5, 1.0)


def clusters(scale, dimension, seed):
    """Two Gaussians of this scale, 2000 apart."""
    rng = np.random.default_rng(seed)
    points = scale * rng.normal(size=(200, dimension))
    points[:, 0] += rng.choice([-1000.0, 1000.0], size=200)
    return points


def truth(first, second, dimension):
    """MMD^2 of two laws of clusters: half of all pairs are of one cluster, and the others count for nothing."""

    def mean(variance):
        return sum((h**2 / (h**2 + variance)) ** (dimension / 2) for h in WIDTHS)

    return 0.5 * (mean(2 * first**2) + mean(2 * second**2) - 2 * mean(first**2 + second**2))


@pytest.mark.parametrize("dimension", [3, 12])
def test_mmd_of_tight_clusters_far_apart(dimension, monkeypatch):
    def values():
        samples = ((clusters(0.1, dimension, 2 * i), clusters(0.3, dimension, 2 * i + 1)) for i in range(40))
        return [mmd(x, y, bandwidths=WIDTHS).value for x, y in samples]

    assert holds(values(), truth(0.1, 0.3, dimension))
    # Negative control: squared distances by a product of matrices in single precision.
    monkeypatch.setattr(kernel_statistic, "_precision", lambda *_: nullcontext())
    assert (breaks if dimension > kernel_statistic.BY_DIFFERENCES else holds)(values(), truth(0.1, 0.3, dimension))


def test_ordinary_samples_stay_in_single_precision():
    double = type(jax.enable_x64(True))
    for dimension in (2, 10, 100):
        x = np.random.default_rng(0).normal(size=(500, dimension))
        x /= np.abs(x).max()
        assert not isinstance(kernel_statistic._precision(x, 0.1), double)
        assert isinstance(kernel_statistic._precision(x, 1e-5), double)


# -------------------------------------------------------------------------------------------- constants in the energy

LINE = Real((1,))
BASE = standard_gaussian(1)
LOG_Z = 0.5 * math.log(math.pi / 2)
DRAWS = 0.5 * np.random.default_rng(0).normal(size=(256, 1))


class Raised(un.energies.AbstractEnergy):
    """2 x^2 + constant, the constant an array so that all of them share their programs."""

    constant: jax.Array
    space: Real = eqx.field(static=True, default=LINE)

    def __call__(self, x):
        return 2 * jnp.sum(x**2) + self.constant


ESTIMATORS = {
    "importance": lambda target, base: importance(target, base, draws=4000, key=KEY),
    "bridge": lambda target, base: bridge(target, base, DRAWS, key=KEY),
    "ais": lambda target, base: ais(target, base, chains=256, levels=8, key=KEY),
    "reverse_ais": lambda target, base: reverse_ais(target, base, DRAWS, levels=20, key=KEY),
    "thermodynamic": lambda target, base: thermodynamic(target, base, chains=64, levels=8, key=KEY),
    "smc": lambda target, base: smc(target, base, islands=16, particles=64, key=KEY),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_constant_that_swallows_the_energy_is_said_once(name):
    def rounding(found):
        return [w for w in found.warnings if "take a constant off the energy" in w]

    large = ESTIMATORS[name](Raised(jnp.asarray(1e8)), BASE)
    assert len(rounding(large)) == 1
    assert "about 1e+08, which float32 rounds by 12 nats" in rounding(large)[0]
    small = ESTIMATORS[name](Raised(jnp.asarray(10.0)), BASE)
    assert rounding(small) == []
    assert abs(small.value + 10 - LOG_Z) < 4.5 * small.stderr
    # What is advised works, also from a base that was made before.
    with jax.enable_x64(True):
        found = ESTIMATORS[name](Raised(jnp.asarray(1e8)), BASE)
    assert rounding(found) == []
    assert abs(found.value + 1e8 - LOG_Z) < 4.5 * found.stderr


def test_points_without_weight_may_have_any_energy():
    steep = FunctionEnergy(lambda x: jnp.where(jnp.abs(x[0]) < 2, 2 * x[0] ** 2, 1e9), LINE)
    found = importance(steep, BASE, draws=4000, key=KEY)
    assert found.warnings == ()
    # The same energy everywhere would be said.
    assert with_rounding(found, np.full(3, 1e9, np.float32)).warnings


def test_tempered_populations_walk_in_double_precision_from_any_base():
    with jax.enable_x64(True):
        found = un.samplers.TemperedSMC(BASE, islands=16, particles=64)(Raised(jnp.asarray(0.0)), key=KEY)
        assert found.draws.dtype == np.float64
    assert abs(found.log_z.value - LOG_Z) < 4.5 * found.log_z.stderr


# --------------------------------------------------------------------------------------------------- walls of a target


def test_expectations_under_a_target_with_a_wall():
    wall = FunctionEnergy(lambda x: jnp.where(x[0] > 0, 0.5 * x[0] ** 2, jnp.inf), LINE)

    def values(function):
        keys = jax.random.split(KEY, 40)
        return [expectation(wall, function, BASE, draws=500, key=key).value for key in keys]

    # E log|z| of a standard normal z, where the logarithm of what lies outside is no number. Of a ratio of two means
    # over 500 draws, half of which have equal weights, nothing is biased.
    truth = -0.5 * (np.euler_gamma + math.log(2))
    assert holds(values(lambda x: jnp.log(x[0])), truth)
    # Negative control: half of all draws lie outside, and would count as if the logarithm were 0 there.
    assert breaks(np.array(values(lambda x: jnp.log(x[0]))) / 2, truth)
