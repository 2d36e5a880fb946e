"""Laws of what a network of all levels is shown and what its answer means.

For data sum_k w_k N(c_k, s^2 I) what an answer may stand for is known: E[x_0 | x] and E[z | x] by the posterior of each
component, here in NumPy and with derivatives of alpha and sigma written out. A network that answers so must have
the exact score, whose formula shares nothing with the answers.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_scores import mixture_score

import unnorm as un
from unnorm.noises import Gaussian, OrnsteinUhlenbeck, VarianceExploding, VariancePreserving
from unnorm.scores import (
    DividedBySigma,
    LevelledEnergy,
    LevelledScore,
    PredictData,
    PredictFlow,
    PredictNoise,
    PredictScore,
    PredictVelocity,
    Scaled,
)
from unnorm.spaces import Real

SPREAD = 1.3
NOISES = {
    "exploding": VarianceExploding(0.3, 4.0),
    "preserving": VariancePreserving(),
    "OU": OrnsteinUhlenbeck(2.0),
}
DATA = {
    "Gaussian": (np.array([1.0]), np.array([[0.5, -1.0]]), 0.8),
    "mixture": (np.array([0.3, 0.7]), np.array([[-1.0, 0.4], [1.2, -0.3]]), 0.5),
}
LEVELS = (0.02, 0.3, 0.7, 1.0)
POINTS = np.array([[0.3, -0.8], [2.0, 1.5], [-1.1, 0.2]])


def path(name: str, t: float) -> tuple[float, float, float, float]:
    """alpha, sigma and their derivatives in t."""
    if name == "exploding":
        sigma = 0.3 * (4.0 / 0.3) ** t
        return 1.0, sigma, 0.0, sigma * np.log(4.0 / 0.3)
    if name == "preserving":
        exponent, slope = -0.25 * t**2 * 19.9 - 0.5 * t * 0.1, -0.5 * t * 19.9 - 0.05
    else:
        exponent, slope = -2.0 * t, -2.0
    alpha = np.exp(exponent)
    sigma = np.sqrt(-np.expm1(2 * exponent))
    return alpha, sigma, alpha * slope, -(alpha**2) * slope / sigma


def posterior(data: str, alpha: float, sigma: float, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[x_0 | x] and E[z | x]."""
    weights, centres, scale = DATA[data]
    variance = (alpha * scale) ** 2 + sigma**2
    offsets = x - alpha * centres
    logs = np.log(weights) - (offsets**2).sum(1) / (2 * variance)
    shares = np.exp(logs - logs.max())
    clean = (shares / shares.sum()) @ (centres + alpha * scale**2 / variance * offsets)
    return clean, (x - alpha * clean) / sigma


def answers(data: str, name: str, t: float, x: np.ndarray) -> dict[str, np.ndarray]:
    """What a network should say under each preconditioning."""
    alpha, sigma, falls, grows = path(name, t)
    clean, noise = posterior(data, alpha, sigma, x)
    width = np.sqrt((alpha * SPREAD) ** 2 + sigma**2)
    # Karras et al. 2022, Eq. 7, with c_skip and c_out for any alpha; here the answer has the sign of the noise.
    skip, out = alpha * SPREAD**2 / width**2, sigma * SPREAD / width
    return {
        "Scaled": -(clean - skip * x) / out,
        "PredictNoise": noise,
        "PredictData": clean,
        "PredictVelocity": alpha * noise - sigma * clean,
        "PredictFlow": falls * clean + grows * noise,
        "DividedBySigma": -noise,
        "PredictScore": -noise / sigma,
    }


KINDS = {
    "Scaled": Scaled(SPREAD),
    "PredictNoise": PredictNoise(SPREAD),
    "PredictData": PredictData(SPREAD),
    "PredictVelocity": PredictVelocity(SPREAD),
    "PredictFlow": PredictFlow(SPREAD),
    "DividedBySigma": DividedBySigma(),
    "PredictScore": PredictScore(),
}
#: Those whose network is shown points as they are.
BARE = ("DividedBySigma", "PredictScore")


class Says(eqx.Module):
    """A network that gives one answer whatever it is shown."""

    answer: jax.Array

    def __call__(self, x, level, condition):
        return self.answer


@eqx.filter_jit
def said(preconditioning, noise, answer, t, x):
    return LevelledScore(network=Says(answer), noise=noise, preconditioning=preconditioning)(t, x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NOISES)
def test_the_answer_that_is_needed_gives_the_score(name, kind):
    noise = NOISES[name]
    for data, (weights, centres, scale) in DATA.items():
        exact = mixture_score(noise, weights, centres, scale)
        for t in LEVELS:
            for x in POINTS:
                right = np.asarray(exact(jnp.asarray(t), jnp.asarray(x, jnp.float32)), float)
                needed = answers(data, name, t, x)
                # Rounding of float32, in units of the parts of which the score is a difference.
                size = 1e-4 * (np.linalg.norm(right) + 1 + np.linalg.norm(x) / path(name, t)[1] ** 2)

                def off(answer, t=t, x=x, right=right):
                    found = said(KINDS[kind], noise, jnp.asarray(answer, float), jnp.asarray(t), jnp.asarray(x, float))
                    return np.linalg.norm(np.asarray(found, float) - right)

                assert off(needed[kind]) < size
                # Controls at a level where all are of one size: the other sign, and what another one would need.
                if t == 0.3:
                    assert off(-needed[kind]) > 10 * size
                    others = [off(answer) for other, answer in needed.items() if other != kind]
                    assert np.mean(np.array(others) > 10 * size) >= 0.8


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_is_shown_points_of_order_one_and_the_level(kind):
    class Shows(eqx.Module):
        def __call__(self, x, level, condition):
            return jnp.append(x, level)

    def shown(noise, t):
        score = LevelledScore(network=Shows(), noise=noise, preconditioning=KINDS[kind])
        return score.answered(jnp.asarray(t), jnp.array([2.0, -1.0]), None)[1]

    for name, noise in NOISES.items():
        alpha, sigma, _, _ = path(name, 0.3)
        width = 1.0 if kind in BARE else np.sqrt((alpha * SPREAD) ** 2 + sigma**2)
        level = 0.0 if kind == "DividedBySigma" else 0.3
        np.testing.assert_allclose(shown(noise, 0.3), [2 / width, -1 / width, level], rtol=1e-5)
        assert np.abs(shown(noise, 0.3) - shown(noise, 0.6)).max() > 0.05 or kind == "DividedBySigma"


@pytest.mark.parametrize("kind", KINDS)
def test_an_energy_is_that_of_a_score_with_the_gradient_of_its_network(kind):
    def bumps(x, level, condition):
        return jnp.sum(jnp.sin(x + level)) + x[0] * x[1]

    x, noise = jnp.array([0.4, -1.3]), NOISES["preserving"]
    energy = LevelledEnergy(network=bumps, noise=noise, space=Real((2,)), preconditioning=KINDS[kind])
    score = LevelledScore(network=jax.grad(bumps), noise=noise, preconditioning=KINDS[kind])
    halved = LevelledScore(network=lambda *a: 0.5 * jax.grad(bumps)(*a), noise=noise, preconditioning=KINDS[kind])
    for t in jnp.array([0.1, 0.8]):
        np.testing.assert_allclose(energy(t, x), score(t, x), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(-jax.grad(energy.at(t))(x), score(t, x), rtol=1e-4, atol=1e-5)
        assert np.abs(energy(t, x) - halved(t, x)).max() > 1e-3


@pytest.mark.parametrize("kind", [PredictNoise, PredictData, PredictVelocity, PredictFlow, Scaled])
def test_a_spread_of_nothing_is_refused(kind):
    with pytest.raises(un.InputError, match="the standard deviation of the data must be positive"):
        kind(0.0)


def test_a_preconditioning_is_not_learnt():
    score = un.scores.levelled_score(Gaussian(0.5), 2, width=4, depth=1, key=jax.random.key(0))
    learnt = jax.tree.leaves(eqx.filter(score, un.training.trainable(score)))
    assert len(learnt) == len(jax.tree.leaves(eqx.filter(score.network, eqx.is_array))) == 4
