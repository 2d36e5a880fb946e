"""Laws of kernel density noise: blocks do not matter, and a row's own kernel is left out where it should be."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from clouds import centres, kde_by_hand, points, proposals
from harness import breaks, holds
from scipy.special import logsumexp

from unnorm.noises import (
    GlobalJumps,
    Jumps,
    KDEJump,
    LeaveOneOut,
    Remembered,
)

# ------------------------------------------------------------------------------------------------- the KDE


@pytest.mark.parametrize("block", [1, 7, 50, 64, 2048])
def test_kde_density_does_not_depend_on_its_blocks(block):
    data = centres(50, 3)
    # Near, between and far from the centres, where a plain sum of exponentials would be 0.
    ys = jnp.concatenate([data[:10] + 0.1, points(20, 3), points(5, 3) + 40.0])
    found = jax.jit(jax.vmap(KDEJump(data, 0.25, block=block).log_density))(ys)
    np.testing.assert_allclose(found, kde_by_hand(ys, data, 0.25), rtol=2e-5, atol=2e-4)
    # Negative control: padding counted as centres would add points at the mean.
    padded = jnp.concatenate([data, jnp.broadcast_to(data.mean(0), (6, 3))])
    assert np.abs(kde_by_hand(ys, padded, 0.25) - np.asarray(found)).max() > 0.1


def test_kde_of_data_far_from_zero():
    """Distances are expanded around the centres' mean; around zero, single precision would lose them."""
    data = centres(50, 2) + 1000.0
    found = jax.jit(jax.vmap(KDEJump(data, 0.25).log_density))(data[:10] + 0.1)
    truth = kde_by_hand(data[:10] + 0.1, data, 0.25)
    np.testing.assert_allclose(found, truth, atol=1e-2)
    y, c = np.asarray(data[:10] + 0.1, np.float32), np.asarray(data, np.float32)
    expanded = np.sum(y**2, 1)[:, None] - 2 * y @ c.T + np.sum(c**2, 1)
    naive = logsumexp(-expanded / (2 * 0.25**2), axis=1) - math.log(50) - 2 * math.log(0.25 * math.sqrt(2 * np.pi))
    assert np.abs(naive - truth).max() > 0.1


# ------------------------------------------------------------------------------------------------- leaving one out


def left_out_by_hand(data, bandwidth: float) -> np.ndarray:
    """Each row under the estimate of the rows that differ from it, in double precision."""
    data = np.asarray(data, np.float64)
    others = [data[np.any(data != row, axis=1)] for row in data]
    return np.concatenate([kde_by_hand(row[None], rest, bandwidth) for row, rest in zip(data, others, strict=True)])


@pytest.mark.parametrize("block", [7, 2048])
def test_leaving_one_out_is_the_estimate_of_the_other_rows(block):
    """Duplicates too: of a row that occurs three times none stays, for a copy tells no more than the row."""
    data = jnp.concatenate([centres(40, 3), centres(40, 3)[:5], centres(40, 3)[:5]]) + 20.0
    kde = KDEJump(data, 0.25, block=block)
    found = jax.jit(jax.vmap(kde.leave_one_out))(data)
    np.testing.assert_allclose(found, left_out_by_hand(data, 0.25), atol=2e-3)
    # Negative controls: one copy left out, and none.
    rows = np.asarray(data, np.float64)
    one_left_out = [kde_by_hand(row[None], np.delete(rows, i, 0), 0.25)[0] for i, row in enumerate(rows[:5])]
    assert np.abs(np.asarray(found[:5]) - one_left_out).min() > 0.1
    assert np.abs(found - kde_by_hand(data, data, 0.25)).max() > 0.1
    # A point that is no centre sees all of them, however near it comes.
    near = data[5:10] + 1e-3
    np.testing.assert_allclose(jax.vmap(kde.leave_one_out)(near), jax.vmap(kde.log_density)(near), atol=1e-4)


def test_leaving_one_out_survives_where_subtracting_would_not():
    """In 20 dimensions a row's own kernel is all there is to single precision: what is left must not be rounding."""
    data = points(100, 20)
    kde = KDEJump(data, 0.3)
    found = jax.jit(jax.vmap(kde.leave_one_out))(data)
    truth = left_out_by_hand(data, 0.3)
    np.testing.assert_allclose(found, truth, rtol=1e-4)
    # The plain estimate at a centre is log(1 + exp gap) too high, the gap being that of its own kernel to the others'.
    own = -math.log(99) - 20 * math.log(0.3 * math.sqrt(2 * math.pi))
    plain = np.asarray(jax.jit(jax.vmap(kde.log_density))(data), np.float64)
    np.testing.assert_allclose(plain, truth + np.logaddexp(0, own - truth) + math.log(99 / 100), atol=2e-3)
    assert np.min(plain - truth) > 10


def test_left_out_rows_look_like_fresh_ones():
    """A row under the others' estimate has the law of a fresh point under an estimate of one row fewer."""
    rows = points(64 * 101, 20, seed=14).reshape(64, 101, 20)

    @jax.jit
    @jax.vmap
    def overrated(data):
        kde = KDEJump(data, 0.7)
        fresh = jax.vmap(KDEJump(data[:-1], 0.7).log_density)(data[-1:])
        return jnp.stack([jax.vmap(f)(data).mean() - fresh.mean() for f in (kde.leave_one_out, kde.log_density)])

    found = np.asarray(overrated(rows))
    assert holds(found[:, 0], 0.0)
    # Negative control: the plain estimate at its own rows.
    assert breaks(found[:, 1], 0.0)


def test_jumps_leave_the_data_point_out_and_nothing_else():
    data = centres(60, 2)
    noise = GlobalJumps(0.2, leave_one_out=True).fit(data)
    assert isinstance(noise, Remembered) and isinstance(noise.jump, LeaveOneOut)
    ys, ratios = proposals(noise, 0.0, data, key=jax.random.key(15))
    there = kde_by_hand(ys, data, 0.2)
    np.testing.assert_allclose(ratios, there - left_out_by_hand(data, 0.2), atol=2e-3)
    plain, usual = proposals(GlobalJumps(0.2).fit(data), 0.0, data, key=jax.random.key(15))
    np.testing.assert_array_equal(plain, ys)
    assert np.all(np.asarray(ratios) > np.asarray(usual)) and np.max(ratios - usual) > 0.1
    # Inside the mix the local moves are what they were.
    mixed = Jumps(0.1, 0.2, leave_one_out=True).fit(data)
    ys, ratios = proposals(mixed, 0.0, data, key=jax.random.key(15))
    np.testing.assert_allclose(ratios[:30], 0.0, atol=1e-4)
    np.testing.assert_allclose(
        ratios[30:], kde_by_hand(ys[30:], data, 0.2) - left_out_by_hand(data, 0.2)[30:], atol=2e-3
    )
