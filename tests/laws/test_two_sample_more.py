"""Laws of two-sample statistics: values with closed forms, errors that cover, p-values that are uniform.

Coverage: of 200 intervals of 95%, between 90% and 99% must hold the truth; halved errors must fail. A p-value is valid
when P(p <= a) = a where the laws agree, up to its grid.
"""

import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from harness import breaks, coverage, holds
from scipy.special import gamma, hyp1f1
from scipy.stats import kstest, norm

from unnorm.errors import InputError
from unnorm.estimate import Estimate
from unnorm.evaluation import classifier_test, energy_distance, energy_test, mmd, mmd_test, precision_recall
from unnorm.evaluation import sliced_wasserstein as sliced
from unnorm.evaluation.two_sample.sliced_wasserstein import coupling

pytestmark = pytest.mark.optimised

REPEATS = 200


def covers(estimates: list[Estimate], truth: float) -> bool:
    return 0.90 <= coverage(estimates, truth) <= 0.99


def halved(estimates: list[Estimate]) -> list[Estimate]:
    return [replace(estimate, stderr=estimate.stderr / 2) for estimate in estimates]


def pairs(n: int, m: int, dimension: int, shift: float, scale: float = 1.0, seed: int = 0, repeats: int = REPEATS):
    """Samples of N(0, I) and of N((shift, ..., shift), scale^2 I)."""
    rng = np.random.default_rng(seed)
    for _ in range(repeats):
        yield rng.normal(size=(n, dimension)), shift + scale * rng.normal(size=(m, dimension))


# ------------------------------------------------------------------------------------------------------ energy distance


def mean_norm(dimension: int, squared: float, variance: float) -> float:
    """E|z| for z ~ N(delta, variance I), |delta|^2 = squared."""
    centre = math.sqrt(2 * variance) * gamma((dimension + 1) / 2) / gamma(dimension / 2)
    return centre * float(hyp1f1(-0.5, dimension / 2, -squared / (2 * variance)))


def energy_truth(dimension: int, shift: float, scale: float) -> float:
    between = mean_norm(dimension, dimension * shift**2, 1 + scale**2)
    return 2 * between - mean_norm(dimension, 0.0, 2.0) - mean_norm(dimension, 0.0, 2 * scale**2)


@pytest.mark.parametrize(("n", "m", "dimension", "shift", "scale"), [(200, 200, 1, 0.7, 1.0), (100, 300, 3, 0.5, 1.5)])
def test_energy_distance_of_two_gaussians(n, m, dimension, shift, scale):
    truth = energy_truth(dimension, shift, scale)
    found = [energy_distance(x, y) for x, y in pairs(n, m, dimension, shift, scale)]
    assert holds([e.value for e in found], truth)
    assert covers(found, truth)
    assert not covers(halved(found), truth)
    # Negative control: the mean distance between counted once.
    assert breaks([e.value - mean_norm(dimension, dimension * shift**2, 1 + scale**2) for e in found], truth)


def test_energy_distance_is_zero_on_average_where_laws_agree():
    values = np.array([energy_distance(x, y).value for x, y in pairs(60, 150, 4, 0.0, seed=1)])
    assert holds(values, 0.0)
    # Negative control: with the zeros |x_i - x_i| counted, the mean distance within is too small by 1/n of itself.
    assert breaks(values + mean_norm(4, 0.0, 2.0) * (1 / 60 + 1 / 150), 0.0)


# ------------------------------------------------------------------------------------------------------------ p-values


def uniform(p_values, grid: float) -> bool:
    """Whether the largest gap to the uniform law is one that chance explains, after allowing for the grid."""
    gap = kstest(p_values, "uniform").statistic - grid
    # The Kolmogorov statistic of n values exceeds 1.95 / sqrt(n) once in 1000.
    return gap < 1.95 / math.sqrt(len(p_values))


@pytest.mark.parametrize("test", [mmd_test, energy_test])
def test_permutation_p_values_are_uniform_where_laws_agree(test):
    found = [
        test(x, y, permutations=99, key=jax.random.key(i)).diagnostics["p_value"]
        for i, (x, y) in enumerate(pairs(40, 60, 2, 0.0, seed=2, repeats=200))
    ]
    assert uniform(found, 0.01)
    assert min(found) >= 0.01
    # Negative control: a shift of 0.4 is often seen.
    seen = [
        test(x, y, permutations=99, key=jax.random.key(i)).diagnostics["p_value"]
        for i, (x, y) in enumerate(pairs(40, 60, 2, 0.4, seed=3, repeats=60))
    ]
    assert not uniform(seen, 0.01)


def test_the_p_value_compares_the_statistic_itself():
    """Every relabelling of 4 and 4 points written out: p is the share with a U at least as large, to its own error."""
    from itertools import combinations

    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(4, 1)), 2.5 + rng.normal(size=(4, 1))
    pooled = np.vstack([x, y])
    every = []
    for chosen in combinations(range(8), 4):
        others = [i for i in range(8) if i not in chosen]
        every.append(energy_distance(pooled[list(chosen)], pooled[others]).value)
    exact = np.mean(np.array(every) >= energy_distance(x, y).value - 1e-6)
    p = energy_test(x, y, permutations=9999, key=jax.random.key(5)).diagnostics["p_value"]
    assert abs(p - exact) < 4.5 * math.sqrt(exact * (1 - exact) / 9999) + 1e-4
    assert abs(p - exact - 1 / 70) > 4.5 * math.sqrt(exact * (1 - exact) / 9999) + 1e-4


def test_the_estimate_of_a_test_is_the_statistic():
    (x, y) = next(pairs(50, 70, 2, 0.5, seed=6))
    tested = mmd_test(x, y, bandwidths=(0.5, 1.0), permutations=99, key=jax.random.key(0))
    assert tested.value == mmd(x, y, bandwidths=(0.5, 1.0)).value
    assert tested.stderr == mmd(x, y, bandwidths=(0.5, 1.0)).stderr
    with pytest.raises(InputError, match="at least 19 permutations"):
        mmd_test(x, y, permutations=5, key=jax.random.key(0))


# -------------------------------------------------------------------------------------------------- sliced Wasserstein


def test_the_coupling_is_monotone_and_keeps_the_mass():
    for n, m in ((3, 3), (2, 5), (7, 4)):
        joint = coupling(n, m)
        assert np.allclose(np.bincount(joint.of_x, joint.mass), 1 / n)
        assert np.allclose(np.bincount(joint.of_y, joint.mass), 1 / m)
        assert (np.diff(joint.of_x) >= 0).all() and (np.diff(joint.of_y) >= 0).all()


@pytest.mark.parametrize(("n", "m", "dimension", "shift", "scale"), [(500, 500, 3, 0.7, 1.0), (400, 700, 2, 0.5, 1.5)])
def test_sliced_wasserstein_of_two_gaussians(n, m, dimension, shift, scale):
    """W_2^2 of N(a, 1) and N(b, s^2) is (a - b)^2 + (s - 1)^2, and (theta'delta)^2 has the mean |delta|^2 / d."""
    truth = shift**2 + (scale - 1) ** 2
    found = [
        sliced(x, y, key=jax.random.key(i)) for i, (x, y) in enumerate(pairs(n, m, dimension, shift, scale, seed=7))
    ]
    # What two samples of one law give bounds the bias.
    bias = 1.5 * float(np.mean([e.diagnostics["null_value"] for e in found]))
    assert holds([e.value for e in found], truth, bias)
    assert covers(found, truth)
    assert not covers(halved(found), truth)
    # Negative control: the distance along the diagonal only, or summed over coordinates.
    assert breaks([dimension * e.value for e in found], truth, bias)


def test_samples_of_one_law_give_the_null_value():
    found = [sliced(x, y, key=jax.random.key(i)) for i, (x, y) in enumerate(pairs(300, 500, 2, 0.0, seed=8))]
    gaps = [e.value - e.diagnostics["null_value"] for e in found]
    assert holds(gaps, 0.0)
    assert breaks([e.value for e in found], 0.0)


# ---------------------------------------------------------------------------------------------------------- classifier


def test_a_classifier_reaches_the_best_accuracy_and_its_error_covers():
    """The best classifier of two Gaussians at distance d is right with probability Phi(d / 2)."""
    truth = float(norm.cdf(0.5 * math.sqrt(2) * 1.0))
    found = [
        classifier_test(x, y, steps=200, key=jax.random.key(i))
        for i, (x, y) in enumerate(pairs(1000, 800, 2, 1.0, seed=9))
    ]
    values = [e.value for e in found]
    # A trained network is short of the best by less than one percent.
    assert holds(values, truth, 0.01) and np.mean(values) < truth + 4.5 * np.std(values) / math.sqrt(REPEATS)
    assert covers(found, truth)
    assert not covers(halved(found), truth)
    assert breaks(values, float(norm.cdf(math.sqrt(2) * 1.0)), 0.01)


def test_a_classifier_sees_nothing_where_laws_agree():
    found = [
        classifier_test(x, y, steps=50, key=jax.random.key(i))
        for i, (x, y) in enumerate(pairs(300, 200, 2, 0.0, seed=10))
    ]
    assert holds([e.value for e in found], 0.5) and covers(found, 0.5)
    p = np.array([e.diagnostics["p_value"] for e in found])
    # Exact, and on a grid: P(p <= a) is a or a little less.
    for level in (0.05, 0.2, 0.5):
        spread = math.sqrt(level * (1 - level) / REPEATS)
        assert level - 0.1 - 4.5 * spread < np.mean(p <= level) < level + 4.5 * spread
    # Negative control: every point twice, so that what is held out has been seen; both verdicts are then wrong.
    seen = [
        classifier_test(np.repeat(x, 2, axis=0), np.repeat(y, 2, axis=0), key=jax.random.key(i))
        for i, (x, y) in enumerate(pairs(60, 50, 8, 0.0, seed=10, repeats=40))
    ]
    assert breaks([e.value for e in seen], 0.5)
    often = np.mean([e.diagnostics["p_value"] <= 0.05 for e in seen])
    assert often > 0.05 + 4.5 * math.sqrt(0.05 * 0.95 / 40)


# -------------------------------------------------------------------------------------------------- precision, recall


def test_precision_and_recall_of_overlapping_boxes():
    """Uniform on [0, 1] and on [0.3, 1.5]: 0.7 / 1.2 of the draws lie among the data, 0.7 of the data among them."""
    rng = np.random.default_rng(11)
    found = [
        precision_recall(
            rng.uniform(size=(300, 1)), 0.3 + 1.2 * rng.uniform(size=(300, 1)), groups=10, key=jax.random.key(i)
        )
        for i in range(REPEATS)
    ]
    precision, recall = [f.precision for f in found], [f.recall for f in found]
    # Balls reach over the edge by a few gaps between points, and gaps between balls miss a few: of order k / n.
    for estimates, truth in ((precision, 0.7 / 1.2), (recall, 0.7)):
        assert holds([e.value for e in estimates], truth, 3 / 300)
        assert covers(estimates, truth)
        assert not covers(halved(estimates), truth)
    # Negative control: the two the wrong way round.
    assert breaks([e.value for e in precision], 0.7, 3 / 300) and breaks([e.value for e in recall], 0.7 / 1.2, 3 / 300)


def test_two_samples_that_do_not_touch_have_neither():
    x = np.random.default_rng(12).normal(size=(100, 2))
    found = precision_recall(x, x + 100, key=jax.random.key(0))
    assert (found.precision.value, found.recall.value) == (0.0, 0.0) and found.precision.stderr > 0
    with pytest.raises(InputError, match="too few"):
        precision_recall(x[:4], x, key=jax.random.key(0))
