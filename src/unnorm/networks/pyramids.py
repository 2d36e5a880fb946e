"""The U-Nets of Song et al. 2021: NCSN++ and DDPM++, with pictures handed in and out at every size."""

from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.errors import require
from unnorm.networks.blocks import (
    Attention,
    Embedding,
    GroupNorm,
    Image,
    ResBlock,
    octaves,
    positional,
    random_frequencies,
    resized,
)
from unnorm.networks.convolution import Conv
from unnorm.spaces import AbstractSpace

Scalar = Float[Array, ""]
#: Whether smaller copies of the picture come in, or go out, beside the features: not, by a sum through 1x1 (3x3)
#: convolutions, or as a residual path of their own.
Pyramid = Literal["none", "skip", "residual"]


class _Reading(eqx.Module):
    """norm, SiLU, 3x3: from features to a picture, or to features that become one."""

    norm: GroupNorm
    conv: Conv

    def __init__(self, inputs: int, outputs: int, *, scale: float = 0.0, key: PRNGKeyArray):
        self.norm, self.conv = GroupNorm(inputs), Conv(inputs, outputs, scale=scale, key=key)

    def __call__(self, x: Image) -> Float[Array, "h w o"]:
        return self.conv(jax.nn.silu(self.norm(x)))


class _Level(eqx.Module):
    """What is done at one size: blocks with attention, then the change of size and what comes in or goes out."""

    blocks: tuple[ResBlock, ...]
    attention: tuple[Attention | None, ...]
    resize: ResBlock | None
    pyramid: Conv | None
    reading: _Reading | None

    def one(self, i: int, x: Image, told: Array) -> Float[Array, "h w o"]:
        x = self.blocks[i](x, told)
        looks = self.attention[i]
        return x if looks is None else looks(x)


class PyramidUNet(eqx.Module):
    """f(x, level, c) of one picture: the U-Net of Song et al. 2021, App. H.

    Every picture on the way down is handed across, that of each block and of each change of size, so the way up has one
    block more at each size. `input_pyramid` brings smaller copies of the picture in on the way down, `output_pyramid`
    collects the answer from every size on the way up. Blocks are BigGAN's with silent second convolutions; attention is
    at the sizes named by `attention` and in the middle. Convolutions of pyramids come after halving and doubling.

    >>> net = PyramidUNet((8, 8, 1), channels=4, multipliers=(1, 2), blocks=1, key=jax.random.key(0))
    >>> jax.eval_shape(net, jnp.zeros((8, 8, 1)), jnp.asarray(0.5)).shape
    (8, 8, 1)
    """

    embedding: Embedding
    enter: Conv
    down: tuple[_Level, ...]
    middle: tuple[ResBlock, Attention, ResBlock]
    up: tuple[_Level, ...]
    leave: _Reading | None
    shape: tuple[int, int, int] = eqx.field(static=True)
    input_pyramid: Pyramid = eqx.field(static=True)
    output_pyramid: Pyramid = eqx.field(static=True)
    smooth: bool = eqx.field(static=True)
    rescale: bool = eqx.field(static=True)
    condition: AbstractSpace | None = eqx.field(static=True)

    def __init__(
        self,
        shape: Sequence[int],
        *,
        channels: int = 128,
        multipliers: Sequence[int] = (1, 2, 2, 2),
        blocks: int = 4,
        attention: Sequence[int] = (),
        input_pyramid: Pyramid = "none",
        output_pyramid: Pyramid = "none",
        smooth: bool = False,
        rescale: bool = True,
        dropout: float = 0.0,
        frequencies: Float[Array, " f"] | None = None,
        condition: AbstractSpace | None = None,
        key: PRNGKeyArray,
    ):
        require(len(shape) == 3, f"a picture has rows, columns and channels, not the shape {tuple(shape)}")
        require_count(channels, 1, "the channels of a U-Net")
        require_count(blocks, 1, "the blocks of each size")
        require(len(multipliers) >= 1, "a U-Net has at least one size")
        unknown = [at for at in attention if not 0 <= at < len(multipliers)]
        require(not unknown, f"attention at size {unknown[:1]} is asked for, and sizes are 0 to {len(multipliers) - 1}")
        sizes, told, (rows, columns, deep) = len(multipliers), 4 * channels, (int(n) for n in shape)
        keys = iter(jax.random.split(key, 16 + 8 * sizes * (blocks + 2)))
        widths = [channels * m for m in multipliers]
        options: dict[str, Any] = {"smooth": smooth, "mixes": True, "rescale": rescale, "dropout": dropout}

        def block(ins: int, out: int, size: Any = "same") -> ResBlock:
            return ResBlock(ins, out, told, size=size, key=next(keys), **options)

        self.embedding = Embedding(octaves() if frequencies is None else frequencies, told, condition, key=next(keys))
        self.enter = Conv(deep, channels, key=next(keys))
        seen, before, down, brought = [channels], channels, [], deep
        for i, width in enumerate(widths):
            last = i + 1 == sizes
            ins = [before] + [width] * (blocks - 1)
            made = tuple(block(n, width) for n in ins)
            looks = tuple(Attention(width, key=next(keys)) if i in attention else None for _ in ins)
            pyramid = None
            if not last and input_pyramid != "none":
                pyramid = Conv(brought, width, size=3 if input_pyramid == "residual" else 1, key=next(keys))
                brought = width if input_pyramid == "residual" else deep
            shrink = None if last else block(width, width, "half")
            down.append(_Level(made, looks, shrink, pyramid, None))
            seen += [width] * (blocks + (not last))
            before = width
        self.middle = (block(before, before), Attention(before, key=next(keys)), block(before, before))
        up, collected = [], 0
        for i, width in reversed(list(enumerate(widths))):
            ins = [before if j == 0 else width for j in range(blocks + 1)]
            made = tuple(block(n + seen.pop(), width) for n in ins)
            # Attention after the last block of a size alone.
            looks = tuple(
                Attention(width, key=next(keys)) if i in attention and j == blocks else None for j in range(blocks + 1)
            )
            pyramid = reading = None
            if output_pyramid == "skip":
                reading = _Reading(width, deep, key=next(keys))
            elif output_pyramid == "residual" and i == sizes - 1:
                reading = _Reading(width, width, scale=1.0, key=next(keys))
            elif output_pyramid == "residual":
                pyramid = Conv(collected, width, key=next(keys))
            collected = width
            up.append(_Level(made, looks, block(width, width, "double") if i else None, pyramid, reading))
            before = width
        self.down, self.up = tuple(down), tuple(up)
        self.leave = None if output_pyramid == "skip" else _Reading(before, deep, key=next(keys))
        self.shape, self.condition, self.smooth, self.rescale = (rows, columns, deep), condition, smooth, rescale
        self.input_pyramid, self.output_pyramid = input_pyramid, output_pyramid

    def _joined(self, one: Array, other: Array) -> Array:
        return (one + other) * 2**-0.5 if self.rescale else one + other

    def __call__(self, x: Image, level: Scalar, condition: Any = None) -> Float[Array, "h w o"]:
        require(x.shape == self.shape, f"this U-Net is made for pictures of {self.shape}, not {x.shape}")
        told = self.embedding(jnp.asarray(level, x.dtype), condition)
        missing = [-side % 2 ** (len(self.down) - 1) for side in x.shape[:2]]
        brought = jnp.pad(x, [(n // 2, n - n // 2) for n in missing] + [(0, 0)], mode="edge")
        seen = self._way_down(brought, told)
        h = self.middle[0](seen[-1], told)
        h = self.middle[2](self.middle[1](h), told)
        h = self._way_up(h, seen, told)
        top, left = (n // 2 for n in missing)
        return h[top : top + x.shape[0], left : left + x.shape[1]]

    def _way_down(self, brought: Array, told: Array) -> list[Array]:
        """Everything that is handed across, the last of which goes on."""
        seen = [self.enter(brought)]
        for level in self.down:
            for i in range(len(level.blocks)):
                seen.append(level.one(i, seen[-1], told))
            if level.resize is None:
                continue
            h = level.resize(seen[-1], told)
            if level.pyramid is not None:
                brought = resized(brought, "half", self.smooth)
                if self.input_pyramid == "skip":
                    h = h + level.pyramid(brought)
                else:
                    h = brought = self._joined(level.pyramid(brought), h)
            seen.append(h)
        return seen

    def _way_up(self, h: Array, seen: list[Array], told: Array) -> Array:
        collected: Array | None = None
        for level in self.up:
            for i in range(len(level.blocks)):
                h = level.one(i, jnp.concatenate([h, seen.pop()], axis=-1), told)
            if collected is not None:
                collected = resized(collected, "double", self.smooth)
            if level.pyramid is not None and collected is not None:
                h = collected = self._joined(level.pyramid(collected), h)
            elif level.reading is not None:
                read = level.reading(h)
                collected = read if collected is None else collected + read
            if level.resize is not None:
                h = level.resize(h, told)
        if self.leave is not None:
            return self.leave(h)
        assert collected is not None
        return collected


def _at(shape: Sequence[int], multipliers: Sequence[int], side: int) -> tuple[int, ...]:
    """The sizes at which pictures have this many rows."""
    return tuple(i for i in range(len(multipliers)) if shape[0] == side * 2**i)


def ncsnpp(
    shape: Sequence[int] = (32, 32, 3),
    *,
    channels: int = 128,
    multipliers: Sequence[int] = (1, 2, 2, 2),
    blocks: int = 4,
    looking: int = 16,
    dropout: float = 0.1,
    condition: AbstractSpace | None = None,
    key: PRNGKeyArray,
) -> PyramidUNet:
    """NCSN++ (Song et al. 2021): smooth resampling, a residual input pyramid, random Fourier features of scale 16.

    As published for CIFAR-10 (`blocks=8` is the deep one), attention where pictures have `looking` rows. It is told
    log sigma: `scores.Telling(..., scores.LogSigma())`.
    """
    one, two = jax.random.split(key)
    return PyramidUNet(
        shape, channels=channels, multipliers=multipliers, blocks=blocks, attention=_at(shape, multipliers, looking),
        input_pyramid="residual", smooth=True, dropout=dropout, condition=condition,
        frequencies=random_frequencies(channels, key=one), key=two,
    )  # fmt: skip


def ddpmpp(
    shape: Sequence[int] = (32, 32, 3),
    *,
    channels: int = 128,
    multipliers: Sequence[int] = (1, 2, 2, 2),
    blocks: int = 4,
    looking: int = 16,
    dropout: float = 0.1,
    condition: AbstractSpace | None = None,
    key: PRNGKeyArray,
) -> PyramidUNet:
    """DDPM++ (Song et al. 2021): plain resampling, no pyramids, told t by the positions of 999 t.

    As published for CIFAR-10 (`blocks=8` is the deep one).
    """
    return PyramidUNet(
        shape, channels=channels, multipliers=multipliers, blocks=blocks, attention=_at(shape, multipliers, looking),
        dropout=dropout, condition=condition, frequencies=positional(max(channels // 2, 2)), key=key,
    )  # fmt: skip
