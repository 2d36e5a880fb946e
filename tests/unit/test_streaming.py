"""Draws on disk: a run that is stopped anywhere ends with the bytes of one that was not, nothing else is touched."""

import contextlib
import os
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unnorm as un
from unnorm.fingerprint import fingerprint
from unnorm.samplers import run as loop

TARGET = un.energies.gaussian_mixture([1.0, 2.0], [[-1.0, 0.0], [1.0, 0.5]], 0.7)
SAMPLERS = {
    "MALA": un.samplers.MALA(),
    "NUTS": un.samplers.NUTS(max_doublings=4),
    "Langevin": un.samplers.Langevin(0.1),
    "ParallelTempering": un.samplers.ParallelTempering(3, leapfrogs=3),
}
OPTIONS = {"chains": 4, "steps": 60, "warmup": 40, "thin": 2, "progress": False}


class Stopped(Exception):
    """What a user does to a run."""


def stop_after(monkeypatch, chunks: int) -> None:
    """The next run raises from its progress bar after so many chunks of draws."""

    @contextlib.contextmanager
    def bar(label, total, *, show):
        calls = iter(range(100_000))

        def advance(done, remark=""):
            # The first call tells how much was there already.
            if label == "sampling" and next(calls) == chunks:
                raise Stopped

        yield advance

    monkeypatch.setattr(loop, "progress_bar", bar)


def draw(name: str, to, seed: int = 0, **options):
    return un.sample(TARGET, SAMPLERS[name], to=to, key=jax.random.key(seed), **{**OPTIONS, **options})


@pytest.mark.parametrize(
    "name",
    [
        "MALA",
        "Langevin",
        pytest.param("NUTS", marks=pytest.mark.thorough),
        pytest.param("ParallelTempering", marks=pytest.mark.thorough),
    ],
)
def test_a_run_stopped_twice_ends_with_the_same_bytes(name, tmp_path, monkeypatch):
    whole = draw(name, tmp_path / "whole")
    with monkeypatch.context() as patch:
        for chunks in (3, 5):
            stop_after(patch, chunks)
            with pytest.raises(Stopped):
                draw(name, tmp_path / "parts")
    halfway = (tmp_path / "parts" / "draws.npy").read_bytes()
    parts = draw(name, tmp_path / "parts")
    ended = (tmp_path / "parts" / "draws.npy").read_bytes()
    assert ended == (tmp_path / "whole" / "draws.npy").read_bytes() != halfway
    assert np.array_equal(parts.acceptance, whole.acceptance)
    assert (parts.divergences, parts.clipped) == (whole.divergences, whole.clipped)
    # Draws on disk are those in memory.
    kept = draw(name, None)
    assert np.array_equal(kept.draws, parts.draws) and isinstance(parts.draws, np.memmap)
    assert kept.warnings == parts.warnings
    # Negative control: another key gives other bytes.
    draw(name, tmp_path / "other", seed=1)
    assert (tmp_path / "other" / "draws.npy").read_bytes() != ended


def test_a_finished_run_is_read_and_not_run_again(tmp_path, monkeypatch):
    first = draw("Langevin", tmp_path / "x")
    monkeypatch.setattr(loop, "advance", None)
    second = draw("Langevin", tmp_path / "x")
    assert np.array_equal(first.draws, second.draws)


def test_what_was_drawn_but_not_yet_noted_is_drawn_again(tmp_path, monkeypatch):
    """A kill between the two files leaves draws that the state does not know of: here, nonsense."""
    whole = draw("Langevin", tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(Stopped):
            draw("Langevin", tmp_path / "parts")
    file = np.load(tmp_path / "parts" / "draws.npy", mmap_mode="r+")
    file[30:] = np.nan
    file.flush()
    assert np.array_equal(draw("Langevin", tmp_path / "parts").draws, whole.draws)


def test_memory_does_not_grow_with_the_number_of_steps(tmp_path, monkeypatch):
    sizes = []
    save = loop.Stream.save

    def spy(self, tree, counts, draws=None):
        sizes.append(0 if draws is None else draws.nbytes)
        save(self, tree, counts, draws)

    monkeypatch.setattr(loop.Stream, "save", spy)
    monkeypatch.setattr(loop, "STREAM_BYTES", 256)
    for steps in (60, 600):
        draw("Langevin", tmp_path / str(steps), steps=steps)
    assert max(sizes) <= 256
    assert sum(sizes) == 660 * 4 * 2 * 4


# ------------------------------------------------------------------------------------------------------- refusals


def wrong(other: un.energies.AbstractEnergy = TARGET, **options):
    return lambda path: un.sample(
        other, SAMPLERS["Langevin"], to=path, **{**OPTIONS, "key": jax.random.key(0), **options}
    )


OTHER = {
    "steps": (wrong(steps=61), "another number of steps"),
    "chains": (wrong(chains=5), "another number of chains and another start"),
    "key": (wrong(key=jax.random.key(1)), "another start and another key"),
    "thinning": (wrong(thin=1), "another thinning"),
    "warm-up": (wrong(warmup=41), "another warm-up"),
    "target": (wrong(2.0 * TARGET), "another target"),
    "start": (wrong(start=jnp.ones((4, 2))), "another start"),
    "sampler": (lambda path: draw("NUTS", path), "another sampler"),
}


def test_other_arguments_are_refused_in_one_sentence_and_nothing_is_touched(tmp_path):
    draw("Langevin", tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for call, words in OTHER.values():
        with pytest.raises(un.InputError, match=f"holds draws with {words}; give the arguments") as refused:
            call(tmp_path)
        assert "\n" not in str(refused.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "draws.npy").write_text("precious")
    with pytest.raises(un.InputError, match=r"holds draws\.npy and no draws of unnorm; name a new or an empty folder"):
        draw("Langevin", tmp_path)
    assert (tmp_path / "draws.npy").read_text() == "precious" and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(un.InputError, match="is a file; name a new folder"):
        draw("Langevin", tmp_path / "draws.npy")


@pytest.mark.parametrize("name", ["draws.npy", "state.safetensors"])
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_damaged_draws_are_refused(name, how, tmp_path):
    draw("Langevin", tmp_path / "x")
    path = tmp_path / "x" / name
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(content if how == "flipped" else content[:-9])
    words = "and no draws of unnorm" if (name, how) == ("state.safetensors", "gone") else "are damaged"
    with pytest.raises(un.InputError, match=words):
        draw("Langevin", tmp_path / "x")


def test_fingerprints_tell_functions_apart():
    def energy(scale):
        return un.energies.FunctionEnergy(lambda x: scale * jnp.sum(x**2), un.spaces.Real((2,)))

    assert fingerprint(energy(1.0)) == fingerprint(energy(1.0)) != fingerprint(energy(2.0))
    assert fingerprint(energy(jnp.ones(2))) == fingerprint(energy(jnp.ones(2))) != fingerprint(energy(jnp.zeros(2)))
    assert fingerprint(jnp.sin) != fingerprint(jnp.cos)
    assert fingerprint(un.samplers.HMC(0.1)) != fingerprint(un.samplers.HMC(0.1, leapfrogs=11))
    assert fingerprint((1, (2, 3))) != fingerprint(((1, 2), 3))


KILLED = """
import contextlib, os, signal, sys
import jax, unnorm as un
from unnorm.samplers import run as loop

@contextlib.contextmanager
def bar(label, total, *, show):
    seen = []
    def advance(done, remark=""):
        seen.append(done)
        if label == "sampling" and len(seen) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
    yield advance

loop.progress_bar = bar
target = un.energies.FunctionEnergy(lambda x: 0.5 * (x**2).sum(), un.spaces.Real((2,)))
un.sample(target, un.samplers.HMC(), chains=4, steps=60, warmup=40, to=sys.argv[1], key=jax.random.key(0))
"""


@pytest.mark.thorough
def test_a_killed_process_goes_on_in_the_next(tmp_path):
    """Also: arguments are recognised from one process to the next."""

    def process(folder: str, chunks: int) -> int:
        command = [sys.executable, "-c", KILLED, str(tmp_path / folder), str(chunks)]
        return subprocess.run(command, env=dict(os.environ), capture_output=True, timeout=300, check=False).returncode

    assert process("whole", -1) == 0
    assert process("parts", 4) == -signal.SIGKILL
    assert process("parts", 6) == -signal.SIGKILL
    assert process("parts", -1) == 0
    assert (tmp_path / "parts" / "draws.npy").read_bytes() == (tmp_path / "whole" / "draws.npy").read_bytes()
