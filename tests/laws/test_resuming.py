"""A run that was ended anywhere resumes to the same bits."""

import os
import signal
import subprocess
import sys
import time

import equinox as eqx
import jax
import numpy as np
import pytest
from small_runs import DATA, OBJECTIVES, Killed, full_disk, kill_at_save, same, saved, train

from unnorm.errors import InputError
from unnorm.estimate import OutcomeCode
from unnorm.training import checkpoint as checkpoints
from unnorm.training import constant

# ------------------------------------------------------------------------------------------------- resuming


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The final checkpoint of a run that nothing happened to, for every objective."""
    folder = tmp_path_factory.mktemp("undisturbed")
    for name in OBJECTIVES:
        train(name, checkpoint=folder / name)
    return {name: saved(folder / name) for name in OBJECTIVES}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_killed_run_resumes_to_the_same_bits(name, undisturbed, tmp_path, monkeypatch):
    # Before the first save, after the first, in the middle, between the last chunk and the final save.
    for number, after in [(1, False), (1, True), (4, True), (4, False), (6, True)]:
        path = tmp_path / f"{number}{after}"
        with monkeypatch.context() as patched:
            kill_at_save(patched, number, after=after)
            with pytest.raises(Killed):
                train(name, checkpoint=path)
        assert path.exists() == (number > 1 or after)
        result = train(name, checkpoint=path, resume=True)
        assert result.outcome.code is OutcomeCode.COMPLETED and result.outcome.step == 48
        assert same(saved(path)[0], undisturbed[name][0]) and saved(path)[1] == undisturbed[name][1]


def test_a_run_killed_twice_resumes_to_the_same_bits(undisturbed, tmp_path, monkeypatch):
    path = tmp_path / "run"
    for number in (2, 3):
        with monkeypatch.context() as patched:
            kill_at_save(patched, number)
            with pytest.raises(Killed):
                train("pcd", checkpoint=path, resume=True)
    train("pcd", checkpoint=path, resume=True)
    assert same(saved(path)[0], undisturbed["pcd"][0])


def test_saving_less_often_changes_nothing(undisturbed, tmp_path):
    train("pcd", checkpoint=tmp_path / "run", checkpoint_seconds=1e9)
    assert same(saved(tmp_path / "run")[0], undisturbed["pcd"][0])


FORGOTTEN = {
    "key": ("state.key", lambda a: np.asarray(jax.random.key_data(jax.random.key(99)))),
    "chains": ("state.objective", lambda a: np.asarray(DATA[:32])),
    "optimiser": ("state.optimiser.mu", np.zeros_like),
    "average": ("state.average", np.zeros_like),
    "order": ("state.order", np.sort),
    "step": ("state.step", lambda a: np.asarray(a - 1)),
}


@pytest.mark.parametrize("what", FORGOTTEN)
def test_a_resume_that_forgets_differs(what, undisturbed, tmp_path, monkeypatch):
    """Negative control: everything in a checkpoint is needed."""
    path = tmp_path / "run"
    with monkeypatch.context() as patched:
        kill_at_save(patched, 3)
        with pytest.raises(Killed):
            train("pcd", checkpoint=path)
    arrays, notes = saved(path)
    prefix, forget = FORGOTTEN[what]
    names = [name for name in arrays if name.startswith(prefix)]
    assert names
    checkpoints.save_arrays(path, arrays | {name: forget(arrays[name]) for name in names}, notes)
    train("pcd", checkpoint=path, resume=True)
    assert not same(saved(path)[0], undisturbed["pcd"][0])


def test_resuming_a_finished_run_does_nothing(undisturbed, tmp_path):
    path = tmp_path / "run"
    first = train("dsm", checkpoint=path)
    content, stamp = path.read_bytes(), path.stat().st_mtime_ns
    again = train("dsm", checkpoint=path, resume=True)
    assert path.read_bytes() == content and path.stat().st_mtime_ns == stamp
    assert again.outcome == first.outcome
    assert eqx.tree_equal(again.model, first.model)
    assert all(np.array_equal(first.history[k], again.history[k], equal_nan=True) for k in first.history)


def test_resuming_with_more_steps_continues_and_is_saved(tmp_path):
    path, whole = tmp_path / "run", tmp_path / "whole"
    train("dsm", checkpoint=path, schedule=constant)
    # Evaluations grow with the steps, so that chunks keep their length. The end is saved, although one was before.
    longer = {"schedule": constant, "steps": 96, "evaluations": 12, "checkpoint_seconds": 1e9}
    assert train("dsm", checkpoint=path, resume=True, **longer).outcome.step == 96
    train("dsm", checkpoint=whole, **longer)
    assert same(saved(path)[0], saved(whole)[0]) and saved(path)[1] == saved(whole)[1]


def test_a_resume_without_a_path_is_refused():
    with pytest.raises(InputError, match="resume needs"):
        train("dsm", resume=True)


KILL_SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import small_runs
small_runs.train("pcd", checkpoint=sys.argv[2], steps=4000, evaluations=500, resume=True)
"""


@pytest.mark.thorough
def test_a_process_that_is_really_killed_resumes_to_the_same_bits(tmp_path):
    """SIGKILL from outside, at moments nobody chose, until the run has ended."""
    options = {"steps": 4000, "evaluations": 500}
    train("pcd", checkpoint=tmp_path / "whole", **options)
    path = tmp_path / "run"
    rng = np.random.default_rng(0)
    kills = 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", KILL_SCRIPT, os.path.dirname(__file__), str(path)])
        began = path.stat().st_mtime_ns if path.exists() else 0
        while process.poll() is None and (not path.exists() or path.stat().st_mtime_ns == began):
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    assert kills > 0
    train("pcd", checkpoint=path, resume=True, **options)
    assert same(saved(path)[0], saved(tmp_path / "whole")[0])


def test_a_run_on_a_full_disk_can_be_taken_up_later(undisturbed, tmp_path, monkeypatch):
    path = tmp_path / "run"
    original, calls = os.fsync, []

    def fsync(descriptor):
        calls.append(descriptor)
        # Two calls for each save: the file, and the folder it lies in.
        return original(descriptor) if len(calls) <= 4 else full_disk()

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="No space"):
            train("pcd", checkpoint=path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
    assert int(saved(path)[0]["state.step"]) == 16
    train("pcd", checkpoint=path, resume=True)
    assert same(saved(path)[0], undisturbed["pcd"][0])
