"""What `sample` promises: thinning, starting points, refusals, one program, several devices, warnings."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from walks import CORRELATED, ISING, ReversedGibbs

import unnorm as un
from unnorm.errors import InputError
from unnorm.samplers import HMC, MALA, NUTS, Gibbs, Langevin
from unnorm.spaces import Binary, Categorical, Mixed, Real

# -------------------------------------------------------------------------------------------- what `sample` promises


def test_thinning_keeps_every_kth_draw():
    options = {"chains": 4, "key": jax.random.key(16)}
    every = un.sample(CORRELATED, Langevin(0.05), steps=60, **options).draws
    third = un.sample(CORRELATED, Langevin(0.05), steps=20, thin=3, **options).draws
    assert np.array_equal(third, every[:, 2::3])
    assert not np.array_equal(third, every[:, ::3])


def test_a_shorter_run_is_the_beginning_of_a_longer_one():
    """So the length of the chunks that a run is cut into does not matter."""
    options = {"chains": 4, "key": jax.random.key(17)}
    long = un.sample(CORRELATED, Langevin(0.05), steps=130, **options).draws
    short = un.sample(CORRELATED, Langevin(0.05), steps=37, **options).draws
    assert np.array_equal(short, long[:, :37])
    other = un.sample(CORRELATED, Langevin(0.05), chains=4, steps=37, key=jax.random.key(18)).draws
    assert not np.array_equal(other, long[:, :37])


def test_chains_begin_where_they_are_told():
    start = np.arange(8).reshape(4, 2)  # whole numbers, as a user would write them
    target = un.energies.standard_gaussian(2)
    told = un.sample(target, Langevin(1e-8), chains=4, steps=1, start=start, key=jax.random.key(19)).draws[:, 0]
    free = un.sample(target, Langevin(1e-8), chains=4, steps=1, key=jax.random.key(19)).draws[:, 0]
    assert np.abs(told - start).max() < 1e-3 < np.abs(free - start).max()


LINE = un.energies.standard_gaussian(2)
REFUSALS = {
    "discrete": (ISING, lambda: NUTS(), {}, r"NUTS follows gradients.*Binary.*use samplers\.Gibbs"),
    "continuous": (LINE, lambda: Gibbs(), {}, r"Gibbs redraws sites.*Real.*use samplers\.NUTS"),
    "no chains": (LINE, lambda: MALA(), {"chains": 0}, "at least one chain is needed, not 0"),
    "no steps": (LINE, lambda: MALA(), {"steps": 0}, "steps and thin must be positive, not 0 and 1"),
    "no thinning": (LINE, lambda: MALA(), {"thin": 0}, "steps and thin must be positive, not 4 and 0"),
    "short warm-up": (LINE, lambda: HMC(), {"warmup": 19}, "HMC needs at least 20 warm-up steps.*not 19"),
    "starts": (LINE, lambda: MALA(), {"start": jnp.zeros((3, 2))}, "4 chains need 4 starting points, not 3"),
    "shape": (LINE, lambda: MALA(), {"start": jnp.zeros((4, 3))}, r"has shape \(2,\), not \(3,\)"),
    "zero step": (LINE, lambda: Langevin(0.0), {}, "the step size of Langevin must be positive, not 0.0"),
    "negative step": (LINE, lambda: MALA(-1.0), {}, "the step size of MALA must be positive, not -1.0"),
    "no leapfrogs": (LINE, lambda: HMC(0.1, leapfrogs=0), {}, "at least one leapfrog step, not 0"),
    "no sites": (ISING, lambda: Gibbs(0), {}, "at least one site per step, not 0"),
    "vector": (
        un.energies.FunctionEnergy(lambda x: x**2, Real((2,))),
        lambda: MALA(),
        {},
        r"one number per point.*returned shape \(2,\)",
    ),
    "not finite": (
        un.energies.FunctionEnergy(lambda x: jnp.sum(jnp.log(x)), Real((2,))),
        lambda: MALA(),
        {"start": -jnp.ones((4, 2))},
        "not finite at 4 of 4 starting points; pass start=",
    ),
    "no such category": (
        un.energies.FunctionEnergy(lambda x: 0.0 * jnp.sum(x), Categorical((2,), 3)),
        lambda: Gibbs(),
        {"start": np.full((4, 2), 3)},
        "starting data hold 8 values other than 0 to 2",
    ),
    "no such parts": (
        un.energies.FunctionEnergy(lambda x: jnp.sum(x[0]), Mixed((Real((2,)), Binary((3,))))),
        lambda: ReversedGibbs(),
        {"start": (np.zeros((4, 2)), np.full((4, 3), 2.0))},
        "part 1 of the starting data hold 12 values other than 0 and 1",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_done_is_refused_in_one_sentence(case):
    target, sampler, options, sentence = REFUSALS[case]
    with pytest.raises(InputError, match=sentence) as refused:
        un.sample(target, sampler(), **{"chains": 4, "steps": 4, "key": jax.random.key(20), **options})
    assert "\n" not in str(refused.value)


def compiled(caplog, function) -> int:
    """How many programs the compiler was asked for during a call."""
    caplog.clear()
    with jax.log_compiles(), caplog.at_level("WARNING"):
        function()
    return sum(record.getMessage().startswith("Compiling") for record in caplog.records)


def test_a_second_call_compiles_nothing(caplog):
    def mixture(dimension: int, seed: int):
        means = np.random.default_rng(seed).normal(size=(3, dimension))
        return un.energies.gaussian_mixture([1.0, 2.0, 1.0], means, 0.5)

    def run(target, **options):
        un.sample(target, MALA(), chains=4, key=jax.random.key(21), **{"steps": 50, "warmup": 20, **options})

    run(mixture(2, 0))
    another = mixture(2, 1)
    assert compiled(caplog, lambda: run(another)) == 0
    assert compiled(caplog, lambda: run(another, steps=49, thin=3)) == 0
    # Negative control: another structure does need the compiler.
    bigger = mixture(3, 1)
    assert compiled(caplog, lambda: run(bigger)) > 0


TWO_DEVICES = """
import sys
import jax, numpy as np
import unnorm as un
assert jax.device_count() == 2
target = un.energies.gaussian_mixture([1.0, 2.0], [[-1.0, 0.0], [1.0, 0.5]], 0.7)
trace = un.sample(target, un.samplers.Langevin(0.05), chains=8, steps=50, key=jax.random.key(22))
np.save(sys.argv[1], trace.draws)
try:
    un.sample(target, un.samplers.Langevin(0.05), chains=7, steps=50, key=jax.random.key(22))
except un.InputError as refused:
    print(refused)
"""


def test_two_devices_draw_what_one_draws(tmp_path):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES, str(tmp_path / "draws.npy")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "7 chains cannot be shared equally by 2 devices; use a multiple of 2" in done.stdout
    target = un.energies.gaussian_mixture([1.0, 2.0], [[-1.0, 0.0], [1.0, 0.5]], 0.7)
    two = np.load(tmp_path / "draws.npy")

    def one(seed: int) -> np.ndarray:
        return un.sample(target, Langevin(0.05), chains=8, steps=50, key=jax.random.key(seed)).draws

    # 50 steps of a contracting walk: rounding stays at a few units in the last of 7 digits.
    assert np.allclose(one(22), two, atol=1e-5)
    assert not np.allclose(one(23), two, atol=1e-2)


def test_warnings_see_modes_that_do_not_meet_and_nothing_in_a_gaussian():
    def warnings(distance: float) -> tuple[str, ...]:
        modes = np.array([[-distance, 0.0], [distance, 0.0]])
        target, start = un.energies.gaussian_mixture([1.0, 1.0], modes, 1.0), jnp.asarray([*modes] * 4)
        options = {"chains": 8, "steps": 300, "warmup": 200, "start": start, "key": jax.random.key(24)}
        return un.sample(target, NUTS(max_doublings=5), **options).warnings

    assert any("R-hat" in sentence and "coordinate 0" in sentence for sentence in warnings(10.0))
    assert warnings(0.0) == ()
