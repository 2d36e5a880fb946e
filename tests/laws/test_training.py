"""Laws of the training loop: it recovers from divergence, keeps the best, and visits every row."""

import dataclasses
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from harness import holds
from jaxtyping import Array, Float
from small_runs import TRUTH, Killed, kill_at_save, same, saved, train

from unnorm.energies import standard_gaussian
from unnorm.errors import InputError
from unnorm.estimate import OutcomeCode
from unnorm.noises import GlobalJumps
from unnorm.objectives import CD, CNCE, AbstractObjective
from unnorm.samplers import Langevin
from unnorm.training import constant, cosine, fit, fit_repeats, state
from unnorm.training.loop import MAX_RETRIES, _recipe
from unnorm.training.state import next_batch, run_steps, start

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
    "average": 0.0,
    "batch": 8,
    "progress": False,
    "key": jax.random.key(4),
}
ROWS = jnp.ones((16, 1))


def test_a_run_that_diverges_is_rolled_back_and_halved(monkeypatch):
    """w <- (1 - rate) w: rate 5 and 2.5 run away, 1.25 contracts by a quarter. Two retries, no more, no fewer."""
    options = PLAIN | {"steps": 60, "evaluations": 6}
    result = fit(Number(jnp.asarray(1.0)), Parabola(), ROWS, optimiser=optax.sgd(5.0), **options)
    assert result.outcome.code is OutcomeCode.COMPLETED and result.outcome.ok
    assert result.outcome.retries == 2 and float(result.state.rate_factor) == 0.25
    assert len(result.events) == 2 and "step 0" in result.events[0] and "retry 2 of 5" in result.events[1]
    assert result.history["step"].tolist() == [10, 20, 30, 40, 50, 60]
    # From w = 1 again, not from where it ran to: |w| = 0.25^60 = 0 in single precision (0.25^10 after a chunk).
    assert float(result.history["loss"][0]) == pytest.approx(sum(0.5 * 0.0625**n for n in range(10)) / 10, rel=1e-4)
    assert float(result.model.w) == pytest.approx(0.25**60, abs=1e-30)
    # Negative control: at a rate that does not run away nothing is rolled back.
    calm = fit(Number(jnp.asarray(1.0)), Parabola(), ROWS, optimiser=optax.sgd(1.25), **options)
    assert calm.outcome.retries == 0 and calm.events == () and float(calm.state.rate_factor) == 1.0
    # Another one: updates that are not halved run away every time.
    monkeypatch.setattr(state, "moved_by", lambda r, s, u: optax.apply_updates(s.weights, u))
    lost = fit(Number(jnp.asarray(1.0)), Parabola(), ROWS, optimiser=optax.sgd(5.0), **options)
    assert lost.outcome.code is OutcomeCode.DIVERGED


def test_a_run_is_rolled_back_to_its_last_good_chunk():
    """The rate jumps from 0.05 to 10 halfway: 10, 5 and 2.5 run away, 1.25 does not. What was learnt before is kept."""
    options = PLAIN | {"optimiser": optax.sgd(lambda step: jnp.where(step < 20, 0.05, 10.0))}
    result = fit(Number(jnp.asarray(1.0)), Parabola(bound=1.5), ROWS, steps=40, evaluations=4, **options)
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
    options = PLAIN | {"steps": 60, "evaluations": 6, "valid": ROWS, "checkpoint": path}
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
    options = PLAIN | {"rate": 0.1, "schedule": constant}
    result = fit(Number(jnp.asarray(2.0)), Spike(), ROWS, steps=40, evaluations=40, **options)
    assert result.outcome.retries > 0
    moments = [np.asarray(leaf) for leaf in jax.tree.leaves(result.state.optimiser)]
    assert all(np.all(np.isfinite(leaf)) for leaf in moments)


# ------------------------------------------------------------------------------------------------- keeping the best

#: Made once, so that runs share their compiled programs.
DESCENT = optax.sgd(0.01)


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
    settings = PLAIN | {"optimiser": DESCENT, "steps": 200, "evaluations": 20, "valid": 0.5 * ROWS} | options
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


class Elsewhere(MeanSquare):
    """(w - 0.8)^2 whatever the rows: a judge that wants another number than the objective."""

    def __call__(self, model, state, batch, *, key):
        return (model.w - 0.8) ** 2, (None, {})


class Unjudged(MeanSquare):
    """The same loss, which says of itself that it cannot tell models apart."""

    comparable: ClassVar[bool] = False


def test_another_loss_can_judge():
    ws = 1 - 0.98 ** np.arange(10, 201, 10)
    result = overfitting(judge=Elsewhere())
    np.testing.assert_allclose(result.history["held_out"], (0.8 - ws) ** 2, atol=1e-5)
    best = int(np.argmin((0.8 - ws) ** 2))
    assert 0 < best < 19
    assert float(result.model.w) == pytest.approx(ws[best], abs=1e-5)
    # It only looks: the run itself is the same.
    assert float(result.state.weights.w) == float(overfitting().state.weights.w)
    # Negative control: the objective's own choice is another.
    assert abs(float(overfitting().model.w) - ws[best]) > 0.2
    # A loss that cannot judge keeps its last weights, and with a judge its best.
    unjudged = {"optimiser": DESCENT, "steps": 200, "evaluations": 20, "valid": 0.5 * ROWS}
    last = fit(Number(jnp.asarray(0.0)), Unjudged(), ROWS, **PLAIN | unjudged)
    assert float(last.model.w) == float(last.state.weights.w)
    judged = fit(Number(jnp.asarray(0.0)), Unjudged(), ROWS, judge=Elsewhere(), **PLAIN | unjudged)
    assert float(judged.model.w) == pytest.approx(ws[best], abs=1e-5)
    with pytest.raises(InputError, match="a judge needs validation data"):
        overfitting(valid=None, judge=Elsewhere())
    with pytest.raises(InputError, match="CD cannot judge"):
        overfitting(judge=CD(Langevin(0.1)))


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
    # In the order in which they are handed on.
    settings: Any = {"batch": 8, "steps": count, "rate": 0.05, "average": 0.0, "schedule": constant} | options
    recipe = _recipe(Number(jnp.asarray(0.0)), MeanSquare(), *settings.values(), None)
    # What the loop does to Adam's direction, done to the gradient itself.
    recipe = dataclasses.replace(recipe, optimiser=optax.identity())
    states = [start(Number(jnp.asarray(0.0)), recipe, ROWS, jax.random.key(6))]
    for _ in range(count):
        states.append(run_steps(recipe, states[-1], ROWS, jnp.asarray(1)).state)
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
