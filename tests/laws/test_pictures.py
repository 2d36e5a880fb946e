"""Figures of pictures and the Frechet distance against formulas, other libraries and coverage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

from unnorm import evaluation as ev
from unnorm.errors import InputError
from unnorm.evaluation.two_sample.frechet import frechet_of

KEY = jax.random.key(0)


def test_frechet_distance_of_gaussians_is_the_closed_form():
    chance = np.random.default_rng(0)
    one, other = (a @ a.T for a in chance.normal(size=(2, 5, 5)))
    means = chance.normal(size=(2, 5))
    import scipy.linalg

    root = np.real(scipy.linalg.sqrtm(one @ other))
    truth = np.sum((means[0] - means[1]) ** 2) + np.trace(one + other - 2 * root)
    assert abs(frechet_of((means[0], one), (means[1], other)) - truth) < 1e-6 * truth
    flat = np.diag([1.0, 0.0, 0.0, 0.0, 0.0])
    assert abs(frechet_of((means[0], flat), (means[0], 4 * flat)) - 1) < 1e-9


def test_frechet_error_is_that_of_repeats_and_the_floor_that_of_equal_laws():
    chance = np.random.default_rng(1)
    apart, same = [], []
    for i in range(40):
        x, y, z = chance.normal(size=(3, 300, 4))
        apart.append(ev.frechet(x, y + np.array([0.7, 0, 0, 0]), resamples=20, key=jax.random.key(i)))
        same.append(ev.frechet(x, z, resamples=2, key=jax.random.key(i)))
    spread = np.std([one.value for one in apart], ddof=1)
    stated = np.mean([one.stderr for one in apart])
    assert 0.7 < stated / spread < 1.5
    floor = np.array([one.diagnostics["floor"] for one in same])
    values = np.array([one.value for one in same])
    assert holds(values - floor, 0.0) and breaks(values, 0.0)


def test_frechet_distance_in_features():
    x = np.random.default_rng(2).normal(size=(200, 3))
    found = ev.frechet(x, x + np.array([0, 0, 5.0]), features=lambda row: row[:2], key=KEY)
    assert abs(found.value) < 1e-9 and "features" in found.method
    with pytest.raises(InputError, match="rows of 3 and of 2 numbers"):
        ev.frechet(x, x[:, :2], key=KEY)
    with pytest.raises(InputError, match="at least 4 rows, and the second sample has 3"):
        ev.frechet(x, x[:3], key=KEY)


def test_similarity_of_pictures_is_that_of_another_library():
    metrics = pytest.importorskip("skimage.metrics")
    chance = np.random.default_rng(3)
    truth = chance.random((20, 17, 2)).astype(np.float32) * 2 - 1
    x = np.clip(truth + 0.3 * chance.normal(size=truth.shape), -1, 1).astype(np.float32)
    theirs = metrics.structural_similarity(x, truth, data_range=2.0, channel_axis=2)
    assert abs(float(ev.ssim(jnp.asarray(x), jnp.asarray(truth))) - theirs) < 1e-4
    assert abs(float(ev.ssim(jnp.asarray(x), jnp.asarray(truth), span=1.0)) - theirs) > 1e-3
    theirs = metrics.peak_signal_noise_ratio(truth, x, data_range=2.0)
    assert abs(float(ev.psnr(jnp.asarray(x), jnp.asarray(truth))) - theirs) < 1e-3
    with pytest.raises(InputError, match="a window of 9 does not fit"):
        ev.ssim(jnp.zeros((8, 8, 1)), jnp.zeros((8, 8, 1)), window=9)


def test_nearest_rows_are_those_of_brute_force():
    chance = np.random.default_rng(4)
    rows, others = chance.normal(size=(300, 6)) + 50, chance.normal(size=(70, 6)) + 50
    far = np.sqrt(((rows[:, None] - others) ** 2).sum(-1))
    found = ev.nearest(rows.reshape(300, 2, 3), others.reshape(70, 2, 3))
    assert np.array_equal(found.places, far.argmin(1))
    np.testing.assert_allclose(found.distances, far.min(1), rtol=1e-4)
