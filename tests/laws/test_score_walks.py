"""Laws of walks that follow a score and know no energy: Langevin by a first order, Ozaki by a first and a second.

On a Gaussian both are linear, x' = x + M s(x) + sqrt(V) z with s = -P (x - m): their stationary covariance S solves
S = A S A' + V, A = I - M P, whatever the step. Langevin has M = h and V = 2 h; Ozaki has M = (e^{hc} - 1) / c and
V = (e^{2hc} - 1) / c along every axis, c the diagonal of -P, which on a rotated Gaussian is not the whole of it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from walks import quadratic_moments, walk

import unnorm as un
from unnorm.noises import Gaussian
from unnorm.objectives import DiagonalD2SM, JointSecondOrder
from unnorm.samplers import NUTS, Gibbs, Langevin, Ozaki
from unnorm.scores import DiagonalSecondOrder, FreeScore, FromScore, FunctionScore, LevelScore, as_score
from unnorm.spaces import Binary, Real
from unnorm.training import fit_repeats

KEY = jax.random.key(0)
MEAN = np.array([1.0, -0.5])
TURN = np.array([[np.cos(0.6), -np.sin(0.6)], [np.sin(0.6), np.cos(0.6)]])
COVARIANCE = TURN @ np.diag([2.0, 0.4]) @ TURN.T
PRECISION = np.linalg.inv(COVARIANCE)
ROTATED = un.energies.gaussian(MEAN, COVARIANCE)


def exact(scale: float = 1.0) -> FunctionScore:
    """The score of the rotated Gaussian, of which each level is e^t times as sharp; `scale` 1 is right at level 0."""
    return FunctionScore(lambda t, x: -scale * jnp.exp(t) * jnp.asarray(PRECISION, x.dtype) @ (x - jnp.asarray(MEAN)))


class Constant(eqx.Module):
    """A network that says the same everywhere."""

    value: jax.Array

    def __call__(self, x):
        return self.value


def pair(curvature: float = 1.0, score: float = 1.0) -> DiagonalSecondOrder:
    """First and second order of the rotated Gaussian; factors other than 1 are mistakes."""
    return DiagonalSecondOrder(exact(score), Constant(jnp.asarray(-curvature * np.diag(PRECISION), jnp.float32)))


def stationary(a: np.ndarray, v: np.ndarray) -> np.ndarray:
    """S = A S A' + diag(v)."""
    d = len(v)
    return np.linalg.solve(np.eye(d * d) - np.kron(a, a), np.diag(v).ravel()).reshape(d, d)


def of_langevin(h: float, precision: np.ndarray) -> np.ndarray:
    return stationary(np.eye(len(precision)) - h * precision, np.full(len(precision), 2 * h))


def of_ozaki(h: float, precision: np.ndarray, c: np.ndarray) -> np.ndarray:
    return stationary(np.eye(len(c)) - np.diag(np.expm1(h * c) / c) @ precision, np.expm1(2 * h * c) / c)


def moments_of(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    return np.concatenate([mean, (covariance + np.outer(mean, mean))[np.triu_indices(len(mean))]])


def begun(mean, covariance, n: int, key: int):
    """Draws of the walk's own law, so that none of it is warm-up."""
    return un.energies.gaussian(mean, covariance).samples(n, key=jax.random.key(key))


def run(sampler, target, xs, steps: int = 30):
    draws = np.asarray(walk(sampler, target, xs, steps, jax.random.key(2)), np.float64)
    return quadratic_moments(draws).mean(axis=1)


# ---------------------------------------------------------------------------------------------------- Langevin


def test_langevin_by_a_score_has_the_variance_of_its_own_law():
    h = 0.5
    truth = [0.0, 1 / (1 - h / 2)]
    xs = np.sqrt(truth[1]) * jax.random.normal(jax.random.key(1), (4000, 1))

    def moments(factor):
        return run(Langevin(h), FunctionScore(lambda t, x: -factor * x).at(0.0), xs)

    assert holds(moments(1.0), truth)
    assert breaks(moments(1.0), [0.0, 1.0])  # the target's own variance
    for wrong in (2.0, 0.5, -0.1):  # scores of another scale, and of another sign
        assert breaks(moments(wrong), truth)


@pytest.mark.parametrize("sampler", [Langevin(0.3), Ozaki(0.7), Ozaki(0.7, probes=2)])
def test_a_score_walks_as_its_energy_does(sampler):
    """The same keys, the same chain, up to the rounding of two ways to the same gradient."""
    xs = ROTATED.samples(64, key=jax.random.key(1))
    of_energy = walk(sampler, ROTATED, xs, 20, jax.random.key(2))
    of_score = walk(sampler, exact().at(0.0), xs, 20, jax.random.key(2))
    np.testing.assert_allclose(of_score, of_energy, rtol=1e-4, atol=1e-5)
    of_level = walk(sampler, as_score(ROTATED).at(0.0), xs, 20, jax.random.key(2))
    assert jnp.array_equal(of_level, of_energy)
    other = walk(sampler, exact(1.01).at(0.0), xs, 20, jax.random.key(2))
    assert float(jnp.max(jnp.abs(other - of_energy))) > 1e-3


def test_the_level_is_the_one_asked_for():
    h, level = 0.2, 0.5
    truth = of_langevin(h, np.exp(level) * PRECISION)
    xs = begun(MEAN, truth, 4000, 1)
    assert holds(run(Langevin(h), exact().at(level), xs), moments_of(MEAN, truth))
    assert breaks(run(Langevin(h), exact().at(0.0), xs), moments_of(MEAN, truth))


# ---------------------------------------------------------------------------------------------------- Ozaki


def test_ozaki_by_an_exact_pair_on_a_rotated_gaussian():
    h, curvature = 0.8, -np.diag(PRECISION)
    truth = of_ozaki(h, PRECISION, curvature)
    assert np.abs(truth - COVARIANCE).max() > 0.1  # a diagonal does not see the whole shape, and the law says how much
    xs = begun(MEAN, truth, 4000, 3)
    assert holds(run(Ozaki(h), pair().at(0.0), xs), moments_of(MEAN, truth))
    assert holds(run(Ozaki(h), exact().at(0.0), xs), moments_of(MEAN, truth))
    assert breaks(run(Ozaki(h), pair().at(0.0), xs), moments_of(MEAN, COVARIANCE))
    # Scores and curvatures of another scale; a curvature of the wrong sign is taken as 0, which makes it Langevin's.
    for wrong in (pair(curvature=2.0), pair(score=1.2), pair(curvature=-1.0)):
        assert breaks(run(Ozaki(h), wrong.at(0.0), xs), moments_of(MEAN, truth))
    upwards = un.sample(pair(curvature=-1.0).at(0.0), Ozaki(0.1), chains=2, steps=3, start=np.zeros((2, 2)), key=KEY)
    assert upwards.clipped == 2 * 2 * 3


SIGMA, REPEATS = 0.6, 8
NOISY = COVARIANCE + SIGMA**2 * np.eye(2)


@pytest.fixture(scope="module")
def learnt():
    """A linear score and a constant curvature, learnt by second-order denoising from 8 sets of rows."""
    rows = ROTATED.samples(REPEATS * 2000, key=jax.random.key(4)).reshape(REPEATS, 2000, 2)
    begin = DiagonalSecondOrder(FreeScore(eqx.nn.Linear(2, 2, key=jax.random.key(5))), Constant(-jnp.ones(2)))
    objective = JointSecondOrder(DiagonalD2SM(Gaussian(SIGMA)))
    return fit_repeats(begin, objective, rows, steps=400, batch=500, rate=3e-2, key=jax.random.key(6))


def test_ozaki_by_a_learnt_pair(learnt):
    slopes, curvatures = np.asarray(learnt.score.network.weight), np.asarray(learnt.alpha.value)
    # What is learnt is the derivative of the noisy score, and its diagonal.
    exact_slope = -np.linalg.inv(NOISY)
    assert holds(slopes.reshape(REPEATS, -1), exact_slope.ravel())
    assert holds(curvatures, np.diag(exact_slope))
    assert breaks(slopes.reshape(REPEATS, -1), -PRECISION.ravel())
    # The walk has the law that these numbers give it.
    h, one = 1.5, jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, learnt)
    slope, bias = slopes[0].astype(float), np.asarray(one.score.network.bias, float)
    mean, truth = -np.linalg.solve(slope, bias), of_ozaki(h, -slope, curvatures[0].astype(float))
    xs = begun(mean, truth, 4000, 7)
    assert holds(run(Ozaki(h), one.at(0.0), xs), moments_of(mean, truth))
    halved = eqx.tree_at(lambda model: model.alpha.value, one, replace_fn=lambda c: 0.5 * c)
    assert breaks(run(Ozaki(h), halved.at(0.0), xs), moments_of(mean, truth))


# ---------------------------------------------------------------------------------------------------- through `sample`


def test_a_score_with_its_space_needs_no_start():
    told = LevelScore(score=exact(), level=0.0, space=Real((2,)))
    assert un.sample(told, Langevin(0.1), chains=4, steps=2, key=KEY, progress=False).draws.shape == (4, 2, 2)
    with pytest.raises(un.InputError, match=r"has shape \(2,\), not \(3,\)"):
        un.sample(told, Langevin(0.1), chains=4, steps=2, start=np.zeros((4, 3)), key=KEY)
    with pytest.raises(un.InputError, match="pass start="):
        un.sample(exact().at(0.0), Langevin(0.1), chains=4, steps=2, key=KEY)
    with pytest.raises(un.InputError, match=r"Langevin follows gradients.*Binary.*use samplers\.Gibbs"):
        un.sample(LevelScore(score=exact(), level=0.0, space=Binary((2,))), Langevin(0.1), chains=4, steps=2, key=KEY)


def test_every_kind_of_score_has_its_level():
    assert as_score(ROTATED).at(0.3) is ROTATED
    assert FromScore(ROTATED).at(0.3) is ROTATED
    assert float(FromScore(exact()).at(0.3).level) == pytest.approx(0.3)
    at = exact().at(0.3)
    assert at.at(0.9) is at and at.space is None
    assert jnp.array_equal(pair().at(0.0).diagonal(jnp.zeros(2)), pair().diagonal(jnp.zeros(2)))


@pytest.mark.parametrize("sampler", [Langevin(0.1), Ozaki(0.1)])
def test_a_score_of_many_levels_is_refused_with_a_remedy(sampler):
    with pytest.raises(un.InputError, match=r"walks a score at one level, .*pass score\.at\(t\)"):
        un.sample(exact(), sampler, chains=2, steps=2, start=np.zeros((2, 2)), key=KEY)


@pytest.mark.parametrize("sampler", [NUTS(), Gibbs(1)])
def test_samplers_that_weigh_by_the_energy_refuse_a_score_at_one_level_too(sampler):
    with pytest.raises(un.InputError, match=r"needs an energy, not a score; use samplers\.Langevin"):
        un.sample(exact().at(0.0), sampler, chains=2, steps=2, start=np.zeros((2, 2)), key=KEY)


def test_a_step_from_where_the_score_is_no_number_is_counted():
    hole = FunctionScore(lambda t, x: jnp.where(x > 3, jnp.nan, 0.0 * x)).at(0.0)
    trace = un.sample(hole, Langevin(2.0), chains=16, steps=50, start=np.zeros((16, 1)), key=KEY, progress=False)
    assert trace.divergences > 0
    sound = exact().at(0.0)
    assert un.sample(sound, Langevin(0.1), chains=2, steps=2, start=np.zeros((2, 2)), key=KEY).divergences == 0
