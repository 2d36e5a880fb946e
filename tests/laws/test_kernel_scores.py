"""Kernel score estimators on N(0, I), whose score is -x, and against each other where they must coincide."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

from unnorm.errors import InputError
from unnorm.scores import SpectralScore, median_width, stein_score

REPEATS = 60


def wide(factor, x):
    """The usual width, or a multiple of it."""
    return None if factor == 1.0 else factor * median_width(x)


def spectral_at_samples(x, factor=1.0):
    score = SpectralScore(x, width=wide(factor, x))
    return jax.vmap(lambda point: score(0.0, point))(x)


def stein_at_samples(x, factor=1.0, ridge=1.0):
    return stein_score(x, ridge, width=wide(factor, x))


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


def kernel_by_hand(x):
    """k(x_i, x_j) and its gradient in x_i, pair by pair, at the median distance of different points."""
    gaps = x[:, None] - x
    squares = np.sum(gaps**2, axis=-1)
    variance = np.median(squares[np.triu_indices(len(x), 1)])
    kernel = np.exp(-squares / (2 * variance))
    return kernel, -gaps * kernel[..., None] / variance


def spectral_by_hand(x):
    """sum_j beta_j psi_j(x_i) over the leading psi_j, from their definition."""
    kernel, slopes = kernel_by_hand(x)
    values, vectors = np.linalg.eigh(kernel)
    found, total = np.zeros_like(x), 0.0
    for value, vector in zip(values[::-1], vectors.T[::-1], strict=True):
        total += value
        if total >= 0.99 * values.sum():
            return found
        psi = np.sqrt(len(x)) / value * kernel @ vector
        beta = -np.mean(np.sqrt(len(x)) / value * np.einsum("ijd,j->id", slopes, vector), axis=0)
        found += psi[:, None] * beta
    return found


def stein_by_hand(x, ridge=1.0):
    """(K + ridge I) S = -B with B_i = sum_j grad_{x_j} k(x_i, x_j)."""
    kernel, slopes = kernel_by_hand(x)
    return np.linalg.solve(kernel + ridge * np.eye(len(x)), slopes.sum(axis=1))


def errors_by_hand(estimator, dimension, n=100, repeats=REPEATS):
    """As `errors`, of the same samples, in double precision."""
    draw = jax.vmap(lambda key: jax.random.normal(key, (n, dimension)))
    sets = np.asarray(draw(jax.random.split(jax.random.key(0), repeats)), np.float64)
    return np.array([np.mean(np.sum((estimator(x) + x) ** 2, axis=1)) for x in sets])


CASES = {
    "spectral": (spectral_at_samples, spectral_by_hand),
    "stein": (stein_at_samples, stein_by_hand),
    "stein, small ridge": (partial(stein_at_samples, ridge=0.001), partial(stein_by_hand, ridge=0.001)),
}


@pytest.mark.parametrize("dimension", [2, 8])
@pytest.mark.parametrize("name", CASES)
def test_errors_on_a_standard_gaussian(name, dimension):
    """Set by set the error is that of the definition; another width, sign or scale has another one."""
    estimator, by_hand = CASES[name]
    truth = errors_by_hand(by_hand, dimension)

    def gaps(found):
        return np.abs(found - truth) / truth.mean()

    found, wrong_sign, averaged = errors(estimator, dimension)
    # Single precision changes an error by less than a thousandth of their mean, another width by more than a hundredth.
    assert holds(gaps(found), 0.0, bias=1e-3)
    for wrong in (wrong_sign, averaged, *(errors(partial(estimator, factor=f), dimension)[0] for f in (0.75, 1.3))):
        assert breaks(gaps(wrong), 0.0, bias=0.01)


# Mean errors found once by another implementation on 100 samples; over how many sets is not known.
MEASURED = [
    (partial(stein_by_hand, ridge=0.001), 2, 2.6),
    (stein_by_hand, 2, 0.25),
    (spectral_by_hand, 2, 0.39),
    (partial(stein_by_hand, ridge=0.001), 8, 16.3),
    (stein_by_hand, 8, 1.1),
]


@pytest.mark.parametrize(("by_hand", "dimension", "measured"), MEASURED)
def test_the_definition_is_that_of_another_implementation(by_hand, dimension, measured):
    """To half the spread between sets, which the other's sets may have had as an error of their own."""
    found = errors_by_hand(by_hand, dimension)
    assert holds(found, measured, bias=found.std(ddof=1) / 2)


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
