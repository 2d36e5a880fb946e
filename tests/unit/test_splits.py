"""Rows that belong together stay together; how columns were written is found and kept."""

import numpy as np
import pytest

from unnorm.data import split
from unnorm.data.recorded import as_recorded, decimals_of, suggested_group
from unnorm.data.splits import copies, folds, in_order, joined, parts
from unnorm.errors import InputError

RNG = np.random.default_rng(0)


def shared(some, others) -> int:
    """How many rows of the first stand among the second."""
    return len({row.tobytes() for row in some} & {row.tobytes() for row in others})


def test_copies_never_lie_on_both_sides():
    rows = RNG.integers(0, 4, (400, 3)).astype(float)  # 64 different rows at most
    train, valid, test = split(rows, 1)
    assert shared(train, test) == shared(train, valid) == shared(valid, test) == 0
    assert len(train) + len(valid) + len(test) == 400 and 20 <= len(test) <= 40
    # Negative control: shuffled row by row, they do.
    order = np.random.default_rng(1).permutation(400)
    assert shared(rows[order[:320]], rows[order[360:]]) > 10


def test_rows_of_a_group_stay_together_and_bring_their_copies():
    rows, groups = RNG.normal(size=(300, 2)), np.repeat(np.arange(30), 10)
    rows[5] = rows[299]  # the first and the last group share a row
    numbers = np.arange(300.0)
    labels = joined(copies(rows), groups)
    assert labels[0] == labels[299] and len(np.unique(labels)) == 29
    found = [groups[part] for part in parts(labels, 2)]
    owners = [set(part.tolist()) for part in found]
    assert not owners[0] & owners[2] and not owners[0] & owners[1] and not owners[1] & owners[2]
    assert any({0, 29} <= part for part in owners)
    train, _, test = split(numbers[:, None], 2, groups=groups)
    assert not set((train[:, 0] // 10).tolist()) & set((test[:, 0] // 10).tolist())


def test_without_copies_the_split_is_a_plain_shuffle():
    order = np.random.default_rng(3).permutation(100)
    found = split(np.arange(100.0)[:, None], 3)
    np.testing.assert_array_equal(np.concatenate(found)[:, 0], order)


def test_a_group_larger_than_a_part_is_trained_on_and_every_part_has_rows():
    labels = np.repeat([0, 1, 2, 3], [70, 20, 6, 4])
    sizes = [len(part) for part in parts(labels, 0)]
    assert sum(sizes) == 100 and sizes[0] >= 70 and min(sizes) >= 4
    assert [len(part) for part in parts(np.array([0, 1, 2]), 0)] == [1, 1, 1]
    with pytest.raises(InputError, match="in 2 groups"):
        parts(np.array([0, 0, 1, 1]), 0)


def test_folds_are_even_and_part_no_label():
    labels = in_order(RNG.integers(0, 50, 500))
    number = folds(labels, 5, 0)
    assert all(len(np.unique(number[labels == label])) == 1 for label in np.unique(labels))
    assert np.ptp(np.bincount(number)) <= 20
    with pytest.raises(InputError, match="cannot be shared out"):
        folds(np.zeros(10, int), 2, 0)


def test_draws_are_written_as_their_column_was():
    values = np.column_stack([RNG.integers(0, 9, 50), RNG.integers(0, 900, 50) / 100, RNG.normal(size=50)])
    assert decimals_of(values) == (0, 2, None)
    found = as_recorded(values + 0.003, (0, 2, None))
    np.testing.assert_array_equal(found[:, :2], values[:, :2])
    np.testing.assert_array_equal(found[:, 2], values[:, 2] + 0.003)
    assert not np.signbit(as_recorded(np.array([[-0.2]]), (0,))).any()
    # A third among tenths does not make them continuous.
    tenths = np.round(RNG.normal(size=(100, 1)), 1)
    tenths[0] = 1 / 3
    assert decimals_of(tenths) == (1,)


def test_a_column_that_numbers_persons_is_told_from_one_that_counts():
    person, count = np.repeat(np.arange(1.0, 21), 10), RNG.integers(0, 20, 200).astype(float)
    assert suggested_group(np.column_stack([count, person]), ("count", "person")) == "person"
    assert suggested_group(np.column_stack([count, RNG.permutation(person)]), ("count", "mixed")) is None
