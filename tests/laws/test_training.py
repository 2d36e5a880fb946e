"""Laws of the training loop: it resumes to the bit, recovers from divergence, keeps the best, and compiles once."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from harness import holds
from jaxtyping import Array, Float

from unnorm.energies import MLPEnergy, gaussian_mixture, standard_gaussian
from unnorm.errors import InputError
from unnorm.estimate import OutcomeCode
from unnorm.noises import Gaussian, GlobalJumps, Jumps
from unnorm.objectives import CNCE, DSM, PCD, AbstractObjective
from unnorm.samplers import Langevin
from unnorm.spaces import Real
from unnorm.training import checkpoint as checkpoints
from unnorm.training import constant, cosine, fit, fit_repeats, loop
from unnorm.training.loop import MAX_RETRIES, _recipe
from unnorm.training.state import next_batch, run_steps, start

TRUTH = gaussian_mixture([0.3, 0.7], [[-1.0, 0.0], [1.0, 0.5]], 0.4)
DATA = TRUTH.samples(128, key=jax.random.key(0))
VALID = TRUTH.samples(64, key=jax.random.key(1))
OBJECTIVES = {
    "cnce": CNCE(Jumps(0.3, 0.3)),
    "dsm": DSM(Gaussian(0.3)),
    "pcd": PCD(Langevin(0.02), chains=32, moves=2),
}


def model(width: int = 8):
    return MLPEnergy(Real((2,)), width=width, depth=1, key=jax.random.key(2))


def train(name: str = "dsm", **options):
    """48 steps in 6 chunks, each of them saved if there is a path."""
    settings = {"valid": VALID, "steps": 48, "batch": 32, "rate": 1e-2, "evaluations": 6, "checkpoint_seconds": 0.0}
    settings |= {"key": jax.random.key(3), "progress": False} | options
    return fit(model(), OBJECTIVES[name], DATA, **settings)


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    """Whether two checkpoints hold the same arrays, to the bit."""
    return first.keys() == second.keys() and all(
        a.dtype == second[name].dtype and a.shape == second[name].shape and a.tobytes() == second[name].tobytes()
        for name, a in first.items()
    )


def saved(path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    return checkpoints.load_arrays(path)


class Killed(BaseException):
    """What a kill looks like from inside: nothing catches it."""


def kill_at_save(monkeypatch, number: int, *, after: bool = True) -> None:
    """End the process at its save with this number (1, 2, ...), just after or just before it is made."""
    original, calls = loop._Run.save, []

    def save(self, *, final: bool = False):
        calls.append(final)
        if len(calls) == number and not after:
            raise Killed
        original(self, final=final)
        if len(calls) == number:
            raise Killed

    monkeypatch.setattr(loop._Run, "save", save)


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
import test_training
test_training.train("pcd", checkpoint=sys.argv[2], steps=4000, evaluations=500, resume=True)
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


# ------------------------------------------------------------------------------------------------- divergence


class Number(eqx.Module):
    """A model that is one number."""

    w: Float[Array, ""]


class Parabola(AbstractObjective):
    """curvature w^2 / 2, not a number beyond a bound: gradient descent at a rate above 2 / curvature runs away."""

    comparable: ClassVar[bool] = True
    curvature: float = 1.0
    bound: float = 10.0

    def init(self, model, data, *, key):
        return None

    def __call__(self, model, state, batch, *, key):
        value = 0.5 * self.curvature * model.w**2
        return jnp.where(jnp.abs(model.w) > self.bound, jnp.nan, value), (None, {})


PLAIN = {
    "optimiser": optax.identity(),
    "schedule": constant,
    "average": 0.0,
    "batch": 8,
    "progress": False,
    "key": jax.random.key(4),
}
ROWS = jnp.ones((16, 1))


def test_a_run_that_diverges_is_rolled_back_and_halved():
    """w <- (1 - rate) w: rate 5 and 2.5 run away, 1.25 contracts by a quarter. Two retries, no more, no fewer."""
    result = fit(Number(jnp.asarray(1.0)), Parabola(), ROWS, rate=5.0, steps=60, evaluations=6, **PLAIN)
    assert result.outcome.code is OutcomeCode.COMPLETED and result.outcome.ok
    assert result.outcome.retries == 2 and float(result.state.rate_factor) == 0.25
    assert len(result.events) == 2 and "step 0" in result.events[0] and "retry 2 of 5" in result.events[1]
    assert result.history["step"].tolist() == [10, 20, 30, 40, 50, 60]
    # From w = 1 again, not from where it ran to: |w| = 0.25^60 = 0 in single precision (0.25^10 after a chunk).
    assert float(result.history["loss"][0]) == pytest.approx(sum(0.5 * 0.0625**n for n in range(10)) / 10, rel=1e-4)
    assert float(result.model.w) == pytest.approx(0.25**60, abs=1e-30)
    # Negative control: at a rate that does not run away nothing is rolled back.
    calm = fit(Number(jnp.asarray(1.0)), Parabola(), ROWS, rate=1.25, steps=60, evaluations=6, **PLAIN)
    assert calm.outcome.retries == 0 and calm.events == () and float(calm.state.rate_factor) == 1.0


def test_a_run_is_rolled_back_to_its_last_good_chunk():
    """The rate jumps from 0.05 to 10 halfway: 10, 5 and 2.5 run away, 1.25 does not. What was learnt before is kept."""
    options = PLAIN | {"schedule": lambda done: jnp.where(done < 0.5, 0.05, 10.0)}
    result = fit(Number(jnp.asarray(1.0)), Parabola(bound=1.5), ROWS, rate=1.0, steps=40, evaluations=4, **options)
    assert result.outcome.ok and result.outcome.retries == 3
    assert all("rolled back to step 20 " in event for event in result.events)
    assert result.history["step"].tolist() == [10, 20, 30, 40]
    assert result.history["rate_factor"].tolist() == [1, 1, 0.125, 0.125]
    # The third chunk begins at 0.95^20, where the second ended.
    w = 0.95**20 * 0.25 ** np.arange(10)
    assert result.history["loss"][2] == pytest.approx(np.mean(0.5 * w**2), rel=1e-4)


class Hopeless(AbstractObjective):
    """Never a number."""

    comparable: ClassVar[bool] = True

    def init(self, model, data, *, key):
        return None

    def __call__(self, model, state, batch, *, key):
        return model.w * jnp.nan, (None, {})


def test_a_hopeless_run_ends_and_says_so(tmp_path):
    path = tmp_path / "run"
    options = PLAIN | {"rate": 1.0, "steps": 60, "evaluations": 6, "valid": ROWS, "checkpoint": path}
    result = fit(Number(jnp.asarray(1.5)), Hopeless(), ROWS, **options)
    assert result.outcome.code is OutcomeCode.DIVERGED and not result.outcome.ok
    assert result.outcome.retries == MAX_RETRIES == 5
    assert result.outcome.step == 0 and "5 roll-backs" in result.outcome.message and result.outcome.advice
    assert float(result.model.w) == 1.5
    # Five retries and the end, each in its own words.
    assert len(result.events) == 6 and not any("6 of 5" in event for event in result.events)
    # A resumed run knows that it has ended.
    again = fit(Number(jnp.asarray(1.5)), Hopeless(), ROWS, resume=True, **options)
    assert again.outcome == result.outcome and again.events == result.events


class Spike(AbstractObjective):
    """A gradient of 1e30 at one step: finite itself, but not its square, which is what Adam remembers."""

    comparable: ClassVar[bool] = True

    def init(self, model, data, *, key):
        return jnp.zeros(())

    def __call__(self, model, state, batch, *, key):
        slope = jnp.where(jax.random.uniform(key) < 0.05, 1e30, 1.0)
        return slope * (model.w - 3.0) ** 2 / 2, (state + 1, {})


def test_an_optimiser_that_overflows_is_rolled_back():
    """An infinite second moment would freeze its weight for good, with every loss finite."""
    options = PLAIN | {"optimiser": None}
    result = fit(Number(jnp.asarray(2.0)), Spike(), ROWS, rate=0.1, steps=40, evaluations=40, **options)
    assert result.outcome.retries > 0
    moments = [np.asarray(leaf) for leaf in jax.tree.leaves(result.state.optimiser)]
    assert all(np.all(np.isfinite(leaf)) for leaf in moments)


# ------------------------------------------------------------------------------------------------- keeping the best


class MeanSquare(AbstractObjective):
    """mean (x - w)^2: the training data pull w towards their mean, along a path that can be computed."""

    comparable: ClassVar[bool] = True

    def init(self, model, data, *, key):
        return None

    def __call__(self, model, state, batch, *, key):
        return jnp.mean((batch - model.w) ** 2), (None, {})


def overfitting(**options):
    """Train data at 1, held-out data at 0.5, a start at 0: the held-out loss falls until w = 0.5 and then rises.

    w_n = 1 - (1 - 2 rate)^n exactly.
    """
    settings = PLAIN | {"rate": 0.01, "steps": 200, "evaluations": 20, "valid": 0.5 * ROWS} | options
    return fit(Number(jnp.asarray(0.0)), MeanSquare(), ROWS, **settings)


def test_the_best_held_out_weights_are_kept():
    result = overfitting()
    ws = 1 - 0.98 ** np.arange(10, 201, 10)
    np.testing.assert_allclose(result.history["held_out"], (0.5 - ws) ** 2, atol=1e-5)
    best = int(np.argmin((0.5 - ws) ** 2))
    assert 0 < best < 19
    assert float(result.model.w) == pytest.approx(ws[best], abs=1e-5)
    assert float(result.state.best_loss) == pytest.approx(result.history["held_out"].min())
    # Negative control: the last weights are far from the best.
    assert abs(float(result.state.weights.w) - ws[best]) > 0.3


def test_a_run_without_improvement_stops_early():
    ws = 1 - 0.98 ** np.arange(10, 201, 10)
    best = int(np.argmin((0.5 - ws) ** 2))
    for patience in (1, 3):
        result = overfitting(patience=patience)
        assert result.outcome.code is OutcomeCode.STOPPED_EARLY and result.outcome.ok
        assert result.outcome.step == 10 * (best + 1 + patience)
        assert float(result.model.w) == pytest.approx(ws[best], abs=1e-5)
    # Negative control: with more patience than there are evaluations it goes on.
    assert overfitting(patience=25).outcome.code is OutcomeCode.COMPLETED


def test_a_run_killed_as_it_stops_early_resumes_to_the_same_bits(tmp_path, monkeypatch):
    options = {"patience": 2, "checkpoint_seconds": 0.0}
    whole = overfitting(checkpoint=tmp_path / "whole", **options)
    stops = len(whole.history["step"])
    for number in (stops - 1, stops):
        path = tmp_path / f"{number}"
        with monkeypatch.context() as patched:
            kill_at_save(patched, number)
            with pytest.raises(Killed):
                overfitting(checkpoint=path, **options)
        result = overfitting(checkpoint=path, resume=True, **options)
        assert result.outcome == whole.outcome
        assert same(saved(path)[0], saved(tmp_path / "whole")[0])


def test_without_held_out_data_the_last_average_is_kept():
    result = overfitting(valid=None)
    assert float(result.model.w) == pytest.approx(1 - 0.98**200, abs=1e-5)
    assert np.all(np.isnan(result.history["held_out"]))
    with pytest.raises(InputError, match="validation"):
        overfitting(valid=None, patience=2)


def test_a_contrast_with_own_chains_does_not_choose_the_best():
    """PCD's loss is no measure of a model: whatever it does, the last weights are kept and patience is not tried."""
    result = train("pcd", patience=1)
    assert result.outcome.code is OutcomeCode.COMPLETED
    assert eqx.tree_equal(eqx.filter(result.model, eqx.is_inexact_array), result.state.average)


# ------------------------------------------------------------------------------------------------- steps


def passes(n: int, batch: int, count: int) -> np.ndarray:
    """The rows that `count` steps visit, by the loop's own order."""
    rows = jnp.arange(n)[:, None]
    recipe = _recipe(Number(jnp.asarray(0.0)), MeanSquare(), batch, 10, 0.1, 0.0, constant, None)
    state = start(Number(jnp.asarray(0.0)), recipe, rows, jax.random.key(5))

    def step(state, _):
        order, taken = next_batch(state, rows, batch)
        return eqx.tree_at(lambda s: (s.order, s.step), state, (order, state.step + 1)), taken[:, 0]

    return np.asarray(jax.lax.scan(step, state, length=count)[1])


def test_each_pass_visits_each_row_once():
    visited = passes(40, 8, 20).reshape(4, 40)
    np.testing.assert_array_equal(np.sort(visited, axis=1), np.broadcast_to(np.arange(40), (4, 40)))
    # Each pass in an order of its own.
    assert len({tuple(row) for row in visited}) == 4
    # Negative control: rows drawn with replacement repeat themselves within a pass.
    drawn = np.sort(np.random.default_rng(0).integers(0, 40, (4, 40)), axis=1)
    assert np.all(np.any(drawn != np.arange(40), axis=1))


def test_rows_left_over_by_a_pass_have_their_turn_in_others():
    """43 rows in batches of 8: a pass visits 40 different ones; which 3 stay out changes from pass to pass."""
    visited = passes(43, 8, 5 * 400).reshape(400, 40)
    assert all(len(set(row)) == 40 for row in visited)
    seen = np.stack([np.isin(np.arange(43), row) for row in visited])
    assert holds(seen, 40 / 43)


def weights_of(result_states) -> np.ndarray:
    return np.array([float(state.weights.w) for state in result_states])


def single_steps(count: int, **options):
    """The states of a run, step by step."""
    settings = {"batch": 8, "steps": count, "rate": 0.05, "average": 0.0, "schedule": constant} | options
    recipe = _recipe(
        Number(jnp.asarray(0.0)), MeanSquare(), settings["batch"], settings["steps"], settings["rate"],
        settings["average"], settings["schedule"], optax.identity(),
    )  # fmt: skip
    states = [start(Number(jnp.asarray(0.0)), recipe, ROWS, jax.random.key(6))]
    for _ in range(count):
        states.append(run_steps(recipe, states[-1], ROWS, jnp.asarray(1))[0])
    return states


def test_the_average_is_exponential_with_a_short_memory_at_first():
    """a <- d a + (1 - d) w with d = min(decay, (1 + n) / (10 + n)), w the weights after step n."""
    states = single_steps(60, average=0.8)
    ws = weights_of(states)
    a, plain = 0.0, 0.0
    for n in range(60):
        d = min(0.8, (1 + n) / (10 + n))
        a = d * a + (1 - d) * ws[n + 1]
        plain = 0.8 * plain + 0.2 * ws[n + 1]
        assert float(states[n + 1].average.w) == pytest.approx(a, rel=1e-5)
        if n < 10:
            # Negative control: without the short memory the start would still weigh.
            assert float(states[n + 1].average.w) != pytest.approx(plain, rel=1e-2)


def test_the_schedule_multiplies_the_rate():
    """Gradient descent on (1 - w)^2: 1 - w shrinks by 1 - 2 rate factor(n / steps) at step n."""
    found = weights_of(single_steps(40, schedule=cosine))
    factors = [min(1, (n / 40 + 1e-4) / 0.02) * 0.5 * (1 + math.cos(math.pi * n / 40)) for n in range(40)]
    np.testing.assert_allclose(1 - found[1:], np.cumprod([1 - 0.1 * f for f in factors]), rtol=1e-4)
    # Negative control: the constant schedule.
    assert not np.allclose(1 - found[1:], 0.9 ** np.arange(1, 41), rtol=1e-2)


def test_chunks_do_not_change_a_run():
    """One chunk of 48 steps, 6 of 8 or 5 of 10 (the last one short) end with the same weights."""
    ends = [train("pcd", evaluations=n, valid=None).state.weights for n in (1, 6, 5)]
    assert eqx.tree_equal(ends[0], ends[1]) and eqx.tree_equal(ends[0], ends[2])
    other = train("pcd", evaluations=1, valid=None, key=jax.random.key(7)).state.weights
    assert not eqx.tree_equal(ends[0], other)


def test_repeats_are_separate_fits():
    """Each repeat ends where a fit of its own data with its own key ends."""
    data = TRUTH.samples(3 * 64, key=jax.random.key(8)).reshape(3, 64, 2)
    objective = CNCE(GlobalJumps(0.5))
    options = {"steps": 30, "batch": 32, "rate": 1e-2}
    together = fit_repeats(standard_gaussian(2), objective, data, average=0.9, key=jax.random.key(9), **options)
    for i, key in enumerate(jax.random.split(jax.random.key(9), 3)):
        alone = fit(standard_gaussian(2), objective, data[i], average=0.9, key=key, progress=False, **options).model
        np.testing.assert_allclose(together.mean[i], alone.mean, atol=1e-5)
        np.testing.assert_allclose(together.factor[i], alone.factor, atol=1e-5)
    # Negative control: the repeats differ from one another.
    assert not np.allclose(together.mean[0], together.mean[1], atol=1e-3)


# ------------------------------------------------------------------------------------------------- compilation

COMPILED: list[str] = []


def _on_compile(event: str, duration: float, **details: Any) -> None:
    if event.endswith("backend_compile_duration"):
        COMPILED.append(str(details.get("fun_name")))


jax.monitoring.register_event_duration_secs_listener(_on_compile)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_nothing_is_compiled_twice(name):
    options = {"valid": None, "key": jax.random.key(10)}
    train(name, **options)
    COMPILED.clear()
    # New data, key, rate, number of steps and of chunks: the same program.
    objective = OBJECTIVES[name]
    other = TRUTH.samples(128, key=jax.random.key(11))
    settings = {"steps": 30, "batch": 32, "rate": 2e-2, "evaluations": 4, "progress": False, "average": 0.5}
    fit(model(), objective, other + 0.0, key=jax.random.key(12), **settings)
    assert [fun for fun in COMPILED if "run_steps" in fun] == []
    # And nothing at all, down to the smallest operation, when the call is repeated.
    COMPILED.clear()
    fit(model(), objective, other, key=jax.random.key(13), **settings)
    assert COMPILED == []
    # Negative control: another batch size is another program, compiled once for all its chunks.
    fit(model(), objective, other, key=jax.random.key(13), **(settings | {"batch": 16}))
    assert sum("run_steps" in fun for fun in COMPILED) == 1


# ------------------------------------------------------------------------------------------------- devices

DEVICES_SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import jax
from test_training import COMPILED, OBJECTIVES, losses, refusal

found = {name: losses(name) for name in OBJECTIVES}
print(json.dumps([jax.device_count(), found, sum("run_steps" in name for name in COMPILED), refusal()]))
"""


def losses(name: str, **options) -> list[list[float]]:
    """The training and held-out losses of 20 steps."""
    history = train(name, steps=20, evaluations=20, **options).history
    return [history["loss"].tolist(), history["held_out"].tolist()]


def refusal() -> str | None:
    """What is said to a batch of 31 rows."""
    try:
        train("dsm", batch=31, steps=1, evaluations=1)
    except InputError as error:
        return str(error)
    return None


def test_devices_change_nothing_but_rounding():
    """A second process with two devices against this one with one."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", DEVICES_SCRIPT, os.path.dirname(__file__)],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    devices, found, programs, refused = json.loads(done.stdout)
    assert (jax.device_count(), devices) == (1, 2)
    for name in OBJECTIVES:
        np.testing.assert_allclose(found[name], losses(name), rtol=1e-4, atol=1e-5)
    # Negative control: another key is another run.
    assert not np.allclose(found["dsm"], losses("dsm", key=jax.random.key(99)), rtol=1e-2)
    # However the first chunk left its state lying on the devices, the second runs the same program.
    assert programs == len(OBJECTIVES)
    # A batch that two devices cannot share is refused in a sentence; one device takes it.
    assert refused == "31 rows of a batch cannot be shared equally by 2 devices; use a multiple of 2"
    assert refusal() is None


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
    with pytest.raises(InputError, match="version 1, and this release reads version 2"):
        saved(path)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    path = tmp_path / "run"
    train("dsm", checkpoint=path)
    content = path.read_bytes()
    wider = {"steps": 48, "batch": 32, "evaluations": 6, "key": jax.random.key(3), "progress": False}
    with pytest.raises(InputError, match="give the settings it was made with"):
        fit(model(width=9), OBJECTIVES["dsm"], DATA, checkpoint=path, resume=True, **wider)
    with pytest.raises(InputError, match="another model or objective"):
        fit(standard_gaussian(2), OBJECTIVES["dsm"], DATA, checkpoint=path, resume=True, **wider)
    with pytest.raises(InputError, match="another model or objective"):
        fit(model(), OBJECTIVES["pcd"], DATA, checkpoint=path, resume=True, **wider)
    with pytest.raises(InputError, match="give the settings it was made with"):
        fit(model(), OBJECTIVES["dsm"], DATA[:64], checkpoint=path, resume=True, **wider)
    assert path.read_bytes() == content


def full_disk(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_checkpoint(where, small, monkeypatch):
    path, arrays = small
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints.os, where, full_disk)
        with pytest.raises(OSError, match="No space"):
            checkpoints.save_arrays(path, {"weights": np.zeros(3)}, {"events": [], "finished": True})
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert same(saved(path)[0], arrays)


def test_a_run_on_a_full_disk_can_be_taken_up_later(undisturbed, tmp_path, monkeypatch):
    path = tmp_path / "run"
    original, calls = os.fsync, []

    def fsync(descriptor):
        calls.append(descriptor)
        # Two calls for each save: the file, and the folder it lies in.
        return original(descriptor) if len(calls) <= 4 else full_disk()

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints.os, "fsync", fsync)
        with pytest.raises(OSError, match="No space"):
            train("pcd", checkpoint=path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
    assert int(saved(path)[0]["state.step"]) == 16
    train("pcd", checkpoint=path, resume=True)
    assert same(saved(path)[0], undisturbed["pcd"][0])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"steps": 0}, "at least one step"),
        ({"batch": 0}, "at least one row"),
        ({"rate": 0.0}, "learning rate must be positive"),
        ({"rate": math.nan}, "learning rate must be positive"),
        ({"average": 1.0}, "averaging decay"),
        ({"evaluations": 0}, "at least one evaluation"),
        ({"valid": VALID.at[3, 1].set(jnp.nan)}, "validation data hold 1 values that are not finite"),
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
