"""Laws of denoising with its uncertainty: moments by quadrature, directions by dense algebra, clean densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unnorm as un
from unnorm.energies import gaussian, gaussian_mixture, standard_gaussian
from unnorm.scores import low_rank_mlp
from unnorm.tasks import clean_density, denoise
from unnorm.tasks.clean import overlap

WEIGHTS, SIGMA = np.array([0.5, 0.3, 0.2]), 0.6
MEANS = np.array([[-1.0, 0.0], [1.0, 0.5], [0.5, -1.5]])
COVARIANCES = np.array([[[0.3, 0.1], [0.1, 0.2]], [[0.2, -0.1], [-0.1, 0.4]], [[0.2, 0.0], [0.0, 0.3]]])


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def by_quadrature(noisy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[x | x~] and Cov[x | x~] from p(x) N(x~; x, sigma^2 I) on a grid."""
    axis = np.linspace(-6, 6, 481)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.zeros(len(grid))
    for w, m, c in zip(WEIGHTS, MEANS, COVARIANCES, strict=True):
        offset = grid - m
        density += w * np.exp(-0.5 * np.sum(offset @ np.linalg.inv(c) * offset, axis=1)) / np.sqrt(np.linalg.det(c))
    density *= np.exp(-0.5 * np.sum((grid - noisy) ** 2, axis=1) / SIGMA**2)
    density /= density.sum()
    mean = density @ grid
    return mean, (density[:, None] * (grid - mean)).T @ (grid - mean)


def test_moments_and_directions_of_a_mixture_agree_with_quadrature(double):
    noisy = np.array([[0.3, -0.2], [-1.5, 1.0], [0.1, -0.8]])
    model = gaussian_mixture(WEIGHTS, MEANS, COVARIANCES + SIGMA**2 * np.eye(2))
    found = denoise(model, SIGMA, noisy, directions=2, key=jax.random.key(0))
    for i, point in enumerate(noisy):
        mean, covariance = by_quadrature(point)
        values, vectors = np.linalg.eigh(covariance)
        assert np.allclose(found.mean[i], mean, atol=1e-9)
        assert np.allclose(found.variances[i], np.diag(covariance), atol=1e-9)
        assert np.allclose(found.eigenvalues[i], values[::-1], atol=1e-9)
        assert np.allclose(np.abs(np.sum(found.eigenvectors[i] * vectors.T[::-1], axis=1)), 1, atol=1e-9)
    assert found.warnings == ()
    # The model of the clean density in place of the noisy one is not within sight of these numbers.
    wrong = denoise(gaussian_mixture(WEIGHTS, MEANS, COVARIANCES), SIGMA, noisy, key=jax.random.key(0))
    assert np.max(np.abs(wrong.mean - found.mean)) > 0.1 and wrong.warnings != ()


def test_directions_in_many_dimensions_agree_with_the_whole_matrix(double):
    """A second-order score of low rank, in 40 dimensions: products against eigh of the matrix."""
    model = low_rank_mlp(40, rank=3, width=16, factor_width=8, key=jax.random.key(1))
    noisy = jax.random.normal(jax.random.key(2), (2, 40))
    found = denoise(model, 0.5, noisy, directions=2, iterations=300, key=jax.random.key(3))
    for i in range(2):
        dense = 0.25 * np.eye(40) + 0.0625 * np.asarray(model.matrix(noisy[i]))
        values, vectors = np.linalg.eigh(dense)
        assert np.allclose(found.eigenvalues[i], values[::-1][:2], rtol=1e-4)
        assert np.abs(found.eigenvectors[i][0] @ vectors[:, -1]) > 0.999
    hurried = denoise(model, 0.5, noisy, directions=2, iterations=1, key=jax.random.key(3))
    assert np.max(hurried.residuals) > 10 * np.max(found.residuals)


def test_a_clean_density_is_recovered_where_there_is_one(double):
    """The mixture without its noise comes back; a density narrower than the noise has none behind it."""
    model = gaussian_mixture(WEIGHTS, MEANS, COVARIANCES + SIGMA**2 * np.eye(2))
    found = clean_density(model, SIGMA, [-8.0, -8.0], [8.0, 8.0], points=128, smallest=1e-11)
    truth = gaussian_mixture(WEIGHTS, MEANS, COVARIANCES)
    grid = np.stack(np.meshgrid(*found.axes, indexing="ij"), axis=-1).reshape(-1, 2)
    exact = np.exp(-np.asarray(jax.vmap(truth)(jnp.asarray(grid)))).reshape(128, 128)
    assert np.max(np.abs(found.density - exact)) < 2e-3 * exact.max()
    assert found.exists and found.negative < 1e-4
    too_sharp = clean_density(gaussian_mixture(WEIGHTS, MEANS, COVARIANCES), 0.9, [-8.0, -8.0], [8.0, 8.0], points=128)
    assert not too_sharp.exists and too_sharp.negative > 0.05
    # The boundary on the line: N(0, v) has a clean density for noise below v, and none above.
    line = gaussian(np.zeros(1), np.eye(1))
    verdicts = [clean_density(line, s, [-12.0], [12.0], smallest=1e-6).exists for s in (0.5, 0.8, 1.1, 1.3)]
    assert verdicts == [True, True, False, False]


def corners(dimension: int) -> tuple[list[float], list[float]]:
    return [-12.0] * dimension, [12.0] * dimension


@pytest.mark.parametrize(("dimension", "points"), [(1, 512), (1, 64), (2, 128)])
def test_a_clean_density_that_exists_is_never_denied(dimension, points):
    """N(0, 1 + c^2) is N(0, c^2) with noise 1, however small c; and two points with noise are a density too.

    In single precision, with the frequencies that leaves. The smoothed density is nowhere negative but for rounding.
    """
    low, high = corners(dimension)
    for c in (1.1, 0.8, 0.5, 0.2, 0.02):
        found = clean_density(standard_gaussian(dimension, (1 + c * c) ** 0.5), 1.0, low, high, points=points)
        assert found.exists and found.negative < 1e-5
    means = np.outer([-3.0, 2.0], np.ones(dimension))
    two = clean_density(gaussian_mixture([0.4, 0.6], means, 1.0), 1.0, low, high, points=points)
    assert two.exists and two.negative < 1e-5
    # Negative control: without the window, the same transforms ring below zero by more than is allowed.
    for c in (0.5, 0.2):
        found = clean_density(standard_gaussian(dimension, (1 + c * c) ** 0.5), 1.0, low, high, points=points)
        cell = (24.0 / points) ** dimension
        assert np.maximum(-found.density, 0).sum() * cell > 1e-3


@pytest.mark.parametrize(("dimension", "points"), [(1, 512), (1, 64), (2, 128)])
def test_a_density_narrower_than_the_noise_has_no_clean_one(dimension, points):
    low, high = corners(dimension)
    for scale in (0.6, 0.9, 0.97):
        assert not clean_density(standard_gaussian(dimension, scale), 1.0, low, high, points=points).exists
    # Wide as a whole, but of parts that are too narrow: the width alone does not tell.
    means = np.outer([-3.0, 2.0], np.ones(dimension))
    for scale in (0.8, 0.9):
        assert not clean_density(gaussian_mixture([0.4, 0.6], means, scale), 1.0, low, high, points=points).exists


def test_the_window_of_the_plane_is_the_overlap_of_two_discs():
    """The share of a disc of diameter 1 that another at distance t covers, by counting points."""
    axis = np.linspace(-0.5, 0.5, 1001)
    x, y = np.meshgrid(axis, axis)
    disc = x**2 + y**2 <= 0.25
    for t in (0.0, 0.3, 0.7, 1.0):
        counted = np.sum(disc & ((x - t) ** 2 + y**2 <= 0.25)) / disc.sum()
        # A border of 1000 cells among 785,000.
        assert abs(counted - overlap(np.array(t), 2)) < 2e-3
    # Negative control: the triangle, which is the window of the line.
    assert abs(overlap(np.array(0.3), 2) - overlap(np.array(0.3), 1)) > 0.05


def test_bad_questions_are_refused():
    line = gaussian(np.zeros(1), np.eye(1))
    with pytest.raises(un.InputError, match="line or in the plane"):
        clean_density(line, 1.0, [0.0] * 3, [1.0] * 3)
    with pytest.raises(un.InputError, match="directions"):
        denoise(line, 1.0, jnp.zeros((1, 1)), directions=2, key=jax.random.key(0))
