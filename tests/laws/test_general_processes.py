"""Laws of processes that are no scaling and noise: their ways back, and the score that is learnt by simulating them.

Z is an Ornstein-Uhlenbeck process in the plane and Y = Q sinh(Z), Q a rotation. By Ito's formula Y has a drift that is
not affine and a diffusion matrix that depends on the state, and its marginals are those of Z, carried over.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.generators import ReverseProcess
from unnorm.noises import Equation, VariancePreserving, equation_of
from unnorm.objectives import LevelledSSM
from unnorm.scores import AbstractPlainScore, FunctionScore

ANGLE = 0.6
Q = np.array([[np.cos(ANGLE), -np.sin(ANGLE)], [np.sin(ANGLE), np.cos(ANGLE)]], np.float32)
MEAN, WIDTH = np.array([0.8, -0.3]), np.array([0.3, 0.5])


def moments(t, mean=MEAN, width=WIDTH):
    """Of Z at time t."""
    return mean * jnp.exp(-t), width**2 * jnp.exp(-2 * t) - jnp.expm1(-2 * t)


def drift(t, y):
    z = jnp.arcsinh(Q.T @ y)
    return Q @ (jnp.sinh(z) - z * jnp.cosh(z))


def spread(t, y):
    return Q * (jnp.sqrt(2.0) * jnp.sqrt(1 + (Q.T @ y) ** 2))


PROCESS = Equation(drift, spread)


class Marginals(AbstractPlainScore):
    """The score of Y_t for Z_0 ~ N(mean, width^2); exact where mean and width are those of the data."""

    mean: jax.Array
    width: jax.Array

    def __call__(self, t, x, condition=None):
        w = Q.T @ x
        z, rise = jnp.arcsinh(w), jnp.sqrt(1 + w**2)
        mean, variance = moments(t, self.mean, self.width)
        return Q @ (-(z - mean) / variance / rise - w / rise**2)


TRUTH = Marginals(jnp.asarray(MEAN, float), jnp.asarray(WIDTH, float))


def draws(t, n, seed=0):
    mean, variance = moments(t)
    z = mean + np.sqrt(variance) * np.random.default_rng(seed).normal(size=(n, 2))
    return np.sinh(z) @ Q.T


def latent(y):
    return np.arcsinh(np.asarray(y, np.float64) @ Q)


class WithoutDivergence(eqx.Module):
    """The wrong variant: div G G' is taken to be 0, as it is where G does not depend on the state."""

    right: Equation

    def drift(self, t, x):
        return self.right.drift(t, x)

    def spread(self, t, x):
        return self.right.spread(t, x)

    def spread_out(self, t, x, v):
        return self.right.spread_out(t, x, v)

    def covariance_times(self, t, x, v):
        return self.right.covariance_times(t, x, v)

    def divergence(self, t, x):
        return jnp.zeros_like(x)


RIGHT, WRONG = (ReverseProcess(equation, TRUTH) for equation in (PROCESS, WithoutDivergence(PROCESS)))


def test_a_simulated_process_has_the_marginals_of_its_closed_form():
    starts = jnp.asarray(draws(0.0, 8000), float)
    keys = jax.random.split(jax.random.key(0), len(starts))
    ends = jax.jit(jax.vmap(lambda y, k: PROCESS.draw(jnp.asarray(0.5), y, key=k)))(starts, keys)
    mean, variance = (np.asarray(part) for part in moments(0.5))
    z = latent(ends)
    found = np.concatenate([z, (z - mean) ** 2], axis=1)
    truth = np.concatenate([mean, variance])
    assert holds(found, truth, bias=0.01) and breaks(found, 1.15 * truth, bias=0.01)


def test_the_divergence_of_its_covariance_is_that_by_hand():
    y = jnp.array([0.4, -1.3])
    by_hand = sum(jax.jacfwd(lambda x: spread(0.0, x) @ spread(0.0, x).T)(y)[:, j, j] for j in range(2))
    np.testing.assert_allclose(PROCESS.divergence(0.0, y), by_hand, rtol=1e-5)
    # Diagonal and number: the same matrix by other words.
    for g in (lambda t, x: 0.5 * x, lambda t, x: jnp.diag(0.5 * x)):
        np.testing.assert_allclose(Equation(drift, g).divergence(0.0, y), 0.5 * y, rtol=1e-5)
    number = Equation(drift, lambda t, x: jnp.sum(x))
    np.testing.assert_allclose(number.divergence(0.0, y), 2 * jnp.sum(y) * jnp.ones(2), rtol=1e-5)


def test_the_flow_of_a_general_process_carries_quantiles_to_quantiles():
    y = draws(1.0, 200)
    mean, variance = (np.asarray(part) for part in moments(1.0))
    truth = MEAN + WIDTH * (latent(y) - mean) / np.sqrt(variance)
    times = np.linspace(1.0, 0.0, 201)
    np.testing.assert_allclose(latent(RIGHT.follow(y, times)), truth, atol=5e-3)
    assert np.abs(latent(WRONG.follow(y, times)) - truth).max() > 0.3
    # And the way there is the way back.
    np.testing.assert_allclose(RIGHT.follow(RIGHT.follow(y, times), times[::-1]), y, atol=5e-3, rtol=5e-3)


def test_the_reverse_of_a_general_process_gives_the_data_back():
    y, times = draws(1.0, 8000), np.linspace(1.0, 0.0, 301)
    truth = np.concatenate([MEAN, WIDTH**2])

    def found(process):
        z = latent(process.walk(y, times, key=jax.random.key(1)))
        return np.concatenate([z, (z - MEAN) ** 2], axis=1)

    # What steps of 1/300 leave is at most a hundredth; twice as many halve it.
    assert holds(found(RIGHT), truth, bias=0.01)
    assert breaks(found(WRONG), truth, bias=0.05)


def test_for_a_process_of_alpha_and_sigma_it_is_the_reverse_of_the_others():
    noise, x, t = VariancePreserving(), jnp.array([0.3, -1.0]), jnp.asarray(0.4)
    slope = FunctionScore(lambda t, x: -1.3 * x)
    back = ReverseProcess(equation_of(noise), slope)
    np.testing.assert_allclose(back.drift(t, x), noise.reverse_drift(t, x, slope(t, x)), rtol=1e-5)
    np.testing.assert_allclose(back.flow(t, x), noise.flow(t, x, slope(t, x)), rtol=1e-5)
    assert abs(float(back.diffusion(t, x)) - float(noise.diffusion(t))) < 1e-5


# ------------------------------------------------------------------------------------------ learning by simulation


def gradients(process, data, model, repeats=64):
    loss = LevelledSSM(process, weighting=lambda t: 0.2 + t, least=0.02)

    def one(key):
        chosen, run = jax.random.split(key)
        batch = jax.random.choice(chosen, data, (128,))
        found = jax.grad(lambda m: loss(m, None, batch, key=run)[0])(model)
        return jnp.concatenate([found.mean, found.width])

    return jax.jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(jax.random.key(2), repeats))


def test_sliced_losses_over_levels_stand_still_at_the_score_of_a_simulated_process():
    data = jnp.asarray(draws(0.0, 20_000, seed=3), float)
    right = gradients(Equation(drift, spread, 50), data, TRUTH)
    # What 50 steps leave of the law of the simulated points.
    assert holds(right, 0.0, bias=0.03)
    # Controls: a process with less noise than the score is of, and a score of other data.
    less = Equation(drift, lambda t, y: 0.7 * spread(t, y), 50)
    assert breaks(gradients(less, data, TRUTH), 0.0, bias=0.03)
    other = Marginals(TRUTH.mean + 0.15, TRUTH.width)
    assert breaks(gradients(Equation(drift, spread, 50), data, other), 0.0, bias=0.03)


class Gaussian(AbstractPlainScore):
    """The score of N(mean, width^2) with the noise of a level of `VariancePreserving`."""

    mean: jax.Array
    width: jax.Array

    def __call__(self, t, x, condition=None):
        noise = VariancePreserving()
        alpha = noise.alpha(t)
        return -(x - alpha * self.mean) / ((alpha * self.width) ** 2 + noise.variance(t))


def test_sliced_losses_over_levels_of_gaussian_noise_need_no_simulation():
    data = MEAN + WIDTH * np.random.default_rng(4).normal(size=(20_000, 2))
    data = jnp.asarray((data - data.mean(0)) / data.std(0) * WIDTH + MEAN, float)
    truth = Gaussian(TRUTH.mean, TRUTH.width)
    assert holds(gradients(VariancePreserving(), data, truth), 0.0)
    assert breaks(gradients(VariancePreserving(), data, Gaussian(TRUTH.mean + 0.2, TRUTH.width)), 0.0)


def test_what_cannot_be_simulated_is_refused():
    for build, words in (
        (lambda: LevelledSSM(lambda t, x: x), "runs a noises.Equation or a Gaussian noise"),
        (lambda: LevelledSSM(PROCESS, slices=un.objectives.SphereSlices(radius=1.0)), "E\\[v v'\\] = I"),
        (lambda: LevelledSSM(PROCESS, least=1.0), "least level"),
        (lambda: Equation(drift, lambda t, x: jnp.ones(3)).divergence(0.0, jnp.ones(2)), "not of shape"),
        (lambda: RIGHT.walk(draws(1.0, 2), [0.0, 1.0], key=jax.random.key(0)), "numbers that fall"),
        (lambda: Equation(drift, spread, 0), "steps of a simulation"),
    ):
        with pytest.raises(un.InputError, match=words):
            build()
