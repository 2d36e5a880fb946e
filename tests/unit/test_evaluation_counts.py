"""Counts, widths and functions that evaluation is given: NumPy's integers work, anything else is refused in words."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unnorm as un
from unnorm import evaluation as ev
from unnorm import tasks
from unnorm.energies import FunctionEnergy, standard_gaussian
from unnorm.samplers import TemperedSMC
from unnorm.spaces import Real

KEY = jax.random.key(0)
BASE = standard_gaussian(1)
TARGET = FunctionEnergy(lambda x: 2 * jnp.sum(x**2), Real((1,)))
WALL = FunctionEnergy(lambda x: jnp.where(x[0] > 0, 0.5 * jnp.sum(x**2), jnp.inf), Real((1,)))
DRAWS = 0.5 * np.random.default_rng(0).normal(size=(64, 1))
X, Y = np.random.default_rng(0).normal(size=(2, 60, 2))

#: The first count of each, and a call with all of its counts.
COUNTS = {
    "draws of importance": ("draws", 1000, lambda n: ev.importance(TARGET, BASE, draws=n(1000), key=KEY).value),
    "log_partition": ("draws", 2000, lambda n: un.log_partition(TARGET, base=BASE, draws=n(2000), key=KEY).value),
    "expectation": ("draws", 100, lambda n: ev.expectation(TARGET, jnp.sum, BASE, draws=n(100), key=KEY).value),
    "ais": (
        "chains",
        64,
        lambda n: ev.ais(TARGET, BASE, chains=n(64), levels=n(3), moves=n(1), leapfrogs=n(2), key=KEY).value,
    ),
    "reverse_ais": (
        "levels",
        3,
        lambda n: ev.reverse_ais(TARGET, BASE, DRAWS, levels=n(3), moves=n(1), leapfrogs=n(2), key=KEY).value,
    ),
    "thermodynamic": (
        "chains",
        8,
        lambda n: ev.thermodynamic(TARGET, BASE, chains=n(8), levels=n(2), moves=n(2), leapfrogs=n(2), key=KEY).value,
    ),
    "smc": (
        "islands",
        8,
        lambda n: ev.smc(TARGET, BASE, islands=n(8), particles=n(16), moves=n(1), leapfrogs=n(2), key=KEY).value,
    ),
    "bridge": ("base_draws", 64, lambda n: ev.bridge(TARGET, BASE, DRAWS, base_draws=n(64), key=KEY).value),
    "mmd": ("block", 16, lambda n: ev.mmd(X, Y, block=n(16)).value),
    "energy_test": (
        "permutations",
        19,
        lambda n: ev.energy_test(X, Y, permutations=n(19), block=n(16), key=KEY).diagnostics["p_value"],
    ),
    "median_bandwidth": ("points", 16, lambda n: ev.median_bandwidth(X, points=n(16))),
    "sliced_wasserstein": ("frames", 4, lambda n: ev.sliced_wasserstein(X, Y, frames=n(4), key=KEY).value),
    "classifier_test": (
        "width",
        4,
        lambda n: ev.classifier_test(X, Y, width=n(4), steps=n(5), batch=n(8), key=KEY).value,
    ),
    "denoise": (
        "directions",
        1,
        lambda n: tasks.denoise(BASE, 0.5, np.ones((1, 1)), directions=n(1), iterations=n(5), key=KEY).mean.item(),
    ),
    "clean_density": (
        "points",
        256,
        lambda n: tasks.clean_density(standard_gaussian(1, 1.5), 1.0, [-12.0], [12.0], points=n(256)).cutoff,
    ),
}


def refused(call) -> str:
    """The sentence of the refusal."""
    with pytest.raises(un.InputError) as error:
        call()
    return str(error.value)


@pytest.mark.parametrize("case", COUNTS)
def test_counts_are_whole_numbers_of_any_library(case):
    name, count, call = COUNTS[case]
    assert call(np.int64) == call(int)
    assert refused(lambda: call(float)) == f"{name} must be a whole number, not {float(count)}"


def test_counts_of_precision_and_recall():
    found = ev.precision_recall(X, Y, neighbours=np.int64(3), groups=np.int64(10), key=KEY)
    assert found == ev.precision_recall(X, Y, neighbours=3, groups=10, key=KEY)
    sentence = "neighbours must be a whole number from 1 up, not 2.5"
    assert refused(lambda: ev.precision_recall(X, Y, neighbours=2.5, key=KEY)) == sentence
    sentence = "groups must be a whole number from 2 up, not 4.0"
    assert refused(lambda: ev.precision_recall(X, Y, groups=4.0, key=KEY)) == sentence


def test_counts_of_tempered_populations():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        smc = TemperedSMC(BASE, islands=np.int64(8), particles=np.int64(16), moves=np.int64(1), leapfrogs=np.int64(2))
    plain = TemperedSMC(BASE, islands=8, particles=16, moves=1, leapfrogs=2)
    assert smc(TARGET, key=KEY).log_z == plain(TARGET, key=KEY).log_z
    assert refused(lambda: TemperedSMC(BASE, islands=8.0)) == "islands of SMC must be a whole number, not 8.0"


# ------------------------------------------------------------------------------------------------ widths and functions


def test_one_bandwidth_may_be_a_number():
    assert ev.mmd(X, Y, bandwidths=0.7) == ev.mmd(X, Y, bandwidths=(0.7,)) == ev.mmd(X, Y, bandwidths=np.array([0.7]))
    for wrong in ("a", (), -1.0, (1.0, np.inf), [[1.0]]):
        assert refused(lambda b=wrong: ev.mmd(X, Y, bandwidths=b)).startswith("bandwidths must be one or more positive")


def test_the_shape_of_a_function_whose_expectation_is_asked():
    assert refused(lambda: ev.expectation(TARGET, lambda x: x, BASE, key=KEY)) == (
        "expectation needs a function that returns one number, but this one returned shape (1,); for a vector use "
        "expectations"
    )
    assert refused(lambda: ev.expectations(TARGET, lambda x: x[0], BASE, key=KEY)) == (
        "expectations needs a function that returns a vector, but this one returned shape (); for one number use "
        "expectation"
    )


def test_a_function_that_is_not_finite_where_the_target_is():
    sentence = refused(lambda: ev.expectation(WALL, lambda x: jnp.log(x[0] - 1), BASE, draws=500, key=KEY))
    points = np.asarray(BASE.samples(500, key=jax.random.fold_in(KEY, 0)))
    inside, bad = int(np.sum(points > 0)), int(np.sum((points > 0) & (points <= 1)))
    assert sentence.startswith(f"the function is not finite at {bad} of {inside} points where the target has mass")


def test_only_the_first_level_is_that_of_the_base():
    for target in (WALL, TARGET):
        sentence = refused(lambda t=target: ev.ais(t, BASE, betas=[0, 0, 0.5, 1], key=KEY))
        assert sentence == "only the first of betas may be 0; let the others rise from above 0 to 1"
    assert np.isfinite(ev.ais(WALL, BASE, chains=64, betas=[0, 0.5, 0.5, 1], key=KEY).value)


# ------------------------------------------------------------------------------------------------------------ denoising


def test_the_noise_of_denoising_is_a_number():
    for sigma, shown in (("a", "'a'"), (-1.0, "-1.0"), (None, "None")):
        sentence = refused(lambda s=sigma: tasks.denoise(BASE, s, np.ones((1, 1)), directions=1, key=KEY))
        assert sentence == f"the noise sigma must be positive and finite, not {shown}"


def test_a_score_that_is_no_number_is_said():
    broken = un.scores.FunctionScore(lambda t, x: jnp.where(x[0] > 0, jnp.nan, -x))
    noisy = np.array([[1.0, 1.0], [-1.0, 1.0], [2.0, 0.0]])
    found = tasks.denoise(broken, 0.5, noisy, directions=1, key=KEY)
    assert found.warnings == ("2 of 3 points have no posterior that is finite: mend the model's score.",)
    assert tasks.denoise(broken, 0.5, noisy[1:2], directions=1, key=KEY).warnings == ()
