"""Scales come from the data: they find the width of modes, not of the whole, and move with the units."""

import jax
import numpy as np
import pytest
from clouds import kde_by_hand
from scipy.special import logsumexp

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


@pytest.mark.parametrize(("width", "dimension"), [(0.3, 2), (0.2, 10)])
def test_bandwidth_and_length_are_those_of_the_definition(width, dimension):
    """In double precision: the likeliest width of the kernels, and sqrt(d / E|grad log kde|^2) at it."""
    data = clusters(width, dimension, jax.random.key(3)).astype(np.float64)
    train, valid = data[:800], data[800:1000]
    found = scales_of(train, valid)

    def held_out(bandwidth):
        return kde_by_hand(valid, train, bandwidth).mean()

    # The widths that are tried lie a factor of 100^(1/24) = 1.21 apart.
    finer = found.bandwidth * 1.05 ** np.arange(-20, 21)
    best = finer[np.argmax([held_out(h) for h in finer])]
    assert 1 / 1.22 < found.bandwidth / best < 1.22
    assert held_out(found.bandwidth) > max(held_out(found.bandwidth * f) for f in (1.25, 1 / 1.25))

    def length(bandwidth):
        squared = np.sum((valid[:, None] - train) ** 2, axis=-1)
        logits = -squared / (2 * bandwidth**2)
        shares = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
        scores = (shares @ train - valid) / bandwidth**2
        return np.sqrt(dimension / np.mean(np.sum(scores**2, axis=1)))

    assert found.length == pytest.approx(length(found.bandwidth), rel=1e-3)
    # Controls: the length at the next width, and of the summed square of a score in the place of a coordinate's.
    assert found.length != pytest.approx(length(1.21 * found.bandwidth), rel=1e-2)
    assert found.length != pytest.approx(length(found.bandwidth) / dimension**0.5, rel=1e-2)
    assert found.step == pytest.approx(found.length * (2 / dimension) ** 0.5)
