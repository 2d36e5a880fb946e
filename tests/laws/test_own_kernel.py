"""A row's own kernel is no property of the density: commands that jump do not count it at training rows.

In 20 dimensions a kernel estimate is several nats higher at its own rows than at fresh ones. Where a kernel is left out
of the density at its row, training rows and held-out ones have one law: their means agree within their errors.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from clouds import centres, kde_by_hand, proposals
from harness import breaks, holds

import unnorm as un
from unnorm import catalogue, noises
from unnorm.noises import BlendedJumps, Choice, DataJump, GlobalJumps, Jumps, LeaveOneOut, LeaveOneOutBlend
from unnorm.objectives import CNCE
from unnorm.spaces import Real

# ------------------------------------------------------------------------------------------------- the blend by hand

SIZE, WIDTH, SHARE = 0.3, 0.25, 0.6
DATA = centres(60, 2)


def by_hand(to, given, log_kde) -> np.ndarray:
    """log (share N(to; given, SIZE^2 I) + (1 - share) kde), in double precision."""
    to, given = np.asarray(to, np.float64), np.asarray(given, np.float64)
    d = to.shape[1]
    near = -np.sum((to - given) ** 2, 1) / (2 * SIZE**2) - d * math.log(SIZE * math.sqrt(2 * math.pi))
    return np.logaddexp(math.log(SHARE) + near, math.log(1 - SHARE) + log_kde)


def without_itself(data) -> np.ndarray:
    rows = np.asarray(data, np.float64)
    return np.concatenate([kde_by_hand(rows[i : i + 1], np.delete(rows, i, 0), WIDTH) for i in range(len(rows))])


def test_the_blend_leaves_the_row_out_where_it_is_the_row():
    noise = BlendedJumps(SIZE, WIDTH, SHARE, leave_one_out=True).fit(DATA)
    assert isinstance(noise, LeaveOneOutBlend) and noise.known is not None
    ys, ratios = proposals(noise, 0.0, DATA, key=jax.random.key(1))
    there = by_hand(ys, DATA, kde_by_hand(ys, DATA, WIDTH))
    np.testing.assert_allclose(ratios, there - by_hand(DATA, ys, without_itself(DATA)), atol=2e-3)
    # What was not looked up is the same, for one row and for many.
    fresh = LeaveOneOutBlend(noise.local, noise.kde, SHARE)
    again, computed = proposals(fresh, 0.0, DATA, key=jax.random.key(1))
    np.testing.assert_array_equal(again, ys)
    np.testing.assert_allclose(computed, ratios, atol=1e-4)
    y, ratio = noise.propose(0.0, DATA[0], key=jax.random.key(2))
    backwards = noise.log_prob(0.0, y, DATA[0]) - noise.of_data(0.0, DATA[0], y)
    np.testing.assert_allclose(ratio, backwards, rtol=1e-5)
    # Controls: the plain blend, and one that leaves the row out of the other term.
    plain, usual = proposals(BlendedJumps(SIZE, WIDTH, SHARE).fit(DATA), 0.0, DATA, key=jax.random.key(1))
    np.testing.assert_array_equal(plain, ys)
    assert np.max(np.asarray(ratios) - np.asarray(usual)) > 0.1
    other = by_hand(ys, DATA, without_itself(DATA)) - by_hand(DATA, ys, kde_by_hand(DATA, DATA, WIDTH))
    assert np.max(np.abs(np.asarray(ratios) - other)) > 0.1


def test_a_point_that_is_no_row_sees_every_kernel():
    noise = BlendedJumps(SIZE, WIDTH, SHARE, leave_one_out=True).fit(DATA)
    xs = centres(20, 2, seed=9)
    ys, ratios = proposals(noise, 0.0, xs, key=jax.random.key(3))
    usual, plain = proposals(BlendedJumps(SIZE, WIDTH, SHARE).fit(DATA), 0.0, xs, key=jax.random.key(3))
    np.testing.assert_array_equal(ys, usual)
    np.testing.assert_allclose(ratios, plain, atol=1e-4)


def test_a_blend_makes_points_of_real_numbers():
    assert BlendedJumps(SIZE, WIDTH, leave_one_out=True).fit(DATA).makes_real_numbers


# ------------------------------------------------------------------------------------------------- the commands

PROBLEM = un.data.load("gmm20", n_train=1500, n_valid=400, n_test=1500)
SCALES = noises.scales_of(PROBLEM.train, PROBLEM.valid)
CONTEXT = catalogue.Context(Real((20,)), SCALES, jax.random.key(0), PROBLEM.train, PROBLEM.valid)


def built(name: str, **options) -> CNCE:
    entry = catalogue.find(catalogue.OBJECTIVES, name, "objective")
    objective = entry.build(catalogue.read_options(entry, options), CONTEXT)
    assert isinstance(objective, CNCE)
    return objective


def density_at(noise, xs) -> np.ndarray:
    """log q at rows by the global part of a noise: that of a blend by its ratio where no local move could lead."""
    if isinstance(noise, Choice):
        noise = next(part for part in noise.noises if isinstance(part, noises.Remembered))
    if isinstance(noise, noises.Remembered):
        values = jax.vmap(noise.jump.of_data)
    elif isinstance(noise, LeaveOneOutBlend):
        far = jnp.full(xs.shape[1], 1e4)
        values = jax.vmap(lambda x: noise.of_data(0.0, x, far) - math.log1p(-noise.share))
    else:
        far = jnp.full(xs.shape[1], 1e4)
        values = jax.vmap(lambda x: noise.log_prob(0.0, x, far) - math.log(noise.shares[1]))
    return np.asarray(jax.jit(values)(jnp.asarray(xs)), np.float64)


def gap(recipe) -> np.ndarray:
    """log q at training rows less that at as many held-out ones, pair by pair."""
    fitted = recipe.fit(jnp.asarray(PROBLEM.train))
    return density_at(fitted, PROBLEM.train) - density_at(fitted, PROBLEM.test)


def counting(recipe):
    """The same noise that counts a row's own kernel, as the commands once did."""
    if isinstance(recipe, Jumps):
        return Jumps(local=recipe.local, bandwidth=recipe.bandwidth, share=recipe.share, wide=recipe.wide)
    if isinstance(recipe, GlobalJumps):
        return GlobalJumps(recipe.bandwidth)
    return BlendedJumps(recipe.local, recipe.bandwidth, recipe.share)


@pytest.mark.parametrize("name", ["cnce", "cnce-global", "cnce-blend"])
def test_training_rows_look_like_held_out_ones(name):
    recipe = built(name).noise
    assert holds(gap(recipe), 0.0)
    # Control: with a row's own kernel, training rows look several nats more likely.
    overrated = gap(counting(recipe))
    assert breaks(overrated, 0.0) and overrated.mean() > 3


@pytest.mark.parametrize("name", ["cnce", "cnce-global"])
def test_jumps_onto_the_data_themselves_stay_what_they_are(name):
    fitted = built(name, bandwidth=0).noise.fit(jnp.asarray(PROBLEM.train))
    parts = fitted.noises if isinstance(fitted, Choice) else (fitted,)
    assert any(isinstance(part, DataJump) for part in parts)
    assert not any(isinstance(part, LeaveOneOut | noises.Remembered) for part in parts)
