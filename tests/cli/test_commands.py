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
from runner import refused, unnorm, write_csv

import unnorm as un
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
    mean = saved.prepared.schema.to_written(np.asarray(saved.model.mean))
    scale = saved.prepared.schema.standardiser.scale
    covariance = np.asarray(saved.model.covariance, float) * np.outer(scale, scale)
    rows = read_rows(unnorm("score", run, fresh, "--quiet").out)
    assert not any(row["fitted"] for row in rows)
    density = np.array([row["log_density"] for row in rows])
    truth = multivariate_normal(mean, covariance).logpdf(read_table(fresh).values)
    np.testing.assert_allclose(density, truth, atol=2e-3)
    assert abs(saved.prepared.schema.log_volume) > 0.1, "the control needs units that matter"


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
    mean = saved.prepared.schema.to_written(np.asarray(saved.model.mean))
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
    assert json.loads(again.out)["log_likelihood"]["value"] == own["value"] and "540 of 600 rows" in again.err
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
    kinds = {"objectives", "models", "samplers", "generators", "noises", "data", "terms", "networks", "experiments"}
    assert kinds == content.keys()
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


def test_a_comparison_in_a_folder_goes_on_where_it_stopped(table, tmp_path, monkeypatch):
    common = ("compare", table, "--model", "gaussian", "--steps", 50, "--objectives", "dsm,ssm", "--json", "--quiet")
    whole = json.loads(unnorm(*common, "--out", tmp_path / "whole").out)

    def figures(content):
        return [{**row, "seconds": None} for row in content["rows"]], content["baselines"]

    import unnorm.cli.learn as learning

    def stop(run, *arguments, **more):
        if run.path.name == "ssm":
            raise KeyboardInterrupt
        return learn(run, *arguments, **more)

    learn = learning.learn
    monkeypatch.setattr(learning, "learn", stop)
    stopped = unnorm(*common, "--out", tmp_path / "broken")
    assert stopped.code == 130 and "the same command goes on" in stopped.err
    kept = (tmp_path / "broken" / "dsm" / "checkpoint.safetensors").stat().st_mtime_ns
    monkeypatch.undo()
    again = json.loads(unnorm(*common, "--out", tmp_path / "broken").out)
    assert figures(again) == figures(whole)
    assert (tmp_path / "broken" / "dsm" / "checkpoint.safetensors").stat().st_mtime_ns == kept
    # Negative control: other figures by another seed, which this folder refuses.
    refusal = unnorm(*common, "--seed", 1, "--out", tmp_path / "broken")
    assert refusal.code == 2 and "other rows" in refusal.err
    assert figures(json.loads(unnorm(*common, "--seed", 1).out)) != figures(whole)


@pytest.fixture(scope="module")
def tilted(tmp_path_factory):
    """A default model of two columns, whole numbers and hundredths, in two groups of which one is rare."""
    rng = np.random.default_rng(2)
    right = rng.random(800) < 0.2
    values = np.column_stack([np.round(rng.normal(np.where(right, 40, 10), 3)), np.round(rng.normal(5, 1, 800), 2)])
    folder = tmp_path_factory.mktemp("tilted")
    file = folder / "t.csv"
    file.write_text("count,size\n" + "".join(f"{a:.0f},{b:.2f}\n" for a, b in values))
    result = unnorm("fit", file, "--steps", 100, "--out", folder / "run", "--quiet", "--no-report")
    assert result.code == 0, result.err
    return folder / "run", values


def test_draws_of_the_default_model_are_independent_and_written_as_recorded(tilted, tmp_path):
    run, values = tilted
    result = unnorm("sample", run, "-n", 4000, "-o", tmp_path / "d.csv", "--quiet", "--json")
    told = json.loads(result.out)
    assert told["sampler"] == "independent" and told["effective_share"] > 0.5 and told["repeated"] < 40
    lines = (tmp_path / "d.csv").read_text().splitlines()[1:]
    assert all(
        count.lstrip("-").isdigit() and len(size.split(".")[1]) == 2 for count, size in (x.split(",") for x in lines)
    )
    draws = read_table(tmp_path / "d.csv").values
    share = np.mean(draws[:, 0] > 25)
    truth = np.mean(values[:, 0] > 25)
    assert abs(share - truth) < 4.5 * math.sqrt(truth * (1 - truth) * (1 / 4000 + 1 / 640))
    exact = unnorm("sample", run, "-n", 50, "--exact", "--quiet").out.splitlines()[1:]
    assert sum(float(line.split(",")[0]) % 1 == 0 for line in exact) < 5
    # The same in Python.
    fitted = un.load(run)
    assert np.array_equal(fitted.sample(4000, progress=False), draws)
    rounded, raw = (fitted.sample(50, exact=exact, progress=False) for exact in (False, True))
    assert np.array_equal(rounded, np.column_stack([np.round(raw[:, 0]), np.round(raw[:, 1], 2)]))
    assert not np.array_equal(rounded, raw)


def test_draws_in_a_folder_are_kept_lot_by_lot(tilted, tmp_path, monkeypatch):
    from unnorm.runs import drawing

    run, _ = tilted
    monkeypatch.setattr(drawing, "ROWS_AT_ONCE", 512)
    assert unnorm("sample", run, "-n", 1500, "-o", tmp_path / "whole", "--quiet").code == 0
    assert unnorm("sample", run, "-n", 1500, "-o", tmp_path / "broken", "--quiet").code == 0
    (tmp_path / "broken" / "lot-3.safetensors").unlink()
    (tmp_path / "broken" / "table.npy").unlink()
    kept = (tmp_path / "broken" / "lot-2.safetensors").stat().st_mtime_ns
    assert unnorm("sample", run, "-n", 1500, "-o", tmp_path / "broken", "--quiet").code == 0
    assert (tmp_path / "broken" / "lot-2.safetensors").stat().st_mtime_ns == kept
    a, b = (np.load(tmp_path / name / "table.npy") for name in ("whole", "broken"))
    assert a.tobytes() == b.tobytes()
    # Negative control: another seed begins anew.
    assert unnorm("sample", run, "-n", 1500, "-o", tmp_path / "broken", "--seed", 1, "--force", "--quiet").code == 0
    assert np.load(tmp_path / "broken" / "table.npy").tobytes() != a.tobytes()


def test_groups_and_a_table_to_judge_on(tmp_path):
    rng = np.random.default_rng(4)
    person = np.repeat(np.arange(30), 20)
    values = np.column_stack([person, rng.normal(size=(600, 2)) + rng.normal(size=(30, 2))[person]])
    file, other = write_csv(tmp_path / "g.csv", values, "pab"), write_csv(tmp_path / "o.csv", values[:30, 1:], "ab")
    common = ("--model", "gaussian", "--steps", 5, "--no-report", "--json")
    suggested = unnorm("fit", file, *common, "--out", tmp_path / "one")
    assert "--group 'p'" in suggested.err and "warning" in suggested.err
    grouped = unnorm("fit", file, *common, "--group", "p", "--out", tmp_path / "two")
    assert "30 of them" in json.loads(grouped.out)["remarks"][0] and "warning" not in grouped.err
    from unnorm.runs import Run

    prepared = Run.open(tmp_path / "two").prepared
    assert prepared.columns == ("a", "b") and prepared.group == "p"
    assert len(np.unique(prepared.test_together)) == 3 and len(prepared.test) == 60
    assert refused(unnorm("fit", file, *common, "--group", "q", "--out", tmp_path / "no"), "no column 'q'")
    assert refused(unnorm("fit", file, *common, "--group", "p", "--test", other, "--out", tmp_path / "no"), "every row")
    fresh = write_csv(tmp_path / "f.csv", np.concatenate([values[:5, 1:], rng.normal(size=(40, 2))]), "ab")
    judged = unnorm("fit", file, *common, "--group", "p", "--test", fresh, "--out", tmp_path / "three")
    assert "40 of the 45 rows" in json.loads(judged.out)["remarks"][-1]


def test_a_table_of_few_different_rows_is_told_from_one_of_numbers(tmp_path, table):
    rng = np.random.default_rng(6)
    file = write_csv(tmp_path / "g.csv", rng.integers(0, 6, (400, 2)).astype(float), "ab")
    common = ("--model", "gaussian", "--steps", 5, "--no-report", "--quiet", "--out")
    assert "look like categories" in unnorm("fit", file, *common, tmp_path / "one").err
    assert unnorm("fit", table, *common, tmp_path / "two").err == ""
