"""Laws of evaluation in any units: two-sample statistics do not depend on them, rounding is seen or said."""

from contextlib import nullcontext

import jax
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.evaluation import energy_distance, energy_test, kernel_statistic, median_bandwidth, mmd, mmd_test
from unnorm.evaluation.energy_distance import Distances

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
    with pytest.raises(un.InputError, match="is nan; bring them to other units"):
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
