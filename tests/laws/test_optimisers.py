"""Optimisers are optax's own: they descend, resume, and go slower after a roll-back."""

import json
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_runs import Killed, kill_at_save, same, saved, train

from unnorm.energies import gaussian, standard_gaussian
from unnorm.errors import InputError
from unnorm.fingerprint import fingerprint
from unnorm.objectives import MLE
from unnorm.training import constant, cosine, fit, fit_repeats, state
from unnorm.training.optimisers import require_descent

ROWS = gaussian([1.0, -0.5], [[0.5, 0.2], [0.2, 0.4]]).samples(64, key=jax.random.key(0))
#: All rows in one batch: the maximum of the likelihood is that of every step.
OPTIONS: Any = {"steps": 300, "batch": 64, "average": 0.0, "key": jax.random.key(1)}


def falling(rate: float):
    return lambda step: rate * cosine(step / 300)


def learnt(optimiser, **options) -> np.ndarray:
    """Mean and covariance after a run."""
    settings = OPTIONS | {"evaluations": 1, "progress": False, "optimiser": optimiser} | options
    found = fit(standard_gaussian(2), MLE(), ROWS, **settings).model
    return np.concatenate([found.mean, np.asarray(found.covariance).ravel()])


def optimum() -> np.ndarray:
    """The moments of the rows."""
    return np.concatenate([np.mean(ROWS, 0), np.cov(np.asarray(ROWS).T, ddof=0).ravel()])


def test_an_optimiser_of_optax_descends(monkeypatch):
    np.testing.assert_allclose(learnt(optax.adam(falling(0.05))), optimum(), atol=1e-3)
    # Negative control: updates subtracted, as if they were a direction, climb.
    monkeypatch.setattr(state, "moved_by", lambda r, s, u: jax.tree.map(lambda w, d: w - d, s.weights, u))
    uphill = learnt(optax.adam(falling(0.05)), steps=20)
    assert np.abs(uphill - optimum()).max() > np.abs(optimum() - [0, 0, 1, 0, 0, 1]).max()


def test_the_loops_own_adam_is_that_of_optax():
    own = learnt(None, rate=0.05)
    np.testing.assert_allclose(own, learnt(optax.adam(falling(0.05))), atol=1e-6)
    # Negative control: without the falling rate it ends elsewhere.
    assert np.abs(own - learnt(optax.adam(0.05), steps=300)).max() > 1e-6


def test_repeats_take_the_same_optimisers():
    together = fit_repeats(standard_gaussian(2), MLE(), ROWS[None], optimiser=optax.adam(falling(0.05)), **OPTIONS)
    np.testing.assert_allclose(together.mean[0], optimum()[:2], atol=1e-3)


def test_an_optimiser_that_searches_lines_is_given_the_loss():
    """L-BFGS needs the loss as a function, and then a tenth of the steps."""
    np.testing.assert_allclose(learnt(optax.lbfgs(), steps=30), optimum(), atol=1e-5)
    # Negative control: Adam is not there yet.
    assert np.abs(learnt(optax.adam(falling(0.05)), steps=30) - optimum()).max() > 1e-2


def test_what_does_not_descend_is_refused():
    weights = standard_gaussian(2)
    rising = optax.adam(optax.linear_schedule(0.0, 1e-3, 10))
    for fine in (optax.adamw(1e-3), rising, optax.polyak_sgd(), optax.lbfgs()):
        require_descent(fine, weights)
    labels = optax.multi_transform({"a": optax.sgd(0.1), "b": optax.set_to_zero()}, lambda w: {"mean": "a", "sd": "b"})
    require_descent(labels, {"mean": jnp.zeros(2), "sd": jnp.ones(1)})
    climbing = {
        "none": optax.identity(),
        "adam": optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam()),
        # Many weights go down, and few go up.
        "masked": optax.masked(optax.sgd(1.0), lambda w: jax.tree.map(lambda leaf: leaf.ndim > 1, w)),
    }
    for optimiser in climbing.values():
        with pytest.raises(InputError, match=r"up the gradient: either it has no learning rate \(chain it with"):
            learnt(optimiser)
    with pytest.raises(InputError, match=r"moved by an optax optimiser such as optax.adam\(1e-3\), not by 0.001"):
        learnt(1e-3)


@pytest.mark.parametrize("options", [{"rate": 1e-3}, {"schedule": constant}, {"rate": 1e-3, "schedule": cosine}])
def test_a_rate_beside_an_optimiser_is_refused(options):
    sentence = r"no rate or schedule beside it; give them to the optimiser, as in optax.adam\(1e-3\)"
    with pytest.raises(InputError, match=sentence):
        learnt(optax.adam(1e-3), **options)
    with pytest.raises(InputError, match=sentence):
        fit_repeats(standard_gaussian(2), MLE(), ROWS[None], optimiser=optax.adam(1e-3), **options, **OPTIONS)


# ------------------------------------------------------------------------------------------------- resuming


def test_a_run_by_another_optimiser_resumes_to_the_same_bits(tmp_path, monkeypatch):
    """The rate falls by the optimiser's own count of steps, which the checkpoint holds."""

    def run(path, rate: float = 1e-2, **options):
        # Made anew each time, as a new process would.
        optimiser = optax.adamw(optax.cosine_decay_schedule(rate, 48))
        return train("dsm", rate=None, optimiser=optimiser, checkpoint=path, **options)

    run(tmp_path / "whole")
    path = tmp_path / "run"
    with monkeypatch.context() as patched:
        kill_at_save(patched, 3)
        with pytest.raises(Killed):
            run(path)
    content = path.read_bytes()
    with pytest.raises(InputError, match="holds a run with another optimiser; give"):
        run(path, rate=2e-2, resume=True)
    with pytest.raises(InputError, match="holds a run with another rate and another schedule and another optimiser;"):
        train("dsm", checkpoint=path, resume=True)
    assert path.read_bytes() == content
    run(path, resume=True)
    assert same(saved(path)[0], saved(tmp_path / "whole")[0]) and saved(path)[1] == saved(tmp_path / "whole")[1]


def optimisers(rate: float) -> dict[str, Any]:
    """Some that enclose numbers, schedules, functions, labels and objects."""
    return {
        "adamw": optax.adamw(rate, weight_decay=0.1),
        "sgd": optax.sgd(rate, momentum=0.9),
        "chain": optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate)),
        "schedule": optax.adam(optax.warmup_cosine_decay_schedule(0.0, rate, 10, 100)),
        "own schedule": optax.adam(lambda step: rate / (1 + step)),
        "injected": optax.inject_hyperparams(optax.adam)(learning_rate=rate),
        "every other": optax.MultiSteps(optax.adam(rate), 2).gradient_transformation(),
        "labels": optax.multi_transform({"a": optax.adam(rate), "b": optax.set_to_zero()}, {"mean": "a", "sd": "b"}),
        "lines": optax.lbfgs(rate),
    }


def fingerprints(rate: float) -> dict[str, str]:
    return {name: fingerprint(optimiser) for name, optimiser in optimisers(rate).items()}


FINGERPRINT_SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from test_optimisers import fingerprints
print(json.dumps(fingerprints(1e-3)))
"""


def test_an_optimiser_is_known_again_in_another_process():
    done = subprocess.run(
        [sys.executable, "-c", FINGERPRINT_SCRIPT, os.path.dirname(__file__)],
        env=os.environ | {"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    here, other = fingerprints(1e-3), fingerprints(2e-3)
    assert json.loads(done.stdout) == here and len(set(here.values())) == len(here)
    # Negative control: none is taken for the same with another rate.
    assert all(here[name] != other[name] for name in here)
