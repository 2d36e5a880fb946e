"""What networks of pictures are made of: group norm, residual blocks told the level, attention."""

import math
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import require
from unnorm.networks.convolution import Conv
from unnorm.networks.dropout import Dropout
from unnorm.networks.levelled import condition_features
from unnorm.networks.linear import affine
from unnorm.networks.resample import double, halve
from unnorm.parts import AbstractPartlyFixed, held
from unnorm.spaces import AbstractSpace

Scalar = Float[Array, ""]
Image = Float[Array, "h w c"]


class GroupNorm(eqx.Module):
    """gain (x - mean) / deviation + bias, mean and deviation over a group of channels and all places (Wu and He 2018).

    By the sums of x and x^2 of each channel, then one multiplication and one addition for each number: a U-Net's step
    takes a fifth less time than with the textbook's order.

    >>> x = GroupNorm(4, groups=2)(jnp.arange(16.0).reshape(2, 2, 4))
    >>> bool(abs(x[..., :2].mean()) < 1e-5)
    True
    """

    gain: Float[Array, " c"]
    bias: Float[Array, " c"]
    groups: int = eqx.field(static=True)
    floor: float = eqx.field(static=True)

    def __init__(self, channels: int, *, groups: int | None = None, floor: float = 1e-5):
        """As many as 32 groups, of at least four channels each, unless told otherwise."""
        groups = math.gcd(channels, min(32, max(channels // 4, 1))) if groups is None else groups
        require(channels % groups == 0, f"{channels} channels cannot be shared equally by {groups} groups")
        self.gain, self.bias = jnp.ones(channels), jnp.zeros(channels)
        self.groups, self.floor = groups, floor

    def __call__(self, x: Image) -> Image:
        # About a value of each channel: the square of a large mean would swallow a small deviation.
        pivot = jax.lax.stop_gradient(x[0, 0])
        centred = x - pivot[None, None]
        first, square = jnp.mean(centred, axis=(0, 1)), jnp.mean(centred**2, axis=(0, 1))
        own = square - first**2
        mean = self._of_groups(first + pivot)
        variance = self._of_groups(own + (first + pivot - mean) ** 2)
        scale = jax.lax.rsqrt(variance + self.floor) * self.gain
        return x * scale[None, None] + (self.bias - mean * scale)[None, None]

    def _of_groups(self, values: Float[Array, " c"]) -> Float[Array, " c"]:
        """The mean over each channel's group."""
        means = jnp.mean(values.reshape(self.groups, -1), axis=1)
        return jnp.repeat(means, len(values) // self.groups)


class Embedding(AbstractPartlyFixed):
    """The level, and the condition if there is one, as one vector: what blocks are told.

    The level as sin and cos of `frequencies` times it, which are given and not learnt; then two layers.
    """

    frequencies: Float[Array, " f"]
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    told: eqx.nn.Linear | None
    condition: AbstractSpace | None = eqx.field(static=True)

    def __init__(
        self, frequencies: Float[Array, " f"], size: int, condition: AbstractSpace | None, *, key: PRNGKeyArray
    ):
        one, two, three = jax.random.split(key, 3)
        self.frequencies = frequencies
        self.first = eqx.nn.Linear(2 * len(frequencies), size, key=one)
        self.second = eqx.nn.Linear(size, size, key=two)
        self.condition = condition
        # Without a bias: no label is no vector.
        features = 0 if condition is None else condition_features(condition, _some(condition)).size
        self.told = eqx.nn.Linear(features, size, use_bias=False, key=three) if features else None

    def fixed_parts(self) -> tuple[Any, ...]:
        return (self.frequencies,)

    def __call__(self, level: Scalar, condition: Any) -> Float[Array, " size"]:
        angles = held(self.frequencies) * level
        features = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)])
        found = affine(self.second, jax.nn.silu(affine(self.first, features)))
        if self.told is None or self.condition is None:
            return found
        require(condition is not None, f"this network is told a condition on {self.condition}; pass one")
        return found + affine(self.told, condition_features(self.condition, condition).astype(found.dtype))


def octaves(count: int = 16, highest: float = 1000.0) -> Float[Array, " f"]:
    """Frequencies from 1 to `highest`, equally far apart on a logarithmic scale (Vaswani et al. 2017).

    >>> [round(float(f)) for f in octaves(4, 1000.0)]
    [1, 10, 100, 1000]
    """
    return jnp.geomspace(1.0, highest, count)


def random_frequencies(count: int = 16, scale: float = 16.0, *, key: PRNGKeyArray) -> Float[Array, " f"]:
    """2 pi N(0, scale^2), the random Fourier features of Tancik et al. 2020."""
    return 2 * jnp.pi * scale * jax.random.normal(key, (count,))


def positional(count: int = 64, highest: float = 999.0, longest: float = 10_000.0) -> Float[Array, " f"]:
    """highest longest^(-i / (count - 1)): the positions of Ho et al. 2020, whose thousand steps are t in [0, 1] here.

    >>> [round(float(f), 3) for f in positional(3)]
    [999.0, 9.99, 0.1]
    """
    return highest * longest ** (-jnp.arange(count) / (count - 1))


def _some(space: AbstractSpace) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), space.struct())


Size = Literal["same", "half", "double"]


def resized(x: Image, size: Size, smooth: bool) -> Float[Array, "p q c"]:
    """The picture at half, twice or the same size."""
    return halve(x, smooth=smooth) if size == "half" else double(x, smooth=smooth) if size == "double" else x


class ResBlock(eqx.Module):
    """norm, SiLU, 3x3, told the embedding, norm, SiLU, 3x3; plus the input, all over sqrt 2 (Brock et al. 2019).

    Where the size changes it does so before the first convolution and on the way past it. The second convolution begins
    silent, so that a new block hands on what it gets. `told` is how large the embedding is; 0: there is none.

    `mixes`: the way past has a 1x1 convolution also where only the size changes. Without `rescale` the sum is not
    divided. `dropout` before the second convolution works while a key is given (`networks.dropping`).
    """

    norms: tuple[GroupNorm, GroupNorm]
    convs: tuple[Conv, Conv]
    told: eqx.nn.Linear | None
    past: Conv | None
    dropout: Dropout | None
    size: Size = eqx.field(static=True)
    smooth: bool = eqx.field(static=True)
    rescale: bool = eqx.field(static=True)
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        told: int,
        *,
        size: Size = "same",
        smooth: bool = False,
        mixes: bool = False,
        rescale: bool = True,
        dropout: float = 0.0,
        key: PRNGKeyArray,
    ):
        one, two, three, four = jax.random.split(key, 4)
        self.norms = (GroupNorm(inputs), GroupNorm(outputs))
        self.convs = (Conv(inputs, outputs, key=one), Conv(outputs, outputs, scale=0.0, key=two))
        self.told = eqx.nn.Linear(told, outputs, key=three) if told else None
        differs = inputs != outputs or (mixes and size != "same")
        self.past = Conv(inputs, outputs, size=1, key=four) if differs else None
        self.dropout = Dropout(dropout) if dropout else None
        self.size, self.smooth, self.rescale, self.activation = size, smooth, rescale, jax.nn.silu

    def __call__(self, x: Image, told: Float[Array, " told"] | None = None) -> Float[Array, "p q o"]:
        h = resized(self.activation(self.norms[0](x)), self.size, self.smooth)
        h = self.convs[0](h)
        if self.told is not None and told is not None:
            h = h + affine(self.told, self.activation(told))[None, None]
        h = self.activation(self.norms[1](h))
        h = self.convs[1](h if self.dropout is None else self.dropout(h))
        x = resized(x, self.size, self.smooth)
        x = x if self.past is None else self.past(x)
        return (x + h) * 2**-0.5 if self.rescale else x + h


class Attention(eqx.Module):
    """Every place looks at all others: softmax(q k' / sqrt c) v, plus the input, over sqrt 2. Begins silent."""

    norm: GroupNorm
    looks: Conv
    out: Conv

    def __init__(self, channels: int, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.norm = GroupNorm(channels)
        self.looks = Conv(channels, 3 * channels, size=1, key=one)
        self.out = Conv(channels, channels, size=1, scale=0.0, key=two)

    def __call__(self, x: Image) -> Image:
        q, k, v = jnp.split(self.looks(self.norm(x)).reshape(-1, 3 * x.shape[2]), 3, axis=1)
        weights = jax.nn.softmax(q @ k.T / math.sqrt(x.shape[2]), axis=1)
        return (x + self.out((weights @ v).reshape(x.shape))) * 2**-0.5
