"""Laws of the walk from noise to data: exact on Gaussians, and right about the weights of far modes.

Data N(m, C) have at level t the marginal N(alpha m, alpha^2 C + sigma^2 I), whose score is linear: every posterior
between levels is Gaussian, so Gibbs between levels must end with the moments of the data, whatever the levels.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_scores import gaussian_score, mixture_score
from harness import breaks, holds

import unnorm as un
from unnorm.generators import (
    GibbsTransition,
    LangevinCorrector,
    PosteriorDraw,
    PosteriorMean,
    Stay,
    Then,
    generate,
)
from unnorm.generators.base import AbstractOneStep
from unnorm.noises import OrnsteinUhlenbeck, VarianceExploding, VariancePreserving
from unnorm.samplers import DiagonalCovariance, IsotropicCovariance
from unnorm.scores import LevelledFunction

MEAN = np.array([0.5, -1.0])
COVARIANCE = np.array([[1.0, 0.6], [0.6, 0.7]])
LEVELS = np.array([1.0, 0.7, 0.45, 0.3, 0.15, 0.05])
POINTS = 8000
NOISES = {"exploding": VarianceExploding(0.3, 4.0), "preserving": VariancePreserving(), "OU": OrnsteinUhlenbeck(2.0)}


def exact_score(noise) -> LevelledFunction:
    return gaussian_score(noise, MEAN, COVARIANCE)


def start(noise) -> np.ndarray:
    """Exact draws at the first level."""
    alpha, variance = float(noise.alpha(LEVELS[0])), float(noise.variance(LEVELS[0]))
    covariance = alpha**2 * COVARIANCE + variance * np.eye(2)
    return np.random.default_rng(0).multivariate_normal(alpha * MEAN, covariance, POINTS)


def moments(x: np.ndarray) -> np.ndarray:
    offset = np.asarray(x, np.float64) - MEAN
    return np.stack([*offset.T, offset[:, 0] ** 2, offset[:, 0] * offset[:, 1], offset[:, 1] ** 2], axis=1)


def truth(covariance: np.ndarray) -> np.ndarray:
    return np.array([0.0, 0.0, covariance[0, 0], covariance[0, 1], covariance[1, 1]])


def ends(noise, transition, finish, levels=LEVELS) -> np.ndarray:
    options = {"levels": levels, "n": POINTS, "shape": (2,), "start": start(noise), "key": jax.random.key(1)}
    walk = generate(exact_score(noise), transition, finish=finish, **options)
    assert walk.warnings == ()
    return moments(walk.points)


class AsPrinted(AbstractOneStep):
    """Zhang et al. 2023, Alg. 2 to the letter: noise is added to a point of level t as if it were of level s."""

    def move(self, score, t, s, x, *, key):
        noise, (up, down) = score.noise, jax.random.split(key)
        kept = noise.alpha(t) / noise.alpha(s)
        variance = noise.variance(t) - kept**2 * noise.variance(s)
        again = kept * x + jnp.sqrt(variance) * jax.random.normal(up, x.shape)
        return GibbsTransition().move(score, t, s, again, key=down)


# ------------------------------------------------------------------------------------------------- Gaussian data


@pytest.mark.parametrize("name", NOISES)
def test_gibbs_between_levels_ends_with_the_moments_of_gaussian_data(name):
    noise = NOISES[name]
    assert holds(ends(noise, GibbsTransition(steps=2), PosteriorDraw()), truth(COVARIANCE))
    # Without the last draw the points keep the last noise; with the posterior mean they lose more than the noise.
    alpha, variance = float(noise.alpha(LEVELS[-1])), float(noise.variance(LEVELS[-1]))
    gain = alpha * COVARIANCE @ np.linalg.inv(alpha**2 * COVARIANCE + variance * np.eye(2))
    sharper = ends(noise, GibbsTransition(), PosteriorMean())
    assert holds(sharper, truth(alpha * gain @ COVARIANCE))
    if name == "exploding":
        assert breaks(sharper, truth(COVARIANCE))
        stayed = ends(noise, GibbsTransition(), Stay())
        assert holds(stayed, truth(COVARIANCE + variance * np.eye(2))) and breaks(stayed, truth(COVARIANCE))


def test_the_algorithm_to_the_letter_is_not_exact():
    noise = NOISES["exploding"]
    assert holds(ends(noise, GibbsTransition(), PosteriorDraw()), truth(COVARIANCE))
    assert breaks(ends(noise, AsPrinted(), PosteriorDraw()), truth(COVARIANCE))


def test_one_step_from_any_level_to_almost_none_is_exact():
    noise = VarianceExploding(0.01, 4.0)
    once = ends(noise, GibbsTransition(), PosteriorDraw(), levels=np.array([1.0, 0.0]))
    assert holds(once, truth(COVARIANCE))
    # The diagonal of the posterior covariance loses the correlation that the noise hid.
    diagonal = ends(noise, GibbsTransition(DiagonalCovariance(4)), PosteriorDraw(), levels=np.array([1.0, 0.0]))
    assert breaks(diagonal, truth(COVARIANCE))


# ------------------------------------------------------------------------------------------------- far modes

#: Components N(+-(4, 4), I).
CENTRES = np.array([[-4.0, -4.0], [4.0, 4.0]])
WEIGHTS = np.array([0.2, 0.8])


def test_annealing_finds_the_weights_that_langevin_does_not():
    """Batches of the share of points at the larger mode; what annealing leaves is within 0.02 of the weight."""
    noise, n = VarianceExploding(0.5, 16.0), 4000
    levels = np.repeat(np.linspace(1, 0, 20), 2)

    def shares(transition, levels):
        begin = jax.random.uniform(jax.random.key(2), (n, 2), minval=-8, maxval=8)
        options = {"levels": levels, "n": n, "shape": (2,), "start": begin, "key": jax.random.key(3)}
        found = generate(mixture_score(noise, WEIGHTS, CENTRES, 1.0), transition, finish=Stay(), **options).points
        return (found.sum(axis=1) > 0).reshape(20, -1).mean(axis=1)

    plain = shares(LangevinCorrector(ratio=0.2, steps=800), np.array([0.0, 0.0]))
    assert breaks(plain, WEIGHTS[1], bias=0.2)
    assert holds(shares(LangevinCorrector(ratio=0.2, steps=20), levels), WEIGHTS[1], bias=0.02)
    assert holds(shares(GibbsTransition(steps=2), levels), WEIGHTS[1], bias=0.02)


# --------------------------------------------------------------------------------------------------- nothing hidden


def test_raised_variances_are_counted_through_compositions():
    """A score steeper than noise allows, -2 x / v: both variances of each point are raised at each draw."""
    noise = VarianceExploding(0.5, 1.0)
    sharp = LevelledFunction(lambda t, x: -100.0 * x, noise)
    options = {"levels": np.array([1.0, 0.5, 0.0]), "n": 7, "shape": (2,), "key": jax.random.key(4)}
    walk = generate(sharp, GibbsTransition(), finish=PosteriorDraw(), **options)
    assert walk.clipped == 7 * 2 * 3 and "below the floor" in walk.warnings[0]
    both = Then(LangevinCorrector(0.001), GibbsTransition(steps=3))
    assert generate(sharp, both, finish=Stay(), **options).clipped == 3 * 7 * 2 * 2
    # A Langevin step that is far too long loses every point, and says so.
    lost = generate(sharp, LangevinCorrector(10.0, steps=50), **options)
    assert lost.lost == 7 and lost.clipped == 0 and "not finite" in lost.warnings[0]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: GibbsTransition(steps=0), "at least one step"),
        (lambda: GibbsTransition(IsotropicCovariance(0.1)), "belongs to one noise level"),
    ],
)
def test_bad_transitions_are_refused(build, words):
    with pytest.raises(un.InputError, match=words):
        build()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"levels": np.array([0.0, 1.0])}, "must fall"),
        ({"levels": np.array([1.0])}, "at least two"),
        ({"n": 0}, "the number of points must be"),
        ({"start": np.zeros((3, 3))}, "cannot start"),
    ],
)
def test_bad_walks_are_refused(wrong, words):
    noise = NOISES["exploding"]
    options = {"levels": LEVELS, "n": 3, "shape": (2,), "key": jax.random.key(0), **wrong}
    with pytest.raises(un.InputError, match=words):
        generate(exact_score(noise), GibbsTransition(), **options)
