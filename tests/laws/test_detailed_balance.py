"""Every sampler is in detailed balance with its target, mistakes are not; Gibbs has the enumerated law."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from walks import (
    BANANA,
    BEND,
    CORRELATED,
    COVARIANCE,
    EXACT,
    ISING,
    MEAN,
    STATES,
    ReversedGibbs,
    quadratic_moments,
    walk,
)

import unnorm as un
from unnorm.samplers import HMC, Gibbs

# ----------------------------------------------------------------------------------------------- detailed balance


def antisymmetric(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """u_i(x) u_j(x') - u_j(x) u_i(x') for all pairs: zero on average when p(x) T(x, x') is symmetric.

    With u_0 = 1 this holds stationarity too.
    """

    def functions(x):
        bent = x[:, 1] - BEND * (x[:, 0] ** 2 - 1)
        return np.column_stack([np.ones(len(x)), x, x**2, x[:, 0] * x[:, 1], bent**2, np.cos(2 * x)])

    u, v = functions(before.astype(np.float64)), functions(after.astype(np.float64))
    pairs = itertools.combinations(range(u.shape[1]), 2)
    return np.column_stack([u[:, i] * v[:, j] - u[:, j] * v[:, i] for i, j in pairs])


@pytest.mark.parametrize("name", EXACT)
def test_detailed_balance(name):
    sampler, wrong = EXACT[name]
    xs = BANANA.samples(50_000, key=jax.random.key(10))

    def flow(sampler, inverse_temperature=1.0):
        after = walk(sampler, inverse_temperature * BANANA, xs, 1, jax.random.key(11))[:, 0]
        return antisymmetric(np.asarray(xs), np.asarray(after))

    assert holds(flow(sampler), 0.0)
    for variant in wrong:
        assert breaks(flow(variant), 0.0)
    assert breaks(flow(sampler, 1.3), 0.0)


# ----------------------------------------------------------------------------------------------------------- Gibbs


def enumerated() -> np.ndarray:
    """The probability of each of the 16 states."""
    weights = np.exp(-np.asarray(jax.vmap(ISING)(jnp.asarray(STATES)), np.float64))
    return weights / weights.sum()


def occupation(draws: np.ndarray) -> np.ndarray:
    """chains x 16: the share of its time that a chain spends in each state."""
    numbers = (draws @ [8, 4, 2, 1]).astype(int)
    return np.stack([np.bincount(row, minlength=16) for row in numbers]) / draws.shape[1]


@pytest.mark.parametrize("sites", [1, 3, None])
def test_gibbs_has_the_enumerated_law(sites):
    trace = un.sample(ISING, Gibbs(sites), chains=400, steps=200, warmup=60, key=jax.random.key(12))
    assert set(np.unique(trace.draws)) == {0.0, 1.0}
    assert holds(occupation(trace.draws), enumerated())
    wrong = un.sample(ISING, ReversedGibbs(), chains=400, steps=200, warmup=60, key=jax.random.key(12))
    assert breaks(occupation(wrong.draws), enumerated())


def test_gibbs_is_in_detailed_balance():
    numbers = jax.random.categorical(jax.random.key(13), jnp.log(jnp.asarray(enumerated())), shape=(40_000,))
    xs = jnp.asarray(STATES)[numbers]

    def flows(sampler):
        after = np.asarray(walk(sampler, ISING, xs, 1, jax.random.key(14))[:, 0] @ jnp.asarray([8.0, 4.0, 2.0, 1.0]))
        # 200 tables of 200 moves each: from i to j less from j to i.
        table = np.zeros((200, 16, 16))
        np.add.at(table, (np.arange(40_000) // 200, np.asarray(numbers), after.astype(int)), 1)
        return (table - table.swapaxes(1, 2)).reshape(200, -1)

    assert holds(flows(Gibbs(1)), 0.0)
    assert breaks(flows(ReversedGibbs()), 0.0)
    # A sweep has an order, and so a direction.
    assert breaks(flows(Gibbs()), 0.0)


# ------------------------------------------------------------------------------------------ the algebra of energies


def test_tempered_sum_and_fixing_are_sampled_as_what_they_are():
    """b N(0, 1) is N(0, 1/b); N(0, 1) N(2, 1) is N(1, 1/2); x_free | x_fixed is the conditional Gaussian."""
    line = un.energies.standard_gaussian(1)
    fixed, free, values = [1, 3], [0, 2, 4], np.array([0.0, 1.5])
    gain = COVARIANCE[np.ix_(free, fixed)] @ np.linalg.inv(COVARIANCE[np.ix_(fixed, fixed)])
    mean = MEAN[free] + gain @ (values - MEAN[fixed])
    marginal = COVARIANCE[np.ix_(free, free)]
    cases = [
        (4.0 * line, np.zeros(1), np.eye(1) / 4, np.eye(1)),
        (line + un.energies.gaussian([2.0], np.eye(1)), np.ones(1), np.eye(1) / 2, np.eye(1)),
        (CORRELATED.fixing({1: 0.0, 3: 1.5}), mean, marginal - gain @ COVARIANCE[np.ix_(fixed, free)], marginal),
    ]
    for target, mean, covariance, wrong in cases:
        # From far too wide a start: twenty steps of HMC forget it.
        xs = 3 * jax.random.normal(jax.random.key(15), (1000, len(mean)))
        draws = np.asarray(walk(HMC(0.4, leapfrogs=8), target, xs, 60, jax.random.key(15)), np.float64)[:, 20:]
        moments = quadratic_moments(draws - mean).mean(axis=1)
        centred, upper = np.zeros(len(mean)), np.triu_indices(len(mean))
        assert holds(moments, np.concatenate([centred, covariance[upper]]))
        # Negative control: one factor alone, or the marginal in place of the conditional.
        assert breaks(moments, np.concatenate([centred, wrong[upper]]))
