"""Data that are no table of real numbers go through the commands; what does not work there is said in a sentence."""

import json

import numpy as np
import pytest
from runner import refused, unnorm, write_csv

import unnorm as un
from unnorm.data import read_table
from unnorm.errors import InputError
from unnorm.evaluation import energies
from unnorm.runs import Run, prepare

RNG = np.random.default_rng(3)
NAMES = tuple("abcdef")
SHORT = ("--steps", 500, "--rate", 0.01, "--set", "model.width=16", "--set", "model.depth=1", "--quiet")


def coins(n: int) -> np.ndarray:
    """Six bits that lean to the side of a hidden one."""
    side = RNG.random((n, 1)) < 0.3
    return (RNG.random((n, 6)) < np.where(side, 0.9, 0.1)).astype(float)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("bits") / "bits.csv", coins(600), NAMES)


@pytest.fixture(scope="module")
def bits(file):
    out = file.parent / "run"
    result = unnorm("fit", file, "--model", "mlp", "--out", out, *SHORT, "--json")
    assert result.code == 0, result.err
    return out, json.loads(result.out)


def test_a_table_of_zeros_and_ones_is_read_as_bits_and_said_to_be(file, tmp_path):
    common = ("--model", "mlp", "--steps", 2, "--no-report", "--json")
    told = json.loads(unnorm("fit", file, *common, "--out", tmp_path / "bits").out)
    assert "All 3,600 values are 0 or 1: rows are read as bits (--kind table" in told["remarks"][0]
    assert prepare(str(file), 0).space == un.spaces.Binary((6,))
    forced = unnorm("fit", file, *common, "--kind", "table", "--out", tmp_path / "table")
    assert forced.code == 0 and "bits" not in forced.err
    assert Run.open(tmp_path / "table").prepared.space == un.spaces.Real((6,))
    # Controls: one value that is no bit, and a table of which all are alike.
    other = coins(200)
    other[7, 2] = 2
    assert prepare(str(write_csv(tmp_path / "o.csv", other, NAMES)), 0).space == un.spaces.Real((6,))
    refusal = unnorm("fit", write_csv(tmp_path / "p.csv", other, NAMES), "--kind", "bits", "--out", tmp_path / "no")
    assert refused(refusal, "holds 2 in row 8, column 3", "--kind table")


def test_probabilities_of_bits_sum_to_one_and_beat_independent_columns(bits):
    out, told = bits
    found = told["assessment"]
    assert found["log_z"]["stderr"] == 0 and found["log_z"]["why"] == "All points were summed."
    fitted = un.load(out)
    every = np.array([[int(bit) for bit in f"{i:06b}"] for i in range(64)], float)
    assert np.exp(fitted.log_prob(every)).sum() == pytest.approx(1, abs=1e-4)
    # Control: without log Z they do not.
    assert abs(np.exp(-energies(fitted.model, every)).sum() - 1) > 0.1
    model, alone = found["log_likelihood"], found["baselines"]["independent columns"]
    assert model["value"] > alone["value"] + 2 * model["stderr"]


def test_draws_and_scores_of_bits_are_those_of_the_table(bits, tmp_path):
    out, _ = bits
    result = unnorm("sample", out, "-n", 2000, "-o", tmp_path / "d.csv", "--quiet", "--json")
    assert result.code == 0 and json.loads(result.out)["sampler"] == "gibbs"
    draws, rows = read_table(tmp_path / "d.csv"), Run.open(out).prepared.train
    assert draws.columns == NAMES and set(np.unique(draws.values)) == {0.0, 1.0}
    assert (tmp_path / "d.csv").read_text().splitlines()[1].replace(",", "").isdigit()
    # Eight effective draws in a hundred, and the error of the rows; PCD leaves some bias, the control has more.
    error = np.sqrt(0.25 * (1 / 160 + 1 / len(rows)))
    assert np.all(np.abs(draws.values.mean(0) - rows.mean(0)) < 4.5 * error)
    assert np.any(np.abs(1 - draws.values.mean(0) - rows.mean(0)) > 4.5 * error)
    scores = unnorm("score", out, tmp_path / "d.csv", "--quiet")
    assert scores.code == 0 and len(scores.out.splitlines()) == 2001
    assert (out / "report.html").read_text().count("<h2>") >= 5 and (out / "figures" / "shares.csv").exists()


def test_what_does_not_work_on_bits_names_what_does(file, bits, tmp_path):
    out = tmp_path / "no"
    assert refused(unnorm("fit", file, "--model", "gaussian", "--out", out), "gaussian", "tilted", "rbm", "markov")
    assert refused(unnorm("fit", file, "--objective", "cnce", "--out", out), "cnce", "pcd")
    assert refused(unnorm("fit", file, "--model", "ising", "--out", out), "--lattice HxW", "--model markov")
    lattice = ("--model", "ising", "--lattice", "2x4")
    assert refused(unnorm("fit", file, *lattice, "--out", out), "2x4 has 8 sites", "a row has 6 columns")
    assert refused(unnorm("fit", file, "--lattice", "2x3", "--out", out), "tilted has no option 'lattice'")
    assert refused(unnorm("fit", file, "--kind", "tabel", "--out", out), "tabel", "did you mean table")
    assert refused(unnorm("sample", bits[0], "--sampler", "nuts"), "nuts", "gibbs")
    assert not out.exists()


def test_equal_rows_of_bits_are_split_as_they_come(file):
    """A split that held them together would judge on points that were never seen in training."""
    prepared = prepare(str(file), 0)
    seen = {row.tobytes() for row in prepared.train}
    share = np.mean([row.tobytes() in seen for row in prepared.test])
    assert share > 0.7 and "split as they come" in " ".join(prepared.remarks)
    # Control: copies of rows of real numbers stay together.
    table = prepare(str(file), 0, kind="table")
    assert not {row.tobytes() for row in table.train} & {row.tobytes() for row in table.test}


def test_columns_that_are_conditions_stand_beside_the_others(table, tmp_path):
    prepared = prepare(str(table), 0, conditions=("width",))
    plain = prepare(str(table), 0)
    np.testing.assert_array_equal(prepared.train.x[:, 0], plain.train[:, 0])
    np.testing.assert_array_equal(prepared.train.condition[:, 0], plain.train[:, 1])
    assert prepared.space == prepared.schema.condition == un.spaces.Real((1,))
    assert prepared.schema.log_volume == pytest.approx(float(np.log(plain.schema.standardiser.scale[0])))
    mean, scale = plain.schema.standardiser.mean[1], plain.schema.standardiser.scale[1]
    assert prepared.schema.given({"width": mean + 2 * scale}) == pytest.approx([2.0])
    for wrong, words in (({}, "'width' is not given"), ({"with": 1.0}, "no condition 'with'")):
        with pytest.raises(InputError, match=words):
            prepared.schema.given(wrong)
    common, out = ("--condition", "width", "--steps", 2), tmp_path / "no"
    assert refused(unnorm("fit", table, *common, "--model", "tilted", "--out", out), "tilted takes no condition")
    assert refused(unnorm("fit", table, *common, "--model", "mlp", "--out", out), "takes no condition", "diffusion")
    assert refused(unnorm("fit", table, "--condition", "depth", "--out", out), "no column 'depth' to condition on")
    assert refused(unnorm("fit", table, "--condition", "width,length", "--out", out), "leave one to be modelled")
    assert not out.exists()


def test_nothing_can_be_given_to_a_model_without_conditions(run):
    assert refused(unnorm("sample", run, "--given", "width=5"), "without conditions", "--condition")
    assert refused(unnorm("sample", run, "--given", "width"), "NAME=VALUE")
    with pytest.raises(InputError, match="without conditions"):
        un.load(run).sample(3, given={"width": 5.0}, progress=False)


def test_a_folder_of_an_older_version_is_refused(run, tmp_path):
    settings = json.loads((run / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**settings, "version": 2}))
    assert refused(unnorm("evaluate", tmp_path), "has version 2", "reads version 3", "fit again")
