"""Scales come from the data: they find the width of modes, not of the whole, and move with the units."""

import jax
import numpy as np
import pytest

from unnorm.energies import gaussian_mixture
from unnorm.noises import scales_of


def clusters(width, dimension, key):
    """Five far modes of the given width."""
    centres = 3.0 * np.random.default_rng(0).normal(size=(5, dimension))
    mixture = gaussian_mixture(np.full(5, 0.2), centres, width)
    return np.asarray(mixture.samples(5000, key=key))


@pytest.mark.parametrize(("width", "dimension"), [(0.1, 2), (0.5, 2), (0.2, 10)])
def test_length_is_the_width_of_a_mode(width, dimension):
    """E|grad log p|^2 = d / width^2 for separate modes; smoothing by the estimate may change it by a third."""
    data = clusters(width, dimension, jax.random.key(1))
    scales = scales_of(data[:4000], data[4000:])
    assert width / 1.35 < scales.length < width * 1.35
    # Negative control: the spread of the whole data, a common choice, is far outside.
    assert not width / 1.35 < data.std() < width * 1.35
    # A local move then changes the energy by about 1.4: the root mean square of the first-order change.
    assert scales.step * np.sqrt(dimension) / width == pytest.approx(np.sqrt(2), rel=0.35)


def test_scales_follow_the_units():
    data = clusters(0.3, 2, jax.random.key(2))
    one, ten = scales_of(data[:4000], data[4000:]), scales_of(10 * data[:4000], 10 * data[4000:])
    assert ten.length == pytest.approx(10 * one.length, rel=1e-3)
    assert ten.bandwidth == pytest.approx(10 * one.bandwidth, rel=1e-3)
