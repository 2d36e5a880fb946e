"""The training loop compiles once, and runs the same on several devices."""

import json
import os
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest
from small_runs import OBJECTIVES, TRUTH, model, train

from unnorm.energies import standard_gaussian
from unnorm.errors import InputError
from unnorm.noises import Gaussian
from unnorm.objectives import DSM
from unnorm.training import fit, fit_repeats

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


def test_another_scale_of_noise_is_the_same_program():
    settings: Any = {"steps": 30, "batch": 32, "evaluations": 2, "key": jax.random.key(14), "progress": False}
    data = TRUTH.samples(128, key=jax.random.key(15))
    first = fit(model(), DSM(Gaussian(0.3)), data, **settings)
    COMPILED.clear()
    other = fit(model(), DSM(Gaussian(0.6)), data, **settings)
    assert [fun for fun in COMPILED if "run_steps" in fun] == []
    # Control: it is another loss all the same.
    assert not np.allclose(first.history["loss"], other.history["loss"], rtol=1e-2)


def test_repeats_are_compiled_once():
    """Other data, keys, rates, numbers of steps and numbers inside the objective: the same program."""
    settings: Any = {"batch": 32, "steps": 20, "rate": 1e-2, "key": jax.random.key(16)}
    data = jax.random.normal(jax.random.key(17), (3, 64, 2))
    COMPILED.clear()
    first = fit_repeats(standard_gaussian(2), DSM(Gaussian(0.3)), data, **settings)
    # What is looked for can be found.
    assert sum("_run" in fun for fun in COMPILED) == 1
    COMPILED.clear()
    other = settings | {"rate": 2e-2, "steps": 30, "key": jax.random.key(18)}
    second = fit_repeats(standard_gaussian(2, 1.5), DSM(Gaussian(0.6)), data + 1.0, **other)
    assert [fun for fun in COMPILED if "_run" in fun] == []
    assert not np.allclose(first.mean, second.mean, rtol=1e-2)


# ------------------------------------------------------------------------------------------------- devices

DEVICES_SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import jax
from test_compilation import COMPILED, losses, refusal
from small_runs import OBJECTIVES

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
