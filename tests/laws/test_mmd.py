"""Laws of the maximum mean discrepancy.

For Gaussians the truth is closed: x - y ~ N(delta, s^2 I) in d dimensions has
E exp(-|x - y|^2 / (2 h^2)) = (h^2 / (h^2 + s^2))^(d/2) exp(-|delta|^2 / (2 (h^2 + s^2))),
so MMD^2 between N(0, I) and N(mu, t^2 I) follows with s^2 = 2, 2 t^2 and 1 + t^2. For laws on a few points it
is a sum over all samples there are.
"""

import itertools
import math

import numpy as np
import pytest

from unnorm.errors import InputError
from unnorm.evaluation.two_sample.mmd import _KernelSums, _variance, median_bandwidth, mmd

pytestmark = pytest.mark.optimised

BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
REPEATS = 300


def gaussian_truth(dimension: int, shift: float, scale: float) -> float:
    """MMD^2 between N(0, I) and N((shift, ..., shift), scale^2 I)."""

    def expected(variance: float, squared: float) -> float:
        widths = [(h**2, h**2 + variance) for h in BANDWIDTHS]
        return sum((a / b) ** (dimension / 2) * math.exp(-squared / (2 * b)) for a, b in widths)

    return expected(2, 0) + expected(2 * scale**2, 0) - 2 * expected(1 + scale**2, dimension * shift**2)


def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    squared = ((x[:, None] - y[None]) ** 2).sum(axis=-1)
    return sum(np.exp(-squared / (2 * h**2)) for h in BANDWIDTHS)


def u_statistic(x: np.ndarray, y: np.ndarray) -> float:
    """The definition, written out in double precision."""
    n, m = len(x), len(y)
    xx, yy = kernel(x, x), kernel(y, y)
    within = (xx.sum() - np.trace(xx)) / (n * (n - 1)) + (yy.sum() - np.trace(yy)) / (m * (m - 1))
    return float(within - 2 * kernel(x, y).mean())


def v_statistic(x: np.ndarray, y: np.ndarray) -> float:
    """The biased estimate, which keeps k(x_i, x_i)."""
    return float(kernel(x, x).mean() + kernel(y, y).mean() - 2 * kernel(x, y).mean())


def mean_and_error(values: list[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))


# An alternative with equal numbers, one with different numbers and spreads, and two samples of one law.
ALTERNATIVES = [(200, 200, 2, 0.7, 1.0), (100, 300, 3, 0.5, 1.5)]
NULLS = [(100, 100, 2, 0.0, 1.0), (60, 150, 4, 0.0, 1.0)]


def repeats(n: int, m: int, dimension: int, shift: float, scale: float):
    rng = np.random.default_rng(n + m)
    for _ in range(REPEATS):
        yield rng.normal(size=(n, dimension)), shift + scale * rng.normal(size=(m, dimension))


@pytest.mark.parametrize("setting", ALTERNATIVES)
def test_unbiased_with_an_error_that_covers(setting):
    truth = gaussian_truth(*setting[2:])
    found = [mmd(x, y) for x, y in repeats(*setting)]
    mean, stderr = mean_and_error([e.value for e in found])
    assert abs(mean - truth) < 4 * stderr
    assert 0.90 <= np.mean([e.covers(truth) for e in found]) <= 0.99
    # Negative control: the error that holds where the laws agree is far too small where they differ.
    short = [abs(e.value - truth) < 1.96 * e.diagnostics["null_stderr"] for e in found]
    assert np.mean(short) < 0.8


@pytest.mark.parametrize("setting", NULLS)
def test_zero_on_average_where_the_laws_agree(setting):
    found = [mmd(x, y) for x, y in repeats(*setting)]
    mean, stderr = mean_and_error([e.value for e in found])
    assert abs(mean) < 4 * stderr
    values = np.array([e.value for e in found])
    spread = values.std(ddof=1)
    # The standard deviation has the relative error sqrt((kurtosis - 1) / (4 repeats)); tails are long.
    kurtosis = np.mean((values - values.mean()) ** 4) / values.var() ** 2
    error = math.sqrt((kurtosis - 1) / (4 * REPEATS))
    assert abs(np.mean([e.diagnostics["null_stderr"] for e in found]) / spread - 1) < 4 * error
    # The first-order part of the variance is cut off at zero, so the stated error is on the large side.
    assert 0.7 < np.mean([e.stderr for e in found]) / spread < 1.4
    # Negative control: half the variance, as from counting every pair k(x_i, x_j) = k(x_j, x_i) twice.
    assert np.mean([e.diagnostics["null_stderr"] for e in found]) / math.sqrt(2) / spread < 1 - 4 * error


@pytest.mark.parametrize("setting", [*ALTERNATIVES[:1], *NULLS[:1]])
def test_the_biased_statistic_is_rejected(setting):
    """Negative control: with k(x_i, x_i) kept, the mean is too large by (k(0) - E k(x, x'))/n per sample."""
    mean, stderr = mean_and_error([v_statistic(x, y) for x, y in repeats(*setting)])
    assert mean - gaussian_truth(*setting[2:]) > 4 * stderr


def test_variance_is_unbiased_by_enumeration():
    """Every sample of 4 and 5 points from laws on 3 and 2 points: the mean stated variance is the truth."""
    x_points, x_probabilities = np.array([[-1.0], [0.3], [1.2]]), np.array([0.2, 0.5, 0.3])
    y_points, y_probabilities = np.array([[0.1], [1.5]]), np.array([0.6, 0.4])
    n, m = 4, 5

    def sums(matrix: np.ndarray) -> _KernelSums:
        return _KernelSums(matrix.sum(axis=1), matrix.sum(axis=0), float((matrix**2).sum()))

    def samples(points: np.ndarray, probabilities: np.ndarray, size: int):
        for chosen in itertools.product(range(len(points)), repeat=size):
            sample = points[list(chosen)]
            gram = kernel(sample, sample)
            yield sample, sums(gram - np.diag(np.diag(gram))), probabilities[list(chosen)].prod()

    rows = []
    y_samples = list(samples(y_points, y_probabilities, m))
    for x, xx, p in samples(x_points, x_probabilities, n):
        for y, yy, q in y_samples:
            xy = sums(kernel(x, y))
            value = xx.total / (n * (n - 1)) + yy.total / (m * (m - 1)) - 2 * xy.total / (n * m)
            rows.append((p * q, value, *_variance(xx, yy, xy)))
    weights, values, linear, quadratic = np.array(rows).T
    assert weights.sum() == pytest.approx(1)
    gram = [kernel(a, b) for a, b in ((x_points, x_points), (y_points, y_points), (x_points, y_points))]
    truth = (
        x_probabilities @ gram[0] @ x_probabilities
        + y_probabilities @ gram[1] @ y_probabilities
        - 2 * x_probabilities @ gram[2] @ y_probabilities
    )
    assert weights @ values == pytest.approx(truth, rel=1e-12)
    variance = weights @ (values - truth) ** 2
    assert weights @ (linear + quadratic) == pytest.approx(variance, rel=1e-10)
    # The first-order part is unbiased on its own: 4/n Var a + 4/m Var b.
    a = gram[0] @ x_probabilities - gram[2] @ y_probabilities
    b = gram[1] @ y_probabilities - x_probabilities @ gram[2]
    first = 4 / n * (x_probabilities @ a**2 - (x_probabilities @ a) ** 2)
    first += 4 / m * (y_probabilities @ b**2 - (y_probabilities @ b) ** 2)
    assert weights @ linear == pytest.approx(first, rel=1e-10)
    # Negative control: either part alone is not the variance.
    assert abs(weights @ quadratic - variance) > 0.01 * variance
    assert abs(weights @ linear - variance) > 0.01 * variance


@pytest.mark.parametrize("dimension", [2, 20])
@pytest.mark.parametrize("block", [7, 1024])
def test_blocks_give_the_definition(dimension, block):
    rng = np.random.default_rng(dimension)
    x, y = rng.normal(size=(50, dimension)), 0.5 + rng.normal(size=(33, dimension))
    assert mmd(x, y, block=block).value == pytest.approx(u_statistic(x, y), abs=2e-6)


@pytest.mark.parametrize("dimension", [2, 20])
def test_rounding_stays_below_the_stated_error(dimension):
    """Points far from the origin, and points so close together that every kernel is nearly 5."""
    rng = np.random.default_rng(dimension)
    for offset, scale in ((1e4, 1.0), (0.0, 1e-2), (1e4, 1e-2)):
        x, y = offset + scale * rng.normal(size=(2, 500, dimension))
        found = mmd(x, y)
        assert abs(found.value - u_statistic(x, y)) < 0.05 * found.diagnostics["null_stderr"]


def test_images_are_points():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(20, 3, 4)), rng.normal(size=(30, 3, 4))
    assert mmd(x, y).value == mmd(x.reshape(20, 12), y.reshape(30, 12)).value


def test_few_points_give_a_value_but_no_error():
    found = mmd([[0.0], [1.0]], [[0.5], [2.0], [1.0]])
    assert found.value == pytest.approx(
        u_statistic(np.array([[0.0], [1.0]]), np.array([[0.5], [2.0], [1.0]])), abs=1e-6
    )
    assert math.isinf(found.stderr) and found.warnings


def test_bad_samples_are_refused_with_a_sentence():
    points = np.zeros((5, 2))
    for x, y, sentence in (
        (points, np.zeros((5, 3)), "points of one shape"),
        (points[:1], points, "the first sample needs at least 2 points"),
        (points, points[:1], "the second sample needs at least 2 points"),
        (points, np.full((5, 2), np.nan), "5 of 5 points in the second sample are not finite"),
    ):
        with pytest.raises(InputError, match=sentence):
            mmd(x, y)
    for options in ({"bandwidths": ()}, {"bandwidths": (0.0,)}, {"block": 0}):
        with pytest.raises(InputError):
            mmd(points, points, **options)


def test_median_bandwidth_of_a_gaussian():
    """In one dimension |x - y| = sqrt(2) |z|, with median 0.6745 sqrt(2)."""
    widths = [median_bandwidth(np.random.default_rng(s).normal(size=5000), points=300) for s in range(100)]
    mean, stderr = mean_and_error(widths)
    # A median of dependent pairs of 300 points is biased by order 1/300.
    assert abs(mean - 0.67449 * math.sqrt(2)) < 4 * stderr + 1 / 300
    with pytest.raises(InputError, match="coincide"):
        median_bandwidth(np.zeros((10, 2)))
