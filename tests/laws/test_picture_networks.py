"""Networks of pictures: resampling and norms against their formulas, and what a new network says."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm.errors import InputError
from unnorm.networks import UNet
from unnorm.networks.blocks import Attention, GroupNorm, ResBlock
from unnorm.networks.resample import double, halve
from unnorm.parts import trainable
from unnorm.spaces import Categorical

KEY = jax.random.key(0)
PICTURE = np.asarray(jax.random.normal(KEY, (8, 6, 4)))


def by_matrix(n: int, smooth: bool) -> np.ndarray:
    """The halving of n values as a matrix, written out."""
    matrix = np.zeros((n // 2, n))
    for i in range(n // 2):
        taps = [(-1, 1), (0, 3), (1, 3), (2, 1)] if smooth else [(0, 1), (1, 1)]
        for at, weight in taps:
            matrix[i, min(max(2 * i + at, 0), n - 1)] += weight / (8 if smooth else 2)
    return matrix


@pytest.mark.parametrize("smooth", [False, True])
def test_halving_is_its_matrix_along_each_axis(smooth):
    found = halve(jnp.asarray(PICTURE), smooth=smooth)
    truth = np.einsum("ih,jw,hwc->ijc", by_matrix(8, smooth), by_matrix(6, smooth), PICTURE)
    np.testing.assert_allclose(found, truth, atol=1e-6)
    wrong = np.einsum("ih,jw,hwc->ijc", by_matrix(8, not smooth), by_matrix(6, not smooth), PICTURE)
    assert np.abs(found - wrong).max() > 0.1


def test_doubling_is_four_times_the_transpose_of_halving_away_from_the_edge():
    for smooth in (False, True):
        small = jnp.zeros((4, 4, 1)).at[1, 2, 0].set(1.0)
        transpose = jax.linear_transpose(lambda x, s=smooth: halve(x, smooth=s), jnp.zeros((8, 8, 1)))(small)[0]
        np.testing.assert_allclose(double(small, smooth=smooth), 4 * transpose, atol=1e-6)
    np.testing.assert_allclose(halve(double(jnp.asarray(PICTURE))), PICTURE, atol=1e-6)
    assert np.abs(halve(double(jnp.asarray(PICTURE), smooth=True), smooth=True) - PICTURE).max() > 0.1


def test_a_picture_of_odd_size_is_not_halved():
    with pytest.raises(InputError, match="a picture of 3 x 4 cannot be halved"):
        halve(jnp.zeros((3, 4, 1)))


def test_group_norm_is_the_textbooks_also_about_a_large_mean():
    norm = eqx.tree_at(lambda n: (n.gain, n.bias), GroupNorm(4, groups=2), (jnp.arange(1.0, 5.0), jnp.arange(4.0)))
    for shift, tolerance in ((0.0, 1e-5), (1000.0, 1e-3)):
        x = PICTURE + shift
        groups = x.reshape(8, 6, 2, 2)
        mean, var = groups.mean((0, 1, 3), keepdims=True), groups.var((0, 1, 3), keepdims=True)
        truth = ((groups - mean) / np.sqrt(var + 1e-5)).reshape(8, 6, 4) * np.arange(1.0, 5.0) + np.arange(4.0)
        np.testing.assert_allclose(norm(jnp.asarray(x)), truth, atol=tolerance * 4)
        assert np.abs(GroupNorm(4, groups=1)(jnp.asarray(x)) - GroupNorm(4, groups=2)(jnp.asarray(x))).max() > 0.01
    with pytest.raises(InputError, match="4 channels cannot be shared equally by 3 groups"):
        GroupNorm(4, groups=3)


def test_new_blocks_hand_on_what_they_get():
    x = jnp.asarray(PICTURE)
    np.testing.assert_allclose(ResBlock(4, 4, 0, key=KEY)(x), x / np.sqrt(2), atol=1e-6)
    np.testing.assert_allclose(Attention(4, key=KEY)(x), x / np.sqrt(2), atol=1e-6)
    np.testing.assert_allclose(ResBlock(4, 4, 0, size="half", key=KEY)(x), halve(x) / np.sqrt(2), atol=1e-6)


def test_attention_is_a_weighted_mean_over_places():
    """By a formula written out, with weights that are not silent; and shuffled places are shuffled answers."""
    layer = Attention(4, key=KEY)
    layer = eqx.tree_at(lambda a: a.out.kernel, layer, jax.random.normal(KEY, layer.out.kernel.shape))
    x = jnp.asarray(PICTURE)
    q, k, v = np.split(np.asarray(layer.looks(layer.norm(x))).reshape(48, 12).astype(np.float64), 3, axis=1)
    weights = np.exp(q @ k.T / 2.0)
    heads = (weights / weights.sum(1, keepdims=True)) @ v
    truth = (PICTURE.reshape(48, 4) + heads @ np.asarray(layer.out.kernel)[0, 0] + np.asarray(layer.out.bias)) / 2**0.5
    np.testing.assert_allclose(layer(x).reshape(48, 4), truth, atol=1e-4)
    order = np.random.default_rng(0).permutation(48)
    mixed = layer(x.reshape(48, 4)[order].reshape(8, 6, 4)).reshape(48, 4)
    np.testing.assert_allclose(mixed, layer(x).reshape(48, 4)[order], atol=1e-4)


def loud(network):
    """The network with no layer silent, as after training."""
    weights, rest = eqx.partition(network, trainable(network))
    keys = iter(jax.random.split(KEY, len(jax.tree.leaves(weights))))
    moved = jax.tree.map(lambda w: w + 0.1 * jax.random.normal(next(keys), w.shape), weights)
    return eqx.combine(moved, rest)


@pytest.fixture(scope="module")
def small():
    return UNet((7, 6, 1), channels=4, multipliers=(1, 2), condition=Categorical((), 3), attention=(1,), key=KEY)


def test_a_u_net_hears_of_level_and_label_and_begins_silent(small):
    x, label = jnp.asarray(PICTURE[:7, :, :1]), jnp.asarray(1)
    assert small(x, jnp.asarray(0.3), label).shape == x.shape
    assert not np.any(small(x, jnp.asarray(0.3), label))
    net = eqx.filter_jit(loud(small))
    base = net(x, jnp.asarray(0.3), label)
    assert np.abs(net(x, jnp.asarray(0.4), label) - base).max() > 1e-4
    assert np.abs(net(x, jnp.asarray(0.3), jnp.asarray(2)) - base).max() > 1e-4
    without = eqx.tree_at(lambda n: n.embedding.told.weight, loud(small), replace_fn=jnp.zeros_like)
    np.testing.assert_allclose(
        net(x, jnp.asarray(0.3), jnp.asarray(3)), eqx.filter_jit(without)(x, jnp.asarray(0.3), label), atol=1e-5
    )
    with pytest.raises(InputError, match=r"told a condition on Categorical\(shape=\(\), categories=3\); pass one"):
        small(x, jnp.asarray(0.3))
    with pytest.raises(InputError, match="made for pictures of"):
        small(x[:6], jnp.asarray(0.3), label)


def test_frequencies_are_given_and_everything_else_is_learnt(small):
    learnt = sum(w.size for w in jax.tree.leaves(eqx.filter(small, trainable(small))))
    every = sum(w.size for w in jax.tree.leaves(eqx.filter(small, eqx.is_array)))
    assert every - learnt == len(small.embedding.frequencies)


def test_what_a_u_net_cannot_be_is_said():
    with pytest.raises(InputError, match="attention at size \\[2\\]"):
        UNet((8, 8, 1), channels=4, multipliers=(1, 1), attention=(2,), key=KEY)
    with pytest.raises(InputError, match="rows, columns and channels"):
        UNet((8, 8), channels=4, key=KEY)
