"""Kernel score estimators on N(0, I), whose score is -x, and against each other where they must coincide."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

from unnorm.errors import InputError
from unnorm.scores import SpectralScore, median_width, stein_score

REPEATS = 60


def spectral_at_samples(x):
    score = SpectralScore(x)
    return jax.vmap(lambda point: score(0.0, point))(x)


def errors(estimator, dimension, n=100, repeats=REPEATS):
    """|s(x_i) + x_i|^2, summed over coordinates and averaged over the n samples, one number per repeat.

    Of the estimate, of the estimate with the wrong sign, and of the estimate divided by n.
    """

    @jax.jit
    def one(key):
        x = jax.random.normal(key, (n, dimension))
        s = estimator(x)
        return jnp.stack([jnp.mean(jnp.sum((f * s + x) ** 2, axis=1)) for f in (1, -1, 1 / n)])

    found = jax.lax.map(one, jax.random.split(jax.random.key(0), repeats))
    return np.asarray(found, np.float64).T


# Errors measured once with another implementation on 100 samples; over how many sets is not known.
MEASURED = [
    (lambda x: stein_score(x, 0.001), 2, 2.6),
    (stein_score, 2, 0.25),
    (spectral_at_samples, 2, 0.39),
    (lambda x: stein_score(x, 0.001), 8, 16.3),
    (stein_score, 8, 1.1),
]


@pytest.mark.parametrize(("estimator", "dimension", "measured"), MEASURED)
def test_errors_on_a_standard_gaussian(estimator, dimension, measured):
    """The mean error is the one measured, which is allowed half the spread between sets as an error of its own."""
    found, wrong_sign, averaged = errors(estimator, dimension)
    spread = found.std(ddof=1) / 2
    assert holds(found, measured, bias=spread)
    assert breaks(wrong_sign, measured, bias=spread)
    assert breaks(averaged, measured, bias=spread)


@pytest.mark.parametrize("dimension", [2, 8])
def test_a_small_ridge_is_worse_than_no_estimate_and_the_default_much_better(dimension):
    zero = errors(jnp.zeros_like, dimension)[0]
    assert holds(zero, dimension)
    small, default = errors(lambda x: stein_score(x, 0.001), dimension)[0], errors(stein_score, dimension)[0]
    assert breaks(small - zero, 0.0) and np.mean(small) > np.mean(zero)
    assert breaks(zero / 5 - default, 0.0) and np.mean(default) < np.mean(zero) / 5


def test_all_eigenvalues_give_the_stein_estimator_without_ridge():
    """sum_j beta_j psi_j(x_i) = -(K^-1 B)_i: with a narrow kernel K is well conditioned and the limit is reached."""
    x = jax.random.normal(jax.random.key(1), (40, 5))
    whole = SpectralScore(x, share=1.0, width=0.8)
    # A share of 1 keeps all but the smallest eigenvalue; what that one carries is the tolerance.
    kernel = jnp.exp(-jnp.sum((x[:, None] - x) ** 2, -1) / (2 * 0.8**2))
    smallest, vector = (part[..., 0] for part in jnp.linalg.eigh(kernel))
    slopes = (jnp.sum(kernel, 1)[:, None] * x - kernel @ x) / 0.8**2
    missing = -jnp.outer(vector, vector @ slopes) / smallest
    stein = stein_score(x, ridge=1e-7, width=0.8)
    found = jax.vmap(lambda point: whole(0.0, point))(x)
    assert np.allclose(found + missing, stein, atol=2e-4 * float(jnp.abs(stein).max()))
    assert not np.allclose(found / len(x), stein, atol=1e-2)


def test_out_of_sample_error_vanishes_as_samples_grow():
    """At fresh points the spectral estimate approaches the score; the estimate of another density does not."""
    fresh = jax.random.normal(jax.random.key(2), (200, 2))

    def error(n, scale, repeats=16):
        @jax.jit
        def one(key):
            score = SpectralScore(scale * jax.random.normal(key, (n, 2)))
            return jnp.mean(jnp.sum((jax.vmap(lambda y: score(0.0, y))(fresh) + fresh) ** 2, axis=1))

        return np.asarray(jax.lax.map(one, jax.random.split(jax.random.key(3), repeats)), np.float64)

    few, many, other = error(40, 1.0), error(320, 1.0), error(320, 1.5)
    assert many.mean() + 4.5 * many.std(ddof=1) / 4 < few.mean() / 2.5
    # N(0, 1.5^2 I) has the score -x / 2.25, so that the error tends to (1 - 1/2.25)^2 |x|^2 instead of 0.
    assert other.mean() > few.mean() / 2.5


def test_scores_scale_inversely_with_the_data():
    """x -> 10 x changes a score by 1/10, whatever the width rule."""
    x = jax.random.normal(jax.random.key(4), (60, 3))
    assert np.allclose(10 * stein_score(10 * x), stein_score(x), atol=1e-4)
    assert np.allclose(10 * SpectralScore(10 * x)(0.0, 10 * x[0]), SpectralScore(x)(0.0, x[0]), atol=1e-3)
    assert not np.allclose(10 * stein_score(10 * x, width=1.0), stein_score(x, width=1.0), atol=1e-1)


def test_bad_options_are_refused():
    x = jnp.zeros((3, 2))
    with pytest.raises(InputError, match="ridge"):
        stein_score(x, ridge=0.0)
    with pytest.raises(InputError, match="share"):
        SpectralScore(x, share=0.0)
    with pytest.raises(InputError, match="at least 2"):
        median_width(x[:1])


@pytest.mark.parametrize("n", [2, 3, 4, 5, 40, 41])
def test_the_median_is_that_of_the_distances_of_all_pairs(n):
    """Of an odd and of an even number of pairs, and where many distances are the same or nought."""

    def squares(points):
        return np.sum((np.asarray(points)[:, None] - np.asarray(points)) ** 2, axis=-1)

    drawn = jax.random.normal(jax.random.key(n), (n, 3))
    for points in (drawn, jnp.arange(n)[:, None] // 2 * 1.0):
        truth = np.median(squares(points)[np.triu_indices(n, 1)])
        np.testing.assert_allclose(median_width(points), np.sqrt(truth), rtol=1e-6)
    # Control: the distances of points to themselves are not among them.
    assert not np.isclose(median_width(drawn), np.sqrt(np.median(squares(drawn))), rtol=1e-6)


def test_the_median_in_double_precision():
    with jax.enable_x64(True):
        points = jnp.asarray(np.random.default_rng(0).normal(size=(30, 2)))
        squared = np.sum((np.asarray(points)[:, None] - np.asarray(points)) ** 2, axis=-1)
        np.testing.assert_allclose(
            median_width(points), np.sqrt(np.median(squared[np.triu_indices(30, 1)])), rtol=1e-14
        )
