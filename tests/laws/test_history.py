"""What objectives say beside their loss reaches the history: means over each chunk, under their own names."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import DATA, VALID, saved, train

from unnorm.energies import Shifted, gaussian, standard_gaussian
from unnorm.errors import InputError
from unnorm.noises import Gaussian, GlobalJumps
from unnorm.objectives import CNCE, DSM, NCE, AbstractObjective
from unnorm.training import constant, fit
from unnorm.training.loop import _recipe
from unnorm.training.state import next_batch, run_steps, start

NOISE = gaussian([0.2, 0.0], [[1.5, 0.3], [0.3, 1.0]])
OBJECTIVE = NCE(NOISE, ratio=2.0)
MODEL = Shifted(standard_gaussian(2), -0.5)
#: In the order in which they are handed on.
OPTIONS: Any = {"batch": 16, "steps": 6, "rate": 0.1, "average": 0.0, "schedule": constant}
RUN: Any = {"key": jax.random.key(5), "progress": False}


@pytest.fixture(scope="module")
def accuracies() -> np.ndarray:
    """Of six steps against twice as much noise as data: the shares of points told apart rightly, by hand."""
    recipe = _recipe(MODEL, OBJECTIVE, *OPTIONS.values(), None)
    state = start(MODEL, recipe, DATA, RUN["key"])
    found = []
    for step in range(6):
        rows = next_batch(state, DATA, 16)[1]
        key = jax.random.fold_in(jax.random.fold_in(state.key, step), 2)
        noise = jax.vmap(lambda k: NOISE.sample(key=k))(jax.random.split(key, 32))
        energy = jax.vmap(eqx.combine(state.weights, recipe.skeleton))
        of_data, of_noise = (-energy(x) - jax.vmap(NOISE.log_prob)(x) + np.log(16 / 32) for x in (rows, noise))
        found.append((np.sum(of_data > 0) + np.sum(of_noise < 0)) / 48)
        state = run_steps(recipe, state, DATA, jnp.asarray(1)).state
    return np.array(found)


def test_the_accuracy_of_every_step_is_recorded(accuracies):
    history = fit(MODEL, OBJECTIVE, DATA, evaluations=6, **OPTIONS, **RUN).history
    np.testing.assert_allclose(history["accuracy"], accuracies, rtol=1e-6)
    # Negative control: a mean over all steps so far, or the step before, is another number.
    assert not np.allclose(history["accuracy"], np.cumsum(accuracies) / np.arange(1, 7), rtol=1e-3)
    assert not np.allclose(history["accuracy"][1:], accuracies[:-1], rtol=1e-3)


def test_the_accuracy_of_a_chunk_is_the_mean_over_its_steps(accuracies):
    history = fit(MODEL, OBJECTIVE, DATA, evaluations=2, **OPTIONS, **RUN).history
    np.testing.assert_allclose(history["accuracy"], accuracies.reshape(2, 3).mean(axis=1), rtol=1e-6)
    # Negative control: the last step of each chunk.
    assert not np.allclose(history["accuracy"], accuracies[2::3], rtol=1e-3)


class Teller(AbstractObjective):
    """Denoising that tells of what it is told to, as a function of the step."""

    comparable: ClassVar[bool] = True
    say: Any = eqx.field(static=True)

    def init(self, model, data, *, key):
        return jnp.zeros(())

    def __call__(self, model, state, batch, *, key):
        loss, _ = DSM(Gaussian(0.3))(model, None, batch, key=key)
        return loss, (state + 1, self.say(state))


def told(say, **options):
    return fit(standard_gaussian(2), Teller(say), DATA, **OPTIONS, **RUN | {"evaluations": 2} | options)


def test_steps_at_which_a_number_is_not_finite_are_left_out():
    """Steps 0 to 2 and 3 to 5: of the odd ones 1, and 3 and 5; of those after the third none, and all."""
    fitted = told(lambda n: {"odd": jnp.where(n % 2 == 1, n, jnp.nan), "late": jnp.where(n >= 3, n, jnp.inf)})
    np.testing.assert_array_equal(fitted.history["odd"], [1, 4])
    np.testing.assert_array_equal(fitted.history["late"], [np.nan, 4])
    # Such numbers are of no consequence to the run itself.
    assert fitted.outcome.retries == 0
    assert eqx.tree_equal(fitted.state.weights, told(lambda n: {}).state.weights)


def test_names_of_the_history_are_not_given_twice():
    for name in ("step", "loss", "held_out", "rate_factor"):
        with pytest.raises(InputError, match=f"Teller reports '{name}', which the history of every run has already"):
            told(lambda n, name=name: {name: n})
    with pytest.raises(InputError, match=r"reports 'squares' of shape \(2,\)"):
        told(lambda n: {"squares": jnp.stack([n, n**2])})


def test_a_sum_of_objectives_says_what_its_parts_say():
    objective = DSM(Gaussian(0.3)) + 0.5 * CNCE(GlobalJumps(0.5))
    history = fit(standard_gaussian(2), objective, DATA, valid=VALID, evaluations=2, **OPTIONS, **RUN).history
    assert list(history) == ["step", "loss", "held_out", "rate_factor", "0.loss", "1.accuracy", "1.loss"]
    np.testing.assert_allclose(history["loss"], history["0.loss"] + 0.5 * history["1.loss"], rtol=1e-5)


def test_a_resumed_run_keeps_what_was_said(tmp_path):
    path = tmp_path / "run"
    first = train("pcd", checkpoint=path, schedule=constant)
    np.testing.assert_array_equal(saved(path)[0]["history/contrast"], first.history["contrast"])
    longer = {"checkpoint": path, "schedule": constant, "steps": 96, "evaluations": 12}
    second = train("pcd", resume=True, **longer)
    assert list(second.history) == list(first.history) and len(second.history["contrast"]) == 12
    np.testing.assert_array_equal(second.history["contrast"][:6], first.history["contrast"])
    assert {*train("cnce").history} - {*train("dsm").history} == {"accuracy"}
