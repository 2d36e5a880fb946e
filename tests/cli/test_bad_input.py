"""Whatever is wrong with what was asked: one sentence on stderr, exit code 2, nothing overwritten, no traceback."""

import json
import shutil

import numpy as np
import pytest
from runner import refused, unnorm, write_csv

ROWS = np.random.default_rng(1).normal(size=(50, 2))


def with_value(row, column, text):
    lines = ["a,b", *(",".join(map(repr, map(float, r))) for r in ROWS)]
    cells = lines[row].split(",")
    cells[column] = text
    lines[row] = ",".join(cells)
    return "\n".join(lines) + "\n"


BAD_TABLES = {
    "missing value": (with_value(7, 1, ""), ("b", "missing")),
    "text column": (with_value(3, 0, "hello"), ("a", "hello")),
    "infinity": (with_value(5, 1, "inf"), ("b", "infinit")),
    "ragged row": (with_value(9, 1, "1.0,2.0"), ("line 10",)),
    "constant column": ("a,b\n" + "".join(f"{x},3.0\n" for x in ROWS[:, 0]), ("b", "constant")),
    "single row": ("a,b\n1.0,2.0\n", ("row",)),
    "duplicate header": ("a,a\n" + "".join(f"{x},{y}\n" for x, y in ROWS), ("a",)),
    "empty file": ("", ("empty",)),
    "header only": ("a,b\n", ("a",)),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_a_bad_table_is_refused_in_one_sentence(kind, tmp_path):
    text, words = BAD_TABLES[kind]
    file = tmp_path / "table.csv"
    file.write_text(text)
    out = tmp_path / "run"
    assert refused(unnorm("fit", file, "--out", out), "table.csv", *words)
    assert not out.exists()


def test_the_same_table_without_the_fault_is_taken(tmp_path):
    """Negative control: the refusals above are about the fault, not about the table."""
    file = write_csv(tmp_path / "table.csv", ROWS)
    result = unnorm(
        "fit", file, "--out", tmp_path / "run", "--steps", 2, "--model", "gaussian", "--no-report", "--quiet"
    )
    assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fit", "nowhere.csv"), ("nowhere.csv",)),
        (("fit", "bimodul"), ("bimodul", "bimodal")),
        (("fit", "bimodal", "--objective", "cnse"), ("cnse", "cnce")),
        (("fit", "bimodal", "--model", "mpl"), ("mpl", "mlp")),
        (("fit", "bimodal", "--objective", "cnce", "--set", "objective.shaer=0.5"), ("shaer", "share")),
        (("fit", "bimodal", "--objective", "cnce", "--set", "objective.share=2"), ("share", "less than 1")),
        (("fit", "bimodal", "--set", "share=2"), ("--set share=2", "objective.NAME=VALUE")),
        (("fit", "bimodal", "--model", "mlp", "--objective", "tilt"), ("tilt", "tilted", "not mlp")),
        (("fit", "bimodal", "--rate", "-1"), ("rate", "greater than 0")),
        (("compare", "bimodal", "--objectives", "cnce,xyz"), ("xyz",)),
        (("sample", "nowhere"), ("nowhere",)),
        (("score", "nowhere", "x.csv"), ("nowhere",)),
        (("evaluate", "nowhere"), ("nowhere",)),
        (("report", "nowhere"), ("nowhere",)),
        (("list", "things"), ("things", "objectives")),
    ],
)
def test_an_impossible_request_is_refused_in_one_sentence(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(unnorm(*arguments), *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("fit",), ("fit", "bimodal", "--steps", "0"), ("fitt",), ("fit", "--nonsense")])
def test_a_wrong_command_line_exits_with_2(arguments):
    result = unnorm(*arguments)
    assert result.code == 2 and result.out == "" and "Traceback" not in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--sampler", "langevin", "--set", "sampler.step_size=0"), ("step_size", "greater than 0")),
        (("--sampler", "nutz"), ("nutz", "nuts")),
        (("--sampler", "smc", "--out", "folder"), ("smc", "draws.csv")),
    ],
)
def test_an_impossible_sampler_is_refused_in_one_sentence(arguments, words, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(unnorm("sample", run, *arguments), *words)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_touched(run, table):
    before = {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()}
    assert refused(unnorm("fit", table, "--out", run, "--steps", 3), "already exists", "--resume")
    assert {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()} == before


def test_resuming_with_other_settings_is_refused(run, table):
    result = unnorm("fit", table, "--out", run, "--resume", "--model", "gaussian", "--steps", 3, "--rate", 0.02)
    assert refused(result, "training")


@pytest.mark.parametrize("damage", ["truncated", "tampered", "replaced"])
def test_a_damaged_checkpoint_is_refused(damage, run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    file = copy / "checkpoint.safetensors"
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "tampered":
        content[-5] ^= 1
        file.write_bytes(content)
    else:
        file.write_bytes(b"not a checkpoint at all")
    assert refused(unnorm("sample", copy, "-n", 5), "checkpoint.safetensors", "damaged")


def test_damaged_settings_are_refused(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "run.json").write_text('{"version": 1, "model":')
    assert refused(unnorm("evaluate", copy), "run.json", "damaged")
    settings = json.loads((run / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**settings, "version": 99}))
    assert refused(unnorm("evaluate", copy), "version 99")


def test_output_files_are_not_overwritten(run, table, tmp_path):
    precious = tmp_path / "draws.csv"
    precious.write_text("precious")
    assert refused(unnorm("sample", run, "-n", 5, "-o", precious), "already exists", "--force")
    assert refused(unnorm("score", run, table, "-o", precious), "already exists", "--force")
    assert refused(unnorm("sample", run, "-n", 5, "-o", tmp_path / "draws.xlsx"), ".csv")
    assert refused(unnorm("sample", run, "-n", 5, "-o", tmp_path / "no" / "draws.csv"), "does not exist")
    assert precious.read_text() == "precious"


def test_a_table_without_the_columns_is_refused(run, tmp_path):
    other = write_csv(tmp_path / "other.csv", ROWS, ("length", "height"))
    assert refused(unnorm("score", run, other), "width")


def test_a_full_disk_is_one_sentence_and_loses_nothing(table, tmp_path):
    """A file system of 200 kB fills up in the middle of a run; the checkpoint it had stays readable."""
    if not shutil.which("mount"):
        pytest.skip("needs mount")
    import subprocess

    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", place], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a file system")
    try:
        result = unnorm("fit", table, "--out", place / "run", "--steps", 20, "--quiet", "--set", "model.width=256")
        assert refused(result, "no space left"), (result.code, result.out, result.err)
        assert not list((place / "run").glob(".*.part"))
    finally:
        subprocess.run(["umount", place], check=True)
