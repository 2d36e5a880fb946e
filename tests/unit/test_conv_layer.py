"""The convolutional layer: sizes, first weights, number types, and what it refuses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm.errors import InputError
from unnorm.networks import Conv, convolve

KEY = jax.random.key(0)
IMAGE = jnp.zeros((6, 5, 2))
KERNEL = jnp.zeros((3, 3, 2, 4))


def test_a_layer_is_what_equinox_computes():
    """Whose images are channels, rows, columns, and whose kernels are outputs, inputs, rows, columns."""
    layer = Conv(2, 4, size=(3, 2), stride=2, padding=((1, 1), (0, 1)), key=KEY)
    peer = eqx.nn.Conv2d(2, 4, (3, 2), 2, ((1, 1), (0, 1)), key=KEY)
    peer = eqx.tree_at(
        lambda c: (c.weight, c.bias), peer, (layer.kernel.transpose(3, 2, 0, 1), layer.bias[:, None, None])
    )
    x = jax.random.normal(KEY, IMAGE.shape)
    np.testing.assert_allclose(layer(x), peer(x.transpose(2, 0, 1)).transpose(1, 2, 0), rtol=1e-5, atol=1e-6)


def test_sizes():
    """SAME: as many rows as strides begin on the image; VALID: as many as kernels fit on it."""
    for size in (1, 2, 3, 5):
        for stride in (1, 2, 3):
            for dilation in (1, 2):
                span = (size - 1) * dilation + 1
                layer = Conv(2, 3, size=size, stride=stride, dilation=dilation, key=KEY)
                assert jax.eval_shape(layer, IMAGE).shape == (-(-6 // stride), -(-5 // stride), 3)
                if span <= 5:
                    layer = Conv(2, 3, size=size, stride=stride, dilation=dilation, padding="VALID", key=KEY)
                    assert jax.eval_shape(layer, IMAGE).shape == ((6 - span) // stride + 1, (5 - span) // stride + 1, 3)


def test_first_weights_are_uniform_by_the_number_of_inputs():
    """Of n draws the variance b^2 / 3 has the relative standard error sqrt((9 / 5 - 1) / n)."""
    layer = Conv(16, 200, key=KEY)
    bound = 1 / np.sqrt(9 * 16)
    assert np.abs(layer.kernel).max() <= bound and np.abs(layer.bias).max() <= bound
    share = float(jnp.mean(layer.kernel**2)) / (bound**2 / 3)
    error = np.sqrt(0.8 / layer.kernel.size)
    assert abs(share - 1) < 4 * error
    # By the number of outputs it would be another.
    assert abs(share * 16 / 200 - 1) > 4 * error
    assert not np.any(Conv(2, 3, scale=0, key=KEY)(IMAGE + 1))
    assert Conv(2, 3, use_bias=False, key=KEY).bias is None


def test_number_types():
    with jax.enable_x64(True):
        for image, kernel, wanted in (
            (jnp.float32, jnp.float32, jnp.float32),
            (jnp.float64, jnp.float32, jnp.float64),
            (jnp.int32, jnp.float32, jnp.float32),
        ):
            assert convolve(jnp.ones((4, 4, 2), image), jnp.ones((3, 3, 2, 1), kernel)).dtype == wanted
        assert Conv(2, 3, key=KEY).kernel.dtype == jnp.float64


REFUSED = {
    "many images": (lambda: convolve(IMAGE[None], KERNEL), "use jax.vmap for many"),
    "a kernel without outputs": (lambda: convolve(IMAGE, KERNEL[..., 0]), r"has shape \(3, 3, 2\)"),
    "other channels": (lambda: convolve(IMAGE[..., :1], KERNEL), "a kernel of 2 inputs cannot take 1 channels"),
    "no stride": (lambda: convolve(IMAGE, KERNEL, stride=0), "the stride of a convolution must be at least 1, not 0"),
    "no dilation": (lambda: convolve(IMAGE, KERNEL, dilation=(1, 0)), "the dilation of a convolution must be at least"),
    "another word": (lambda: convolve(IMAGE, KERNEL, padding="FULL"), 'a padding is "SAME", "VALID" or numbers'),
    "less than none": (lambda: convolve(IMAGE, KERNEL, padding=((0, -1), (0, 0))), "must be 0 or more, not"),
    "another word for a layer": (lambda: Conv(2, 3, padding="same", key=KEY), "or numbers of zeros, not 'same'"),
    "too large": (lambda: convolve(IMAGE, KERNEL, dilation=3, padding="VALID"), "covers 7 rows or columns does not"),
    "no rows": (lambda: convolve(IMAGE[:0], KERNEL), "does not fit on 2"),
    "no inputs": (lambda: Conv(0, 3, key=KEY), "a convolution needs channels in and out, not 0 and 3"),
    "no size": (lambda: Conv(2, 3, size=0, key=KEY), "the size of a convolution must be at least 1, not 0"),
    "a negative scale": (lambda: Conv(2, 3, scale=-1, key=KEY), "must be 0 or more, not -1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    attempt, sentence = REFUSED[name]
    with pytest.raises(InputError, match=sentence):
        attempt()
