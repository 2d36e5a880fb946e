"""Laws of chain diagnostics, on AR(1) chains.

x_t = rho x_{t-1} + sqrt(1 - rho^2) e_t has autocorrelation rho^k, so S draws are worth S (1 - rho)/(1 + rho).
Coordinates are independent: one array of draws holds all repeats.
"""

import math

import numpy as np
import pytest
from scipy.special import chdtri, ndtr, ndtri, owens_t

from unnorm.errors import InputError
from unnorm.samplers import diagnostics
from unnorm.samplers.diagnostics import ess_bulk, ess_mean, ess_tail, mcse_mean, split_rhat, summarise

CHAINS, STEPS, REPEATS = 4, 4000, 200
DRAWS = CHAINS * STEPS
RHOS = (-0.3, 0.0, 0.5, 0.9)

# Geyer's sequence keeps pairs of correlations while they are positive, so noise is kept only on one side. Of
# pairs with standard deviation about sqrt(2 / S), doubled in tau, little more than one is kept: a relative
# bias below 2 / sqrt(S), which no number of repeats removes.
BIAS = 2 / math.sqrt(DRAWS)


def autoregressive(rho: float, chains: int, steps: int, repeats: int, seed: int) -> np.ndarray:
    """Stationary AR(1) draws of variance 1, of shape (chains, steps, repeats)."""
    draws = np.random.default_rng(seed).normal(size=(steps, chains, repeats))
    draws[1:] *= math.sqrt(1 - rho**2)
    for t in range(1, steps):
        draws[t] += rho * draws[t - 1]
    return draws.swapaxes(0, 1)


def deviation(values: np.ndarray, truth: float) -> tuple[float, float]:
    """The relative error of the mean over repeats, and its standard error."""
    ratio = values / truth
    return float(abs(ratio.mean() - 1)), float(ratio.std(ddof=1) / math.sqrt(len(ratio)))


def plain_rhat(draws: np.ndarray) -> np.ndarray:
    """The R-hat of 1992: neither split, nor ranked, nor folded."""
    steps = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    return np.sqrt((steps - 1) / steps + draws.mean(axis=1).var(axis=0, ddof=1) / within)


# ------------------------------------------------------------------------------------- effective sample size


@pytest.mark.parametrize("rho", RHOS)
def test_effective_sample_size_is_exact_for_autoregression(rho):
    draws = autoregressive(rho, CHAINS, STEPS, REPEATS, seed=1)
    truth = DRAWS * (1 - rho) / (1 + rho)
    for size in (ess_mean, ess_bulk):
        error, stderr = deviation(size(draws), truth)
        assert error < 4 * stderr + BIAS
    # Negative control: counting every draw as independent.
    error, _ = deviation(np.full(REPEATS, float(DRAWS)), truth)
    assert (error > 4 * stderr + BIAS) == (rho != 0)


@pytest.mark.parametrize("rho", RHOS)
def test_tail_effective_sample_size_is_exact_for_autoregression(rho):
    """For Gaussians P(x_0 < q, x_k < q) = Phi(q) - 2 T(q, sqrt((1 - r)/(1 + r))), r = rho^k, Owen's T."""
    p = 0.05
    r = rho ** np.arange(1.0, 500.0)
    joint = ndtr(ndtri(p)) - 2 * owens_t(ndtri(p), np.sqrt((1 - r) / (1 + r)))
    truth = DRAWS / (1 + 2 * float(((joint - p**2) / (p - p**2)).sum()))
    sizes = ess_tail(autoregressive(rho, CHAINS, STEPS, REPEATS, seed=2))
    error, stderr = deviation(sizes, truth)
    # The smaller of two normals lies 0.564 of their standard deviation below, and its own is 0.826 of it.
    smaller = 0.564 / 0.826 * stderr * math.sqrt(REPEATS)
    assert error < 4 * stderr + BIAS + smaller
    if rho != 0:
        # Negative control: the tails of a correlated chain are not those of independent draws.
        assert deviation(np.full(REPEATS, float(DRAWS)), truth)[0] > 4 * stderr + BIAS + smaller


@pytest.mark.parametrize("rho", RHOS)
def test_stated_error_of_the_mean_covers(rho):
    draws = autoregressive(rho, chains=4, steps=1000, repeats=600, seed=3)
    means = np.abs(draws.mean(axis=(0, 1)))
    coverage = np.mean(means < 1.96 * mcse_mean(draws))
    assert 0.90 <= coverage <= 0.99
    if rho > 0:
        # Negative control: sd / sqrt(S), blind to autocorrelation, claims too much.
        assert np.mean(means < 1.96 * draws.std(axis=(0, 1)) / math.sqrt(4000)) < 0.85


def test_chains_that_disagree_are_worth_little():
    draws = np.random.default_rng(4).normal(size=(4, 1000, 20)) + 3 * np.arange(4)[:, None, None]
    assert np.all(ess_bulk(draws) < 10)


def test_bulk_size_sees_only_ranks():
    draws = autoregressive(0.5, 4, 500, 10, seed=5)
    np.testing.assert_array_equal(ess_bulk(draws), ess_bulk(np.exp(draws)))
    # Negative control: the size for the mean does not have this invariance.
    assert np.all(ess_mean(draws) != ess_mean(np.exp(draws)))


# ------------------------------------------------------------------------------------------------------ R-hat


def test_rhat_is_near_one_for_independent_draws():
    rhat = split_rhat(np.random.default_rng(6).normal(size=(4, 1000, 500)))
    # n (R-hat^2 - 1) + 1 of 8 half-chains of n = 500 draws is a chi-square with 7 degrees over 7, and
    # bulk and folded are uncorrelated for a symmetric law: the mean of the larger of two.
    u = (np.arange(1e5) + 0.5) / 1e5
    truth = np.mean(chdtri(7, 1 - u) / 7 * 2 * u)
    larger = 500 * (rhat**2 - 1) + 1
    stderr = larger.std(ddof=1) / math.sqrt(len(larger))
    assert abs(larger.mean() - truth) < 4 * stderr
    # Negative control: the mean of one alone.
    assert abs(larger.mean() - 1) > 4 * stderr
    assert np.mean(rhat < 1.01) > 0.99


def test_rhat_sees_a_shifted_chain():
    draws = np.random.default_rng(7).normal(size=(4, 500, 50))
    draws[0] += 1.5
    assert np.all(split_rhat(draws) > 1.1)


def test_rhat_sees_a_difference_in_scale_only():
    draws = np.random.default_rng(8).normal(size=(4, 1000, 50))
    draws[:2] *= 4
    assert np.all(split_rhat(draws) > 1.1)
    # Negative control: without folding nothing is seen.
    assert np.all(plain_rhat(draws) < 1.02)


def test_rhat_sees_a_common_drift():
    draws = np.random.default_rng(9).normal(size=(4, 1000, 50)) + np.linspace(0, 3, 1000)[:, None]
    assert np.all(split_rhat(draws) > 1.1)
    # Negative control: without splitting all chains look alike.
    assert np.all(plain_rhat(draws) < 1.02)


def test_rhat_sees_a_shift_of_heavy_tails():
    draws = np.random.default_rng(10).standard_cauchy(size=(4, 1000, 50))
    draws[0] += 6
    assert np.all(split_rhat(draws) > 1.1)
    # Negative control: without ranks one extreme draw hides the shift.
    assert np.mean(plain_rhat(draws) < 1.1) > 0.9


# ------------------------------------------------------------------------------ coordinates without an answer


def test_undefined_coordinates_are_nan_and_leave_the_others_alone():
    draws = np.random.default_rng(11).normal(size=(3, 101, 2, 3))
    clean = draws.copy()
    draws[1, 5, 0, 1] = np.nan
    draws[2, 7, 1, 0] = np.inf
    draws[:, :, 1, 2] = 0.1
    undefined = np.array([[False, True, False], [True, False, True]])
    for statistic in (split_rhat, ess_bulk, ess_tail, ess_mean, mcse_mean):
        answer = statistic(draws)
        assert answer.shape == (2, 3)
        np.testing.assert_array_equal(np.isnan(answer), undefined)
        np.testing.assert_array_equal(answer[~undefined], statistic(clean)[~undefined])


def test_chains_stuck_at_different_points_have_infinite_rhat():
    draws = np.broadcast_to(np.array([0.1, 0.2, 0.3])[:, None], (3, 100))
    assert split_rhat(draws) == np.inf
    assert ess_mean(draws) < 4
    assert "R-hat is inf" in summarise(draws).warnings()[0]


@pytest.mark.parametrize("p", [0.02, 0.5, 0.98])
def test_draws_of_zeros_and_ones_have_answers(p):
    draws = np.random.default_rng(12).random(size=(4, 1000, 100)) < p
    for size in (ess_bulk, ess_tail, ess_mean):
        error, stderr = deviation(size(draws), 4000)
        assert error < 4 * stderr + 2 / math.sqrt(4000)
    assert np.all(split_rhat(draws) < 1.05)


def test_blocks_of_coordinates_change_nothing(monkeypatch):
    draws = autoregressive(0.5, 2, 100, 7, seed=13)
    whole = summarise(draws)
    monkeypatch.setattr(diagnostics, "_BLOCK", 400)
    parts = summarise(draws)
    for name in ("rhat", "ess_bulk", "ess_tail"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-12)


def test_good_draws_have_no_warnings_and_bad_ones_say_what_is_wrong():
    draws = np.random.default_rng(14).normal(size=(4, 1000, 3))
    assert summarise(draws).warnings() == ()
    draws[0, :, 1] += 2
    draws[:, 3, 2] = np.nan
    found = summarise(draws)
    not_finite, not_mixed, few_bulk, few_tail = found.warnings()
    assert not_finite == ("Draws are not finite in coordinate 2: the chains diverged; use a smaller step.")
    assert not_mixed.startswith("Chains have not mixed: R-hat is 1.")
    assert "in coordinate 1 (above 1.01)" in not_mixed
    assert "the bulk effective sample size is" in few_bulk and "(below 400)" in few_bulk
    assert "the tail effective sample size is" in few_tail
    assert math.isnan(found.worst_rhat)
    assert summarise(draws[..., :2]).worst_rhat == found.rhat[1]


def test_short_or_flat_draws_are_refused():
    for shape in ((10,), (4, 3), (0, 10)):
        with pytest.raises(InputError, match="at least 4 steps"):
            split_rhat(np.zeros(shape))
