"""The bars of the samplers: hard targets are drawn from rightly, or the trace says in words that they were not."""

import math

import equinox as eqx
import jax
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.data.shapes import Funnel
from unnorm.energies import gaussian_mixture
from unnorm.energies.base import AbstractEnergy
from unnorm.samplers import NUTS, ParallelTempering, TemperedSMC
from unnorm.samplers.diagnostics import SEPARATION_LIMIT, summarise
from unnorm.spaces import Real

long = pytest.mark.thorough


class Bent(AbstractEnergy):
    """x_1 ~ N(0, w^2), x_2 | x_1 ~ N(b (x_1^2 - w^2), 1): a banana four times as long as it is wide."""

    width: float = 4.0
    bend: float = 0.1
    space: Real = eqx.field(static=True, default=Real((2,)))

    def __call__(self, x):
        across = x[1] - self.bend * (x[0] ** 2 - self.width**2)
        return 0.5 * ((x[0] / self.width) ** 2 + across**2)


MEANS = np.random.default_rng(0).uniform(-40, 40, size=(40, 2))
FORTY = gaussian_mixture(np.ones(40), MEANS, 1.0)


def shares(draws: np.ndarray) -> np.ndarray:
    """The probability of every mode given x, averaged along the second axis: 1/40 under the target, exactly."""
    log_densities = -0.5 * ((draws[:, :, None].astype(np.float64) - MEANS) ** 2).sum(-1)
    weights = np.exp(log_densities - log_densities.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).mean(1)


# ------------------------------------------------------------------------------------------ what NUTS can do


@pytest.mark.parametrize(
    ("dimension", "chains", "steps"), [pytest.param(20, 16, 200, marks=long), pytest.param(100, 32, 1000, marks=long)]
)
def test_nuts_on_a_badly_scaled_gaussian(dimension, chains, steps):
    """Standard deviations from 0.01 to 10, the first two coordinates correlated."""
    scales = np.geomspace(0.01, 10.0, dimension)
    covariance = np.diag(scales**2)
    covariance[0, 1] = covariance[1, 0] = 0.6 * scales[0] * scales[1]
    target = un.energies.gaussian(np.zeros(dimension), covariance)
    trace = un.sample(target, NUTS(), chains=chains, steps=steps, warmup=400, key=jax.random.key(0), progress=False)
    unit = trace.draws.astype(np.float64) / scales
    moments = np.concatenate([unit, unit**2, unit[..., :1] * unit[..., 1:2]], axis=-1).mean(1)
    truth = np.concatenate([np.zeros(dimension), np.ones(dimension), [0.6]])
    assert holds(moments, truth)
    assert trace.divergences == 0
    # Negative control: the correlation left out.
    assert breaks(moments, np.append(truth[:-1], 0.0))


@pytest.mark.thorough
def test_nuts_on_a_banana():
    trace = un.sample(
        Bent(), NUTS(target_acceptance=0.95), chains=64, steps=1000, warmup=500, key=jax.random.key(1), progress=False
    )
    x = trace.draws.astype(np.float64)
    found = np.stack([x[..., 0], x[..., 1], x[..., 0] ** 2, x[..., 1] ** 2, x[..., 0] ** 2 * x[..., 1]], -1).mean(1)
    # Var x_2 = 1 + b^2 Var x_1^2 = 1 + 2 b^2 w^4, and E x_1^2 x_2 = 2 b w^4.
    truth = np.array([0.0, 0.0, 16.0, 1 + 2 * 0.01 * 256, 2 * 0.1 * 256])
    assert holds(found, truth)
    assert breaks(found, np.append(truth[:3], [1.0, 0.0]))


# ------------------------------------------------------------------------------- what it cannot, and says so


@pytest.mark.thorough
def test_nuts_says_that_it_cannot_do_the_funnel():
    trace = un.sample(
        Funnel(10, 3.0), NUTS(max_doublings=6), chains=16, steps=200, warmup=200, key=jax.random.key(2), progress=False
    )
    assert trace.divergences > 0
    assert any("transitions diverged" in sentence for sentence in trace.warnings)
    assert trace.diagnostics.worst_rhat > 1.01
    assert any("R-hat is" in sentence for sentence in trace.warnings)


def forty_starts(chains: int) -> jax.Array:
    return jax.random.uniform(jax.random.key(3), (chains, 2), minval=-40.0, maxval=40.0)


def test_nuts_says_that_its_chains_stay_in_different_modes():
    trace = un.sample(
        FORTY, NUTS(max_doublings=6), chains=16, steps=100, warmup=100, start=forty_starts(16), key=jax.random.key(4),
        progress=False,
    )  # fmt: skip
    assert trace.diagnostics.worst_rhat > 1.5
    words = [sentence for sentence in trace.warnings if sentence.startswith("Chains stay in different modes")]
    assert len(words) == 1 and "ParallelTempering" in words[0] and "R-hat is" in " ".join(trace.warnings)
    # It is right to say so: chains keep to their modes, and those that no chain began near have no share.
    assert np.mean(shares(trace.draws).max(1)) > 0.5
    assert breaks(shares(trace.draws), 1 / 40)


# ------------------------------------------------------------------------------------ the weights of 40 modes


@pytest.mark.parametrize(("islands", "particles"), [(32, 200), pytest.param(64, 2000, marks=long)])
def test_smc_finds_forty_mode_weights(islands, particles):
    base = un.energies.standard_gaussian(2, scale=30.0)
    found = TemperedSMC(base, islands=islands, particles=particles)(FORTY, key=jax.random.key(5))
    repeats = np.exp(found.log_weights)[:, None] * shares(found.draws)  # the target's Z is 1
    assert holds(repeats, 1 / 40)
    assert found.warnings == ()
    # Negative control: the law sees one mode in forty that has a half more than its weight.
    if islands == 64:
        truth = np.full(40, 1 / 40)
        truth[:2] *= 1.5, 0.5
        assert breaks(repeats, truth)
    # Negative control: from a base that does not reach the outer modes.
    narrow = un.energies.standard_gaussian(2, scale=3.0)
    lost = TemperedSMC(narrow, islands=islands, particles=particles)(FORTY, key=jax.random.key(5))
    assert breaks(np.exp(lost.log_weights)[:, None] * shares(lost.draws), 1 / 40)


def tempered(replicas: int, chains: int, steps: int):
    """From the middle, whence all modes have to be found."""
    start = jax.random.normal(jax.random.key(3), (chains, 2))
    trace = un.sample(
        FORTY, ParallelTempering(replicas, hottest=0.003), chains=chains, steps=steps, warmup=steps, start=start,
        key=jax.random.key(6), progress=False,
    )  # fmt: skip
    return trace, shares(trace.draws)


@pytest.mark.thorough
def test_parallel_tempering_finds_forty_mode_weights():
    trace, found = tempered(10, 64, 1500)
    assert holds(found, 1 / 40)
    assert not any("different modes" in sentence for sentence in trace.warnings)
    truth = np.full(40, 1 / 40)
    truth[:2] *= 1.5, 0.5
    assert breaks(found, truth)
    # Negative control: two temperatures that hardly ever trade are no tempering.
    few, stuck = tempered(2, 64, 300)
    assert few.acceptance.mean() < 0.1
    assert breaks(stuck, 1 / 40)


@pytest.mark.parametrize("replicas", [2, pytest.param(3, marks=long)])
def test_trades_are_accepted_as_often_as_their_densities_say(replicas):
    """E min(1, exp((b_i - b_j)(E_i - E_j))) for neighbours at rest, by quadrature; every step, whoever's turn it is."""
    sampler, target = ParallelTempering(replicas, hottest=0.1, leapfrogs=2), un.energies.gaussian([0.0], [[1.0]])
    betas = np.asarray(sampler.inverse_temperatures, np.float64)
    grid = np.linspace(-30, 30, 4001)

    def expected(i: int) -> float:
        first, second = (np.exp(-0.5 * b * grid**2) for b in betas[i : i + 2])
        odds = np.exp(np.minimum(0, 0.5 * (betas[i] - betas[i + 1]) * (grid[:, None] ** 2 - grid**2)))
        return float((first / first.sum()) @ odds @ (second / second.sum()))

    truth = [expected(step % (replicas - 1)) for step in range(4)]

    def run(x, key):
        def move(state, key):
            state, info = sampler.step(target, state, key=key)
            return state, info.acceptance

        state = sampler.init(target, x[0])._replace(positions=x)
        return jax.lax.scan(move, state, jax.random.split(key, 4))[1]

    starts = jax.random.normal(jax.random.key(8), (4000, replicas, 1)) / np.sqrt(betas)[:, None]
    found = np.asarray(jax.jit(jax.vmap(run))(starts, jax.random.split(jax.random.key(9), 4000)))
    assert holds(found, truth)
    # Negative control: neighbours that are closer trade more often.
    assert breaks(found, np.array(truth) + 0.05)


# ----------------------------------------------------------------------------------------- chains that stay apart


def test_separation_is_the_spread_of_means_over_the_width_of_a_chain():
    """Half of 8 chains at -5 and half at 5, of width 1: sqrt(8 / 7) 5."""
    draws = np.random.default_rng(7).normal(size=(8, 2000, 100))
    apart = summarise(draws + 5.0 * np.repeat([-1.0, 1.0], 4)[:, None, None])
    truth = 5 * math.sqrt(8 / 7)
    assert holds(apart.separation, truth, bias=truth / 2000)
    assert breaks(apart.separation, 5.0)
    assert apart.warnings()[1].startswith("Chains stay in different modes: their means lie 5.")
    # Negative controls: chains that agree, and chains that all travel from -5 to 5.
    for other in (draws, draws + np.linspace(-5, 5, 2000)[:, None]):
        assert np.all(summarise(other).separation < SEPARATION_LIMIT)
