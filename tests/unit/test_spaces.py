"""Spaces: sizes, equality, and what is not a space."""

import pytest

from unnorm.errors import InputError
from unnorm.spaces import Binary, Categorical, Graph, Mixed, Real


@pytest.mark.parametrize(
    ("space", "size", "continuous"),
    [
        (Real((3,)), 3, True),
        (Real((2, 4, 5)), 40, True),
        (Real(()), 1, True),
        (Binary((6,)), 6, False),
        (Categorical((2, 3), 5), 6, False),
        (Graph(5), 10, False),
        (Graph(5, directed=True), 20, False),
        (Mixed((Real((2,)), Binary((3,)), Graph(4))), 11, False),
    ],
)
def test_size_and_kind(space, size, continuous):
    assert space.size == size
    assert space.continuous is continuous


def test_graphs_are_square_matrices():
    assert Graph(4).shape == (4, 4)


def test_spaces_with_the_same_fields_are_the_same_space():
    assert Real((2,)) == Real((2,)) and hash(Real((2,))) == hash(Real((2,)))
    different = {Real((2,)), Real((3,)), Binary((2,)), Categorical((2,), 2), Categorical((2,), 3), Graph(2)}
    assert len(different) == 6


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: Real((0,)), "a shape is a tuple of positive whole numbers, not (0,)"),
        (lambda: Real((2, -1)), "a shape is a tuple of positive whole numbers, not (2, -1)"),
        (lambda: Binary((2.5,)), "a shape is a tuple of positive whole numbers, not (2.5,)"),
        (lambda: Categorical((2,), 1), "a categorical space needs at least 2 categories, not 1"),
        (lambda: Categorical((0,), 3), "a shape is a tuple of positive whole numbers, not (0,)"),
        (lambda: Graph(1), "a graph needs at least 2 vertices, not 1"),
    ],
)
def test_what_is_not_a_space_is_refused(build, sentence):
    with pytest.raises(InputError) as refused:
        build()
    assert str(refused.value) == sentence
