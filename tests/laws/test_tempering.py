"""Ozaki's exactness on Gaussians, and mode weights by parallel tempering."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from walks import NoisyOzaki

import unnorm as un
from unnorm.energies import gaussian, gaussian_mixture
from unnorm.samplers import Langevin, Ozaki, ParallelTempering

VARIANCES = np.array([0.25, 1.0, 4.0])
TARGET = gaussian(np.array([1.0, -2.0, 0.5]), np.diag(VARIANCES))


def squares(sampler, target=TARGET, centre=(1.0, -2.0, 0.5), steps=60, chains=2000):
    """Squared offsets of the last draws of chains that start in the middle, one row a chain."""
    start = jnp.broadcast_to(jnp.asarray(centre), (chains, len(centre)))
    trace = un.sample(
        target, sampler, chains=chains, steps=1, thin=steps, start=start, key=jax.random.key(0), progress=False
    )
    return (trace.draws[:, -1] - np.asarray(centre)) ** 2


@pytest.mark.parametrize(("step", "probes"), [(0.1, None), (20.0, None), (1.0, 1)])
def test_ozaki_has_no_bias_on_a_gaussian_at_any_step(step, probes):
    """After n steps of size h the variance is v (1 - exp(-2 n h / v)), that of the continuous process."""
    steps = 60
    found = squares(Ozaki(step, probes), steps=steps)
    assert holds(found, VARIANCES * (1 - np.exp(-2 * steps * step / VARIANCES)))
    # Negative controls: half the time, where it is short, and Ozaki's drift with the noise of Langevin.
    if step < 1:
        assert breaks(found, VARIANCES * (1 - np.exp(-steps * step / VARIANCES)))
    wrong = squares(NoisyOzaki(step, noise_of_langevin), steps=steps)
    assert breaks(wrong, VARIANCES * (1 - np.exp(-2 * steps * step / VARIANCES)))


def noise_of_langevin(h, c):
    return 2 * h * jnp.ones_like(c)


def test_langevin_at_the_same_step_is_biased():
    """Its variance is v / (1 - h / (2 v)): what Ozaki's law rejects."""
    found = squares(Langevin(0.2), steps=200)
    assert holds(found, VARIANCES / (1 - 0.1 / VARIANCES))
    assert breaks(found, VARIANCES)


def test_ozaki_counts_where_the_density_curves_upwards():
    """Between two far modes the log density is convex: c > 0 in one coordinate of two, for every chain."""
    pair = gaussian_mixture([0.5, 0.5], [[-3.0, 0.0], [3.0, 0.0]], 1.0)
    trace = un.sample(
        pair, Ozaki(0.1), chains=50, steps=1, start=jnp.zeros((50, 2)), key=jax.random.key(1), progress=False
    )
    assert trace.clipped == 50
    assert un.sample(TARGET, Ozaki(0.1), chains=4, steps=5, key=jax.random.key(1), progress=False).clipped == 0


MODES = gaussian_mixture([0.8, 0.2], [[-4.0, 0.0], [4.0, 0.0]], 0.6)


def left(sampler, chains=32, steps=500):
    """The share of each chain's draws in the larger mode; all chains start in the smaller one."""
    start = jnp.broadcast_to(jnp.array([4.0, 0.0]), (chains, 2))
    trace = un.sample(
        MODES, sampler, chains=chains, steps=steps, warmup=400, start=start, key=jax.random.key(2), progress=False
    )
    return trace, np.mean(trace.draws[:, :, 0] < 0, axis=1)


def test_parallel_tempering_finds_the_weights_of_far_modes():
    trace, found = left(ParallelTempering(replicas=6, hottest=0.03))
    assert holds(found, 0.8)
    assert breaks(found, 0.7)
    assert 0.2 < trace.acceptance.mean() < 0.95 and not any("trade" in words for words in trace.warnings)
    # Within a mode the draws are the mode's: mean -4, variance 0.36 in the larger one.
    inside = [row[row[:, 0] < 0] for row in trace.draws if np.sum(row[:, 0] < 0) > 100]
    assert holds(np.array([row.mean(0) for row in inside]), [-4.0, 0.0])
    assert holds(np.array([((row - [-4.0, 0.0]) ** 2).mean(0) for row in inside]), 0.36)


def test_hmc_alone_stays_in_one_mode_and_the_law_rejects_it():
    _, found = left(un.samplers.HMC(), steps=200)
    # A long step of the warm-up may carry a chain across; afterwards each stays where it is.
    assert np.all((found < 0.05) | (found > 0.95)) and np.mean(found) < 0.1
    assert breaks(np.append(found, 0.01), 0.8)


def test_trades_keep_the_product_of_the_tempered_densities():
    """Replicas that start as exact draws of their own densities stay so: the hot ones' variance is v / b."""
    chain = ParallelTempering(replicas=3, hottest=0.25)
    target = gaussian([0.0], [[1.0]])
    betas = np.asarray(chain.inverse_temperatures)
    start = jax.random.normal(jax.random.key(3), (4000, 3, 1)) / np.sqrt(betas)[:, None]

    def run(x, key):
        state = chain.init(target, x[0])._replace(positions=x)
        state, _ = jax.lax.scan(lambda s, k: (chain.step(target, s, key=k)[0], None), state, jax.random.split(key, 12))
        return state.positions[:, 0]

    ends = np.asarray(jax.jit(jax.vmap(run))(start, jax.random.split(jax.random.key(4), 4000)))
    assert holds(ends**2, 1 / betas)
    assert breaks(ends**2, np.ones(3))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Ozaki(0.0), "must be positive"),
        (lambda: Ozaki(0.1, 0), "at least one probe"),
        (lambda: ParallelTempering(replicas=1), "at least 2 replicas"),
        (lambda: ParallelTempering(hottest=1.0), "between 0 and 1"),
    ],
)
def test_impossible_samplers_are_refused(build, words):
    with pytest.raises(un.InputError, match=words):
        build()
