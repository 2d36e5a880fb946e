"""Laws of NCSNv2's techniques: the three propositions by simulation, and the published schedules.

The table's ratios are those of Table B.9 (L levels from sigma_1 to 0.01). Its steps are those of Technique 4 but for two
rows: FFHQ's is printed ten times too small, and church's is none that Technique 4 gives.
"""

import math

import jax
import numpy as np
import pytest
from harness import breaks, holds
from scipy.special import gammaln

from unnorm.errors import InputError
from unnorm.noises import techniques
from unnorm.noises.techniques import (
    langevin_step,
    largest_distance,
    level_count,
    overlap,
    ratio_for,
    responsibility_bound,
    schedule_for,
    variance_ratio,
)

#: Pixels, sigma_1, L, T, the step as printed, the minimiser of Prop. 6.3, and the ratio of variances there.
TABLE = {
    "CIFAR-10": (3072, 50.0, 232, 5, 6.2e-6, 6.184e-6, 1.05547),
    "CelebA": (12288, 90.0, 500, 5, 3.3e-6, 3.337e-6, 1.03135),
    "church": (27648, 140.0, 788, 4, 4.9e-6, 2.312e-6, 1.02236),
    "bedroom": (49152, 190.0, 1086, 3, 1.8e-6, 1.768e-6, 1.01737),
    "FFHQ": (196608, 348.0, 2311, 3, 0.9e-7, 8.932e-7, 1.00885),
}
LOW = 0.01


def ratio_of(name: str) -> float:
    _, high, levels, *_ = TABLE[name]
    return (high / LOW) ** (1 / (levels - 1))


def responsibilities(points, sigma, draws=4000, repeats=16):
    """The mean of r_j over draws about x_0, for every other j, in repeats."""
    rng = np.random.default_rng(0)
    x = points[0] + sigma * rng.normal(size=(repeats, draws, points.shape[1]))
    exponents = -((x[:, :, None] - points) ** 2).sum(-1) / (2 * sigma**2)
    weights = np.exp(exponents - exponents.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).mean(1)[:, 1:]


@pytest.mark.parametrize("sigma", [0.7, 1.5])
def test_a_far_point_is_hardly_heard_of(sigma):
    """Prop. 6.1: an upper bound, for two points and for many; half the exponent's denominator is none."""
    rng = np.random.default_rng(1)
    for points in (np.array([[0.0, 0, 0], [3.0, 0, 0]]), np.vstack([np.zeros((1, 3)), 2 * rng.normal(size=(5, 3))])):
        found = responsibilities(points, sigma)
        distances = np.linalg.norm(points[1:] - points[0], axis=1)
        bounds = np.array([responsibility_bound(d, sigma) for d in distances])
        assert holds(np.maximum(found.mean(0) - bounds, 0) + 0 * found, 0.0)
        assert np.all(found.mean(0) <= bounds)
    two = responsibilities(np.array([[0.0], [3.0]]), sigma)
    control = 0.5 * math.exp(-((3.0 / sigma) ** 2) / 4)
    assert breaks(two, control) and two.mean() > control


def test_lengths_are_nearly_gaussian():
    """Prop. 6.2 on draws: the mean and variance of |x|, and the exact density's; sigma / sqrt(2), and not sigma."""
    dimension, sigma, n = 3072, 2.0, 20_000
    lengths = sigma * np.sqrt(np.random.default_rng(0).chisquare(dimension, n))
    off = (lengths - math.sqrt(dimension) * sigma).reshape(20, -1)
    # E|x| is below sqrt(D) sigma by about sigma / (4 sqrt(D)).
    bias = sigma / (3 * math.sqrt(dimension))
    assert holds(off.mean(1), 0.0, bias=bias)
    assert holds((off**2).mean(1), sigma**2 / 2, bias=bias)
    assert breaks((off**2).mean(1), sigma**2, bias=bias)
    r = math.sqrt(dimension) * sigma
    log_density = (
        (dimension - 1) * math.log(r) - r**2 / (2 * sigma**2) - (dimension / 2 - 1) * math.log(2)
        - gammaln(dimension / 2) - dimension * math.log(sigma)
    )  # fmt: skip
    assert abs(math.exp(log_density) - 1 / (sigma * math.sqrt(math.pi))) < 1e-3


@pytest.mark.parametrize("dimension", [64, 3072])
def test_overlap_is_how_often_lengths_fall_where_the_level_above_has_its_own(dimension):
    ratio = ratio_for(dimension)
    assert abs(overlap(ratio, dimension) - 0.5) < 1e-12
    lengths = np.sqrt(np.random.default_rng(2).chisquare(dimension, (20, 5000)))
    inside = np.abs(lengths - math.sqrt(dimension) * ratio) < 3 * ratio / math.sqrt(2)
    # Lengths are not quite Gaussian: their mean is lower by 1 / (4 sqrt(D)), in units of sigma / sqrt(2).
    bias = math.sqrt(2) / (4 * math.sqrt(dimension)) * 0.4 + 2 / dimension
    assert holds(inside.mean(1), 0.5, bias=bias)
    wrong = np.abs(lengths - math.sqrt(dimension) * ratio) < 3 * ratio
    assert breaks(wrong.mean(1), 0.5, bias=bias)


def test_published_ratios_have_one_overlap_and_that_is_not_a_half():
    """C = .566 to .567 in every row; by C = .5 the levels would be fewer, and NCSN's ten levels do not overlap."""
    found = [overlap(ratio_of(name), TABLE[name][0]) for name in TABLE]
    assert min(found) > 0.566 and max(found) < 0.5671
    counts = [level_count(high, LOW, ratio_for(pixels)) for pixels, high, *_ in TABLE.values()]
    assert counts == [219, 472, 745, 1026, 2182]
    again = [level_count(high, LOW, ratio_for(pixels, 0.567)) for pixels, high, *_ in TABLE.values()]
    assert all(abs(a - row[2]) <= 0.002 * row[2] for a, row in zip(again, TABLE.values(), strict=True))
    assert overlap(100 ** (1 / 9), 3072) == 0.0


@pytest.mark.parametrize("name", TABLE)
def test_published_steps_are_those_of_the_closed_form(name):
    *_, moves, printed, best, least = TABLE[name]
    found = langevin_step(moves, ratio_of(name), LOW)
    assert abs(found / best - 1) < 5e-4
    assert abs(variance_ratio(found, moves, ratio_of(name), LOW) - least) < 1e-5
    factor = {"church": 2.12, "FFHQ": 0.1}.get(name, 1.0)
    assert abs(printed / found / factor - 1) < 0.02


def walked(step, moves, ratio, half=False, n=200_000):
    """The variance of one coordinate after the moves, over that of the target, in repeats; the score is exact."""
    rng = np.random.default_rng(3)
    sigma = 0.4  # of some level in the middle
    a = step * sigma**2 / LOW**2
    x = ratio * sigma * rng.normal(size=(20, n // 20))
    for _ in range(moves):
        x = x - (a / 2 if half else a) * x / sigma**2 + np.sqrt(a if half else 2 * a) * rng.normal(size=x.shape)
    return (x**2).mean(1) / sigma**2


@pytest.mark.parametrize(("step", "moves", "ratio"), [(6.184e-6, 5, 1.2), (3e-5, 3, 1.5), (8e-5, 1, 2.0)])
def test_the_variance_after_a_level_is_the_closed_forms(step, moves, ratio):
    """Prop. 6.3 by simulation; the walk with half the drift (Algorithm 5.1) and another exponent are not it."""
    truth = variance_ratio(step, moves, ratio, LOW)
    assert holds(walked(step, moves, ratio), truth)
    assert breaks(walked(step, moves, ratio, half=True), truth)
    q = 1 - step / LOW**2
    own = 2 * step / (LOW**2 * (1 - q**2))
    assert breaks(walked(step, moves, ratio), q**moves * (ratio**2 - own) + own)


def test_the_largest_distance_is_that_of_all_pairs(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(30, 2, 3)) + 100
    flat = rows.reshape(30, 6)
    truth = max(np.linalg.norm(a - b) for a in flat for b in flat)
    monkeypatch.setattr(techniques, "_BLOCK", 7)
    assert abs(largest_distance(rows) - truth) < 1e-9
    monkeypatch.setattr(techniques, "MANY", 20)
    monkeypatch.setattr(techniques, "SOME", 10)
    assert largest_distance(rows) < truth


def test_a_schedule_follows_from_points():
    rows = np.random.default_rng(0).uniform(size=(200, 8, 8, 1))
    found = schedule_for(rows, updates=600)
    sigmas = np.asarray(found.ladder.sigmas)
    assert abs(sigmas[-1] / largest_distance(rows) - 1) < 1e-6 and abs(sigmas[0] / LOW - 1) < 1e-6
    assert np.allclose(sigmas[1:] / sigmas[:-1], found.ratio, rtol=1e-4)
    # Levels are whole in number: half a level more or fewer, and the overlap is on either side of a half.
    span, gaps = math.log(sigmas[-1] / LOW), len(sigmas) - 1
    assert overlap(math.exp(span / (gaps - 0.5)), 64) < 0.5 < overlap(math.exp(span / (gaps + 0.5)), 64)
    assert found.updates <= 600 and found.step == langevin_step(found.moves, found.ratio, LOW)
    assert jax.tree.leaves(found.ladder)[0].ndim == 1


def test_what_has_no_levels_is_refused():
    with pytest.raises(InputError, match="all points are alike"):
        largest_distance(np.ones((3, 2)))
    with pytest.raises(InputError, match="two points or more"):
        largest_distance(np.ones(3))
    with pytest.raises(InputError, match="overlap between 0 and"):
        ratio_for(10, 1.0)
    with pytest.raises(InputError, match="ratio above 1, not 0.5"):
        level_count(2.0, 1.0, 0.5)
    with pytest.raises(InputError, match="moves once or more"):
        langevin_step(0, 2.0, 1.0)
