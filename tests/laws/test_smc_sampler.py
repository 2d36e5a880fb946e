"""Tempered SMC as a sampler: moments and mode weights weighted by the islands, its levels, and what it says of itself.

With levels fixed beforehand the mean over islands of Z_i f_i is exactly Z E f (Del Moral, Doucet and Jasra 2006). The
levels here are chosen by all particles together, which costs a bias of the order of one over their number: far below
the errors of these tests.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, coverage, holds

import unnorm as un
from unnorm.samplers import TemperedSMC, smc

MODES = un.energies.gaussian_mixture([0.75, 0.25], [[-4.0, 0.0], [4.0, 1.0]], [0.4, 1.0])
WIDE = un.energies.standard_gaussian(2, scale=5.0)


def weighted(found: smc.Particles, function) -> np.ndarray:
    """Z_i times the mean of f over island i; the Z of all targets here is 1."""
    means = np.stack([np.asarray(function(island), np.float64).mean(0) for island in found.draws])
    return np.exp(found.log_weights).reshape(-1, *[1] * (means.ndim - 1)) * means


def quadratic(x: np.ndarray) -> np.ndarray:
    """First and second moments about the target's mean."""
    x = x - np.array([3.0, -2.0])
    return np.column_stack([x, x**2, x[:, 0] * x[:, 1]])


def test_moments_of_a_target_that_is_elsewhere():
    """Two parts at (3, -2) +- (0.5, 0.4), each of variance 0.25, which adds to the covariance of their means."""
    target = un.energies.gaussian_mixture([0.5, 0.5], [[3.5, -1.6], [2.5, -2.4]], [0.5, 0.5])
    found = TemperedSMC(WIDE, islands=32, particles=200)(target, key=jax.random.key(0))
    assert holds(weighted(found, quadratic), [0.0, 0.0, 0.5, 0.41, 0.2])
    assert holds(np.exp(found.log_weights), 1.0)
    # Negative control: the covariance left out.
    assert breaks(weighted(found, quadratic), [0.0, 0.0, 0.5, 0.41, 0.0])


def test_mode_weights():
    def left(x):
        return x[:, 0] < 0

    found = TemperedSMC(WIDE, islands=32, particles=200)(MODES, key=jax.random.key(1))
    assert holds(weighted(found, left), 0.75)
    assert found.warnings == ()
    inside = weighted(found, lambda x: np.where(left(x)[:, None], (x - [-4.0, 0.0]) ** 2, 0))
    assert holds(inside, 0.75 * 0.16)
    assert found.mean(left).covers(0.75, 0.9999)
    # Negative control: a base that misses a mode.
    missing = un.energies.gaussian([-4.0, 0.0], 0.25 * np.eye(2))
    lost = TemperedSMC(missing, islands=32, particles=200)(MODES, key=jax.random.key(1))
    assert breaks(np.stack([left(island).mean() for island in lost.draws]), 0.75)


@pytest.mark.thorough
def test_without_resampling_the_weights_are_wrong(monkeypatch):
    """Particles that are moved but never chosen by weight."""
    monkeypatch.setattr(smc, "systematic", lambda key, weights, n: jnp.arange(n))
    blind = TemperedSMC(WIDE, islands=32, particles=201)(MODES, key=jax.random.key(1))
    jax.clear_caches()
    assert breaks(np.stack([np.mean(island[:, 0] < 0) for island in blind.draws]), 0.75)


def test_levels_leave_the_share_that_was_asked_for():
    """One level: N(0, 1) weighted towards N(0, 1 / (1 + c)) has the effective share sqrt(1 + 2 c) / (1 + c)."""
    line = un.energies.standard_gaussian(1)
    target = un.energies.FunctionEnergy(lambda x: 50.0 * jnp.sum(x**2), un.spaces.Real((1,)))
    share = 0.6
    found = TemperedSMC(line, islands=16, particles=500, share=share)(target, key=jax.random.key(2))
    # The precision goes from 1 to 100 along 1 + 99 b, by equal factors 1 + c from level to level.
    growth = np.diff(found.betas)[:-1] * 99 / (1 + 99 * found.betas[:-2])
    expected = (1 - share**2 + math.sqrt(1 - share**2)) / share**2  # sqrt(1 + 2 c) / (1 + c) = share
    assert abs(np.mean(growth) / expected - 1) < 0.1
    assert np.allclose(found.effective[:-1].mean(axis=1) / 500, share, atol=0.03)
    assert found.betas[0] == 0 and found.betas[-1] == 1 and np.all(np.diff(found.betas) > 0)
    # Negative control: another share has other levels.
    few = TemperedSMC(line, islands=16, particles=500, share=0.2)(target, key=jax.random.key(2))
    assert len(few.betas) < len(found.betas)
    # log Z = log sqrt(2 pi / 100), and E x^2 = 1 / 100.
    assert found.log_z.covers(0.5 * math.log(2 * math.pi / 100), 0.9999)
    assert found.mean(lambda x: x[:, 0] ** 2).covers(0.01, 0.9999)


def test_resampled_draws_follow_the_weights_of_the_islands():
    draws = np.repeat(np.arange(8.0), 16).reshape(8, 16, 1)
    weights = np.arange(1.0, 9.0) / 36
    found = smc.Particles(draws, np.log(weights), np.array([0.0, 1.0]), np.ones((1, 8)), np.ones(1), np.full(8, 16))
    shares = np.bincount(found.resampled(3600)[:, 0].astype(int)) / 3600
    assert np.all(np.abs(shares - weights) <= 1 / 3600)
    assert abs(found.mean(lambda x: x[:, 0]).value - np.arange(8) @ weights) < 1e-12


@pytest.mark.thorough
def test_stated_errors_cover():
    sampler = TemperedSMC(WIDE, islands=16, particles=64)
    found = [sampler(MODES, key=key).mean(lambda x: x[:, 0] < 0) for key in jax.random.split(jax.random.key(3), 200)]
    assert 0.88 <= coverage(found, 0.75, 0.95) <= 0.985


@pytest.mark.thorough
def test_it_says_when_islands_cannot_be_trusted():
    """20 dimensions, a base far off, and hardly any particles."""
    target = un.energies.gaussian(np.full(20, 6.0), 0.01 * np.eye(20))
    base = un.energies.standard_gaussian(20)
    found = TemperedSMC(base, islands=8, particles=16, share=0.05, moves=1, leapfrogs=1)(target, key=jax.random.key(4))
    assert any("islands disagree" in sentence for sentence in found.warnings)
    assert any("descend from only" in sentence for sentence in found.warnings)


@pytest.mark.thorough
def test_a_wall_is_no_obstacle():
    """The half line: a half-normal's mean is sqrt(2 / pi)."""
    wall = un.energies.FunctionEnergy(lambda x: jnp.where(x[0] > 0, 0.5 * x[0] ** 2, jnp.inf), un.spaces.Real((1,)))
    base = un.energies.standard_gaussian(1, scale=3.0)
    found = TemperedSMC(base, islands=32, particles=200)(wall, key=jax.random.key(5))
    assert np.all(found.draws > 0)
    assert found.mean(lambda x: x[:, 0]).covers(math.sqrt(2 / math.pi), 0.9999)
    assert found.log_z.covers(0.5 * math.log(math.pi / 2), 0.9999)
    nowhere = un.energies.FunctionEnergy(lambda x: jnp.inf + 0 * jnp.sum(x), un.spaces.Real((1,)))
    with pytest.raises(un.InputError, match="use a base that lies inside the target"):
        TemperedSMC(base)(nowhere, key=jax.random.key(5))
