"""Rows that belong together, and a split into train, valid and test that never parts them.

A table often holds rows twice, or many rows of one person. A model that has seen one of them has seen the others, so
where they lie on both sides of a split the test says how well the model remembers.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, Shaped
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from unnorm.errors import require

Labels = Int[np.ndarray, " n"]


def copies(rows: Any) -> Labels:
    """A label for every row, the same for rows that are equal in every number; numbered as they first occur.

    Rows are an array, or a PyTree of arrays, with a leading axis.

    >>> copies(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])).tolist()
    [0, 1, 0]
    >>> copies((np.array([[1.0], [1.0], [1.0]]), np.array([7, 8, 7]))).tolist()
    [0, 1, 0]
    """
    bytes_of = np.concatenate([_bytes(leaf) for leaf in jax.tree.leaves(rows)], axis=1)
    keys = bytes_of.view(np.dtype((np.void, bytes_of.shape[1]))).ravel()
    return in_order(np.unique(keys, return_inverse=True)[1].ravel())


def _bytes(leaf: Any) -> Shaped[np.ndarray, "n bytes"]:
    """The bytes of every row of an array."""
    array = np.asarray(leaf)
    if np.issubdtype(array.dtype, np.floating):
        # Zero and minus zero are one number with two bit patterns.
        array = array + array.dtype.type(0)
    return np.ascontiguousarray(array.reshape(len(array), -1)).view(np.uint8)


def in_order(labels: Shaped[np.ndarray, " n"]) -> Labels:
    """The same labels, numbered as they first occur.

    >>> in_order(np.array([7, 3, 7, 5])).tolist()
    [0, 1, 0, 2]
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.ravel()]


def joined(*labels: Labels) -> Labels:
    """Rows that share a label of any kind share one: two copies join the groups that they are in.

    >>> joined(np.array([0, 1, 2, 2]), np.array([5, 6, 6, 7])).tolist()
    [0, 1, 1, 1]
    """
    n, edges, start = len(labels[0]), [], len(labels[0])
    for one in labels:
        codes = in_order(one)
        edges.append(np.stack([np.arange(n), start + codes]))
        start += int(codes.max()) + 1
    places = np.concatenate(edges, axis=1)
    graph = coo_array((np.ones(places.shape[1], np.int8), (places[0], places[1])), shape=(start, start))
    return in_order(connected_components(graph, directed=False)[1][:n])


def parts(
    labels: Labels, seed: int, fractions: Sequence[float] = (0.8, 0.1, 0.1)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The numbers of the rows of train, valid and test: shuffled, and never parting rows of one label.

    A label with more rows than a part has room for goes to the next, at the end to the training rows. Every part gets
    at least one label.

    >>> train, valid, test = parts(np.array([0, 0, 0, 1, 2, 3]), seed=0)
    >>> sorted(train.tolist())[:3]
    [0, 1, 2]
    """
    good = len(fractions) == 3 and min(fractions) > 0 and math.isclose(sum(fractions), 1, abs_tol=1e-6)
    require(good, f"fractions are three positive numbers that sum to 1, not {tuple(fractions)}")
    labels = in_order(labels)
    n, kinds = len(labels), int(labels.max()) + 1 if len(labels) else 0
    require(
        kinds >= 3,
        f"{n} rows in {kinds} groups of equal or related rows cannot be split into train, valid and test; at least 3 "
        "groups are needed",
    )
    sizes = np.bincount(labels)
    n_valid = min(max(1, round(fractions[1] * n)), n - 2)
    n_test = min(max(1, round(fractions[2] * n)), n - 1 - n_valid)
    order = np.random.default_rng(seed).permutation(kinds)
    test, rest = _filled(order[::-1], sizes, n_test)
    valid, rest = _filled(rest, sizes, n_valid)
    if not rest:  # few rows in few groups: the training rows get one of them
        rest = [(test if len(test) > 1 else valid).pop()]
    # Groups in their shuffled order, and the rows of a group side by side.
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
    found = [np.concatenate([members[label] for label in chosen[::-1]]) for chosen in (rest, valid, test)]
    return found[0], found[1], found[2]


def split(
    values: Any,
    seed: int,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    *,
    groups: Shaped[np.ndarray, " n"] | None = None,
) -> tuple[Any, Any, Any]:
    """The rows shuffled and parted into train, valid and test; copies of a row, and rows of one group, stay together.

    Rows are an array with a leading axis, or a PyTree of arrays: pictures and their labels.

    >>> [len(part) for part in split(np.arange(20), seed=0)]
    [16, 2, 2]
    """
    values = jax.tree.map(np.asarray, values) if not isinstance(values, list) else np.asarray(values)
    counts = {len(leaf) for leaf in jax.tree.leaves(values)}
    require(len(counts) == 1, f"the parts of these rows have {sorted(counts)} rows; give every part of every row")
    (n,) = counts
    require(n >= 3, f"{n} rows cannot be split into train, valid and test; at least 3 are needed")
    labels = copies(values)
    labels = labels if groups is None else joined(labels, in_order(np.asarray(groups)))
    train, valid, test = (
        jax.tree.map(lambda leaf, part=part: leaf[part], values) for part in parts(labels, seed, fractions)
    )
    return train, valid, test


def _filled(order: Sequence[int] | np.ndarray, sizes: np.ndarray, room: int) -> tuple[list[int], list[int]]:
    """Labels taken in turn while there is room, at least one (then the smallest), and those that are left."""
    taken, left = [], []
    for label in order:
        if sizes[label] <= room:
            taken.append(int(label))
            room -= int(sizes[label])
        else:
            left.append(int(label))
    if not taken:
        smallest = min(left, key=lambda label: sizes[label])
        left.remove(smallest)
        taken.append(smallest)
    return taken, left


def folds(labels: Labels, count: int, seed: int) -> Int[np.ndarray, " n"]:
    """The fold, 0 to count - 1, of every row: of about equal sizes, rows of one label in the same.

    >>> found = folds(np.array([0, 0, 1, 2, 3, 4]), 2, seed=0)
    >>> bool(found[0] == found[1]), sorted(np.bincount(found).tolist())
    (True, [3, 3])
    """
    labels = in_order(labels)
    sizes = np.bincount(labels)
    require(len(sizes) >= count, f"{len(sizes)} different rows cannot be shared out among {count} folds")
    # Large labels first, each into the fold with the fewest rows; ties among equals are shuffled.
    order = np.random.default_rng(seed).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    full, fold_of = np.zeros(count, np.int64), np.empty(len(sizes), np.int64)
    for label in order:
        fold = int(np.argmin(full))
        fold_of[label] = fold
        full[fold] += sizes[label]
    return fold_of[labels]
