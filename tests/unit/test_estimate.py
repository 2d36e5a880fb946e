"""Estimates: intervals, sums, printing, and means with their errors."""

import json
import math

import numpy as np
import pytest

from unnorm.errors import InputError
from unnorm.estimate import Estimate, Outcome, OutcomeCode, log_mean_exp_estimate, mean_estimate

REPEATS = 2000

# ------------------------------------------------------------------------------------------------------ the interval


@pytest.mark.parametrize(("level", "z"), [(0.95, 1.959964), (0.5, 0.674490), (0.99, 2.575829)])
def test_interval_is_z_standard_errors_wide(level, z):
    low, high = Estimate(2.0, 0.5, "any").interval(level)
    assert math.isclose(low, 2 - 0.5 * z, abs_tol=1e-6) and math.isclose(high, 2 + 0.5 * z, abs_tol=1e-6)


def test_covers_at_the_ends_of_the_interval():
    estimate = Estimate(0.0, 1.0, "any")
    assert estimate.covers(1.95) and estimate.covers(-1.95)
    assert not estimate.covers(1.97) and not estimate.covers(-1.97)
    assert estimate.covers(1.97, level=0.99)
    assert Estimate(3.0, 0.0, "known exactly").covers(3.0)


# ------------------------------------------------------------------------------------------------- sums of estimates


def test_errors_of_sums_add_in_squares():
    a, b = Estimate(5.0, 0.3, "one"), Estimate(2.0, 0.4, "two")
    assert a.plus(b).value == 7.0 and a.minus(b).value == 3.0
    assert math.isclose(a.plus(b).stderr, 0.5) and math.isclose(a.minus(b).stderr, 0.5)
    scaled = a.plus(b, factor=-2.0)
    assert scaled.value == 1.0 and math.isclose(scaled.stderr, math.hypot(0.3, 0.8))


def test_sums_keep_methods_diagnostics_and_warnings():
    a = Estimate(1.0, 0.1, "AIS", {"samples": 10.0, "levels": 5.0}, ("first", "both"))
    b = Estimate(1.0, 0.1, "mean", {"samples": 99.0, "rows": 7.0}, ("both", "second"))
    total = a.plus(b)
    assert total.method == "AIS and mean" and a.plus(a).method == "AIS"
    assert total.diagnostics == {"samples": 10.0, "levels": 5.0, "rows": 7.0}
    assert total.warnings == ("first", "both", "second")


def test_plain_data_goes_there_and_back():
    estimate = Estimate(1.25, 0.5, "AIS", {"samples": 10.0}, ("a warning",))
    assert Estimate.from_dict(json.loads(json.dumps(estimate.to_dict()))) == estimate
    outcome = Outcome(OutcomeCode.DIVERGED, 7, "the loss is not finite.", "Use a smaller rate.", 2)
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome
    assert not outcome.ok and str(outcome) == "diverged at step 7: the loss is not finite. Use a smaller rate."


# ---------------------------------------------------------------------------------------------------------- printing


@pytest.mark.parametrize(
    ("value", "stderr", "text"),
    [
        (-3.2104, 0.0213, "-3.210 ± 0.021"),
        (1234.5678, 12.3, "1235 ± 12"),
        (0.5, 1.0, "0.5 ± 1.0"),
        (1.0, 0.00123, "1.0000 ± 0.0012"),
        (2.0, 0.0, "2 ± 0"),
        (2.0, math.inf, "2 ± inf"),
        (math.nan, math.nan, "nan ± nan"),
    ],
)
def test_two_digits_of_the_error_are_printed(value, stderr, text):
    assert Estimate(value, stderr, "any").number() == text
    assert str(Estimate(value, stderr, "any")) == f"{text} (any)"


# ------------------------------------------------------------------------------------------------------------- means


def test_mean_estimate_states_the_error_of_the_mean():
    samples = np.random.default_rng(0).normal(3.0, 2.0, size=(REPEATS, 50))
    found = [mean_estimate(row, "mean") for row in samples]
    values = np.array([estimate.value for estimate in found])
    assert np.allclose(values, samples.mean(axis=1))
    # Without bias for the variance of the mean, 4 / 50, whose estimate has the relative error sqrt(2 / 49).
    ratio = np.mean([estimate.stderr**2 for estimate in found]) / (4 / 50)
    assert abs(ratio - 1) < 4.5 * math.sqrt(2 / 49 / REPEATS)
    # Negative control: dividing by n, not n - 1.
    assert abs(ratio * 49 / 50 - 1) > 4.5 * math.sqrt(2 / 49 / REPEATS)
    assert found[0].diagnostics == {"samples": 50.0}


def test_one_sample_has_no_known_error():
    assert mean_estimate([3.0], "mean").stderr == math.inf


def test_log_mean_exp_is_that():
    log_weights = np.log([1.0, 2.0, 3.0, 6.0])
    estimate = log_mean_exp_estimate(log_weights, "any")
    assert math.isclose(estimate.value, math.log(3.0))
    # sd(w) / (mean(w) sqrt n), and (sum w)^2 / sum w^2.
    assert math.isclose(estimate.stderr, math.sqrt((4 + 1 + 0 + 9) / 3) / (3 * 2))
    assert math.isclose(estimate.diagnostics["effective_samples"], 144 / 50)


@pytest.mark.parametrize("shift", [-5000.0, 5000.0])
def test_log_mean_exp_does_not_overflow(shift):
    log_weights = np.random.default_rng(1).normal(size=500)
    plain, shifted = log_mean_exp_estimate(log_weights, "any"), log_mean_exp_estimate(log_weights + shift, "any")
    assert math.isclose(shifted.value, plain.value + shift, rel_tol=1e-12)
    assert math.isclose(shifted.stderr, plain.stderr, rel_tol=1e-9)


def test_weights_of_zero_count():
    """Half of the weights zero: the mean halves, and so does the effective number."""
    estimate = log_mean_exp_estimate(np.r_[np.zeros(300), np.full(300, -np.inf)], "any")
    assert math.isclose(estimate.value, math.log(0.5))
    assert math.isclose(estimate.diagnostics["effective_samples"], 300)


def test_log_mean_exp_error_is_that_of_repeats():
    """Lognormal weights: over repeats the values spread as stated, and halved errors would not do."""
    sigma, n = 0.8, 500
    log_weights = np.random.default_rng(2).normal(-(sigma**2) / 2, sigma, size=(REPEATS, n))
    found = [log_mean_exp_estimate(row, "any") for row in log_weights]
    values = np.array([estimate.value for estimate in found])
    spread, stated = values.std(ddof=1), np.mean([estimate.stderr for estimate in found])
    # The spread of 2000 nearly normal values is known to 1.6%; the delta method is right to order 1/n.
    tolerance = 4.5 / math.sqrt(2 * REPEATS) + 1 / math.sqrt(n) / 4
    assert abs(stated / spread - 1) < tolerance
    assert abs(stated / 2 / spread - 1) > tolerance
    assert math.isclose(stated, math.sqrt(math.expm1(sigma**2) / n), rel_tol=0.05)
    covered = np.mean([estimate.covers(0.0) for estimate in found])
    assert 0.92 < covered < 0.97


def test_few_effective_weights_are_said():
    estimate = log_mean_exp_estimate(np.r_[np.full(999, -50.0), 0.0], "any")
    assert math.isclose(estimate.diagnostics["effective_samples"], 1.0, rel_tol=1e-6)
    assert len(estimate.warnings) == 1
    assert estimate.warnings[0].startswith("Only 1 of 1000 weights are effective: the stated error is too small")
    assert log_mean_exp_estimate(np.zeros(100), "any").warnings == ()
    assert log_mean_exp_estimate(np.zeros(99), "any").warnings != ()


@pytest.mark.parametrize(
    ("log_weights", "sentence"),
    [
        ([0.0, math.nan, 1.0], "1 of 3 log-weights are NaN: the energy is not a number at some points; mend it"),
        (
            [0.0, math.inf, -math.inf],
            "1 of 3 weights are infinite: the energy is minus infinity at some points; mend it",
        ),
        (
            [-math.inf, -math.inf],
            "none of 2 weights is above zero: the energy is infinite wherever the base draws; use a base that lies "
            "inside the target",
        ),
        ([0.0], "a mean of weights with an error needs at least 2 of them, not 1"),
        ([], "a mean of weights with an error needs at least 2 of them, not 0"),
    ],
)
def test_weights_without_a_mean_are_refused(log_weights, sentence):
    with pytest.raises(InputError) as error:
        log_mean_exp_estimate(log_weights, "any")
    assert str(error.value) == sentence


def test_rows_of_a_group_err_together():
    """20 persons of 10 recordings, whose means differ: intervals that know of them hold the truth, others do not."""
    rng, held = np.random.default_rng(0), {"groups": [], "rows": []}
    groups = np.repeat(np.arange(20), 10)
    for _ in range(1000):
        values = rng.normal(size=20)[groups] + 0.5 * rng.normal(size=200)
        held["groups"].append(mean_estimate(values, "mean", groups).covers(0.0))
        held["rows"].append(mean_estimate(values, "mean").covers(0.0))
    # A t interval of 19 degrees of freedom is 7% wider than the normal one, which then holds 93.5%.
    assert abs(np.mean(held["groups"]) - 0.935) < 4.5 * 0.25 / 1000**0.5
    assert np.mean(held["rows"]) < 0.6
    # Each row its own group: the plain error.
    assert mean_estimate(values, "mean", np.arange(200)).stderr == pytest.approx(mean_estimate(values, "mean").stderr)
