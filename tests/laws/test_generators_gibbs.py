"""Laws of the walk from noise to data: exact on Gaussians, and right about the weights of far modes.

Data N(m, C) have at level t the marginal N(alpha m, alpha^2 C + sigma^2 I), whose score is linear: every posterior
between levels is Gaussian, so Gibbs between levels must end with the moments of the data, whatever the levels.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.generators import (
    AbstractTransition,
    GibbsTransition,
    LangevinCorrector,
    PosteriorDraw,
    PosteriorMean,
    Stay,
    Then,
    generate,
)
from unnorm.noises import OrnsteinUhlenbeck, VarianceExploding, VariancePreserving
from unnorm.objectives import DSM
from unnorm.samplers import DiagonalCovariance, IsotropicCovariance
from unnorm.scores import FunctionScore, conditional_energy, conditional_score, silent_mlp, silent_resnet
from unnorm.training import fit

MEAN = np.array([0.5, -1.0])
COVARIANCE = np.array([[1.0, 0.6], [0.6, 0.7]])
LEVELS = np.array([1.0, 0.7, 0.45, 0.3, 0.15, 0.05])
POINTS = 8000
NOISES = {"exploding": VarianceExploding(0.3, 4.0), "preserving": VariancePreserving(), "OU": OrnsteinUhlenbeck(2.0)}


def exact_score(noise) -> FunctionScore:
    values, vectors = (jnp.asarray(part, float) for part in np.linalg.eigh(COVARIANCE))

    def score(t, x):
        along = vectors.T @ (x - noise.alpha(t) * jnp.asarray(MEAN, float))
        return -vectors @ (along / (noise.alpha(t) ** 2 * values + noise.variance(t)))

    return FunctionScore(score)


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
    walk = generate(exact_score(noise), noise, transition, finish=finish, **options)
    assert walk.warnings == ()
    return moments(walk.points)


class AsPrinted(AbstractTransition):
    """Zhang et al. 2023, Alg. 2 to the letter: noise is added to a point of level t as if it were of level s."""

    def __call__(self, score, noise, t, s, x, *, key):
        up, down = jax.random.split(key)
        kept = noise.alpha(t) / noise.alpha(s)
        variance = noise.variance(t) - kept**2 * noise.variance(s)
        again = kept * x + jnp.sqrt(variance) * jax.random.normal(up, x.shape)
        return GibbsTransition()(score, noise, t, s, again, key=down)


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

CENTRES = np.array([[-4.0, -4.0], [4.0, 4.0]])
WEIGHTS = np.array([0.2, 0.8])


def mixture_score(noise) -> FunctionScore:
    """Components N(+-(4, 4), I) with noise: the same means, variances 1 + sigma^2."""

    def score(t, x):
        variance = 1 + noise.variance(t)
        offsets = jnp.asarray(CENTRES) - x
        logits = jnp.log(jnp.asarray(WEIGHTS)) - jnp.sum(offsets**2, axis=1) / (2 * variance)
        return jax.nn.softmax(logits) @ offsets / variance

    return FunctionScore(score)


def test_annealing_finds_the_weights_that_langevin_does_not():
    """Batches of the share of points at the larger mode; what annealing leaves is within 0.02 of the weight."""
    noise, n = VarianceExploding(0.5, 16.0), 4000
    levels = np.repeat(np.linspace(1, 0, 20), 2)

    def shares(transition, levels):
        begin = jax.random.uniform(jax.random.key(2), (n, 2), minval=-8, maxval=8)
        options = {"levels": levels, "n": n, "shape": (2,), "start": begin, "key": jax.random.key(3)}
        found = generate(mixture_score(noise), noise, transition, finish=Stay(), **options).points
        return (found.sum(axis=1) > 0).reshape(20, -1).mean(axis=1)

    plain = shares(LangevinCorrector(ratio=0.2, steps=800), np.array([0.0, 0.0]))
    assert breaks(plain, WEIGHTS[1], bias=0.2)
    assert holds(shares(LangevinCorrector(ratio=0.2, steps=20), levels), WEIGHTS[1], bias=0.02)
    assert holds(shares(GibbsTransition(steps=2), levels), WEIGHTS[1], bias=0.02)


# --------------------------------------------------------------------------------------------------- nothing hidden


def test_raised_variances_are_counted_through_compositions():
    """A score steeper than noise allows, -2 x / v: both variances of each point are raised at each draw."""
    noise = VarianceExploding(0.5, 1.0)
    sharp = FunctionScore(lambda t, x: -100.0 * x)
    options = {"levels": np.array([1.0, 0.5, 0.0]), "n": 7, "shape": (2,), "key": jax.random.key(4)}
    walk = generate(sharp, noise, GibbsTransition(), finish=PosteriorDraw(), **options)
    assert walk.clipped == 7 * 2 * 3 and "below the floor" in walk.warnings[0]
    both = Then(LangevinCorrector(0.001), GibbsTransition(steps=3))
    assert generate(sharp, noise, both, finish=Stay(), **options).clipped == 3 * 7 * 2 * 2
    # A Langevin step that is far too long loses every point, and says so.
    lost = generate(sharp, noise, LangevinCorrector(10.0, steps=50), **options)
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
        generate(exact_score(noise), noise, GibbsTransition(), **options)


# ------------------------------------------------------------------------------------------------ conditional scores


@pytest.mark.parametrize("name", NOISES)
def test_an_untrained_conditional_score_is_that_of_gaussian_data(name):
    noise, x = NOISES[name], jnp.array([0.7, -2.0])
    for make in (silent_mlp, silent_resnet):
        for kind in (conditional_score, conditional_energy):
            score = kind(noise, 2, spread=1.5, width=8, make=make, key=jax.random.key(5))
            for t in jnp.array([0.1, 0.9]):
                exact = -x / (2.25 * noise.alpha(t) ** 2 + noise.variance(t))
                assert np.allclose(score(t, x), exact, rtol=1e-5)
                assert not np.allclose(score(t, x), -x / (2.25 + noise.variance(t) * 2), rtol=1e-2)


def test_a_conditional_score_learns_the_scores_of_all_levels():
    """E |sigma (s - s_exact)|^2 / d over noised data, what DSM exceeds its minimum by, falls to a seventh or less."""
    noise, centres = VarianceExploding(0.1, 5.0), jnp.array([[-1.0, 0.0], [1.0, 0.5]])
    data = un.energies.gaussian_mixture([0.3, 0.7], centres, 0.4).samples(5000, key=jax.random.key(6))
    model = conditional_score(noise, 2, spread=0.8, width=64, depth=2, key=jax.random.key(7))
    learnt = fit(model, DSM(noise), data, steps=2000, batch=256, rate=3e-3, key=jax.random.key(8), progress=False).model

    def exact(t, x):
        variance = 0.16 + noise.variance(t)
        logits = jnp.log(jnp.array([0.3, 0.7])) - jnp.sum((centres - x) ** 2, axis=1) / (2 * variance)
        return jax.nn.softmax(logits) @ (centres - x) / variance

    @eqx.filter_jit
    def excess(score_of, t):
        ys = data + noise.sigma(t) * jax.random.normal(jax.random.key(9), data.shape)
        return jnp.mean(jax.vmap(lambda y: noise.sigma(t) * (score_of(t, y) - exact(t, y)))(ys) ** 2)

    for t in jnp.array([0.0, 0.3, 0.6, 0.9]):
        assert float(excess(learnt, t)) < 0.15 * float(excess(model, t))
        # Control: the scores of another level, which are all alike where the noise is narrow.
        if t > 0:
            assert float(excess(lambda t, y: learnt(t + 0.2, y), t)) > 0.5 * float(excess(model, t))
