"""Laws of the kernel density estimate: the blocked log-sum-exp is the sum it stands for, in bounded memory."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from unnorm.errors import InputError
from unnorm.noises import BlendedJumps, DataJump, GlobalJumps, KDEJump

N, D, BANDWIDTH = 10_000, 20, 0.1
#: float32 keeps |c|^2 / (2 bandwidth^2), about 1,000 here, to 1e-4, and several such terms cancel.
RELATIVE, ABSOLUTE = 1e-4, 2e-3

log_densities = eqx.filter_jit(lambda kde, ys: jax.vmap(kde.log_density)(ys))


def truth(centres, bandwidth: float, ys) -> np.ndarray:
    """The definition, in float64, from differences: nothing cancels."""
    centres, ys = np.asarray(centres, np.float64), np.asarray(ys, np.float64)
    n, d = centres.shape
    squared = np.stack([np.sum(((y - centres) / bandwidth) ** 2, 1) for y in ys])
    return logsumexp(-0.5 * squared, axis=1) - math.log(n) - d * (math.log(bandwidth) + 0.5 * math.log(2 * math.pi))


def agrees(kde: KDEJump, bandwidth: float, ys) -> bool:
    return np.allclose(log_densities(kde, ys), truth(kde.density.centres, bandwidth, ys), rtol=RELATIVE, atol=ABSOLUTE)


@pytest.fixture(scope="module")
def centres() -> jax.Array:
    return jax.random.normal(jax.random.key(0), (N, D))


def probes(centres: jax.Array) -> jax.Array:
    """Points of every kind: on a centre, drawn from the estimate, anywhere, and far out."""
    noise = jax.random.normal(jax.random.key(1), (64, D))
    direction = noise / jnp.linalg.norm(noise, axis=1, keepdims=True)
    outermost = jnp.max(jnp.linalg.norm(centres, axis=1))
    # Every centre is at least 40 bandwidths away: exp(-800) is 0 in float32, so only a shifted sum can see it.
    far = direction * (outermost + 40 * BANDWIDTH)
    return jnp.concatenate([centres[:64], centres[64:128] + BANDWIDTH * noise, noise, far, 10 * far])


@pytest.mark.parametrize("block", [333, 2048, 20_000])
def test_blocked_sum_is_the_sum(centres, block):
    """However the centres fall into blocks (the last one ragged, or a single one)."""
    assert agrees(KDEJump(centres, BANDWIDTH, block=block), BANDWIDTH, probes(centres))


def test_an_unshifted_sum_is_rejected(centres):
    """Negative control: without the shift by the largest exponent, far points have density 0."""
    ys = probes(centres)
    squared = jnp.sum(((ys[:, None] - centres) / BANDWIDTH) ** 2, -1)
    naive = jnp.log(jnp.sum(jnp.exp(-0.5 * squared), 1))
    assert np.isneginf(np.asarray(naive)[-128:]).all()
    assert np.isfinite(log_densities(KDEJump(centres, BANDWIDTH), ys)).all()


# Five centres in blocks of two: one row of padding, which would weigh as much as a sixth of the data.
SMALL = jnp.array([[0.0, 0.2], [1.0, -1.0], [-1.0, 0.5], [0.5, 1.5], [-0.5, -1.2]])


def without_mask(kde: KDEJump) -> KDEJump:
    """Padding that counts as centres at the mean."""
    return eqx.tree_at(lambda k: k.density.blocks, kde, jnp.where(kde.density.blocks < -1e20, 0.0, kde.density.blocks))


def with_padded_count(kde: KDEJump) -> KDEJump:
    """The constant log of the padded number of centres."""
    padded = jnp.concatenate([kde.density.centres, kde.density.middle[None]])
    return eqx.tree_at(lambda k: k.density.centres, kde, padded)


def test_padding_counts_for_nothing():
    ys = jnp.concatenate([SMALL, jax.random.normal(jax.random.key(2), (32, 2))])
    kde = KDEJump(SMALL, 0.5, block=2)
    expected = truth(SMALL, 0.5, ys)

    def right(kde: KDEJump) -> bool:
        return np.allclose(log_densities(kde, ys), expected, rtol=RELATIVE, atol=ABSOLUTE)

    assert right(kde)
    # Negative controls: a dropped mask, a wrong constant, a bandwidth off by 1%.
    assert not right(without_mask(kde))
    assert not right(with_padded_count(kde))
    assert not right(KDEJump(SMALL, 0.505, block=2))


def test_the_score_is_that_of_the_definition(centres):
    """grad log q(y) = sum_i w_i (c_i - y) / bandwidth^2 with w the kernels' shares, padding and far points included."""
    wide = 0.5
    kde = KDEJump(centres[:1001], wide, block=100)
    ys = probes(centres)
    ours = jax.jit(jax.vmap(jax.grad(kde.log_density)))(ys)
    c, y = np.asarray(kde.density.centres, np.float64), np.asarray(ys, np.float64)[:, None]
    logits = -0.5 * np.sum(((y - c) / wide) ** 2, -1)
    shares = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    expected = np.einsum("bn,bnd->bd", shares, c - y) / wide**2
    np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    assert not np.allclose(ours, 0.98 * expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def scratch_bytes(n: int, batch: int, block: int) -> int:
    """What the compiled density of a batch needs beside its arguments and result."""
    kde = jax.eval_shape(lambda c: KDEJump(c, BANDWIDTH, block=block), jax.ShapeDtypeStruct((n, D), jnp.float32))
    ys = jax.ShapeDtypeStruct((batch, D), jnp.float32)
    compiled = jax.jit(lambda k, y: jax.vmap(k.log_density)(y)).lower(kde, ys).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_memory_is_bounded_by_batch_and_block():
    """200,000 centres need no more room than a few arrays of batch x block numbers, and a tenth need as much."""
    batch, block = 256, 2048
    bound = 3 * 4 * batch * block
    assert scratch_bytes(200_000, batch, block) < bound
    assert scratch_bytes(200_000, batch, block) < 1.1 * scratch_bytes(20_000, batch, block)
    # Negative control: all centres at once.
    assert scratch_bytes(200_000, batch, 200_000) > 10 * bound


def test_zero_bandwidth_is_refused_where_a_density_is_needed():
    with pytest.raises(InputError, match="use DataJump"):
        KDEJump(SMALL, 0.0)
    with pytest.raises(InputError, match="must be positive and finite"):
        BlendedJumps(local=0.1, bandwidth=0.0)
    assert isinstance(GlobalJumps(bandwidth=0.0).fit(SMALL), DataJump)
