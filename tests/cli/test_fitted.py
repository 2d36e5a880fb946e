"""A saved run in Python says what the commands say, and what is known of a Gaussian."""

import dataclasses
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import known_gaussian
from runner import unnorm
from scipy.stats import multivariate_normal, rankdata

import unnorm as un
from unnorm.data import read_table
from unnorm.runs import Run
from unnorm.training.checkpoint import load_arrays, save_arrays


@pytest.fixture(scope="module")
def fitted(run):
    return un.load(run)


def gaussian_of(fitted):
    """The model as scipy's Gaussian in the table's own units."""
    standardiser = fitted.run.prepared.schema.standardiser
    covariance = np.asarray(fitted.model.covariance, float) * np.outer(standardiser.scale, standardiser.scale)
    return multivariate_normal(standardiser.to_raw(np.asarray(fitted.model.mean)), covariance)


def test_log_prob_is_the_density_in_the_table_s_units(fitted):
    rows = known_gaussian(400, 5)
    found, truth = fitted.log_prob(rows), gaussian_of(fitted).logpdf(rows)
    np.testing.assert_allclose(found, truth, atol=2e-3)
    # Negative control: without the log volume it is the density of other units.
    control = found + fitted.run.prepared.schema.log_volume
    assert np.all(np.abs(control - truth) > 0.5)


def test_log_prob_is_what_the_command_writes_of_fresh_rows(fitted, run, fresh, tmp_path):
    assert unnorm("score", run, fresh, "-o", tmp_path / "scores.npy", "--quiet").code == 0
    written, rows = np.load(tmp_path / "scores.npy"), read_table(fresh).values
    assert fitted.log_prob(rows).tobytes() == written[:, 1].tobytes()
    assert fitted.outliers(rows).tobytes() == written[:, 3].tobytes()
    assert np.array_equal(fitted.outliers(rows), rankdata(written[:, 1], "ordinal"))
    # Negative control: another log Z gives other bits.
    other = dataclasses.replace(fitted)
    vars(other)["log_z"] = dataclasses.replace(fitted.log_z, value=fitted.log_z.value + 1e-6)
    assert other.log_prob(rows).tobytes() != written[:, 1].tobytes()


def test_rows_that_were_fitted_are_judged_as_the_command_does(fitted, run, table, tmp_path):
    assert unnorm("score", run, table, "-o", tmp_path / "scores.npy", "--quiet").code == 0
    written, rows = np.load(tmp_path / "scores.npy"), read_table(table).values
    scores = fitted.scores(rows, progress=False)
    assert scores.table()[1].tobytes() == written.tobytes() and int(scores.fitted.sum()) == 540
    # Negative control: the model itself has seen them.
    assert np.all(fitted.log_prob(rows)[scores.fitted] != written[scores.fitted, 1])
    assert np.array_equal(fitted.log_prob(rows)[~scores.fitted], written[~scores.fitted, 1])


@pytest.mark.parametrize("more", [(), ("--exact",)])
def test_draws_are_those_of_the_command(fitted, run, tmp_path, more):
    assert unnorm("sample", run, "-n", 50, "--seed", 3, *more, "-o", tmp_path / "draws.npy", "--quiet").code == 0
    written = np.load(tmp_path / "draws.npy")
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        same, other = (fitted.sample(50, seed=seed, exact=bool(more), progress=False) for seed in (3, 4))
    assert same.tobytes() == written.tobytes() != other.tobytes()


def test_columns_are_found_by_name(fitted):
    rows = known_gaussian(20, 6)
    truth = fitted.log_prob(rows)
    length, width = rows.T
    assert fitted.columns == ("length", "width")
    mapping = {"width": width, "name": ["a"] * 20, "length": length}
    assert np.array_equal(fitted.log_prob(mapping), truth)
    assert np.array_equal(fitted.log_prob(rows.tolist()), truth)
    records = np.rec.fromarrays([width, length], names="width,length")
    assert np.array_equal(fitted.log_prob(records), truth)
    # Negative control: an array in the other order is another table.
    assert not np.array_equal(fitted.log_prob(rows[:, ::-1]), truth)


def test_frames_have_named_columns(fitted):
    pandas = pytest.importorskip("pandas")
    rows = known_gaussian(20, 6)
    frame = pandas.DataFrame({"width": rows[:, 1], "name": "a", "length": rows[:, 0]}, index=range(7, 27))
    assert np.array_equal(fitted.log_prob(frame), fitted.log_prob(rows))
    assert np.array_equal(fitted.log_prob(pandas.DataFrame(rows)), fitted.log_prob(rows))
    with pytest.raises(un.InputError, match="lacks the column 'width'"):
        fitted.log_prob(frame.drop(columns="width"))


ROWS = known_gaussian(3, 0)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            {"length": [1.0]},
            "the table lacks the column 'width' that the model was fitted to; its columns are 'length'",
        ),
        ({"length": [1.0, 2.0], "width": [1.0]}, "column 'width' of the table has shape (1,), but 'length' has (2,)"),
        ({"length": [1.0], "width": ["wide"]}, "column 'width' of the table holds something that is not a number"),
        (ROWS[0], "2 columns (length, width), but this one has shape (2,)"),
        (ROWS[:, :1], "but this one has shape (3, 1)"),
        (ROWS[:0], "the table has no rows"),
        (np.where(ROWS[1, 1] == ROWS, np.nan, ROWS), "missing values: 1 in 'width' (the first in row 1, counted"),
        (np.where(ROWS[2, 0] == ROWS, np.inf, ROWS), "column 'length' of the table has an infinite value in row 2"),
        ([[1.0], [1.0, 2.0]], "the table holds something that is not a number"),
        (None, "the table holds something that is not a number"),
    ],
)
def test_a_table_that_does_not_fit_gets_a_sentence(fitted, rows, words):
    with pytest.raises(un.InputError, match=re.escape(words)) as caught:
        fitted.log_prob(rows)
    assert "\n" not in str(caught.value)


def test_numbers_that_make_no_sense_are_refused(fitted, tmp_path):
    for arguments in ({"n": 0}, {"n": 1.5}, {"n": 1, "seed": -1}, {"n": 1, "seed": 2**32}, {"n": 1, "seed": "a"}):
        with pytest.raises(un.InputError):
            fitted.sample(**arguments)
    with pytest.raises(un.InputError, match="not a folder with a run"):
        un.load(tmp_path / "absent")


def test_a_run_that_was_trained_on_is_another_model(run, tmp_path):
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    old, rows = un.load(copy), known_gaussian(5, 7)
    checkpoint = copy / "checkpoint.safetensors"
    arrays, notes = load_arrays(checkpoint)
    # Control: the same content, written again, is the same run.
    save_arrays(checkpoint, arrays, notes)
    before = dataclasses.replace(old).log_prob(rows)
    best = next(name for name in arrays if name.startswith("state.best") and name.endswith("mean"))
    save_arrays(checkpoint, {**arrays, best: arrays[best] + np.float32(0.1)}, notes)
    for question in ("log_prob", "scores", "outliers"):
        with pytest.raises(un.InputError, match="trained further since it was loaded; load it again"):
            getattr(old, question)(rows)
    assert "load it again" in str(old) and "load it again" not in str(un.load(copy))
    assert not np.array_equal(un.load(copy).log_prob(rows), before)


def test_it_says_what_it_is(fitted, run):
    text = str(fitted)
    assert "GaussianDensity on Real((2,)): mean (2 learnt), factor (4 learnt)" in text
    assert "480 to learn from, 60 to choose by, 60 new" in text and "2: length, width" in text
    saved = Run.open(run).saved_assessment(0)
    assert saved is not None and f"{saved.log_likelihood.number()} nats per new row" in text
    assert repr(fitted) == f"unnorm.load({str(run)!r})"
    assert fitted.assessment.log_z == saved.log_z == fitted.log_z
    page = fitted._repr_html_()
    assert page.startswith("<table>") and "length, width" in page
    # Names of columns come from a file, and are no markup.
    data = {**fitted.run.settings.data, "columns": ("<b>", "width")}
    settings = fitted.run.settings.model_copy(update={"data": data})
    named = un.Fitted(dataclasses.replace(fitted.run, settings=settings), fitted.identity)
    assert "<b>" not in named._repr_html_() and "&lt;b&gt;" in named._repr_html_()
