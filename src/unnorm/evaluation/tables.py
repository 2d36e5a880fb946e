"""Arrays of numbers as they come from outside, or a sentence about why they are none."""

from typing import Any

import numpy as np

from unnorm.errors import InputError, require


def table_of(values: Any, name: str) -> np.ndarray:
    """The values as an array of real numbers; text, ragged rows and objects are refused.

    >>> table_of([[1, 2], [3, 4]], "the sample").shape
    (2, 2)
    """
    try:
        found = np.asarray(values)
    except ValueError:
        raise InputError(f"the rows of {name} differ in length; pass an array") from None
    # Kind V holds both the short floats of machine learning and records of named fields.
    require(
        found.dtype.kind in "biufV" and found.dtype.names is None,
        f"{name} must hold numbers, not {found.dtype}; turn text and categories into numbers first",
    )
    return found
