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
        (
            ("fit", "bimodal", "--model", "resnet", "--objective", "cp"),
            ("cp learns only mlp models, not resnet",),
        ),
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


@pytest.mark.parametrize("command", ["demo", "fit", "compare", "sample", "score", "evaluate", "report", "reproduce"])
@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_that_makes_no_key_is_refused(command, seed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = unnorm(command, *(["x"] * {"demo": 0, "score": 2}.get(command, 1)), "--seed", seed)
    assert result.code == 2 and result.out == "" and "Traceback" not in result.err
    assert "Invalid value for '--seed'" in result.err
    assert list(tmp_path.iterdir()) == []


def test_a_table_in_a_folder_of_draws_is_not_overwritten_by_another(run, tmp_path):
    folder = tmp_path / "draws"

    def sampled(n, *options):
        return unnorm("sample", run, "-n", n, "-o", folder, "--sampler", "mala", "--quiet", *options)

    assert sampled(100).code == 0
    before = (folder / "table.npy").read_bytes()
    assert refused(sampled(50), "table.npy already exists", "50 rows", "--force")
    assert (folder / "table.npy").read_bytes() == before
    # Negative controls: the same command goes on, and what is asked for is done.
    assert sampled(100).code == 0 and (folder / "table.npy").read_bytes() == before
    assert sampled(50, "--force").code == 0 and np.load(folder / "table.npy").shape == (50, 2)
    (folder / "table.npy").write_text("precious")
    assert refused(sampled(50), "already exists") and (folder / "table.npy").read_text() == "precious"


def test_draws_that_are_not_finite_are_refused_and_not_written(run, tmp_path):
    def sampled(step, *options):
        how = ("--sampler", "langevin", "--set", f"sampler.step_size={step}", "--quiet")
        return unnorm("sample", run, "-n", 50, *how, *options)

    words = ("langevin", "not finite", "smaller step")
    assert refused(sampled(1e6), *words)
    assert refused(sampled(1e6, "--json"), *words)
    assert refused(sampled(1e6, "-o", tmp_path / "draws.csv"), *words) and not (tmp_path / "draws.csv").exists()
    assert refused(sampled(1e6, "-o", tmp_path / "draws"), *words) and not (tmp_path / "draws" / "table.npy").exists()
    # Negative control: the same walk with a step that it can take.
    small = sampled(0.01)
    assert small.code == 0 and len(small.out.splitlines()) == 51 and "nan" not in small.out


@pytest.mark.parametrize(
    ("command", "inside", "advice"),
    [
        ("fit", "unnorm.runs.stages.train", "the same command with --resume goes on"),
        ("sample", "unnorm.runs.drawing.sample", "the same command goes on with draws in a folder"),
        ("score", "unnorm.runs.scoring.energies", "the same command goes on"),
    ],
)
def test_an_interrupted_command_says_how_it_goes_on(command, inside, advice, run, table, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(inside, interrupt)
    given = {"fit": (table, "--out", tmp_path / "run"), "sample": (run,), "score": (run, table)}[command]
    result = unnorm(command, *given, "--quiet")
    assert result.code == 130 and result.out == ""
    assert result.err.startswith("unnorm: interrupted; ") and advice in result.err and result.err.count("\n") == 1
    # Only `fit` has the option.
    assert ("--resume" in result.err) == (command == "fit")


def test_options_that_are_refused_late_leave_no_folder(tmp_path):
    """A share of local jumps and one of wide jumps above 1 together: seen only when the noise is built."""
    file, out = write_csv(tmp_path / "table.csv", ROWS), tmp_path / "run"
    common = ("fit", file, "--model", "mlp", "--steps", 2, "--no-report", "--quiet", "--out", out)
    assert refused(unnorm(*common, "--objective", "cnce", "--set", "objective.share=0.95"))
    assert not out.exists()
    assert unnorm(*common, "--objective", "dsm").code == 0
    # Control: what was learnt is not taken away.
    kept = sorted(entry.name for entry in out.iterdir())
    assert refused(unnorm(*common, "--objective", "cnce", "--set", "objective.share=0.95"), "already exists")
    assert sorted(entry.name for entry in out.iterdir()) == kept


def test_a_comparison_is_refused_before_anything_is_trained(tmp_path):
    file = write_csv(tmp_path / "table.csv", ROWS)
    result = unnorm("compare", file, "--model", "mlp", "--objectives", "dsm,tilt", "--steps", 2)
    assert refused(result, "tilt") and "dsm ..." not in result.err
    assert refused(unnorm("compare", file, "--objectives", "dsm,dsm", "--steps", 2), "dsm", "twice")


def test_columns_that_follow_from_one_another_are_fitted(tmp_path):
    """The default model on b = 2 a."""
    file = write_csv(tmp_path / "table.csv", np.stack([ROWS[:, 0], 2 * ROWS[:, 0]], axis=1))
    result = unnorm("fit", file, "--out", tmp_path / "run", "--steps", 2, "--no-report", "--quiet")
    assert result.code == 0, result.err
