"""How a column was written down: with how many decimals."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

#: A column is written with so many decimals if this share of its values needs no more.
MOST = 0.95
#: Values with more decimals than this are taken for continuous.
FINEST = 6

Decimals = tuple[int | None, ...]


def decimals_of(values: Float[np.ndarray, "n d"]) -> Decimals:
    """The number of decimals of each column, or None where values have no end (measured finely, or computed).

    A few values may have more: a table of tenths with some thirds in it is one of tenths.

    >>> decimals_of(np.array([[1.0, 0.25, np.pi], [2.0, 0.5, np.e]]))
    (0, 2, None)
    """
    return tuple(_of_column(np.asarray(column, np.float64)) for column in np.asarray(values).T)


def _of_column(column: np.ndarray) -> int | None:
    for decimals in range(FINEST + 1):
        if np.mean(np.round(column, decimals) == column) >= MOST:
            return decimals
    return None


def as_recorded(values: Float[np.ndarray, "n d"], decimals: Sequence[int | None]) -> Float[np.ndarray, "n d"]:
    """Values rounded to the decimals of their columns.

    >>> as_recorded(np.array([[5.97, 0.123456]]), (0, None)).tolist()
    [[6.0, 0.123456]]
    """
    found = np.array(values, np.float64)
    for j, places in enumerate(decimals):
        if places is not None:
            # Adding zero makes minus zero zero.
            found[..., j] = np.round(found[..., j], places) + 0.0
    return found


def suggested_group(values: Float[np.ndarray, "n d"], columns: Sequence[str]) -> str | None:
    """A column that looks like the number of a person or a series, of which each has several rows in a row.

    Whole numbers, each in one unbroken run of rows, from three different ones up to a third of the rows.

    >>> suggested_group(np.array([[1.0, 3.0], [1, 1], [1, 4], [2, 1], [2, 5], [2, 9], [3, 2], [3, 6], [3, 5]]), "ab")
    'a'
    """
    n = len(values)
    for name, column in zip(columns, np.asarray(values).T, strict=True):
        kinds = len(np.unique(column))
        runs = 1 + int(np.count_nonzero(np.diff(column)))
        if 3 <= kinds <= n / 3 and runs == kinds and np.all(np.round(column) == column):
            return name
    return None
