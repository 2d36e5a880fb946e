"""Chains and points shared out among the cores of a processor: the same draws, whoever makes them."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from walks import CORRELATED, ISING

import unnorm as un
from unnorm import devices
from unnorm.generators import run as generators
from unnorm.samplers import MALA, Gibbs, Langevin, chains, stream

#: Tuning magnifies rounding, and this energy has none that depends on how many chains there are.
ROUND = un.energies.FunctionEnergy(lambda x: 0.5 * jnp.sum(x**2), un.spaces.Real((2,)))
CASES = {
    "plain walk": (CORRELATED, Langevin(0.05), {}),
    "discarded steps": (CORRELATED, Langevin(0.05), {"warmup": 7}),
    "tuned for each chain": (ROUND, MALA(), {"warmup": 30}),
    "zeros and ones": (ISING, Gibbs(2), {}),
}


def run(case, monkeypatch, cores: int) -> un.samplers.Trace:
    monkeypatch.setattr(devices, "_cores", lambda: cores)
    target, sampler, options = case
    return un.sample(target, sampler, chains=96, steps=20, key=jax.random.key(3), progress=False, **options)


def alike(a: un.samplers.Trace, b: un.samplers.Trace) -> bool:
    """Short runs of walks that forget: rounding stays at a few units in the last of seven digits."""
    return bool(
        np.allclose(a.draws, b.draws, atol=1e-5)
        and np.allclose(a.acceptance, b.acceptance, atol=1e-5)
        and a.divergences == b.divergences
    )


def parts(count: int) -> int:
    return devices.parts_of(count)


def chains_of_one_core(count: int, parts: int) -> tuple[list[np.ndarray], int]:
    """The first chains, as often as there are parts."""
    firsts, size = devices.shares(count, parts)
    return firsts[:1] * parts, size


@pytest.mark.parametrize("name", CASES)
def test_draws_do_not_depend_on_the_number_of_cores(name, monkeypatch):
    one, three = (run(CASES[name], monkeypatch, cores) for cores in (1, 3))
    assert parts(96) == 3
    assert alike(one, three)
    # Control: cores that all run the chains of the first one.
    monkeypatch.setattr(chains, "shares", chains_of_one_core)
    assert not alike(one, run(CASES[name], monkeypatch, 3))


def test_points_do_not_depend_on_the_number_of_cores(monkeypatch):
    noise = un.noises.VarianceExploding(0.1, 5.0)
    score = un.scores.LevelledFunction(lambda t, x: -x / (1 + noise.variance(t)), noise)

    def walk(cores: int) -> np.ndarray:
        monkeypatch.setattr(devices, "_cores", lambda: cores)
        levels, draw = jnp.linspace(1, 0, 6), un.generators.PosteriorDraw()
        return un.generators.generate(
            score, un.generators.GibbsTransition(), levels=levels, n=96, shape=(2,), finish=draw,
            key=jax.random.key(1),
        ).points  # fmt: skip

    one = walk(1)
    assert np.allclose(walk(3), one, atol=1e-5)
    monkeypatch.setattr(generators, "shares", chains_of_one_core)
    assert not np.allclose(walk(3), one, atol=1e-2)


def test_chains_are_shared_equally_or_not_at_all(monkeypatch):
    monkeypatch.setattr(devices, "_cores", lambda: 4)
    least = devices.LEAST_SHARE
    assert [parts(n) for n in (1, least, 2 * least, 3 * least, 4 * least, 8 * least)] == [1, 1, 2, 3, 4, 4]
    assert parts(4 * least + 1) == 1  # a prime number of chains
    assert parts(6 * least + 3) == 3


def settings(_: int) -> tuple[bool, str, bool, object, bool]:
    asked = jax.config
    return (
        asked.jax_enable_x64, asked.jax_default_matmul_precision, asked.jax_debug_nans, asked.jax_default_device,
        asked.jax_threefry_partitionable,
    )  # fmt: skip


def test_every_core_has_the_settings_of_the_caller(monkeypatch):
    monkeypatch.setattr(devices, "_cores", lambda: 2)
    assert parts(64) == 2
    options = {"chains": 64, "steps": 3, "progress": False, "key": jax.random.key(0)}
    device = jax.devices()[0]
    with (
        jax.enable_x64(True), jax.default_matmul_precision("highest"), jax.debug_nans(True), jax.default_device(device),
        jax.threefry_partitionable(False),
    ):  # fmt: skip
        mine = settings(0)
        assert un.sample(un.energies.standard_gaussian(2), Langevin(0.1), **options).draws.dtype == np.float64
        found = devices.side_by_side(settings, [1, 2])
        # Control: by themselves threads have their own.
        with ThreadPoolExecutor(1) as thread:
            by_itself = thread.submit(settings, 0).result()
    assert found == [mine, mine]
    assert all(a != b for a, b in zip(mine, by_itself, strict=True))


def test_what_goes_wrong_on_one_core_is_told():
    with pytest.raises(ZeroDivisionError):
        devices.side_by_side(lambda n: 1 / n, [1, 0])


class Stopped(Exception):
    """Stands for a kill."""


#: A rugged energy, on which rounding is magnified to the size of the draws within some steps.
RUGGED = un.networks.MLP(6, 1, width=64, depth=2, key=jax.random.key(7))
CHAOTIC = un.energies.FunctionEnergy(lambda x: 300 * RUGGED(x)[0] + 0.05 * jnp.sum(x**2), un.spaces.Real((6,)))


@pytest.mark.optimised
def test_a_run_goes_on_with_its_parts_on_another_number_of_cores(monkeypatch, tmp_path):
    def draws(folder) -> np.ndarray:
        return np.asarray(
            un.sample(
                CHAOTIC, un.samplers.HMC(0.1, leapfrogs=30), chains=34, steps=75, warmup=0, to=folder,
                key=jax.random.key(0), progress=False,
            ).draws
        )  # fmt: skip

    def stop_after(saves: int) -> None:
        left = iter(range(saves))

        def save(self, *args):
            if next(left, None) is None:
                raise Stopped
            whole_save(self, *args)

        monkeypatch.setattr(stream.Stream, "save", save)

    def in_parts(call, pieces):
        seen.add(len(pieces))
        return devices.side_by_side(call, pieces)

    seen: set[int] = set()
    monkeypatch.setattr(chains, "side_by_side", in_parts)
    whole_save = stream.Stream.save
    monkeypatch.setattr(devices, "_cores", lambda: 2)
    at_once = draws(tmp_path / "at once")
    stop_after(6)
    with pytest.raises(Stopped):
        draws(tmp_path / "stopped")
    monkeypatch.setattr(stream.Stream, "save", whole_save)
    monkeypatch.setattr(devices, "_cores", lambda: 1)
    np.testing.assert_array_equal(draws(tmp_path / "stopped"), at_once)
    assert seen == {2}
    # Control: begun with one core, chains are in one part. Not by the draws: on some processors they are the same.
    draws(tmp_path / "one core")
    assert seen == {1, 2}


def test_an_interrupt_does_not_wait_for_the_threads():
    go_on, ended = threading.Event(), []

    def piece(number: int) -> None:
        go_on.wait(60)
        ended.append(number)

    here = threading.get_ident()
    threading.Timer(0.5, lambda: signal.pthread_kill(here, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        devices.side_by_side(piece, [1, 2])
    # A pool left by its own door would have waited for both.
    assert ended == []
    go_on.set()
