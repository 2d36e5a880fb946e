"""On a machine that is busy with other things the default run is judged all the same: nothing waits for ever."""

import contextlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from runner import write_csv

#: Seconds for a command that takes a few when it is alone.
LIMIT = 180
#: Commands that run at once.
TOGETHER = 3
COLUMNS = 6


def _started(command: list[str]) -> subprocess.Popen:
    """The command on all cores, as a user's has them, whatever this worker keeps to."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, range(os.cpu_count() or 1))
    return process


def ends(command: list[str], limit: float = LIMIT) -> bool:
    """Whether the command is done within the limit; it must not fail."""
    with _started(command) as process:
        try:
            _, said = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            return False
    assert process.returncode == 0, said[-2000:]
    return True


@contextlib.contextmanager
def busy(processes: int = 2):
    """That many processes which do nothing but keep a core busy."""
    running = [_started([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def default_run(tmp_path_factory):
    """A table of two correlated groups, and the default model fitted to it."""
    rng = np.random.default_rng(0)
    group = np.where(rng.uniform(size=(600, 1)) < 0.3, -2.0, 1.0) * np.linspace(1, 2, COLUMNS)
    mixing = np.eye(COLUMNS) + 0.3 * np.tril(rng.normal(size=(COLUMNS, COLUMNS)), -1)
    folder = tmp_path_factory.mktemp("busy")
    table = write_csv(folder / "d.csv", group + rng.normal(size=(600, COLUMNS)) @ mixing, "abcdef")
    fit = [sys.executable, "-m", "unnorm", "fit", str(table), "--steps", "200", "--out", str(folder / "run"), "--quiet"]
    assert ends([*fit, "--no-report"])
    # Once alone: what rows that were fitted are worth is found out by one process and kept for all.
    score = [sys.executable, "-m", "unnorm", "score", str(folder / "run"), str(table), "--quiet"]
    assert ends([*score, "-o", str(folder / "first.csv")])
    return table, folder


def _hung(default_run, runs: int) -> list[int]:
    """Which of so many evaluations of the run did not end."""
    table, folder = default_run
    score = [sys.executable, "-m", "unnorm", "score", str(folder / "run"), str(table), "--quiet", "-o"]
    places = [folder / f"scores-{runs}-{i}.csv" for i in range(runs)]
    with busy(), ThreadPoolExecutor(TOGETHER) as pool:
        ended = list(pool.map(lambda place: ends([*score, str(place)]), places))
    # What ended has scored every row.
    assert all(len(place.read_text().splitlines()) == 601 for place, done in zip(places, ended, strict=True) if done)
    return [i for i, done in enumerate(ended) if not done]


def test_scores_come_on_a_busy_machine(default_run):
    assert _hung(default_run, 3) == []
    # Negative control: a thread that waits for what never comes is told from one that is slow.
    assert not ends([sys.executable, "-c", "import threading; threading.Event().wait()"], limit=1)


@pytest.mark.thorough
def test_fifty_scores_come_on_a_busy_machine(default_run):
    assert _hung(default_run, 50) == []
