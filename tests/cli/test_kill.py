"""A real `unnorm fit`, killed again and again, ends with the same bytes as one left alone."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from unnorm.training.checkpoint import load_arrays

KILLS = 6


def command(table, out, objective):
    return [
        sys.executable, "-m", "unnorm", "fit", str(table), "--out", str(out), "--resume",
        "--model", "mlp", "--objective", objective, "--steps", "10000", "--batch", "32",
        "--evaluations", "200", "--checkpoint-seconds", "0", "--no-report",
        "--set", "model.width=8", "--set", "model.depth=1", "--quiet",
    ]  # fmt: skip


def stamp(path):
    return path.stat().st_mtime_ns if path.exists() else 0


def run_until_killed(table, out, objective, wait) -> bool:
    """Start the fit and kill it `wait` seconds after its first new checkpoint (or after its start if wait < 0)."""
    checkpoint = out / "checkpoint.safetensors"
    before = stamp(checkpoint)
    process = subprocess.Popen(command(table, out, objective), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        if wait < 0:
            time.sleep(-wait)
        else:
            while process.poll() is None and stamp(checkpoint) == before:
                time.sleep(0.005)
            time.sleep(wait)
        if process.poll() is not None:
            return False
        os.kill(process.pid, signal.SIGKILL)
        return True
    finally:
        process.wait()


def compare(table, tmp_path, objective):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run(command(table, whole, objective), check=True)
    moments = random.Random(0)
    waits = [-moments.uniform(0.5, 3.0), *(moments.uniform(0, 0.15) for _ in range(KILLS - 1))]
    kills = sum(run_until_killed(table, broken, objective, wait) for wait in waits)
    assert kills >= 5, f"only {kills} kills hit a running fit"
    unfinished, _ = load_arrays(broken / "checkpoint.safetensors")
    assert 0 < int(unfinished["state.step"]) < 10000
    subprocess.run(command(table, broken, objective), check=True)
    (a, notes_a), (b, notes_b) = (load_arrays(path / "checkpoint.safetensors") for path in (whole, broken))
    assert notes_a == notes_b
    assert a.keys() == b.keys()
    different = [name for name in a if a[name].tobytes() != b[name].tobytes()]
    assert different == []
    # Negative control: the comparison sees a single bit.
    touched = np.array(a["state.step"])
    touched ^= 1
    assert touched.tobytes() != b["state.step"].tobytes()


def test_killed_persistent_chains_end_bit_identical(table, tmp_path):
    compare(table, tmp_path, "pcd")


@pytest.mark.thorough
def test_killed_jumps_end_bit_identical(table, tmp_path):
    compare(table, tmp_path, "cnce")
