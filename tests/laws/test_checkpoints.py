"""Checkpoints come back as they went, and every other file is refused."""

import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import DATA, OBJECTIVES, VALID, full_disk, model, same, saved, train

from unnorm.energies import standard_gaussian
from unnorm.errors import InputError
from unnorm.noises import Gaussian
from unnorm.objectives import DSM
from unnorm.training import checkpoint as checkpoints
from unnorm.training import constant, fit, loop

# ------------------------------------------------------------------------------------------------- checkpoints


@pytest.fixture
def small(tmp_path):
    """A small checkpoint, and what is in it."""
    path = tmp_path / "small"
    arrays = {"weights": np.arange(6, dtype=np.float32).reshape(2, 3), "step": np.asarray(7, np.int32)}
    checkpoints.save_arrays(path, arrays, {"events": ["one"], "finished": False})
    return path, arrays


def test_a_checkpoint_comes_back_as_it_went(small):
    path, arrays = small
    found, notes = saved(path)
    assert same(found, arrays) and notes == {"events": ["one"], "finished": False}


def test_every_truncated_file_is_refused(small):
    path, _ = small
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match="damaged"):
            saved(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(InputError, match="damaged"):
        saved(path)


def test_every_flipped_bit_is_refused(small):
    """Or changes nothing: white space in the header's padding."""
    path, arrays = small
    content = path.read_bytes()
    accepted = 0
    for position in range(len(content)):
        for bit in (0, 3, 6):
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            path.write_bytes(bytes(flipped))
            try:
                found, notes = saved(path)
            except InputError as refusal:
                assert "\n" not in str(refusal)
                continue
            assert same(found, arrays) and notes == {"events": ["one"], "finished": False}
            accepted += 1
    assert accepted <= 8


def test_other_files_are_refused(small, tmp_path, monkeypatch):
    path, arrays = small
    from safetensors.numpy import save_file

    foreign = tmp_path / "foreign"
    save_file(dict(arrays), foreign)
    with pytest.raises(InputError, match="not a checkpoint of unnorm"):
        saved(foreign)
    foreign.write_text("step,loss\n1,2\n")
    with pytest.raises(InputError, match="damaged"):
        saved(foreign)
    with pytest.raises(InputError, match="no checkpoint"):
        saved(tmp_path / "nowhere")
    with pytest.raises(InputError, match="cannot be read"):
        saved(tmp_path)
    monkeypatch.setattr(checkpoints, "VERSION", checkpoints.VERSION + 1)
    with pytest.raises(InputError, match="version 3, and this release reads version 4"):
        saved(path)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    path = tmp_path / "run"
    train("dsm", checkpoint=path)
    content = path.read_bytes()
    wider = {"steps": 48, "batch": 32, "evaluations": 6, "key": jax.random.key(3), "progress": False}
    wider |= {"valid": VALID, "rate": 1e-2}
    with pytest.raises(InputError, match="holds a run with another model; give the settings it was made with"):
        fit(model(width=9), OBJECTIVES["dsm"], DATA, checkpoint=path, resume=True, **wider)
    with pytest.raises(InputError, match="another model; give the settings it was made with"):
        fit(standard_gaussian(2), OBJECTIVES["dsm"], DATA, checkpoint=path, resume=True, **wider)
    with pytest.raises(InputError, match="another objective; give the settings it was made with"):
        fit(model(), OBJECTIVES["pcd"], DATA, checkpoint=path, resume=True, **wider)
    with pytest.raises(InputError, match="another data; give the settings it was made with"):
        fit(model(), OBJECTIVES["dsm"], DATA[:64], checkpoint=path, resume=True, **wider)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rate", 2e-2),
        ("batch", 16),
        ("average", 0.9),
        ("schedule", constant),
        ("key", jax.random.key(4)),
        ("valid", VALID + 1),
        ("judge", OBJECTIVES["cnce"]),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(name, value, tmp_path):
    path = tmp_path / "run"
    train("dsm", checkpoint=path)
    content = path.read_bytes()
    with pytest.raises(InputError, match=f"holds a run with another {name}; give the settings it was made with"):
        train("dsm", checkpoint=path, resume=True, **{name: value})
    # The control: with the settings it was made with, it is taken up.
    train("dsm", checkpoint=path, resume=True)
    assert path.read_bytes() == content


def test_a_checkpoint_of_other_data_or_another_noise_is_refused(tmp_path):
    path = tmp_path / "run"
    settings = {"steps": 8, "batch": 32, "key": jax.random.key(3), "progress": False, "checkpoint": path}
    fit(model(), OBJECTIVES["dsm"], DATA, **settings)
    with pytest.raises(InputError, match="another data; give"):
        fit(model(), OBJECTIVES["dsm"], DATA + 1, resume=True, **settings)
    with pytest.raises(InputError, match="another objective; give"):
        fit(model(), DSM(Gaussian(0.4)), DATA, resume=True, **settings)
    with pytest.raises(InputError, match="another objective and another data; give"):
        fit(model(), DSM(Gaussian(0.4)), DATA + 1, resume=True, **settings)


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_checkpoint(where, small, monkeypatch):
    path, arrays = small
    with monkeypatch.context() as patched:
        patched.setattr(os, where, full_disk)
        with pytest.raises(OSError, match="No space"):
            checkpoints.save_arrays(path, {"weights": np.zeros(3)}, {"events": [], "finished": True})
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert same(saved(path)[0], arrays)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"steps": 0}, "at least one step"),
        ({"batch": 0}, "at least one row"),
        ({"rate": 0.0}, "learning rate must be positive"),
        ({"rate": math.nan}, "learning rate must be positive"),
        ({"average": 1.0}, "averaging decay"),
        ({"evaluations": 0}, "at least one evaluation"),
        ({"valid": VALID.at[3, 1].set(jnp.nan)}, "validation data hold 1 value that is not finite"),
        ({"valid": VALID[:0]}, "validation data"),
        ({"checkpoint": "no/such/folder/run"}, "folder"),
    ],
)
def test_impossible_runs_are_refused_before_they_start(options, sentence, monkeypatch):
    def run_steps(*_):
        raise AssertionError("the run started")

    monkeypatch.setattr(loop, "run_steps", run_steps)
    with pytest.raises(InputError, match=sentence):
        train("dsm", **options)
    with pytest.raises(AssertionError, match="started"):
        train("dsm")
