"""Scores, autoencoders and counts that do not fit, each refused in one sentence; and what a kernel does not tell."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unnorm as un
from unnorm import objectives
from unnorm.errors import InputError
from unnorm.generators import GibbsTransition, generate
from unnorm.networks.autoencoder import implicit_autoencoder, wasserstein_autoencoder
from unnorm.scores import FunctionScore, LevelledFunction

KEY = jax.random.key(0)
NOISE = un.noises.VarianceExploding(0.1, 10.0)
SCORE = LevelledFunction(lambda t, x: -x / (1 + NOISE.variance(t)), NOISE)


def walk(score=SCORE, **options):
    levels = jnp.linspace(1, 0, 4)
    return generate(score, GibbsTransition(), **{"levels": levels, "n": 3, "shape": (2,), "key": KEY, **options})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: walk(LevelledFunction(lambda t, x: -x[:1], NOISE)),
            "a score has the shape of its point, (2,), but this one re",
        ),
        (
            lambda: walk(FunctionScore(lambda t, x: -x)),
            "needs a score that says its noise, and FunctionScore does not; us",
        ),
        (lambda: walk(shape=None), "LevelledFunction does not know the shape of its points; pass shape="),
        (lambda: walk(condition=1), "LevelledFunction takes no condition; leave it out"),
        (lambda: walk(n=3.0), "the number of points must be a whole number from 1 up, not 3.0"),
        (lambda: walk(n=0), "the number of points must be a whole number from 1 up, not 0"),
        (lambda: walk(shape=2), "the shape of a point is a tuple of whole numbers such as (2,), not 2"),
    ],
)
def test_a_walk_that_cannot_be_is_refused(call, words):
    with pytest.raises(InputError) as told:
        call()
    assert words in str(told.value)


def test_numbers_of_numpy_are_numbers():
    np.testing.assert_array_equal(walk(n=np.int64(3), shape=[np.int32(2)]).points, walk().points)


SMALL = {"width": 4, "key": KEY}
IMPLICIT, WASSERSTEIN = implicit_autoencoder(6, 2, **SMALL), wasserstein_autoencoder(6, 2, **SMALL)


@pytest.mark.parametrize(
    ("objective", "model", "pixels"),
    [
        (objectives.ImplicitVAE(), WASSERSTEIN, 6),
        (objectives.WAE(), IMPLICIT, 6),
        (objectives.ImplicitVAE(), IMPLICIT, 5),
        (objectives.KernelVAE(draws=3), IMPLICIT, 7),
    ],
)
def test_an_autoencoder_whose_parts_do_not_fit_is_refused(objective, model, pixels):
    with pytest.raises(InputError, match=f"{type(objective).__name__} cannot train this model on points of shape"):
        un.fit(model, objective, np.zeros((8, pixels), np.float32), steps=1, batch=4, key=KEY, progress=False)


def test_one_that_fits_is_not_refused():
    objectives.ImplicitVAE().init(IMPLICIT, jnp.zeros((8, 2, 3)), key=KEY)
    objectives.WAE().init(WASSERSTEIN, jnp.zeros((8, 6)), key=KEY)


@pytest.mark.parametrize(("outside", "counted"), [(jnp.nan, True), (jnp.inf, False)])
def test_mala_counts_proposals_whose_energy_is_not_a_number(outside, counted):
    """On a flat energy every other proposal is taken, so that what is not taken is outside; a wall is no accident."""
    flat = un.energies.FunctionEnergy(lambda x: jnp.where(x[0] > 1, outside, 0.0) + 0 * x[0], un.spaces.Real((2,)))
    mala = un.samplers.MALA(0.5)
    trace = un.sample(
        flat, mala, chains=8, steps=50, warmup=0, start=np.zeros((8, 2)), key=KEY, progress=False
    )  # fmt: skip
    refused = round(8 * 50 * (1 - float(trace.acceptance.mean())))
    assert refused > 20
    assert trace.divergences == (refused if counted else 0)
    assert bool(trace.warnings) or not counted
