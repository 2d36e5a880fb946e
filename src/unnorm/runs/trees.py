"""Rows of any structure as arrays under names, and back; and as vectors between which there are distances."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Shaped

from unnorm.spaces import AbstractSpace, Categorical, Mixed


def named_arrays(name: str, rows: Any) -> dict[str, np.ndarray]:
    """The arrays of a PyTree, each under this name and its path; an array alone under the name.

    >>> sorted(named_arrays("train", (np.zeros(2), np.ones(2))))
    ['train[0]', 'train[1]']
    """
    leaves = jax.tree_util.tree_leaves_with_path(rows)
    return {name + jax.tree_util.keystr(path): np.ascontiguousarray(leaf) for path, leaf in leaves}


def tree_of(name: str, struct: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The inverse: rows whose points look like `struct`.

    >>> tree_of("train", (0, 0), named_arrays("train", (np.zeros(2), np.ones(2))))[1].tolist()
    [1.0, 1.0]
    """
    return jax.tree_util.tree_map_with_path(lambda path, _: arrays[name + jax.tree_util.keystr(path)], struct)


def numbers_of(space: AbstractSpace, points: Any) -> Shaped[np.ndarray, "n d"]:
    """Points as vectors: numbers as they are, a category as zeros with a one in its place, parts side by side.

    >>> numbers_of(Categorical((1,), 3), np.array([[2], [0]])).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    if isinstance(space, Mixed):
        parts = zip(space.parts, points, strict=True)
        return np.concatenate([numbers_of(part, np.asarray(some)) for part, some in parts], axis=1)
    if isinstance(space, Categorical):
        points = np.eye(space.categories)[np.asarray(points)]
    return points.reshape(len(points), -1)
