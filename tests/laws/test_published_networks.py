"""Networks of the papers: parameters counted by an independent formula, and the order of things written out again."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm.errors import InputError
from unnorm.networks import (
    InstanceNormPlus,
    PatchTransformer,
    PyramidUNet,
    RefineNet,
    TransformerBlock,
    ddpmpp,
    double,
    halve,
    ncsnpp,
    positional,
)
from unnorm.networks.refinenet import LARGE, MIDDLE, SMALL, pooled, stretched
from unnorm.parts import trainable
from unnorm.spaces import Categorical

KEY = jax.random.key(0)


def parameters(make) -> int:
    """How many numbers are learnt, without making one of them."""
    network = eqx.filter_eval_shape(make, KEY)
    learnt = eqx.filter(network, trainable(jax.tree.map(lambda s: s, network)), is_leaf=lambda n: n is None)
    leaves = [leaf for leaf in jax.tree.leaves(network) if isinstance(leaf, jax.ShapeDtypeStruct)]
    assert len(jax.tree.leaves(learnt)) <= len(leaves)
    return sum(leaf.size for leaf in leaves) - fixed(network)


def fixed(network) -> int:
    given = getattr(network, "places", None)
    embedding = getattr(network, "embedding", None)
    return (0 if given is None else given.size) + (0 if embedding is None else embedding.frequencies.size)


def loud(network, size=0.1):
    """The network with no layer silent."""
    weights, rest = eqx.partition(network, trainable(network))
    keys = iter(jax.random.split(KEY, len(jax.tree.leaves(weights))))
    return eqx.combine(jax.tree.map(lambda w: w + size * jax.random.normal(next(keys), w.shape), weights), rest)


# --------------------------------------------------------------------------------------------- NCSN++ and DDPM++


def conv(i: int, o: int, size: int = 3) -> int:
    return size * size * i * o + o


def song(blocks: int, features: int, residual: bool, n: int = 128, deep: int = 3, attends: int = 1) -> int:
    """Weights of Song et al. 2021's U-Net on 32 x 32 with widths n, 2n, 2n, 2n, by its layer list."""
    widths, told = [n, 2 * n, 2 * n, 2 * n], 4 * n

    def block(i, o, resized=False):
        past = conv(i, o, 1) if i != o or resized else 0
        return 2 * i + conv(i, o) + told * o + o + 2 * o + conv(o, o) + past

    def attention(c):
        return 2 * c + 4 * (c * c + c)

    total = features * told + told + told * told + told + conv(deep, n)
    seen, c, brought = [n], n, deep
    for i, w in enumerate(widths):
        for _ in range(blocks):
            total += block(c, w) + (attention(w) if i == attends else 0)
            c = w
            seen.append(c)
        if i < 3:
            total += block(c, c, True) + (conv(brought, c) if residual else 0)
            brought = c
            seen.append(c)
    total += 2 * block(c, c) + attention(c)
    for i, w in reversed(list(enumerate(widths))):
        for _ in range(blocks + 1):
            total += block(c + seen.pop(), w)
            c = w
        total += (attention(c) if i == attends else 0) + (block(c, c, True) if i else 0)
    return total + 2 * c + conv(c, deep)


@pytest.mark.parametrize(("blocks", "millions"), [(4, (62.8, 61.8)), (8, (107.6, 106.6))])
def test_published_sizes_have_as_many_weights_as_their_layer_lists(blocks, millions):
    """To the last one. 61.8 million is the figure usually given for DDPM++ cont.; the others are the list's own."""
    found = [parameters(lambda k, m=make: m(blocks=blocks, key=k)) for make in (ncsnpp, ddpmpp)]
    assert found == [song(blocks, 256, True), song(blocks, 128, False)]
    assert [round(n / 1e6, 1) for n in found] == list(millions)
    # Control: another number of blocks, or no pyramid, is another count.
    assert song(blocks - 1, 256, True) != found[0] != song(blocks, 256, False)


def written_out(net, x, level, pyramids):
    """The forward pass in the order of Song et al. 2021's description, block after block."""
    come, go = pyramids
    told = net.embedding(level, None)
    seen, brought, root = [net.enter(x)], x, np.sqrt(2.0)
    for place in net.down:
        for block, looks in zip(place.blocks, place.attention, strict=True):
            h = block(seen[-1], told)
            seen.append(h if looks is None else looks(h))
        if place.resize is not None:
            h = place.resize(seen[-1], told)
            if come == "skip":
                brought = halve(brought, smooth=net.smooth)
                h = h + place.pyramid(brought)
            elif come == "residual":
                brought = (place.pyramid(halve(brought, smooth=net.smooth)) + h) / root
                h = brought
            seen.append(h)
    first, looks, second = net.middle
    h = second(looks(first(seen[-1], told)), told)
    answer = None
    for place in net.up:
        for block, looks in zip(place.blocks, place.attention, strict=True):
            h = block(jnp.concatenate([h, seen.pop()], axis=-1), told)
            h = h if looks is None else looks(h)
        if go == "skip":
            part = place.reading.conv(jax.nn.silu(place.reading.norm(h)))
            answer = part if answer is None else double(answer, smooth=net.smooth) + part
        elif go == "residual":
            if answer is None:
                answer = place.reading.conv(jax.nn.silu(place.reading.norm(h)))
            else:
                answer = h = (place.pyramid(double(answer, smooth=net.smooth)) + h) / root
        if place.resize is not None:
            h = place.resize(h, told)
    assert seen == []
    return answer if go == "skip" else net.leave.conv(jax.nn.silu(net.leave.norm(h)))


@pytest.mark.parametrize("pyramids", [("none", "none"), ("skip", "skip"), ("residual", "residual")])
def test_pyramids_go_in_and_out_at_every_size(pyramids):
    come, go = pyramids
    net = PyramidUNet((4, 4, 1), channels=4, multipliers=(1, 2), blocks=1, attention=(0,), smooth=True,
                      input_pyramid=come, output_pyramid=go, key=KEY)  # fmt: skip
    x, level = jax.random.normal(KEY, (4, 4, 1)), jnp.asarray(0.3)
    run = eqx.filter_jit(lambda n, x: (n(x, level), written_out(n, x, level, pyramids)))
    ours, truth = run(loud(net), x)
    np.testing.assert_allclose(ours, truth, atol=1e-5)
    assert np.abs(ours).max() > 1e-3 and not np.any(run(net, x)[0])
    # Control: without what comes in at the smaller size the answer is another one.
    if come != "none":
        mute = eqx.tree_at(lambda n: n.down[0].pyramid.kernel, loud(net), replace_fn=jnp.zeros_like)
        assert np.abs(run(mute, x)[0] - truth).max() > 1e-4


def test_positions_are_those_of_a_thousand_steps():
    """Ho et al. 2020: the angles of step i are i 10000^(-k / (half - 1)), and i = 999 t."""
    half, steps = 64, np.array([0, 1, 500, 999])
    truth = steps[:, None] * np.exp(-np.log(10000) * np.arange(half) / (half - 1))
    found = steps[:, None] / 999 * np.asarray(positional(half))
    np.testing.assert_allclose(found, truth, rtol=1e-4)
    assert np.abs(found - truth * 10000 ** (1 / half)).max() > 1


# --------------------------------------------------------------------------------------------------- RefineNets


def norm_plus(x, gain, bias, shift):
    """The formula of Song and Ermon 2019, B.3.1, channel after channel."""
    mean, sd = x.mean((0, 1)), np.sqrt(x.var((0, 1)) + 1e-5)
    m, v = mean.mean(), np.sqrt(mean.var() + 1e-5)
    return np.stack(
        [gain[k] * (x[..., k] - mean[k]) / sd[k] + bias[k] + shift[k] * (mean[k] - m) / v for k in range(x.shape[-1])],
        axis=-1,
    )


def test_instance_norm_keeps_what_channels_are_beside_each_other():
    norm = loud(InstanceNormPlus(3, levels=4, key=KEY))
    x = np.asarray(jax.random.normal(KEY, (5, 6, 3))) * 2 + np.array([1.0, -1.0, 3.0])
    for level in (0, 3):
        truth = norm_plus(x.astype(np.float64), *(np.asarray(p)[level] for p in (norm.gain, norm.bias, norm.shift)))
        np.testing.assert_allclose(norm(jnp.asarray(x), jnp.asarray(level)), truth, atol=1e-4)
    # A shift of one channel is seen; plain instance norm, whose shifts are zero, is blind to it.
    other = jnp.asarray(x + np.array([0.0, 2.0, 0.0]))
    level = jnp.asarray(1)
    assert np.abs(norm(other, level) - norm(jnp.asarray(x), level)).max() > 0.1
    plain = eqx.tree_at(lambda n: n.shift, norm, replace_fn=jnp.zeros_like)
    np.testing.assert_allclose(plain(other, level), plain(jnp.asarray(x), level), atol=1e-4)


def refine(cascades, n: int, deep: int, levels: int | None) -> int:
    """Weights of Tables B.7 and B.8, layer after layer."""
    norm = 0 if levels is None else 3 * levels
    own = 3 * (levels or 1)
    total, c, widths = conv(deep, n), n, [n * cascade.multiplier for cascade in cascades]
    for cascade, w in zip(cascades, widths, strict=True):
        inner = c if cascade.down else w
        past = conv(c, w, 3 if cascade.dilation > 1 else 1) if cascade.down else 0
        total += own * (c + inner) + conv(c, inner) + conv(inner, w) + past + own * 2 * w + 2 * conv(w, w)
        c = w
    for i in reversed(range(len(widths))):
        w, out, inputs = widths[i], widths[max(i - 1, 0)], 1 if i == len(widths) - 1 else 2
        total += inputs * 4 * (9 * w * w + norm * w) + (inputs * (conv(w, out) + norm * w) if inputs == 2 else 0)
        total += 2 * (9 * out * out + norm * out) + 2 * (3 if i == 0 else 1) * (9 * out * out + norm * out)
    return total + own * n + conv(n, deep)


def test_refine_nets_have_as_many_weights_as_their_tables():
    """29.7 million for Table B.8(a), as counted of the authors' network; 7.4 and 1.9 with fewer channels."""
    for cascades in (SMALL, MIDDLE, LARGE):
        for levels in (None, 10):
            make = lambda k, c=cascades, n=levels: RefineNet((32, 32, 3), channels=128, cascades=c, levels=n, key=k)  # noqa: E731
            assert parameters(make) == refine(cascades, 128, 3, levels)
    assert round(refine(SMALL, 128, 3, None) / 1e6, 1) == 29.7
    sizes = [parameters(lambda k, n=n: RefineNet((28, 28, 1), channels=n, key=k)) for n in (64, 32, 16)]
    assert [round(n / 1e6, 2) for n in sizes] == [7.43, 1.86, 0.47]


@pytest.fixture(scope="module")
def conditional():
    return loud(RefineNet((6, 5, 1), channels=4, cascades=SMALL[:2], levels=3, key=KEY))


def test_a_refine_net_has_parameters_of_each_level(conditional):
    x = jax.random.normal(KEY, (6, 5, 1))
    run = eqx.filter_jit(lambda net, level: net(x, level))
    found = [run(conditional, jnp.asarray(t)) for t in (0.0, 0.2, 0.5, 1.0)]
    assert found[0].shape == x.shape
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 1e-3 and np.abs(found[2] - found[3]).max() > 1e-3
    # Level 1 is the second row of every norm: gradients reach no other.
    slopes = eqx.filter_jit(eqx.filter_grad(lambda net: jnp.sum(net(x, jnp.asarray(0.5)) ** 2)))(conditional)
    gains = np.asarray(slopes.refine[0].pool_norms[0].gain)
    assert np.any(gains[1]) and not np.any(gains[[0, 2]])
    with pytest.raises(InputError, match="told no condition"):
        conditional(x, jnp.asarray(0.5), jnp.asarray(1))


def test_stretching_and_pooling_are_their_definitions():
    x = np.asarray(jax.random.normal(KEY, (3, 4, 2)))
    grown = np.asarray(stretched(jnp.asarray(x), 5, 7))
    np.testing.assert_allclose(grown[::2, ::2], x, atol=1e-6)
    np.testing.assert_allclose(grown[1, 1], (x[0, 0] + x[0, 1] + x[1, 0] + x[1, 1]) / 4, atol=1e-6)
    wide = {
        "max": np.pad(x, ((2, 2), (2, 2), (0, 0)), constant_values=-np.inf),
        "mean": np.pad(x, ((2, 2),) * 2 + ((0, 0),)),
    }
    for how, reduce in (("max", np.max), ("mean", np.mean)):
        truth = [[reduce(wide[how][i : i + 5, j : j + 5], axis=(0, 1)) for j in range(4)] for i in range(3)]
        np.testing.assert_allclose(pooled(jnp.asarray(x), how), truth, atol=1e-6)


# ------------------------------------------------------------------------------------------------- transformers


def test_a_patch_transformer_has_as_many_weights_as_its_layers():
    """DiT-S/2 of Peebles and Xie 2023 (33 million) but for its table of labels and its second output."""
    n, depth, patch, deep = 384, 12, 2, 4
    one = 6 * n * n + 6 * n + 4 * (n * n + n) + 8 * n * n + 5 * n
    token = patch**2 * deep
    truth = 256 * n + n + n * n + n + token * n + n + depth * one + 2 * n * n + 2 * n + n * token + token
    made = lambda k: PatchTransformer((32, 32, deep), patch=patch, width=n, depth=depth, heads=6,  # noqa: E731
                                      frequencies=jnp.ones(128), key=k)  # fmt: skip
    assert parameters(made) == truth
    assert round((truth + 1001 * n + n * token + token) / 1e6) == 33


def test_a_transformer_block_is_its_formula():
    block = loud(TransformerBlock(8, 2, key=KEY), 0.3)
    xs, told = (np.asarray(jax.random.normal(jax.random.key(i), s), np.float64) for i, s in ((1, (5, 8)), (2, (8,))))

    def apply(layer, x):
        return x @ np.asarray(layer.weight, np.float64).T + np.asarray(layer.bias, np.float64)

    def norm(x):
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)

    def attention(x, heads):
        q, k, v = np.split(apply(block.looks, x), 3, axis=1)
        out, each = [], 8 // heads
        for h in range(heads):
            part = slice(h * each, (h + 1) * each)
            w = np.exp(q[:, part] @ k[:, part].T / np.sqrt(each))
            out.append(w / w.sum(1, keepdims=True) @ v[:, part])
        return apply(block.out, np.concatenate(out, axis=1))

    def truth(heads):
        a, b, c, d, e, f = np.split(apply(block.told, told / (1 + np.exp(-told))), 6)
        x = xs + a * attention((1 + b) * norm(xs) + c, heads)
        h = apply(block.first, (1 + e) * norm(x) + f)
        gelu = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        return x + d * apply(block.second, gelu)

    found = jax.jit(lambda xs, told: block(xs, told))(jnp.asarray(xs, jnp.float32), jnp.asarray(told, jnp.float32))
    np.testing.assert_allclose(found, truth(2), atol=1e-4)
    assert np.abs(found - truth(1)).max() > 1e-3


def test_a_patch_transformer_puts_patches_back_where_they_were():
    """A picture that only one patch differs in: with attention silent its answer differs only there."""
    net = loud(PatchTransformer((5, 6, 2), patch=2, width=8, depth=1, heads=2, condition=Categorical((), 3), key=KEY))
    alone = eqx.tree_at(lambda n: (n.blocks[0].out.weight, n.blocks[0].out.bias), net, replace_fn=jnp.zeros_like)
    run = eqx.filter_jit(lambda n, x, t, c: n(x, t, c))
    x, t, label = jax.random.normal(KEY, (5, 6, 2)), jnp.asarray(0.4), jnp.asarray(1)
    other = x.at[2:4, 4:6].add(1.0)
    moved = np.abs(run(alone, other, t, label) - run(alone, x, t, label)).max(-1) > 1e-6
    assert moved[2:4, 4:6].all() and moved.sum() == 4
    # Control: with attention every patch hears of it; and the level and the label are heard.
    base = run(net, x, t, label)
    assert np.all(np.abs(run(net, other, t, label) - base) > 1e-9)
    assert np.abs(run(net, x, jnp.asarray(0.5), label) - base).max() > 1e-4
    assert np.abs(run(net, x, t, jnp.asarray(2)) - base).max() > 1e-4
    with pytest.raises(InputError, match="multiple of 4, not 6"):
        PatchTransformer((4, 4, 1), width=6, key=KEY)
