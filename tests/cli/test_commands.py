"""The commands do what they say, with known answers where there are any."""

import csv
import io
import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from runner import unnorm

from unnorm.cli.output import emit_table
from unnorm.data import read_table


def read_rows(text):
    return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(io.StringIO(text))]


def test_json_is_one_document_and_nothing_else(run):
    result = unnorm("evaluate", run, "--json", "--quiet")
    assert result.code == 0
    content = json.loads(result.out)
    assert {"log_likelihood", "baselines", "log_z", "sampler"} <= content.keys()


def test_log_density_counts_the_change_of_units(run, fresh):
    """A Gaussian model has scipy's density in the table's own units; forgetting them is off by the log volume."""
    from scipy.stats import multivariate_normal

    from unnorm.runs import Run

    saved = Run.open(run)
    mean = saved.prepared.standardiser.to_raw(np.asarray(saved.model.mean))
    scale = saved.prepared.standardiser.scale
    covariance = np.asarray(saved.model.covariance, float) * np.outer(scale, scale)
    rows = read_rows(unnorm("score", run, fresh, "--quiet").out)
    assert not any(row["fitted"] for row in rows)
    density = np.array([row["log_density"] for row in rows])
    truth = multivariate_normal(mean, covariance).logpdf(read_table(fresh).values)
    np.testing.assert_allclose(density, truth, atol=2e-3)
    assert abs(saved.prepared.standardiser.log_volume) > 0.1, "the control needs units that matter"


def test_the_fitted_gaussian_is_the_data_s(run, table):
    """Mean and covariance of CNCE's Gaussian agree with the table's, in its own units, to the estimator's error."""
    from unnorm.runs import Run

    saved = Run.open(run)
    train = saved.prepared.train
    # Twice the Cramer-Rao bound is what CNCE with good noise reaches; three of those, for a noise that is less good.
    tolerance = 4.5 * math.sqrt(3 * 2 / len(train))
    np.testing.assert_allclose(np.asarray(saved.model.mean), train.mean(0), atol=tolerance)
    np.testing.assert_allclose(np.asarray(saved.model.covariance), np.cov(train.T), atol=tolerance)


def test_outlier_ranks_order_rows_by_density(run, table):
    rows = read_rows(unnorm("score", run, table, "--quiet").out)
    ordered = sorted(rows, key=lambda row: row["outlier_rank"])
    assert [row["outlier_rank"] for row in ordered] == list(range(1, len(rows) + 1))
    assert all(a["log_density"] <= b["log_density"] for a, b in itertools.pairwise(ordered))


@pytest.mark.parametrize("suffix", ["csv", "npy", "npz", "parquet"])
def test_draws_come_back_in_the_table_s_units(run, table, tmp_path, suffix):
    out = tmp_path / f"draws.{suffix}"
    result = unnorm("sample", run, "-n", 2000, "-o", out, "--quiet")
    assert result.code == 0, result.err
    draws = read_table(out).values
    assert draws.shape == (2000, 2)
    from unnorm.runs import Run

    saved = Run.open(run)
    mean = saved.prepared.standardiser.to_raw(np.asarray(saved.model.mean))
    error = draws.std(0) / math.sqrt(500)  # the draws of a chain depend on each other: count a quarter of them
    assert np.all(np.abs(draws.mean(0) - mean) < 4.5 * error)


def test_the_same_seed_gives_the_same_draws(run):
    one, two, other = (unnorm("sample", run, "-n", 10, "--quiet", "--seed", seed).out for seed in (3, 3, 4))
    assert one == two != other


def test_evaluate_judges_on_another_table(run, fresh, table, tmp_path):
    own = json.loads(unnorm("evaluate", run, "--json", "--quiet").out)["log_likelihood"]
    other = json.loads(unnorm("evaluate", run, "--data", fresh, "--json", "--quiet").out)["log_likelihood"]
    # Of rows that were fitted none is judged on: what is left of the run's own table are its test rows.
    again = unnorm("evaluate", run, "--data", table, "--json")
    assert json.loads(again.out)["log_likelihood"] == own and "540 of 600 rows" in again.err
    assert other["stderr"] < own["stderr"], "fifteen times the rows"
    assert abs(own["value"] - other["value"]) < 5 * own["stderr"]


def test_resuming_a_finished_run_changes_nothing(run, table):
    before = (run / "checkpoint.safetensors").read_bytes()
    result = unnorm(
        "fit", table, "--model", "gaussian", "--steps", 2000, "--rate", 0.02, "--out", run, "--resume", "--no-report",
        "--quiet",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert (run / "checkpoint.safetensors").read_bytes() == before


def test_the_report_can_be_written_again(run):
    result = unnorm("report", run, "--quiet", "--json")
    assert result.code == 0, result.err
    assert "<html" in (run / "report.html").read_text()


def test_compare_prints_a_row_per_objective(table):
    result = unnorm("compare", table, "--model", "gaussian", "--steps", 300, "--json", "--quiet")
    assert result.code == 0, result.err
    rows = json.loads(result.out)["rows"]
    assert [row["objective"] for row in rows] == ["cnce", "cnce-local", "dsm", "pcd"]
    assert all(math.isfinite(row["assessment"]["log_likelihood"]["value"]) for row in rows)


def test_a_diverged_row_says_so(table):
    result = unnorm("compare", table, "--objectives", "cnce", "--rate", 1e30, "--steps", 20, "--quiet")
    assert result.code == 0
    assert "diverged" in result.out and "nan" not in result.out.lower()


def test_a_diverged_fit_exits_with_2_and_says_what_to_try(table, tmp_path):
    result = unnorm("fit", table, "--rate", 1e30, "--steps", 20, "--out", tmp_path / "run", "--quiet")
    assert result.code == 2
    assert "Try a smaller learning rate" in result.err and "Traceback" not in result.err


def test_list_names_everything_that_can_be_asked_for():
    content = json.loads(unnorm("list", "--json").out)
    assert {"objectives", "models", "samplers", "generators", "noises", "data", "experiments"} == content.keys()
    assert {"cnce", "dsm", "pcd"} <= {entry["name"] for entry in content["objectives"]}


def test_help_does_not_import_jax():
    code = "import sys, unnorm.cli.app; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_words_stand_to_the_left_and_figures_to_the_right(capsys):
    emit_table("", ["name", "words", "figures"], [["a", "few", "-1.5 ± 0.1"], ["b", "many more", "3"]])
    first, second = (
        line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "few" in line or "3" in line
    )
    assert [cell.strip() for cell in first + second] == ["a", "few", "-1.5 ± 0.1", "b", "many more", "3"]
    assert first[1].startswith(" few ") and second[2].endswith(" 3 ") and second[2].startswith("   ")
