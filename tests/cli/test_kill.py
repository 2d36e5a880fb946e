"""A real `unnorm fit` with its default model and objective, killed in every stage, ends with the same bytes."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from runner import write_csv

from unnorm.training.checkpoint import load_arrays

#: What appears when a stage has made something, in this order.
MARKS = (
    "run.json",
    "reference.safetensors",
    "checkpoint.safetensors",
    "outcome.json",
    "baselines.safetensors",
    "draws.safetensors",
    "assessment.json",
    "figures",
    "report.html",
)
ARRAYS = ("data", "reference", "checkpoint", "baselines", "draws")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """300 rows of four columns in two clusters, one column of whole numbers, with some copies."""
    rng = np.random.default_rng(5)
    side = rng.random(300) < 0.3
    values = rng.normal(size=(300, 4)) * [1.0, 0.3, 2.0, 1.0] + np.where(side[:, None], 3.0, 0.0)
    values[:, 3] = np.round(10 * values[:, 3])
    values[250:270] = values[:20]
    return write_csv(tmp_path_factory.mktemp("kill") / "d.csv", values, ("a", "b", "c", "d"))


def command(table, out, *more):
    return [sys.executable, "-m", "unnorm", "fit", str(table), "--out", str(out), "--resume", "--quiet", *more]


def run_until_killed(arguments, mark, wait, limit=120.0) -> bool:
    """Start the command and kill it `wait` seconds after the mark is there; says whether it still ran."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        began = time.monotonic()
        while process.poll() is None and not mark.exists() and time.monotonic() - began < limit:
            time.sleep(0.002)
        time.sleep(wait)
        if process.poll() is not None:
            return False
        os.kill(process.pid, signal.SIGKILL)
        return True
    finally:
        process.wait()


def figures(folder) -> dict[str, bytes]:
    """All that is told of the run, but for how long it took."""
    told = json.loads((folder / "outcome.json").read_text())
    told.pop("seconds")
    page = re.sub(r"<dt>Time to train</dt>\s*<dd>[^<]*</dd>", "", (folder / "report.html").read_text())
    page = page.replace(folder.name, "RUN")
    found = {file.name: file.read_bytes() for file in sorted((folder / "figures").glob("*.csv"))}
    content = (folder / "assessment.json").read_bytes()
    return {**found, "outcome": json.dumps(told).encode(), "page": page.encode(), "assessment.json": content}


def differences(whole, broken) -> list[str]:
    """The arrays and figures in which two runs differ."""
    found = []
    for name in ARRAYS:
        (a, notes_a), (b, notes_b) = (load_arrays(folder / f"{name}.safetensors") for folder in (whole, broken))
        found += [f"{name}/notes"] * (notes_a != notes_b)
        found += [f"{name}/{key}" for key in sorted({*a, *b}) if a.get(key, 0).tobytes() != b.get(key, 1).tobytes()]
    one, other = figures(whole), figures(broken)
    return found + [key for key in sorted({*one, *other}) if one.get(key) != other.get(key)]


def killed_everywhere(table, broken, seed) -> int:
    """The default command in a new folder, killed once in every stage and then left to end; how many kills hit it."""
    moments, kills = random.Random(seed), 0
    # Once while it reads and prepares, whatever there is by then.
    kills += run_until_killed(command(table, broken), broken / "never", 0, limit=moments.uniform(0.5, 2.0))
    for mark in MARKS:
        wait = moments.uniform(0, 0.5 if mark == "checkpoint.safetensors" else 0.15)
        kills += run_until_killed(command(table, broken, "--checkpoint-seconds", "0"), broken / mark, wait)
    subprocess.run(command(table, broken), check=True, stdout=subprocess.DEVNULL)
    return kills


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    """The run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "undisturbed-run"
    subprocess.run(command(small, folder), check=True, stdout=subprocess.DEVNULL)
    return folder


def test_the_default_command_killed_in_every_stage_ends_bit_identical(small, whole, tmp_path):
    kills = killed_everywhere(small, tmp_path / "killed-run", 0)
    assert kills >= 9, f"only {kills} kills hit a running command"
    assert differences(whole, tmp_path / "killed-run") == []
    # Negative control: the comparison sees another seed.
    other = tmp_path / "other-run"
    subprocess.run(command(small, other, "--seed", "1", "--steps", "50"), check=True, stdout=subprocess.DEVNULL)
    assert {"checkpoint/state.step", "page", "draws/draws"} <= set(differences(whole, other))


@pytest.mark.thorough
def test_the_default_command_killed_a_hundred_times_ends_bit_identical(small, whole, tmp_path):
    kills = 0
    for seed in range(1, 12):
        broken = tmp_path / f"killed-run-{seed}"
        kills += killed_everywhere(small, broken, seed)
        assert differences(whole, broken) == []
    assert kills >= 100, f"only {kills} kills hit a running command"


@pytest.mark.parametrize("objective", ["pcd", pytest.param("cnce", marks=pytest.mark.thorough)])
def test_killed_chains_and_jumps_end_bit_identical(table, tmp_path, objective):
    """Other models and objectives, by their checkpoints alone: chains that persist, noise that is fitted."""
    more = ("--model", "mlp", "--objective", objective, "--steps", "4000", "--batch", "32", "--no-report",
            "--evaluations", "200", "--set", "model.width=8", "--set", "model.depth=1")  # fmt: skip
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run(command(table, whole, *more), check=True, stdout=subprocess.DEVNULL)
    moments, kills = random.Random(0), 0
    for _ in range(4):
        mark, wait = broken / "checkpoint.safetensors", moments.uniform(0, 0.15)
        kills += run_until_killed(command(table, broken, "--checkpoint-seconds", "0", *more), mark, wait)
    assert kills >= 3, f"only {kills} kills hit a running fit"
    subprocess.run(command(table, broken, *more), check=True, stdout=subprocess.DEVNULL)
    (a, notes_a), (b, notes_b) = (load_arrays(folder / "checkpoint.safetensors") for folder in (whole, broken))
    assert notes_a == notes_b and a.keys() == b.keys()
    assert [name for name in a if a[name].tobytes() != b[name].tobytes()] == []
