"""Standardising and splitting: nothing is lost, and densities keep their units."""

import json

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from unnorm.data import Standardiser, split
from unnorm.errors import InputError

COVARIANCE = np.array([[4.0, 1.2, 0.0], [1.2, 0.25, 0.0], [0.0, 0.0, 9e4]]) + np.diag([0.0, 0.5, 0.0])
MEAN = np.array([1.0, -2.0, 1e3])


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(0).multivariate_normal(MEAN, COVARIANCE, size=500)


def raw_log_density(standardiser: Standardiser, x: np.ndarray, log_volume: float) -> np.ndarray:
    """log p_raw by the change of variables, when p_unit is the exact density of z."""
    scale = standardiser.scale
    unit = multivariate_normal(standardiser.to_unit(MEAN), COVARIANCE / np.outer(scale, scale))
    return unit.logpdf(standardiser.to_unit(x)) - log_volume


def test_the_change_of_variables_gives_the_closed_form_density(values: np.ndarray):
    standardiser = Standardiser.fit(values)
    expected = multivariate_normal(MEAN, COVARIANCE).logpdf(values)
    np.testing.assert_allclose(raw_log_density(standardiser, values, standardiser.log_volume), expected, atol=1e-8)


@pytest.mark.parametrize("wrong", (lambda v: 0.0, lambda v: -v))
def test_a_forgotten_or_inverted_volume_is_seen(values: np.ndarray, wrong):
    standardiser = Standardiser.fit(values)
    expected = multivariate_normal(MEAN, COVARIANCE).logpdf(values)
    off = raw_log_density(standardiser, values, wrong(standardiser.log_volume)) - expected
    assert np.abs(off).min() > 1


def test_fitted_columns_have_mean_0_and_deviation_1_and_come_back(values: np.ndarray):
    standardiser = Standardiser.fit(values)
    z = standardiser.to_unit(values)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(standardiser.to_raw(z), values, rtol=1e-12)
    np.testing.assert_allclose(standardiser.to_unit(values[3]), z[3])


def test_float32_data_are_standardised_in_double_precision():
    # In float32 the sum of 1e8 + noise has lost the noise.
    x = (1e6 + np.random.default_rng(1).normal(size=(10_000, 1))).astype(np.float32)
    z = Standardiser.fit(x).to_unit(x)
    assert z.dtype == np.float64
    assert abs(z.std() - 1) < 1e-9


def test_to_dict_survives_json(values: np.ndarray):
    standardiser = Standardiser.fit(values)
    copy = Standardiser.from_dict(json.loads(json.dumps(standardiser.to_dict())))
    np.testing.assert_array_equal(copy.mean, standardiser.mean)
    np.testing.assert_array_equal(copy.scale, standardiser.scale)


@pytest.mark.parametrize(
    "make, words",
    (
        # The mean of many 0.1 is not 0.1, so the computed deviation of this column is not 0.
        (lambda: Standardiser.fit(np.stack([np.arange(99.0), np.full(99, 0.1)], axis=1)), "column 2"),
        (lambda: Standardiser.fit([[1e308], [-1e308], [1e308]]), "column 1"),
        (lambda: Standardiser.fit([[np.nan], [1.0]]), "column 1"),
        (lambda: Standardiser.fit(np.zeros((0, 2))), "(0, 2)"),
        (lambda: Standardiser.fit(np.zeros(3)), "(3,)"),
        (lambda: Standardiser([0.0], [1.0, 2.0]), "(1,) and (2,)"),
        (lambda: Standardiser([0.0], [-1.0]), "column 1"),
        (lambda: Standardiser([0.0], [1.0]).to_unit(np.zeros((4, 2))), "1 columns"),
        (lambda: split(np.zeros((2, 2)), 0), "2 rows"),
        (lambda: split(np.zeros((9, 2)), 0, (0.8, 0.1, 0.2)), "sum to 1"),
        (lambda: split(np.zeros((9, 2)), 0, (1.0, 0.0, 0.0)), "positive"),
    ),
)
def test_what_cannot_be_done_gets_one_sentence(make, words: str):
    with pytest.raises(InputError) as caught:
        make()
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("n", (3, 4, 7, 20, 1001))
@pytest.mark.parametrize("fractions", ((0.8, 0.1, 0.1), (0.01, 0.5, 0.49), (0.98, 0.01, 0.01)))
def test_a_split_parts_the_rows(n: int, fractions: tuple[float, float, float]):
    rows = np.arange(n)
    parts = split(rows, 3, fractions)
    assert all(len(part) >= 1 for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows)
    if n == 1001:
        assert [len(part) for part in parts[1:]] == [round(f * n) for f in fractions[1:]]


def test_a_split_is_shuffled_and_decided_by_its_seed():
    rows = np.arange(100)
    first, again, other = split(rows, 1), split(rows, 1), split(rows, 2)
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0], np.sort(first[0]))
