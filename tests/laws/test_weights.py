"""Laws of importance weights: a proposal with a defence, and weights that have no variance."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, covers, holds, near
from quadratics import quadratic_energy, quadratic_truth

import unnorm as un
from unnorm.evaluation import defensive, importance
from unnorm.evaluation.partition.tails import tail_index

pytestmark = pytest.mark.optimised

REPEATS = 200
MIXTURE = un.energies.gaussian_mixture([0.3, 0.7], [[-1.5, 0.0], [1.5, 0.5]], 0.6)

# --------------------------------------------------------------------------------------------- a proposal that defends


def test_the_defensive_mixture_is_a_density():
    data = np.random.default_rng(21).multivariate_normal([1.0, -1.0], [[1.0, 0.5], [0.5, 2.0]], size=2000)
    proposal = defensive(MIXTURE, data, share=0.2)
    assert np.allclose(np.asarray(proposal.weights), [0.3 * 0.8, 0.7 * 0.8, 0.2], atol=1e-6)
    axis, step = np.linspace(-16, 16, 801, retstep=True)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    mass = np.exp(-un.evaluation.energies(proposal, jnp.asarray(grid))).sum() * step**2
    assert abs(mass - 1) < 1e-4
    # The last component has twice the standard deviations of the data, and its mean.
    wide = jax.tree.map(lambda leaf: leaf[-1], proposal.components)
    assert np.allclose(np.asarray(wide.covariance), 4 * np.cov(data.T), rtol=0.01)
    assert np.allclose(np.asarray(wide.mean), data.mean(axis=0), atol=1e-4)


def test_defence_mends_the_error_of_a_proposal_that_is_too_narrow():
    """From N(0, 0.5^2) to N(0, 1) the weights have no variance, and no stated error is right."""
    target, truth = quadratic_energy(np.eye(1)), quadratic_truth(np.eye(1))
    narrow = un.energies.standard_gaussian(1, 0.5)
    data = np.random.default_rng(22).normal(size=(1000, 1))
    keys = jax.random.split(jax.random.key(23), REPEATS)
    assert not covers([importance(target, narrow, draws=1000, key=k) for k in keys], truth)
    blended = defensive(narrow, data)
    assert covers([importance(target, blended, draws=1000, key=k) for k in keys], truth)


# --------------------------------------------------------------------------------------------- weights with no variance


@pytest.mark.parametrize("k", [0.2, 0.5, 0.8])
def test_the_tail_index_is_that_of_a_pareto_law(k):
    """u^-k has the index k; of 5000 weights the fit takes 212, and ten imagined ones of index 1/2."""
    uniform = np.random.default_rng(24).uniform(size=(REPEATS, 5000))
    found = [tail_index(-k * np.log(row)) for row in uniform]
    truth = (212 * k + 10 * 0.5) / 222
    assert holds(found, truth)
    assert breaks(found, truth + 0.1) and breaks(found, truth - 0.1)


def test_the_tail_index_is_not_told_where_there_is_no_tail():
    assert all(
        math.isnan(tail_index(weights))
        for weights in (np.zeros(1000), np.full(1000, -np.inf), np.r_[np.nan, np.zeros(999)], [0.0, 1.0, 2.0])
    )


def test_weights_with_no_variance_are_seen_though_many_are_effective():
    """w = p / q of N(0, 1) over N(0, s^2) has the index 1 - s^2: 0.75 for s = 0.5, and none above 0 for s = 1.5."""
    target, truth = quadratic_energy(np.eye(1)), quadratic_truth(np.eye(1))
    narrow, wide = un.energies.standard_gaussian(1, 0.5), un.energies.standard_gaussian(1, 1.5)
    keys = jax.random.split(jax.random.key(25), 40)
    for base, heavy in ((narrow, True), (wide, False)):
        found = [importance(target, base, key=k) for k in keys]
        assert np.median([estimate.diagnostics["effective_samples"] for estimate in found]) > 1000
        assert np.mean([(estimate.diagnostics["pareto_k"] > 0.5) == heavy for estimate in found]) > 0.9
        assert any("tail index" in sentence for estimate in found for sentence in estimate.warnings) == heavy
    # So `log_partition` does not settle for them.
    for key in keys[:4]:
        annealed = un.log_partition(target, base=narrow, key=key)
        assert annealed.method == "AIS" and near(annealed, truth) and annealed.stderr < 0.02
    assert un.log_partition(target, base=wide, key=keys[0]).method == "importance sampling"
