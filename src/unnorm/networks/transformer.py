"""A transformer on patches of a picture, told level and label through its norms (DiT: Peebles and Xie 2023)."""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.errors import require
from unnorm.networks.blocks import Embedding, Image, octaves
from unnorm.networks.linear import affine
from unnorm.parts import AbstractPartlyFixed, held
from unnorm.spaces import AbstractSpace

Scalar = Float[Array, ""]
Tokens = Float[Array, "n width"]


def _each(layer: eqx.nn.Linear, xs: Tokens) -> Float[Array, "n outputs"]:
    return jax.vmap(lambda x: affine(layer, x))(xs)


def _plain_norm(xs: Tokens) -> Tokens:
    """Layer norm of each token, without parameters."""
    centred = xs - jnp.mean(xs, axis=1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=1, keepdims=True) + 1e-6)


def _silent(layer: eqx.nn.Linear) -> eqx.nn.Linear:
    return jax.tree.map(jnp.zeros_like, layer)


class TransformerBlock(eqx.Module):
    """x + a attention((1 + b) norm x + c), then x + d mlp((1 + e) norm x + f), a to f from what is told (adaLN-zero).

    All six begin at zero, so that a new block hands on what it gets.
    """

    told: eqx.nn.Linear
    looks: eqx.nn.Linear
    out: eqx.nn.Linear
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width: int, heads: int, *, key: PRNGKeyArray):
        require(width % heads == 0, f"a width of {width} cannot be shared equally by {heads} heads")
        keys = jax.random.split(key, 5)
        self.told = _silent(eqx.nn.Linear(width, 6 * width, key=keys[0]))
        self.looks = eqx.nn.Linear(width, 3 * width, key=keys[1])
        self.out = eqx.nn.Linear(width, width, key=keys[2])
        self.first = eqx.nn.Linear(width, 4 * width, key=keys[3])
        self.second = eqx.nn.Linear(4 * width, width, key=keys[4])
        self.heads = heads

    def attention(self, xs: Tokens) -> Tokens:
        """softmax(q k' / sqrt(width of a head)) v, of each head."""
        n, width = xs.shape
        each = width // self.heads
        q, k, v = (part.reshape(n, self.heads, each) for part in jnp.split(_each(self.looks, xs), 3, axis=1))
        weights = jax.nn.softmax(jnp.einsum("ihc,jhc->hij", q, k) / math.sqrt(each), axis=2)
        return _each(self.out, jnp.einsum("hij,jhc->ihc", weights, v).reshape(n, width))

    def __call__(self, xs: Tokens, told: Float[Array, " width"]) -> Tokens:
        a, b, c, d, e, f = (part[None] for part in jnp.split(affine(self.told, jax.nn.silu(told)), 6))
        xs = xs + a * self.attention((1 + b) * _plain_norm(xs) + c)
        hidden = jax.nn.gelu(_each(self.first, (1 + e) * _plain_norm(xs) + f))
        return xs + d * _each(self.second, hidden)


class PatchTransformer(AbstractPartlyFixed):
    """f(x, level, c) of one picture cut into patches of `patch` x `patch`, each a token; begins silent.

    Where a token lies is said by sines and cosines of its row and column, which are given. Pictures that patches do not
    fill are padded with edge values and cut again.

    >>> net = PatchTransformer((8, 8, 1), patch=2, width=8, depth=1, heads=2, key=jax.random.key(0))
    >>> jax.eval_shape(net, jnp.zeros((8, 8, 1)), jnp.asarray(0.5)).shape
    (8, 8, 1)
    """

    embedding: Embedding
    enter: eqx.nn.Linear
    places: Tokens
    blocks: tuple[TransformerBlock, ...]
    told: eqx.nn.Linear
    leave: eqx.nn.Linear
    patch: int = eqx.field(static=True)
    shape: tuple[int, int, int] = eqx.field(static=True)
    condition: AbstractSpace | None = eqx.field(static=True)

    def __init__(
        self,
        shape: Sequence[int],
        *,
        patch: int = 2,
        width: int = 128,
        depth: int = 4,
        heads: int = 4,
        frequencies: Float[Array, " f"] | None = None,
        condition: AbstractSpace | None = None,
        key: PRNGKeyArray,
    ):
        require(len(shape) == 3, f"a picture has rows, columns and channels, not the shape {tuple(shape)}")
        require_count(patch, 1, "the rows of a patch")
        require_count(depth, 1, "the blocks of a transformer")
        require(width % 4 == 0, f"the width of a patch transformer is a multiple of 4, not {width}")
        rows, columns, deep = (int(n) for n in shape)
        keys = jax.random.split(key, depth + 4)
        down, across = -(-rows // patch), -(-columns // patch)
        self.embedding = Embedding(octaves() if frequencies is None else frequencies, width, condition, key=keys[0])
        self.enter = eqx.nn.Linear(patch**2 * deep, width, key=keys[1])
        self.places = _places(down, across, width)
        self.blocks = tuple(TransformerBlock(width, heads, key=k) for k in keys[4:])
        self.told = _silent(eqx.nn.Linear(width, 2 * width, key=keys[2]))
        self.leave = _silent(eqx.nn.Linear(width, patch**2 * deep, key=keys[3]))
        self.patch, self.shape, self.condition = patch, (rows, columns, deep), condition

    def fixed_parts(self) -> tuple[Any, ...]:
        return (self.places,)

    def __call__(self, x: Image, level: Scalar, condition: Any = None) -> Image:
        require(x.shape == self.shape, f"this transformer is made for pictures of {self.shape}, not {x.shape}")
        told = self.embedding(jnp.asarray(level, x.dtype), condition)
        p, (rows, columns, deep) = self.patch, self.shape
        wide = jnp.pad(x, ((0, -rows % p), (0, -columns % p), (0, 0)), mode="edge")
        down, across = wide.shape[0] // p, wide.shape[1] // p
        patches = wide.reshape(down, p, across, p, deep).swapaxes(1, 2).reshape(down * across, -1)
        xs = _each(self.enter, patches) + held(self.places)
        for block in self.blocks:
            xs = block(xs, told)
        shift, scale = (part[None] for part in jnp.split(affine(self.told, jax.nn.silu(told)), 2))
        found = _each(self.leave, (1 + scale) * _plain_norm(xs) + shift)
        whole = found.reshape(down, across, p, p, deep).swapaxes(1, 2).reshape(wide.shape)
        return whole[:rows, :columns]


def _places(down: int, across: int, width: int) -> Tokens:
    """Sines and cosines of each token's row, then of its column."""
    waves = 10_000.0 ** -(jnp.arange(width // 4) / (width // 4))
    parts = []
    for numbers in jnp.meshgrid(jnp.arange(float(down)), jnp.arange(float(across)), indexing="ij"):
        angles = numbers.reshape(-1, 1) * waves[None]
        parts += [jnp.sin(angles), jnp.cos(angles)]
    return jnp.concatenate(parts, axis=1)
