"""Densities looked up at the rows of the data are those that would be computed, wherever they are asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm.noises import FittedKDE, GlobalJumps, KDEJump, LeaveOneOut, Remembered, Rows
from unnorm.noises.kde import REMEMBERED
from unnorm.noises.rows import _mark

SQUARED = lambda x: jnp.sum(x**2)  # noqa: E731


@pytest.fixture
def table():
    data = jax.random.normal(jax.random.key(0), (500, 3))
    # Rows that occur twice, a zero of either sign, and rows that differ in one bit.
    data = data.at[10].set(data[11]).at[20, 0].set(0.0).at[21].set(data[20]).at[21, 0].set(-0.0)
    return data.at[30].set(data[31]).at[30, 2].set(jnp.nextafter(data[31, 2], jnp.inf))


def test_every_row_is_found_and_nothing_else(table):
    rows = Rows(table, SQUARED)
    values, found = rows.find(table)
    assert np.all(found)
    # In blocks or not, a sum of three squares is rounded the same way but for the order of its terms.
    np.testing.assert_allclose(values, jax.vmap(SQUARED)(table), rtol=1e-6)
    assert not np.any(rows.find(jnp.nextafter(table, jnp.inf))[1][:20])
    assert not np.any(rows.find(table[:, ::-1])[1])


def test_one_stranger_in_a_batch_has_it_computed(table):
    rows = Rows(table, SQUARED)
    # Negative control: values that are not those of the function come out where rows are looked up, and only there.
    other = lambda x: -jnp.ones(())  # noqa: E731
    np.testing.assert_allclose(rows.values_at(table[:7], other), jax.vmap(SQUARED)(table[:7]), rtol=1e-6)
    mixed = table[:7].at[3].add(0.5)
    np.testing.assert_array_equal(rows.values_at(mixed, other), -np.ones(7))


def test_rows_with_one_mark_are_told_apart():
    """Two rows whose numbers agree: the wrong one is never returned for the other."""
    many = np.random.default_rng(0).normal(size=(200_000, 2)).astype(np.float32)
    marks = np.asarray(jax.vmap(_mark)(jnp.asarray(many)))
    order = np.argsort(marks, kind="stable")
    clash = np.flatnonzero((np.diff(marks[order]) == 0) & np.any(np.diff(many[order], axis=0) != 0, axis=1))
    # 200,000^2 / 2^33 = 4.7 pairs are to be expected.
    assert 0 < len(clash) < 20
    pair = jnp.asarray(many[order[[clash[0], clash[0] + 1]]])
    values, found = Rows(pair, SQUARED).find(pair)
    assert np.sum(found) == 1
    np.testing.assert_allclose(values[found], jax.vmap(SQUARED)(pair)[found], rtol=1e-6)
    np.testing.assert_allclose(Rows(pair, SQUARED).values_at(pair, SQUARED), jax.vmap(SQUARED)(pair), rtol=1e-6)


@pytest.mark.parametrize("kind", [lambda kde: kde, LeaveOneOut], ids=["kde", "left-out"])
def test_a_remembering_jump_proposes_what_it_would_without(table, kind):
    jump = kind(KDEJump(table, 0.3, block=128))
    noise = Remembered(jump)
    for xs in (table[:64], table[:64] + 0.01):
        ys, ratios = noise.propose_each(0.0, xs, key=jax.random.key(1))
        same, computed = jump.propose_each(0.0, xs, key=jax.random.key(1))
        np.testing.assert_array_equal(ys, same)
        np.testing.assert_allclose(ratios, computed, atol=1e-4)
    # Negative control: what was remembered of another bandwidth.
    stale = jax.tree.map(lambda leaf: leaf, noise)
    object.__setattr__(stale, "known", Remembered(kind(KDEJump(table, 0.4))).known)
    wrong = stale.propose_each(0.0, table[:64], key=jax.random.key(1))[1]
    right = jump.propose_each(0.0, table[:64], key=jax.random.key(1))[1]
    assert np.max(np.abs(wrong - right)) > 0.1


def test_a_remembering_reference_says_what_it_would_without(table):
    reference = FittedKDE(0.3).fit(table, key=jax.random.key(2))
    for xs in (table[:64], table[:64] + 0.01):
        np.testing.assert_allclose(reference.of_rows(xs), jax.vmap(reference.of_data)(xs), atol=1e-4)
    # Negative control: the estimate with a row's own kernel.
    assert np.min(jax.vmap(reference.of_noise)(table[:64]) - reference.of_rows(table[:64])) > 1e-3


def test_a_large_table_is_not_computed_beforehand():
    few, many = jnp.zeros((10, 1)), jnp.zeros((REMEMBERED + 1, 1))
    assert isinstance(GlobalJumps(0.5).fit(few), Remembered)
    assert isinstance(GlobalJumps(0.5).fit(many), KDEJump)
