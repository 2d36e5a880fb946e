"""Laws of the two equations from noise to data, in diffrax's solvers, on Gaussian data whose score is exact.

The flow is a linear map, in closed form: along an eigenvector of the data's covariance the distance from the mean is
multiplied by the ratio of the marginal widths. The reverse process by Euler's method has a mean and a variance that
follow from one step to the next; the equation's own are met as the steps grow short.
"""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_scores import gaussian_score
from harness import breaks, holds

from unnorm.generators import flow_term, reverse_terms
from unnorm.noises import OrnsteinUhlenbeck, VarianceExploding, VariancePreserving
from unnorm.scores import LevelledFunction
from unnorm.spaces import Categorical, Real

NOISES = {"exploding": VarianceExploding(0.3, 4.0), "preserving": VariancePreserving(), "OU": OrnsteinUhlenbeck(2.0)}
MEAN, COVARIANCE = np.array([0.5, -1.0]), np.array([[1.0, 0.6], [0.6, 0.7]])
LAST = 0.05


def marginal(noise, t: float) -> tuple[float, float]:
    return float(noise.alpha(t)), float(noise.variance(t))


def scaled(score, factor: float) -> LevelledFunction:
    return LevelledFunction(lambda t, x: factor * score(t, x), score.noise, score.space)


@pytest.mark.parametrize("name", NOISES)
def test_the_flow_is_the_map_between_gaussians(name):
    noise = NOISES[name]
    exact = gaussian_score(noise, MEAN, COVARIANCE)
    values, vectors = np.linalg.eigh(COVARIANCE)
    (begin, wide), (end, narrow) = marginal(noise, 1.0), marginal(noise, LAST)
    xs = np.random.default_rng(0).normal(size=(8, 2)) * np.sqrt(begin**2 + wide)
    ratios = np.sqrt((end**2 * values + narrow) / (begin**2 * values + wide))
    truth = end * MEAN + ((xs - begin * MEAN) @ vectors * ratios) @ vectors.T

    @jax.jit
    @jax.vmap
    def ends(x, factor):
        rules = diffrax.PIDController(rtol=1e-6, atol=1e-6)
        return diffrax.diffeqsolve(
            flow_term(scaled(exact, factor)), diffrax.Dopri5(), 1.0, LAST, -0.01, x, stepsize_controller=rules
        ).ys[0]

    def off(factor: float) -> float:
        return np.abs(np.asarray(ends(jnp.asarray(xs, float), jnp.full(8, factor))) - truth).max()

    assert off(1.0) < 1e-4
    # Controls: the drift of the reverse process, which has twice the score, and a score of the wrong sign.
    assert off(2.0) > 1e-2 and off(-1.0) > 1e-2


STEPS = 100


def by_euler(noise, factor: float) -> tuple[float, float]:
    """Mean and variance of Euler's method in one dimension, data N(1, 0.25), from the marginal at level 1."""
    alpha, variance = marginal(noise, 1.0)
    mean, width = alpha, 0.25 * alpha**2 + variance
    times = np.linspace(1.0, LAST, STEPS + 1)
    for t, h in zip(times[:-1], -np.diff(times), strict=True):
        alpha, variance = marginal(noise, t)
        f, square = float(noise.drift(t)), float(noise.diffusion(t)) ** 2
        pull = factor * square / (0.25 * alpha**2 + variance)
        mean, width = mean - h * (f * mean + pull * (mean - alpha)), (1 - h * (f + pull)) ** 2 * width + h * square
    return mean, width


@pytest.mark.parametrize("name", NOISES)
def test_the_reverse_process_ends_with_the_marginal(name):
    noise, n = NOISES[name], 4000
    exact = gaussian_score(noise, [1.0], [[0.25]])
    alpha, variance = marginal(noise, 1.0)
    start, walk = jax.random.split(jax.random.key(0))
    xs = alpha + np.sqrt(0.25 * alpha**2 + variance) * jax.random.normal(start, (n, 1))

    @jax.jit
    def ends(factor):
        def one(x, key):
            path = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-4, shape=(1,), key=key)
            terms = reverse_terms(scaled(exact, factor), path)
            return diffrax.diffeqsolve(terms, diffrax.Euler(), 1.0, LAST, -(1 - LAST) / STEPS, x).ys[0]

        return jax.vmap(one)(xs, jax.random.split(walk, n))

    def moments(factor: float) -> np.ndarray:
        found = np.asarray(ends(jnp.asarray(factor)), np.float64)[:, 0]
        return np.stack([found, found**2], axis=1)

    mean, width = by_euler(noise, 1.0)
    assert holds(moments(1.0), [mean, width + mean**2])
    # What the steps leave is small next to the marginal itself.
    alpha, variance = marginal(noise, LAST)
    assert abs(mean - alpha) < 0.05 and abs(width / (0.25 * alpha**2 + variance) - 1) < 0.1
    # Controls: the flow's drift with the process's noise, and no score at all.
    for factor in (0.5, 0.0):
        assert breaks(moments(factor), [mean, width + mean**2])


def test_a_condition_comes_by_the_arguments_of_the_solver():
    noise = NOISES["OU"]
    labelled = LevelledFunction(lambda t, x, c: c - x, noise, Real((2,)), Categorical((), 3))
    term = flow_term(labelled)
    slopes = [term.vf(0.3, jnp.zeros(2), jnp.asarray(c)) for c in (0, 2)]
    np.testing.assert_allclose(slopes[0], 0.0)
    np.testing.assert_allclose(slopes[1], -0.5 * noise.diffusion(0.3) ** 2 * 2.0 * np.ones(2), rtol=1e-6)
    path = diffrax.UnsafeBrownianPath(shape=(2,), key=jax.random.key(0))
    drift = reverse_terms(labelled, path).terms[0].vf(0.3, jnp.zeros(2), jnp.asarray(2))
    np.testing.assert_allclose(drift, 2 * slopes[1], rtol=1e-6)
    assert eqx.is_array(drift)
