"""Rows that were fitted are judged by models that were fitted without them: as if they were new.

The control is the model itself, which knows its training rows: to it they are likelier than new ones, and an outlier
among them is one of them.
"""

from typing import NamedTuple

import numpy as np
import pytest
from runner import write_csv
from scipy import stats

from unnorm.evaluation import energies
from unnorm.runs import Named, Run, Training, prepare, settings_of
from unnorm.runs.left_out import log_densities_left_out, places_of
from unnorm.runs.stages import Stages, learn

pytestmark = pytest.mark.optimised

DIMENSION = 5
TABLES = 2


class Judged(NamedTuple):
    """log p of rows that were fitted, by models without them and by the model itself, and of new ones; and the run."""

    left_out: np.ndarray
    known: np.ndarray
    new: np.ndarray
    run: Run


def rows(n: int, seed: int) -> np.ndarray:
    """Draws of three clusters, which few rows do not determine."""
    rng = np.random.default_rng(seed)
    centre = np.random.default_rng(9).normal(size=(3, DIMENSION))[rng.integers(3, size=n)]
    return 2 * centre + rng.normal(size=(n, DIMENSION)) * np.linspace(0.3, 1.0, DIMENSION)


def judged(values: np.ndarray, folder, test: np.ndarray) -> Judged:
    names = tuple("abcde")
    table, new = write_csv(folder / "t.csv", values, names), write_csv(folder / "new.csv", test, names)
    prepared = prepare(str(table), 0, test=str(new))
    settings = settings_of(prepared, Named(name="tilted"), Named(name="tilt"), Training(steps=100), 0)
    run = Run.create(folder / "run", settings, prepared)
    learn(run, Stages(2, show=False), resume=False, checkpoint_seconds=1e9, begun=False)
    found, errors, warnings = log_densities_left_out(run, progress=False)
    assert warnings == () and np.all(errors < 0.1)
    # The model's own log Z is near 0 and the same for all rows: it orders nothing.
    volume = prepared.schema.log_volume
    every = np.concatenate([prepared.train, prepared.valid])
    return Judged(found, -energies(run.model, every) - volume, -energies(run.model, prepared.test) - volume, run)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables of 300 rows and ten planted outliers: every column permuted on its own, so that each alone looks right."""
    found = []
    for seed in range(TABLES):
        good = rows(300, seed)
        rng = np.random.default_rng(100 + seed)
        planted = np.column_stack([rng.permutation(column)[:10] for column in good.T])
        fresh = np.column_stack([rng.permutation(column)[:10] for column in rows(300, 50 + seed).T])
        new = np.concatenate([rows(300, 200 + seed), fresh])
        found.append((judged(np.concatenate([good, planted]), tmp_path_factory.mktemp("left"), new), planted))
    return found


def share_among_least(fitted: np.ndarray, new: np.ndarray) -> tuple[int, int, float]:
    """Of the least likely tenth of both together: how many were fitted, how many there are, and the fitted share."""
    both = np.concatenate([fitted, new])
    count = len(both) // 10
    return int(np.sum(np.argsort(both)[:count] < len(fitted))), count, len(fitted) / len(both)


def test_fitted_rows_have_their_share_of_the_least_likely(tables):
    def p_value(which):
        shares = [share_among_least(getattr(one, which), one.new) for one, _ in tables]
        counts, of = sum(count for count, *_ in shares), sum(n for _, n, _ in shares)
        return stats.binomtest(counts, of, shares[0][2]).pvalue

    assert p_value("left_out") > 0.01
    assert p_value("known") < 1e-4


def test_planted_outliers_stand_out_as_fresh_ones_do(tables):
    """Ranks among all rows, planted in the table or in the rows that were not fitted."""

    def ranks(one, planted, which):
        values = getattr(one, which)
        place = places_of(one.run, one.run.prepared.schema.to_points(planted).astype(np.float32))
        order = stats.rankdata(np.concatenate([values, one.new]))
        return order[place], order[-10:]

    pairs = [ranks(one, planted, "left_out") for one, planted in tables]
    of_planted, of_fresh = (np.concatenate(part) for part in zip(*pairs, strict=True))
    assert stats.ks_2samp(of_planted, of_fresh).pvalue > 0.01
    assert np.median(of_planted) < 0.1 * 620
    known = [ranks(one, planted, "known") for one, planted in tables]
    of_known, of_fresh = (np.concatenate(part) for part in zip(*known, strict=True))
    assert stats.mannwhitneyu(of_known, of_fresh, alternative="greater").pvalue < 1e-3


def test_a_row_repeated_fifty_times_is_no_atom(tables, tmp_path):
    alone, _ = tables[0]
    good = rows(300, 0)
    repeated = judged(np.concatenate([good, np.repeat(good[:1], 49, axis=0)]), tmp_path, rows(100, 8))
    at = [
        places_of(one.run, one.run.prepared.schema.to_points(good[:1]).astype(np.float32))[0]
        for one in (alone, repeated)
    ]
    # One row and fifty equal ones are worth the same to models that saw neither: within the spread of single refits.
    spread = np.std(alone.left_out - alone.known)
    assert abs(repeated.left_out[at[1]] - alone.left_out[at[0]]) < 2.5 * max(spread, 0.5)
    # Negative control: to the model that was fitted to fifty it is an atom.
    assert repeated.known[at[1]] - alone.left_out[at[0]] > 3.0
