"""RefineNets: the networks of NCSN and NCSNv2, coarse features refined by fine ones at growing dilations."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.errors import require
from unnorm.networks.convolution import Conv
from unnorm.networks.norms import Image, InstanceNormPlus
from unnorm.networks.resample import halve

Scalar = Float[Array, ""]
Level = Int[Array, ""]


class Cascade(NamedTuple):
    """Two residual blocks: their width as a multiple of the channels, whether sizes are halved first, the dilation."""

    multiplier: int
    down: bool = False
    dilation: int = 1


_SMALL = (Cascade(1), Cascade(2, True), Cascade(2, True, 2), Cascade(2, True, 4))
_MIDDLE = (Cascade(1), Cascade(2, True), Cascade(2, True), Cascade(4, True, 2), Cascade(4, True, 4))
_LARGE = (*_MIDDLE[:3], Cascade(2, True), *_MIDDLE[3:])


def cascades_for(side: int) -> tuple[Cascade, ...]:
    """The published cascades for pictures of so many rows: up to 64, to 128, and more (Tables B.7 and B.8).

    From the second on each begins with a block "down", which halves pictures only where it is not dilated.

    >>> [len(cascades_for(side)) for side in (32, 128, 256)]
    [4, 5, 6]
    """
    return _SMALL if side <= 64 else _MIDDLE if side <= 128 else _LARGE


class _Block(eqx.Module):
    """norm, ELU, conv, norm, ELU, conv; plus the input by a convolution where it changes (pre-activation)."""

    norms: tuple[InstanceNormPlus, InstanceNormPlus]
    convs: tuple[Conv, Conv]
    past: Conv | None
    halves: bool = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, down: bool, dilation: int, levels: int, *, key: PRNGKeyArray):
        one, two, three, four, five = jax.random.split(key, 5)
        inner = inputs if down else outputs
        self.norms = (
            InstanceNormPlus(inputs, levels=levels, key=one), InstanceNormPlus(inner, levels=levels, key=two)
        )  # fmt: skip
        self.convs = (
            Conv(inputs, inner, dilation=dilation, key=three), Conv(inner, outputs, dilation=dilation, key=four)
        )  # fmt: skip
        self.halves = down and dilation == 1
        size = 3 if down and dilation > 1 else 1
        self.past = Conv(inputs, outputs, size=size, dilation=dilation, key=five) if down or inputs != outputs else None

    def __call__(self, x: Image, level: Level) -> Float[Array, "p q o"]:
        h = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            h = conv(jax.nn.elu(norm(h, level)))
        x = x if self.past is None else self.past(x)
        return halve(x + h) if self.halves else x + h


class _Units(eqx.Module):
    """Residual units of two convolutions, each after ELU, and with norms each after a norm."""

    convs: tuple[Conv, ...]
    norms: tuple[InstanceNormPlus, ...]

    def __init__(self, features: int, units: int, levels: int, normed: bool, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 4 * units)
        self.convs = tuple(Conv(features, features, use_bias=False, key=k) for k in keys[: 2 * units])
        made = keys[2 * units :] if normed else keys[:0]
        self.norms = tuple(InstanceNormPlus(features, levels=levels, key=k) for k in made)

    def __call__(self, x: Image, level: Level) -> Image:
        for i in range(0, len(self.convs), 2):
            h = x
            for j in (i, i + 1):
                h = self.norms[j](h, level) if self.norms else h
                h = self.convs[j](jax.nn.elu(h))
            x = x + h
        return x


class _Refine(eqx.Module):
    """Units for each input, their sum at the larger size, chained pooling over 5 x 5 places, units for the output."""

    adapt: tuple[_Units, ...]
    fuse: tuple[Conv, ...]
    fuse_norms: tuple[InstanceNormPlus, ...]
    pool: tuple[Conv, Conv]
    pool_norms: tuple[InstanceNormPlus, ...]
    out: _Units
    pooling: Literal["max", "mean"] = eqx.field(static=True)

    def __init__(self, inputs: Sequence[int], features: int, levels: int, normed: bool, last: bool, *, key: Any):
        keys = iter(jax.random.split(key, 16))

        def norm(channels: int) -> InstanceNormPlus:
            return InstanceNormPlus(channels, levels=levels, key=next(keys))

        self.adapt = tuple(_Units(n, 2, levels, normed, key=next(keys)) for n in inputs)
        fused = inputs if len(inputs) > 1 else ()
        self.fuse = tuple(Conv(n, features, key=next(keys)) for n in fused)
        self.fuse_norms = tuple(norm(n) for n in fused) if normed else ()
        one, two = (Conv(features, features, use_bias=False, key=next(keys)) for _ in range(2))
        self.pool, self.pool_norms = (one, two), tuple(norm(features) for _ in range(2)) if normed else ()
        self.out = _Units(features, 3 if last else 1, levels, normed, key=next(keys))
        self.pooling = "mean" if normed else "max"

    def __call__(self, seen: Sequence[Float[Array, "_ _ _"]], level: Level) -> Image:
        found = [units(x, level) for units, x in zip(self.adapt, seen, strict=True)]
        if self.fuse_norms:
            found = [norm(x, level) for norm, x in zip(self.fuse_norms, found, strict=True)]
        if self.fuse:
            rows, columns = seen[0].shape[:2]
            found = [stretched(conv(x), rows, columns) for conv, x in zip(self.fuse, found, strict=True)]
        x = path = jax.nn.elu(sum(found[1:], found[0]))
        for i, conv in enumerate(self.pool):
            path = self.pool_norms[i](path, level) if self.pool_norms else path
            path = conv(pooled(path, self.pooling))
            x = x + path
        return self.out(x, level)


def stretched(x: Image, rows: int, columns: int) -> Float[Array, "p q c"]:
    """The picture at another size by straight lines between places, corners to corners.

    >>> stretched(jnp.array([[[0.0], [1.0]]]), 1, 3)[0, :, 0].tolist()
    [0.0, 0.5, 1.0]
    """
    for axis, size in ((0, rows), (1, columns)):
        if x.shape[axis] != size:
            x = jnp.moveaxis(jnp.tensordot(_lines(x.shape[axis], size), x, axes=(1, axis)), 0, axis)
    return x


def _lines(old: int, new: int) -> Float[Array, "new old"]:
    places = np.linspace(0, old - 1, new)
    return jnp.asarray(np.maximum(0, 1 - np.abs(places[:, None] - np.arange(old))), float)


def pooled(x: Image, how: Literal["max", "mean"], size: int = 5) -> Image:
    """The largest, or the mean, of size x size places about each; beyond the edge is nothing, or zero.

    >>> pooled(jnp.eye(3)[..., None], "max", 3)[..., 0].tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    half, beyond = size // 2, -jnp.inf if how == "max" else 0.0
    for axis in (0, 1):
        pads = [(half, half) if a == axis else (0, 0) for a in range(3)]
        wide = jnp.pad(x, pads, constant_values=beyond)
        shifted = [jax.lax.slice_in_dim(wide, i, i + x.shape[axis], axis=axis) for i in range(size)]
        total = shifted[0]
        for other in shifted[1:]:
            total = jnp.maximum(total, other) if how == "max" else total + other
        x = total if how == "max" else total / size
    return x


class RefineNet(eqx.Module):
    """f(x, level) of one picture: cascades at growing dilations, refined from coarse to fine (Lin et al. 2017).

    With `levels` it is NCSN's (Song and Ermon 2019): every norm has parameters of its own for each of so many levels,
    of which t names number round(t (levels - 1)) as in `noises.Ladder`, norms are also in the refining blocks, and
    pools are means. Without, it is NCSNv2's (Song and Ermon 2020): told no level, for `scores.DividedBySigma`. The last
    convolution begins silent.

    >>> net = RefineNet((8, 8, 1), channels=4, key=jax.random.key(0))
    >>> jax.eval_shape(net, jnp.zeros((8, 8, 1)), jnp.asarray(0.5)).shape
    (8, 8, 1)
    """

    enter: Conv
    cascades: tuple[tuple[_Block, _Block], ...]
    refine: tuple[_Refine, ...]
    norm: InstanceNormPlus
    leave: Conv
    shape: tuple[int, int, int] = eqx.field(static=True)
    levels: int | None = eqx.field(static=True)
    multiple: int = eqx.field(static=True)

    def __init__(
        self,
        shape: Sequence[int],
        *,
        channels: int = 128,
        cascades: Sequence[Cascade] | None = None,
        levels: int | None = None,
        key: PRNGKeyArray,
    ):
        require(len(shape) == 3, f"a picture has rows, columns and channels, not the shape {tuple(shape)}")
        require_count(channels, 1, "the channels of a RefineNet")
        cascades = cascades_for(max(shape[:2])) if cascades is None else cascades
        require(len(cascades) >= 2, "a RefineNet has two cascades or more")
        rows, columns, deep = (int(n) for n in shape)
        number, normed = 1 if levels is None else levels, levels is not None
        keys = iter(jax.random.split(key, 3 * len(cascades) + 4))
        self.enter = Conv(deep, channels, key=next(keys))
        made, widths, before = [], [channels * c.multiplier for c in cascades], channels
        for cascade, width in zip(cascades, widths, strict=True):
            first = _Block(before, width, cascade.down, cascade.dilation, number, key=next(keys))
            made.append((first, _Block(width, width, False, cascade.dilation, number, key=next(keys))))
            before = width
        refine, inputs = [], [widths[-1]]
        for i in reversed(range(len(widths))):
            # The coarsest keeps its width: nothing is fused there.
            out = widths[max(i - 1, 0)] if refine else widths[i]
            refine.append(_Refine(inputs, out, number, normed, i == 0, key=next(keys)))
            inputs = [widths[max(i - 1, 0)], out]
        self.cascades, self.refine = tuple(made), tuple(refine)
        self.norm = InstanceNormPlus(widths[0], levels=number, key=next(keys))
        self.leave = Conv(widths[0], deep, scale=0.0, key=next(keys))
        self.shape, self.levels = (rows, columns, deep), levels
        self.multiple = 2 ** sum(c.down and c.dilation == 1 for c in cascades)

    def __call__(self, x: Image, level: Scalar, condition: Any = None) -> Image:
        require(x.shape == self.shape, f"this RefineNet is made for pictures of {self.shape}, not {x.shape}")
        require(condition is None, "a RefineNet is told no condition; a networks.UNet is")
        number = jnp.zeros((), jnp.int32)
        if self.levels is not None:
            number = jnp.round(jnp.clip(level, 0, 1) * (self.levels - 1)).astype(jnp.int32)
        missing = [-side % self.multiple for side in x.shape[:2]]
        h = self.enter(jnp.pad(x, [(n // 2, n - n // 2) for n in missing] + [(0, 0)], mode="edge"))
        seen = []
        for first, second in self.cascades:
            h = second(first(h, number), number)
            seen.append(h)
        h = self.refine[0]([seen.pop()], number)
        for block in self.refine[1:]:
            h = block([seen.pop(), h], number)
        h = self.leave(jax.nn.elu(self.norm(h, number)))
        top, left = (n // 2 for n in missing)
        return h[top : top + x.shape[0], left : left + x.shape[1]]
