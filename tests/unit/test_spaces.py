"""Spaces: sizes, equality, and what is not a space."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm.errors import InputError
from unnorm.spaces import Binary, Categorical, Conditioned, Graph, Mixed, Real, WithCondition


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
        (lambda: Real((0,)), "a shape must be a tuple of positive whole numbers, not (0,)"),
        (lambda: Real((2, -1)), "a shape must be a tuple of positive whole numbers, not (2, -1)"),
        (lambda: Binary((2.5,)), "a shape must be a tuple of positive whole numbers, not (2.5,)"),
        (lambda: Categorical((2,), 1), "a categorical space needs at least 2 categories, not 1"),
        (lambda: Categorical((0,), 3), "a shape must be a tuple of positive whole numbers, not (0,)"),
        (lambda: Graph(1), "a graph needs at least 2 vertices, not 1"),
    ],
)
def test_what_is_not_a_space_is_refused(build, sentence):
    with pytest.raises(InputError) as refused:
        build()
    assert str(refused.value) == sentence


# Points of each space, as they may come: rows, and what they are as points of the space.
SQUARE = np.array([[[0, 1, 0], [1, 0, 1], [0, 1, 0]], [[0, 0, 1], [0, 0, 0], [1, 0, 0]]])
NESTED = Mixed((Real((2,)), Mixed((Binary((3,)), Categorical((), 4))), Graph(3)))
ROWS = {
    "whole numbers as reals": (Real((2,)), [[1, 2], [3, 4]], jnp.float32),
    "halves stay halves": (Real((2,)), np.ones((3, 2), np.float16), jnp.float16),
    "one number each": (Real(()), np.arange(3.0), jnp.float32),
    "an image each": (Real((2, 2)), np.zeros((1, 2, 2)), jnp.float32),
    "truth values": (Binary((2,)), [[True, False]], jnp.int32),
    "eight bits": (Binary((2,)), np.ones((2, 2), np.uint8), jnp.int32),
    "coins as reals": (Binary((2,)), [[0.0, 1.0]], jnp.float32),
    "categories as reals": (Categorical((2,), 3), [[0.0, 2.0]], jnp.int32),
    "one category each": (Categorical((), 256), np.array([0, 255], np.uint8), jnp.int32),
    "edges": (Graph(3), SQUARE, jnp.int32),
    "arrows": (Graph(2, directed=True), np.array([[[0.0, 1.0], [0.0, 0.0]]]), jnp.float32),
}


def first(points):
    return jax.tree.map(lambda leaf: leaf[0], points)


@pytest.mark.parametrize(("space", "rows", "kind"), ROWS.values(), ids=ROWS.keys())
def test_rows_become_points_and_keep_their_values(space, rows, kind):
    points = space.cast(rows, "training")
    assert points.dtype == kind
    np.testing.assert_array_equal(points, np.asarray(rows))
    assert space.accepts(points[0]) and not space.accepts(points)
    again = space.cast(points, "training")
    assert again.dtype == points.dtype and (again == points).all()


SPACES = [Real((2, 3)), Real(()), Binary((40,)), Categorical((40,), 3), Graph(9), Graph(9, directed=True), NESTED]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_where_chains_start_are_points(space):
    points = space.start(64, jax.random.key(0))
    assert space.accepts(first(points)) and space.accepts(space.struct())
    assert jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), first(points)) == space.struct()
    found = space.cast(points, "starting")
    assert jax.tree.all(jax.tree.map(lambda a, b: a.dtype == b.dtype and bool((a == b).all()), found, points))
    # Another key is another start, and the same key the same.
    for seed, same in ((0, True), (1, False)):
        other = space.start(64, jax.random.key(seed))
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), other, points)) is same


@pytest.mark.parametrize(
    ("space", "mean", "variance"),
    [
        (Real((50,)), 0.0, 1.0),
        (Binary((50,)), 0.5, 0.25),
        (Categorical((50,), 4), 1.5, 1.25),
        (Graph(8), 0.5, 0.25),
        (Graph(8, directed=True), 0.5, 0.25),
    ],
    ids=str,
)
def test_starts_have_the_law_they_are_said_to_have(space, mean, variance):
    """Mean and variance of the entries that are free: five standard errors, from the numbers that are independent."""
    points = np.asarray(space.start(2000, jax.random.key(5)), float)
    if isinstance(space, Graph):
        points = points[:, ~np.eye(space.n, dtype=bool)]
    independent = 2000 * space.size
    error = 5 * np.sqrt(variance / independent)
    assert abs(points.mean() - mean) < error
    # The variance of (x - mean)^2 is at most 2 for these laws.
    assert abs(points.var() - variance) < 5 * np.sqrt(2 / independent)
    # Negative control: standard normal points are no coins, and coins no dice.
    assert abs(points.mean() - (mean + 0.1)) > error


ODD = np.array([[[0, 1], [0, 0]]])
REFUSALS = {
    "words": (
        Real((1,)),
        [["a"]],
        "training data must be real numbers, not of type <U1; turn words into numbers first",
    ),
    "ragged": (Real((1,)), [[1.0], [1.0, 2.0]], "training data are rows of unequal length; give n points of one shape"),
    "one point": (Real((2,)), [1.0, 2.0], "training data must be n points along the first axis, not (2,)"),
    "no points": (Binary((2,)), np.zeros((0, 2)), "training data must be n points along the first axis, not (0, 2)"),
    "not finite": (
        Real((2,)),
        [[1.0, 2.0], [np.nan, np.inf]],
        "training data hold 2 values that are not finite, the first in row 1 (counted from 0); remove or impute them",
    ),
    "wide": (
        Categorical((2,), 3),
        [[0, 1, 2]],
        "points of training data have shape (3,), and should have (2,); give data of the shape that the model is made "
        "for",
    ),
    "a half": (
        Binary((2,)),
        [[0, 1], [1, 1], [0.5, 0]],
        "training data hold 1 value other than 0 and 1, the first in row 2 (counted from 0); write the two states as "
        "0 and 1",
    ),
    "spins": (
        Binary((1,)),
        [[-1], [1]],
        "training data hold 1 value other than 0 and 1, the first in row 0 (counted from 0); write the two states as "
        "0 and 1",
    ),
    "counted from 1": (
        Categorical((1,), 3),
        [[1], [2], [3]],
        "training data hold 1 value other than 0 to 2, the first in row 2 (counted from 0); number the categories from "
        "0 to 2",
    ),
    "between categories": (
        Categorical((1,), 3),
        [[1.5], [-1.0]],
        "training data hold 2 values other than 0 to 2, the first in row 0 (counted from 0); number the categories "
        "from 0 to 2",
    ),
    "a loop": (
        Graph(2),
        np.array([[[0, 1], [1, 1]]]),
        "training data hold 1 value of edges from a vertex to itself, the first in row 0 (counted from 0); remove them",
    ),
    "one way": (
        Graph(2),
        ODD,
        "training data hold 2 values of edges in one direction only, the first in row 0 (counted from 0); make the "
        "matrices symmetric, or use Graph(2, directed=True)",
    ),
    "an array for a tuple": (
        NESTED,
        np.zeros((2, 3)),
        "training data are a tuple of 3 parts, each with all the rows, not an array of float64 and shape (2, 3)",
    ),
    "a part too few": (
        NESTED,
        (np.zeros((2, 2)), ()),
        "training data are a tuple of 3 parts, each with all the rows, not a tuple of 2",
    ),
    "in a part of a part": (
        NESTED,
        (np.zeros((2, 2)), (np.ones((2, 3)), np.array([0, 4])), SQUARE),
        "part 1 of part 1 of the training data hold 1 value other than 0 to 3, the first in row 1 (counted from 0); "
        "number the categories from 0 to 3",
    ),
    "rows that are missing": (
        Mixed((Real((1,)), Binary((1,)))),
        (np.zeros((3, 1)), np.zeros((2, 1))),
        "the parts of training data have [3, 2] rows; give every part of every point",
    ),
}


@pytest.mark.parametrize(("space", "rows", "sentence"), REFUSALS.values(), ids=REFUSALS.keys())
def test_rows_that_are_no_points_are_refused_in_one_sentence(space, rows, sentence):
    with pytest.raises(InputError) as refused:
        space.cast(rows, "training")
    assert str(refused.value) == sentence


def test_a_nested_point_goes_through_and_comes_back():
    rows = (np.eye(2), (np.array([[0, 1, 1], [1, 0, 0]]), np.array([3.0, 0.0])), SQUARE)
    points = NESTED.cast(rows, "training")
    assert jax.tree.structure(points) == jax.tree.structure(NESTED.struct())
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), points, rows))
    assert NESTED.accepts(first(points)) and NESTED.size == 2 + 4 + 3


def test_points_of_another_kind_are_not_accepted():
    real, whole = jnp.zeros(2), jnp.zeros(2, int)
    assert [space.accepts(real) for space in (Real((2,)), Binary((2,)), Categorical((2,), 3))] == [True, True, False]
    assert [space.accepts(whole) for space in (Real((2,)), Binary((2,)), Categorical((2,), 3))] == [False, True, True]
    assert not Real((2,)).accepts([0.0, 0.0]) and not Real((2,)).accepts((real,))
    assert Mixed((Real((2,)),)).accepts((real,)) and not Mixed((Real((2,)),)).accepts((real, real))
    assert not Mixed((Real((2,)),)).accepts(real) and not Graph(2).accepts(jnp.zeros((3, 3)))


def test_conditions_stand_beside_points():
    space = WithCondition(Real((2,)), Categorical((), 3))
    rows = space.start(5, jax.random.key(0))
    assert isinstance(rows, Conditioned) and rows.x.shape == (5, 2) and rows.condition.shape == (5,)
    assert space.size == 3 and space.accepts(jax.tree.map(lambda leaf: leaf[0], rows))
    assert not space.accepts(rows.x[0]) and not space.accepts((rows.condition[0], rows.x[0]))
    again = space.cast(tuple(rows), "training")
    assert all(bool(jnp.all(a == b)) for a, b in zip(again, rows, strict=True))
    with pytest.raises(InputError, match="5 points and 4 conditions; give every point its own"):
        space.cast((rows.x, rows.condition[:4]), "training")
    with pytest.raises(InputError, match="a condition beside each"):
        space.cast(rows.x, "training")
    with pytest.raises(InputError, match="the conditions of training data hold 1 value other than 0 to 2"):
        space.cast((rows.x, [0, 1, 2, 3, 0]), "training")
