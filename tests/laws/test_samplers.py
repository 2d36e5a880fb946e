"""Laws of the samplers: moments are kept and reached, and Langevin has its own bias."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from walks import (
    BANANA,
    EXACT,
    TARGETS,
    PeriodicHMC,
    quadratic_moments,
    walk,
)

import unnorm as un
from unnorm.samplers import HMC, MALA, NUTS, Langevin
from unnorm.spaces import Real

# --------------------------------------------------------------------------------------------- moments are exact


# Each exact sampler beside the same moves without what makes them exact. Steps are long, so that mistakes show.
def cases(*slow: tuple[str, str]) -> list:
    """Every problem with every sampler; those that take longest only when asked for."""
    pairs = itertools.product(TARGETS, EXACT)
    return [pytest.param(*pair, marks=pytest.mark.thorough if pair in slow else ()) for pair in pairs]


@pytest.mark.parametrize(("problem", "name"), cases(("correlated", "NUTS")))
def test_chains_from_exact_draws_keep_the_moments(problem, name):
    target, moments, truth = TARGETS[problem]
    sampler, wrong = EXACT[name]
    xs = target.samples(4000, key=jax.random.key(1))

    def averages(sampler, inverse_temperature=1.0):
        draws = walk(sampler, inverse_temperature * target, xs, 40, jax.random.key(2))
        return moments(np.asarray(draws, np.float64)).mean(axis=1)

    assert holds(averages(sampler), truth)
    # Negative controls: the right one on a colder target, and the wrong variants (detailed balance has them on the
    # banana).
    assert breaks(averages(sampler, 1.3), truth)
    for variant in wrong if problem == "correlated" else ():
        assert breaks(averages(variant), truth)


@pytest.mark.parametrize(("problem", "name"), cases(("banana", "MALA"), ("banana", "HMC"), ("correlated", "NUTS")))
def test_chains_from_afar_reach_the_moments_through_warm_up(problem, name):
    target, moments, truth = TARGETS[problem]
    sampler = {"MALA": MALA(), "HMC": HMC(), "NUTS": NUTS()}[name]
    steps = {"MALA": 1600, "HMC": 200, "NUTS": 200}[name]
    far = jnp.full((64, *target.space.shape), 8.0)
    trace = un.sample(target, sampler, chains=64, steps=steps, warmup=400, start=far, key=jax.random.key(3))
    assert holds(moments(trace.draws.astype(np.float64)).mean(axis=1), truth)
    assert problem == "banana" or trace.divergences == 0
    assert name != "MALA" or abs(trace.acceptance.mean() - sampler.target_acceptance) < 0.1
    # Negative control: a tenth of every chain left where it began.
    stuck = trace.draws.astype(np.float64).copy()
    stuck[:, : steps // 10] = 8.0
    assert breaks(moments(stuck).mean(axis=1), truth)


def test_warm_up_steers_to_the_acceptance_asked_for():
    """Dual averaging ends near its aim, not at it: within a tenth, when the default aim is a third away."""

    def acceptance(key):
        warm, run = jax.random.split(key)
        sampler, x = MALA(target_acceptance=0.9).warm_up(BANANA, jnp.zeros(2), steps=400, key=warm)

        def move(state, key):
            state, info = sampler.step(BANANA, state, key=key)
            return state, info.acceptance

        return jax.lax.scan(move, sampler.init(BANANA, x), jax.random.split(run, 200))[1].mean()

    reached = jax.jit(jax.vmap(acceptance))(jax.random.split(jax.random.key(5), 64))
    assert abs(float(reached.mean()) - 0.9) < 0.1 < abs(float(reached.mean()) - MALA().target_acceptance)


def test_hamiltonian_chains_do_not_stand_still_at_a_period_of_the_target():
    """h = 2 sin(pi / 10) makes 10 leapfrog steps on N(0, 1) exactly one period: x comes back to x."""
    target, period = un.energies.standard_gaussian(1), 2 * math.sin(math.pi / 10)
    xs = jnp.full((2000, 1), 3.0)

    def moments(sampler):
        return quadratic_moments(np.asarray(walk(sampler, target, xs, 50, jax.random.key(6)), np.float64)[:, -1])

    assert holds(moments(HMC(period, leapfrogs=10)), [0.0, 1.0])
    fixed = moments(PeriodicHMC(period))
    assert breaks(fixed, [0.0, 1.0])
    assert np.allclose(fixed[:, 0], 3.0, atol=1e-3)


def test_points_of_any_shape():
    precision = jnp.asarray([[1.0, 4.0], [0.25, 9.0]])
    target = un.energies.FunctionEnergy(lambda x: 0.5 * jnp.sum(precision * x**2), Real((2, 2)))
    xs = jax.random.normal(jax.random.key(7), (1000, 2, 2)) / jnp.sqrt(precision)
    draws = walk(HMC(0.8, 1 / precision.reshape(-1), leapfrogs=4), target, xs, 40, jax.random.key(4))
    squares = (np.asarray(draws, np.float64) ** 2).mean(axis=1)
    assert holds(squares, 1 / np.asarray(precision))
    assert breaks(squares, 1 / np.asarray(precision).T)


# ------------------------------------------------------------------------------------------------- Langevin's bias


SCALES = np.array([1.0, 2.0, 0.7])
STEP = 0.2


def langevin_squares(**options) -> np.ndarray:
    target = un.energies.gaussian(np.zeros(3), np.diag(SCALES**2))
    trace = un.sample(target, Langevin(STEP), chains=512, steps=100, thin=5, key=jax.random.key(8), **options)
    return (trace.draws.astype(np.float64) ** 2).mean(axis=1)


def test_langevin_has_its_own_biased_variance():
    """x' = (1 - h / s^2) x + sqrt(2 h) z has the variance s^2 / (1 - h / (2 s^2))."""
    squares = langevin_squares(warmup=300)
    assert holds(squares, SCALES**2 / (1 - STEP / (2 * SCALES**2)))
    assert breaks(squares, SCALES**2)


def test_warm_up_of_a_sampler_that_does_not_adapt_is_left_out():
    far = jnp.full((512, 3), 10.0)
    truth = SCALES**2 / (1 - STEP / (2 * SCALES**2))
    assert holds(langevin_squares(start=far, warmup=300), truth)
    assert breaks(langevin_squares(start=far), truth)


def test_langevin_explodes_beyond_its_bound_and_says_so():
    """The walk is stable for h < 2 s^2 and for no larger h."""
    target = un.energies.standard_gaussian(1)
    start = jnp.ones((4, 1))
    stable = un.sample(target, Langevin(1.9), chains=4, steps=2000, start=start, key=jax.random.key(9))
    assert stable.divergences == 0 and np.isfinite(stable.draws).all()
    exploded = un.sample(target, Langevin(2.2), chains=4, steps=2000, start=start, key=jax.random.key(9))
    assert exploded.divergences > 0
    assert any("transitions diverged" in sentence for sentence in exploded.warnings)
    assert any("not finite" in sentence for sentence in exploded.warnings)
