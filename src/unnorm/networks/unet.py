"""U-Nets: down to coarse pictures and up again, each size handed across."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.errors import require
from unnorm.networks.blocks import Attention, Embedding, GroupNorm, Image, ResBlock, octaves
from unnorm.networks.convolution import Conv
from unnorm.spaces import AbstractSpace

Scalar = Float[Array, ""]


class _Stage(eqx.Module):
    """The blocks of one size: residual ones, and attention after each where it is wanted."""

    blocks: tuple[ResBlock, ...]
    attention: tuple[Attention | None, ...]

    def one(self, i: int, x: Image, told: Array) -> Float[Array, "h w o"]:
        looks = self.attention[i]
        x = self.blocks[i](x, told)
        return x if looks is None else looks(x)


class UNet(eqx.Module):
    """f(x, level, c) of one picture of H x W x C: blocks at falling sizes, then at rising ones beside what was seen.

    `channels` times `multipliers` are the widths at each size. Sizes that cannot be halved often enough are padded with
    edge values and cut again. `attention` names the places in `multipliers` whose blocks look at the whole picture.
    `smooth` halves and doubles by the (1, 3, 3, 1) filter. The last convolution begins silent.

    Ronneberger et al. 2015; Ho et al. 2020; the blocks are those of Song et al. 2021, App. H.

    >>> net = UNet((8, 8, 1), channels=8, multipliers=(1, 2), key=jax.random.key(0))
    >>> net(jnp.zeros((8, 8, 1)), jnp.asarray(0.5)).shape
    (8, 8, 1)
    """

    embedding: Embedding
    enter: Conv
    down: tuple[_Stage, ...]
    shrink: tuple[ResBlock, ...]
    middle: _Stage
    grow: tuple[ResBlock, ...]
    up: tuple[_Stage, ...]
    norm: GroupNorm
    leave: Conv
    shape: tuple[int, int, int] = eqx.field(static=True)
    condition: AbstractSpace | None = eqx.field(static=True)

    def __init__(
        self,
        shape: Sequence[int],
        *,
        channels: int = 32,
        multipliers: Sequence[int] = (1, 2, 2),
        blocks: int = 1,
        attention: Sequence[int] = (),
        smooth: bool = False,
        condition: AbstractSpace | None = None,
        outputs: int | None = None,
        frequencies: Float[Array, " f"] | None = None,
        key: PRNGKeyArray,
    ):
        require(len(shape) == 3, f"a picture has rows, columns and channels, not the shape {tuple(shape)}")
        require_count(channels, 1, "the channels of a U-Net")
        require_count(blocks, 1, "the blocks of each size")
        require(len(multipliers) >= 1, "a U-Net has at least one size")
        unknown = [at for at in attention if not 0 <= at < len(multipliers)]
        require(not unknown, f"attention at size {unknown[:1]} is asked for, and sizes are 0 to {len(multipliers) - 1}")
        keys = iter(jax.random.split(key, 8 + 4 * (blocks + 2) * (len(multipliers) + 1)))
        told = 4 * channels
        widths = [channels * m for m in multipliers]

        def stage(ins: Sequence[int], out: int, looks: bool) -> _Stage:
            made = tuple(ResBlock(n, out, told, smooth=smooth, key=next(keys)) for n in ins)
            return _Stage(made, tuple(Attention(out, key=next(keys)) if looks else None for _ in made))

        self.embedding = Embedding(octaves() if frequencies is None else frequencies, told, condition, key=next(keys))
        self.enter = Conv(shape[2], widths[0], key=next(keys))
        down, shrink, up, grow, before = [], [], [], [], widths[0]
        for i, width in enumerate(widths):
            down.append(stage([before] + [width] * (blocks - 1), width, i in attention))
            if i + 1 < len(widths):
                shrink.append(ResBlock(width, width, told, size="half", smooth=smooth, key=next(keys)))
            before = width
        self.middle = stage([before, before], before, bool(attention))
        for i, width in reversed(list(enumerate(widths))):
            # What comes from below, and beside it what each block of this size had said on the way down.
            up.append(stage([before + width] + [2 * width] * (blocks - 1), width, i in attention))
            if i > 0:
                grow.append(ResBlock(width, widths[i - 1], told, size="double", smooth=smooth, key=next(keys)))
                before = widths[i - 1]
        self.down, self.shrink, self.up, self.grow = tuple(down), tuple(shrink), tuple(up), tuple(grow)
        self.norm = GroupNorm(widths[0])
        self.leave = Conv(widths[0], shape[2] if outputs is None else outputs, scale=0.0, key=next(keys))
        rows, columns, deep = (int(n) for n in shape)
        self.shape, self.condition = (rows, columns, deep), condition

    def __call__(self, x: Image, level: Scalar, condition: Any = None) -> Float[Array, "h w o"]:
        require(x.shape == self.shape, f"this U-Net is made for pictures of {self.shape}, not {x.shape}")
        told = self.embedding(jnp.asarray(level, x.dtype), condition)
        multiple = 2 ** len(self.shrink)
        missing = [-side % multiple for side in x.shape[:2]]
        h = self.enter(jnp.pad(x, [(n // 2, n - n // 2) for n in missing] + [(0, 0)], mode="edge"))
        seen = []
        for i, stage in enumerate(self.down):
            for j in range(len(stage.blocks)):
                h = stage.one(j, h, told)
                seen.append(h)
            if i < len(self.shrink):
                h = self.shrink[i](h, told)
        for j in range(len(self.middle.blocks)):
            h = self.middle.one(j, h, told)
        for i, stage in enumerate(self.up):
            for j in range(len(stage.blocks)):
                h = stage.one(j, jnp.concatenate([h, seen.pop()], axis=-1), told)
            if i < len(self.grow):
                h = self.grow[i](h, told)
        h = self.leave(jax.nn.silu(self.norm(h)))
        top, left = (n // 2 for n in missing)
        return h[top : top + x.shape[0], left : left + x.shape[1]]
