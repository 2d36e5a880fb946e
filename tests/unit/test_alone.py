"""One writer at a time: a second is refused in a sentence, and a writer that was killed holds nothing."""

import subprocess
import sys

import jax
import pytest

from unnorm.energies import standard_gaussian
from unnorm.errors import InputError
from unnorm.files import alone
from unnorm.noises import Gaussian
from unnorm.objectives import DSM
from unnorm.samplers import Langevin, sample
from unnorm.training import fit

HOLD = """
import sys, time
from pathlib import Path
from unnorm.files import alone
with alone(Path(sys.argv[1]), Path("here")):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder():
    """Start processes that hold a lock; all are ended after the test."""
    started = []

    def start(lock):
        process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def draw(folder):
    return sample(
        standard_gaussian(2), Langevin(0.1), chains=4, steps=50, to=folder, key=jax.random.key(0), progress=False
    )


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path, holder):
    lock = tmp_path / ".lock"
    process = holder(lock)
    with pytest.raises(InputError, match="another process is writing"), alone(lock, tmp_path):
        pass
    process.kill()
    process.wait()
    assert lock.exists()  # a kill leaves the file behind, and it holds nothing
    with alone(lock, tmp_path), pytest.raises(InputError, match="another process"), alone(lock, tmp_path):
        pass
    assert not lock.exists()


def test_draws_have_one_writer(tmp_path, holder):
    folder = tmp_path / "draws"
    first = draw(folder).draws.copy()
    files = sorted(path.name for path in folder.iterdir())
    process = holder(folder / ".lock")
    with pytest.raises(InputError, match=r"another process is writing .*draws"):
        draw(folder)
    process.kill()
    process.wait()
    assert (draw(folder).draws == first).all()
    assert sorted(path.name for path in folder.iterdir()) == files


def test_a_folder_in_which_a_writer_was_killed_at_once_can_be_used(tmp_path, holder):
    folder = tmp_path / "draws"
    folder.mkdir()
    process = holder(folder / ".lock")
    process.kill()
    process.wait()
    assert draw(folder).draws.shape == (4, 50, 2)


def test_a_checkpoint_has_one_writer(tmp_path, holder):
    path = tmp_path / "run"
    settings = {"steps": 8, "checkpoint": path, "key": jax.random.key(1), "progress": False}
    rows = jax.random.normal(jax.random.key(0), (64, 2))
    process = holder(tmp_path / ".run.lock")
    with pytest.raises(InputError, match=r"another process is writing .*run"):
        fit(standard_gaussian(2), DSM(Gaussian(0.5)), rows, **settings)
    assert not path.exists()
    process.kill()
    process.wait()
    assert fit(standard_gaussian(2), DSM(Gaussian(0.5)), rows, **settings).outcome.ok
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
