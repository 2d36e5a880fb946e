"""What a run counts and runs with: places outside the target, steps as given, sums of many terms, trades."""

import math
from dataclasses import replace

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from scipy.stats import norm
from walks import CORRELATED, CORRELATED_TRUTH, Wrong, quadratic_moments

import unnorm as un
from unnorm.energies import FunctionEnergy, gaussian_mixture, standard_gaussian
from unnorm.samplers import HMC, MALA, NUTS, SGLD, Info, Langevin, Ozaki, ParallelTempering, SumOverRows
from unnorm.spaces import Real


def run(target, sampler, **options):
    return un.sample(target, sampler, **{"key": jax.random.key(0), "progress": False, **options})


# ------------------------------------------------------------------------------------------- a wall of the target

#: A half normal: half of the line is outside.
WALLED = FunctionEnergy(lambda x: jnp.where(x[0] < 0, jnp.inf, 0.5 * x[0] ** 2), Real((1,)))
ROWS = SumOverRows(WALLED, lambda x, row: 0.0 * jnp.sum(x * row), jnp.ones((4, 1)))
STEP, BEGIN = 0.1, 0.3
WALKS = {"Langevin": (WALLED, Langevin(STEP)), "Ozaki": (WALLED, Ozaki(STEP)), "SGLD": (ROWS, SGLD(STEP, 2))}
OZAKI_PROBES = (WALLED, Ozaki(STEP, probes=1))


class Blind(Wrong):
    """Langevin that looks at its gradient only."""

    def step(self, target, state, *, key):
        moved = state - STEP * jax.grad(target)(state) + math.sqrt(2 * STEP) * jax.random.normal(key, state.shape)
        return moved, Info(jnp.ones(()), ~jnp.all(jnp.isfinite(moved)))


def from_near_the_wall(target, sampler, chains, steps):
    return run(target, sampler, chains=chains, steps=steps, start=jnp.full((chains, 1), BEGIN))


@pytest.mark.parametrize(("target", "sampler"), [*WALKS.values(), OZAKI_PROBES], ids=[*WALKS, "Ozaki with probes"])
def test_every_place_outside_the_target_is_counted(target, sampler):
    trace = from_near_the_wall(target, sampler, 16, 25)
    outside = int(np.sum(trace.draws < 0))
    assert trace.divergences == outside > 0
    assert any("transitions diverged" in sentence and "NUTS" in sentence for sentence in trace.warnings)


def test_a_walk_that_does_not_look_fails_that_count():
    blind = from_near_the_wall(WALLED, Blind(), 16, 25)
    assert 0 < np.sum(blind.draws < 0) != blind.divergences


def test_what_is_inside_is_not_counted():
    corrected = run(WALLED, MALA(STEP), chains=16, steps=25, warmup=0, start=jnp.full((16, 1), BEGIN))
    assert corrected.divergences == 0 and np.all(corrected.draws >= 0)
    for sampler in (Langevin(STEP), Ozaki(STEP)):
        assert run(standard_gaussian(1), sampler, chains=16, steps=25).divergences == 0


def test_one_step_leaves_the_target_as_often_as_its_normal_law_says():
    """x_1 ~ N((1 - h) x_0, 2 h): also the last step of a run is looked at."""
    chains = 4000
    counted = from_near_the_wall(WALLED, Langevin(STEP), chains, 1).divergences
    repeats = np.arange(chains) < counted
    truth = norm.cdf(-(1 - STEP) * BEGIN / math.sqrt(2 * STEP))
    assert holds(repeats, truth)
    # Negative control: the law of a walk with the other convention of the step.
    assert breaks(repeats, norm.cdf(-(1 - STEP / 2) * BEGIN / math.sqrt(STEP)))


# ------------------------------------------------------------------------------------------- samplers run as given


def acceptance_on_a_line(step: float, leapfrogs: int) -> float:
    """The mean acceptance of HMC on N(0, 1), whose h is uniform between step / 2 and step.

    The trajectory is a linear map of (x, p) with determinant 1. With s its larger singular value, H falls where
    |u / v| < 1 / s for independent normal u and v; reversibility makes the mean acceptance twice the chance of that,
    (4 / pi) arctan(1 / s).
    """

    def at(h: float) -> float:
        once = np.array([[1 - h**2 / 2, h], [-h + h**3 / 4, 1 - h**2 / 2]])
        s = np.linalg.svd(np.linalg.matrix_power(once, leapfrogs), compute_uv=False)[0]
        return 4 / math.pi * math.atan(1 / s)

    middles = step * (0.5 + 0.5 * (np.arange(2000) + 0.5) / 2000)
    return float(np.mean([at(h) for h in middles]))


def test_without_warm_up_hmc_accepts_as_its_own_step_says():
    target, steps = standard_gaussian(1), (0.05, 1.5)
    start = target.samples(64, key=jax.random.key(1))
    found = {h: run(target, HMC(h), chains=64, steps=200, warmup=0, start=start) for h in steps}
    truth = {h: acceptance_on_a_line(h, 10) for h in steps}
    for h in steps:
        assert holds(found[h].acceptance, truth[h], bias=1e-5)
        assert found[h].sampler.step_size.shape == () and float(found[h].sampler.step_size) == np.float32(h)
    assert breaks(found[1.5].acceptance, truth[0.05]) and breaks(found[0.05].acceptance, truth[1.5])
    # Negative control: warm-up changes the step, and with it the acceptance.
    tuned = run(target, HMC(1.5), chains=64, steps=200, warmup=20, start=start)
    assert breaks(tuned.acceptance, truth[1.5])


@pytest.mark.parametrize("sampler", [HMC(0.45, leapfrogs=5), NUTS(0.45, max_doublings=4)], ids=["HMC", "NUTS"])
def test_without_warm_up_the_moments_are_right(sampler):
    def moments(sampler, inverse_temperature=1.0):
        start = CORRELATED.samples(2000, key=jax.random.key(2))
        trace = run(inverse_temperature * CORRELATED, sampler, chains=2000, steps=1, thin=20, warmup=0, start=start)
        return quadratic_moments(trace.draws[:, -1].astype(np.float64))

    assert holds(moments(sampler), CORRELATED_TRUTH)
    # Negative control: a colder target.
    assert breaks(moments(sampler, 1.3), CORRELATED_TRUTH)


def test_warm_up_begins_with_the_step_and_mass_given():
    """As blackjax does when it is told them, and not as it does by default."""
    target, x, key = standard_gaussian(2), jnp.ones(2), jax.random.key(3)

    def theirs(**options):
        warm_up = blackjax.window_adaptation(
            blackjax.hmc, lambda x: -target(x), target_acceptance_rate=0.8, num_integration_steps=3, **options
        )
        (_, parameters), _ = warm_up.run(key, x, num_steps=20)
        return float(parameters["step_size"])

    ours, _ = HMC(0.01, [4.0, 1.0], 3).warm_up(target, x, steps=20, key=key)
    told = {"initial_step_size": 0.01, "initial_inverse_mass_matrix": jnp.array([4.0, 1.0])}
    assert float(ours.step_size) == pytest.approx(theirs(**told), rel=1e-4)
    assert float(ours.step_size) != pytest.approx(theirs(), rel=1e-2)


# ------------------------------------------------------------------------------------------------- sums of many terms


class Steady(Wrong):
    """Stands still, accepts a tenth, and raises 3000 variances a step."""

    def step(self, target, state, *, key):
        return state, Info(jnp.asarray(0.1), jnp.asarray(False), jnp.asarray(3000.0))


def test_sums_over_a_million_steps_are_exact():
    steps = 1_000_000
    trace = run(standard_gaussian(1), Steady(), chains=2, steps=1, thin=steps)
    assert np.allclose(trace.acceptance, np.float32(0.1), rtol=1e-12)
    assert trace.clipped == 2 * 3000 * steps
    # Negative control: a plain sum in 32 bits.
    plain = np.add.accumulate(np.full(steps, 0.1, np.float32))[-1] / steps
    assert abs(plain - 0.1) > 5e-4


# ----------------------------------------------------------------------------------------------------------- trades


def test_replicas_that_do_not_trade_miss_a_mode_and_say_so():
    """In 10 dimensions, at a hundredth of the inverse temperature, energies of two replicas lie far apart."""
    means = np.zeros((2, 10))
    means[:, 0] = -5.0, 5.0
    target = gaussian_mixture([0.5, 0.5], means, 0.6)
    start = jnp.broadcast_to(jnp.asarray(means[1]), (16, 10))

    sampler = ParallelTempering(2, hottest=0.01, leapfrogs=3)
    trace = run(target, sampler, chains=16, steps=100, warmup=0, start=start)
    assert trace.acceptance.mean() < 0.05 and np.all(trace.draws[:, :, 0] > 0)
    sentence = trace.warnings[-1]
    assert sentence.startswith("Replicas hardly ever trade") and sentence.endswith("use more than 2 replicas.")
    # After warm-up there is a ladder for every chain, of as many rungs as before.
    tuned = replace(trace, sampler=jax.tree.map(lambda leaf: jnp.stack([leaf] * 16), sampler))
    assert tuned.warnings[-1] == sentence
    # Negative controls: the same draws with trades, and of a sampler whose acceptance is not that of trades.
    for other in (replace(trace, acceptance=np.full(16, 0.06)), replace(trace, sampler=HMC())):
        assert not any("trade" in words for words in other.warnings)
