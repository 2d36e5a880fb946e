"""What evaluation refuses, in one sentence each."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unnorm as un
from unnorm.energies import FunctionEnergy, standard_gaussian
from unnorm.evaluation import (
    ais,
    bracket,
    bridge,
    expectation,
    importance,
    reverse_ais,
    smc,
    thermodynamic,
)
from unnorm.scores import FromScore, low_rank_mlp
from unnorm.spaces import Binary, Real
from unnorm.tasks import clean_density, denoise

KEY = jax.random.key(0)
PLANE = standard_gaussian(2)
FREE = FunctionEnergy(lambda x: 0.5 * jnp.sum(x**2), Real((2,)))
VECTOR = FunctionEnergy(lambda x: x**2, Real((2,)))


class Constant(un.energies.AbstractEnergy):
    """The same number everywhere, kept as an array so that all of them share their programs."""

    value: jax.Array
    space: Real = eqx.field(static=True, default=Real((2,)))

    def __call__(self, x):
        return self.value + 0 * jnp.sum(x)


BROKEN, NOWHERE, PIT = (Constant(jnp.asarray(value)) for value in (jnp.nan, jnp.inf, -jnp.inf))
HALF_BROKEN = FunctionEnergy(lambda x: jnp.where(x[0] > 0, 0.5 * x @ x, jnp.nan), Real((2,)))
COINS = FunctionEnergy(lambda x: jnp.sum(x), Binary((2,)))
DRAWS = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)

# ------------------------------------------------------------------------------------------------ targets and bases

#: Every estimator of log Z, as a function of target and base.
ESTIMATORS = {
    "log_partition": lambda target, base: un.log_partition(target, base=base, key=KEY),
    "importance": lambda target, base: importance(target, base, draws=64, key=KEY),
    "AIS": lambda target, base: ais(target, base, chains=8, levels=4, key=KEY),
    "reverse AIS": lambda target, base: reverse_ais(target, base, DRAWS, levels=4, key=KEY),
    "thermodynamic integration": lambda target, base: thermodynamic(target, base, chains=8, levels=4, key=KEY),
    "bridge": lambda target, base: bridge(target, base, DRAWS, key=KEY),
    "SMC": lambda target, base: smc(target, base, islands=8, particles=16, key=KEY),
}

PAIRS = {
    "a base elsewhere": (
        FREE,
        standard_gaussian(3),
        "the base is on Real(shape=(3,)) and the target on Real(shape=(2,))",
    ),
    "a base that is not normalised": (
        FREE,
        FREE,
        "the base must be a normalised density that can be drawn from, such as energies.standard_gaussian, "
        "not FunctionEnergy",
    ),
    "a function": (
        lambda x: jnp.sum(x**2),
        PLANE,
        "log Z needs an energy, not function; a function becomes one by energies.FunctionEnergy(function, space)",
    ),
    "a score": (
        un.scores.EnergyScore(PLANE),
        PLANE,
        "log Z needs an energy, and a score has lost its constant; pass the energy it came from",
    ),
    "an energy that is a vector": (
        VECTOR,
        PLANE,
        "an energy returns one number per point, but this one returned shape (2,)",
    ),
}


def refused(call) -> str:
    """The sentence of the refusal."""
    with pytest.raises(un.InputError) as error:
        call()
    return str(error.value)


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_pair_is_refused_by_every_estimator(estimator, case):
    target, base, sentence = PAIRS[case]
    assert refused(lambda: ESTIMATORS[estimator](target, base)) == sentence


@pytest.mark.parametrize("estimator", [ais, smc])
def test_annealing_by_gradients_needs_them(estimator):
    base = un.energies.uniform(COINS.space)
    sentence = "HMC follows gradients, and Binary(shape=(2,)) has none; use samplers.Gibbs there"
    assert refused(lambda: estimator(COINS, base, sampler=un.samplers.HMC(), key=KEY)) == sentence
    # What is advised works, and is the default: E (1 + e^-1)^2 / 4 * 4 = (1 + e^-1)^2.
    for sampler in (None, un.samplers.Gibbs()):
        found = estimator(COINS, base, sampler=sampler, key=KEY)
        assert abs(found.value - 2 * np.log1p(np.exp(-1))) < 4 * found.stderr + 1e-5


# --------------------------------------------------------------------------------------------- weights that are none

NAN = "64 of 64 log-weights are NaN: the energy is not a number at some points; mend it"
NONE = (
    "none of 64 weights is above zero: the energy is infinite wherever the base draws; use a base that lies inside the "
    "target"
)
DEAD = (
    "the energy is not finite at all particles of 8 of 8 islands; use more particles, or a base that lies inside the "
    "target"
)


def refusals(energy) -> set[str]:
    """What every method that weighs draws says to this energy."""
    calls = (
        lambda: importance(energy, PLANE, draws=64, key=KEY),
        lambda: bridge(energy, PLANE, DRAWS, key=KEY),
        lambda: expectation(energy, jnp.sum, PLANE, draws=64, key=KEY),
        lambda: un.log_partition(energy, base=PLANE, draws=64, key=KEY),
        lambda: ais(energy, PLANE, chains=64, levels=4, key=KEY),
    )
    return {refused(call) for call in calls}


@pytest.mark.parametrize(("energy", "sentence"), [(BROKEN, NAN), (NOWHERE, NONE)])
def test_energies_that_are_no_numbers_or_infinite_everywhere(energy, sentence):
    assert refusals(energy) == {sentence}
    assert refused(lambda: smc(energy, PLANE, islands=8, particles=16, key=KEY)) == DEAD


def test_weights_that_are_no_numbers_are_counted():
    bad = int(np.sum(np.asarray(PLANE.samples(64, key=jax.random.fold_in(KEY, 0)))[:, 0] <= 0))
    assert 0 < bad < 64
    assert refused(lambda: importance(HALF_BROKEN, PLANE, draws=64, key=KEY)).startswith(f"{bad} of 64 log-weights")
    assert refused(lambda: importance(PIT, PLANE, draws=64, key=KEY)).startswith("64 of 64 weights are infinite")


@pytest.mark.parametrize(("energy", "how"), [(BROKEN, "NaN"), (NOWHERE, "infinite")])
def test_no_base_can_be_found_for_them(energy, how):
    assert f"the energy is {how} at all of 1024 standard normal points" in refused(
        lambda: un.log_partition(energy, key=KEY)
    )


# --------------------------------------------------------------------------------------------- draws of the target


@pytest.mark.parametrize("method", [bridge, reverse_ais, bracket])
def test_draws_that_are_not_of_the_target(method):
    def sentence(draws):
        return refused(lambda: method(FREE, PLANE, draws, key=KEY))

    name = "bridge sampling" if method is bridge else "reverse AIS"
    wanted = f"{name} needs draws of the target, points of shape (2,), not of shape "
    assert sentence(np.zeros((64, 3))) == wanted + "(3,)"
    assert sentence(np.zeros(64)) == wanted + "()"
    assert sentence(1.0) == f"{name} needs an array with one draw of the target per row, not one number"
    assert sentence([["a", "b"]] * 64).startswith(f"the draws for {name} must hold numbers")
    assert sentence(np.zeros((4, 2))) == f"{name} needs at least 8 draws of the target, not 4"


@pytest.mark.parametrize("betas", [[], [0.0], 1.0, [[0.0, 1.0]]])
def test_betas_that_are_no_path(betas):
    assert "betas must be one row of at least 2 levels" in refused(lambda: ais(FREE, PLANE, betas=betas, key=KEY))
    assert "at least 3 levels, not" in refused(lambda: reverse_ais(FREE, PLANE, DRAWS, betas=betas, key=KEY))
    assert refused(lambda: thermodynamic(FREE, PLANE, betas=betas, key=KEY))


# ------------------------------------------------------------------------------------------------ samples and tables

TWO_SAMPLES = {
    "mmd": un.evaluation.mmd,
    "mmd_test": lambda x, y: un.evaluation.mmd_test(x, y, key=KEY),
    "energy_distance": un.evaluation.energy_distance,
    "energy_test": lambda x, y: un.evaluation.energy_test(x, y, key=KEY),
    "sliced_wasserstein": lambda x, y: un.evaluation.sliced_wasserstein(x, y, key=KEY),
    "classifier_test": lambda x, y: un.evaluation.classifier_test(x, y, key=KEY),
    "precision_recall": lambda x, y: un.evaluation.precision_recall(x, y, key=KEY),
    "median_bandwidth": lambda x, y: (un.evaluation.median_bandwidth(y), un.evaluation.median_bandwidth(x)),
}


@pytest.mark.parametrize("name", TWO_SAMPLES)
def test_samples_that_are_no_numbers(name):
    statistic, first = TWO_SAMPLES[name], "the sample" if name == "median_bandwidth" else "the first sample"
    second = "the sample" if name == "median_bandwidth" else "the second sample"
    advice = "turn text and categories into numbers first"
    text = np.array([["a", "b"]] * 64)
    assert refused(lambda: statistic(text, DRAWS)) == f"{first} must hold numbers, not <U1; {advice}"
    assert refused(lambda: statistic(DRAWS, text)) == f"{second} must hold numbers, not <U1; {advice}"
    assert refused(lambda: statistic([[1, None]] * 64, DRAWS)) == f"{first} must hold numbers, not object; {advice}"
    ragged = [[1.0, 2.0], [1.0]]
    assert refused(lambda: statistic(ragged, DRAWS)) == f"the rows of {first} differ in length; pass an array"
    # Numbers of any kind are numbers.
    assert statistic(DRAWS > 0, jnp.asarray(DRAWS, jnp.bfloat16)) is not None


# -------------------------------------------------------------------------------------------------------- denoising

NETWORK = low_rank_mlp(2, rank=1, width=8, factor_width=8, key=KEY)
DENOISED = {
    "columns": (FREE, np.ones((3, 5)), "the model takes points of shape (2,), and the noisy ones have shape (5,)"),
    "columns of a score": (
        FromScore(un.scores.EnergyScore(FREE)),
        np.ones((3, 5)),
        "the model takes points of shape (2,), and the noisy ones have shape (5,)",
    ),
    "columns of a network": (NETWORK, np.ones((3, 5)), "the model does not take noisy points of shape (5,)"),
    "no rows": (
        FREE,
        np.ones((0, 2)),
        "noisy points are the rows of one array, at least one, not an array of shape (0, 2)",
    ),
    "one point": (
        FREE,
        np.ones(2),
        "noisy points are the rows of one array, at least one, not an array of shape (2,)",
    ),
    "nan": (FREE, np.array([[1.0, np.nan], [1.0, 1.0]]), "1 of 2 noisy points are not finite; remove them"),
    "text": (
        FREE,
        [["a", "b"]],
        "the noisy points must hold numbers, not <U1; turn text and categories into numbers first",
    ),
}


@pytest.mark.parametrize("case", DENOISED)
def test_noisy_points_that_are_none(case):
    model, noisy, sentence = DENOISED[case]
    assert refused(lambda: denoise(model, 1.0, noisy, directions=1, key=KEY)) == sentence


LINE = standard_gaussian(1, 1.5)
FLAT = FunctionEnergy(lambda x: 0.0 * x[0], Real((1,)))
CUT = (
    "the box cuts the density, which on its border is {} of its maximum (at most 0.0001 will do); move low and high "
    "apart"
)
CLEANED = {
    "a flat energy": (lambda: clean_density(FLAT, 1.0, [-9.0], [9.0]), CUT.format("1")),
    "a narrow box": (lambda: clean_density(LINE, 1.0, [-12.0], [3.0]), CUT.format("0.14")),
    "nan": (
        lambda: clean_density(FunctionEnergy(lambda x: x[0] * jnp.nan, Real((1,))), 1.0, [-9.0], [9.0]),
        "the energy is NaN or minus infinity at 512 of 512 points of the grid",
    ),
    "nothing": (
        lambda: clean_density(FunctionEnergy(lambda x: x[0] + jnp.inf, Real((1,))), 1.0, [-9.0], [9.0]),
        "the energy is infinite in all of the box; move low and high",
    ),
    "another space": (
        lambda: clean_density(PLANE, 1.0, [-9.0], [9.0]),
        "these corners belong to Real(shape=(1,)), and the energy is on Real(shape=(2,))",
    ),
    "coins": (
        lambda: clean_density(COINS, 1.0, [-9.0] * 2, [9.0] * 2),
        "these corners belong to Real(shape=(2,)), and the energy is on Binary(shape=(2,))",
    ),
    "a score": (
        lambda: clean_density(un.scores.EnergyScore(LINE), 1.0, [-9.0], [9.0]),
        "clean_density takes an energy, not EnergyScore",
    ),
    "few points": (
        lambda: clean_density(LINE, 1.0, [-9.0], [9.0], points=4),
        "a grid needs at least 8 points along every side, not 4",
    ),
    "a coarse grid": (
        lambda: clean_density(LINE, 1.0, [-9.0], [9.0], points=10),
        "a grid of step 1.8 is too coarse for noise of 1; use more points",
    ),
    "words for sigma": (
        lambda: clean_density(LINE, "wide", [-9.0], [9.0]),
        "the sigma of the noise must be positive and finite, not 'wide'",
    ),
    "no noise": (
        lambda: clean_density(LINE, 0.0, [-9.0], [9.0]),
        "the sigma of the noise must be positive and finite, not 0.0",
    ),
    "no box": (lambda: clean_density(LINE, 1.0, [-9.0], [np.inf]), "the corners of the box must be finite"),
}


@pytest.mark.parametrize("case", CLEANED)
def test_questions_about_clean_densities(case):
    call, sentence = CLEANED[case]
    assert refused(call) == sentence
