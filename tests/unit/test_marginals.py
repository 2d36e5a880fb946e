"""Distances column by column, and how large they are between rows and rows."""

import numpy as np
from scipy.stats import kstwobign

from unnorm.evaluation import marginals

RNG = np.random.default_rng(0)


def test_the_limit_is_the_quantile_of_kolmogorov_s_law():
    rows, others = RNG.normal(size=(400, 1)), RNG.normal(size=(2000, 1))
    found = marginals(rows[:300], rows, others, repeats=400, level=0.9, seed=1)
    # sqrt(n m / (n + m)) D has Kolmogorov's law; the quantile of 400 repeats errs by about 0.03.
    exact = kstwobign.ppf(0.9) / np.sqrt(300 * 400 / 700)
    assert abs(found.limit / exact - 1) < 0.08
    assert abs(marginals(rows[:300], rows, others, repeats=400, level=0.5, seed=1).limit / exact - 1) > 0.2


def test_rows_of_a_group_stay_on_one_side():
    """Forty rows of each of 50 persons are no more than 50 rows: their distances are larger, and so is the limit."""
    person = np.repeat(np.arange(50), 40)
    values = RNG.normal(size=(50, 1))[person]
    rows, others = values[:400], values[400:]
    alone = marginals(values[:400], rows, others, repeats=200)
    together = marginals(values[:400], rows, others, groups=person, repeats=200)
    assert alone.limit < 0.12 and together.limit > 3 * alone.limit


def test_draws_of_another_law_are_beyond_the_limit():
    rows, others = RNG.normal(size=(500, 3)), RNG.normal(size=(1500, 3))
    assert marginals(RNG.normal(size=(1000, 3)), rows, others).worst < 0.13
    wrong = marginals(RNG.normal(size=(1000, 3)) * [1.0, 1.0, 1.6], rows, others)
    assert wrong.worst > wrong.limit and np.argmax(wrong.distances) == 2
