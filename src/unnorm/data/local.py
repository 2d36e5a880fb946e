"""Data sets that are not shipped: files of a folder the reader names in the environment variable UNNORM_DATA."""

import os
from pathlib import Path

from unnorm.errors import require

VARIABLE = "UNNORM_DATA"


def local_file(relative: str, origin: str) -> Path:
    """The file at this place in the folder UNNORM_DATA, or one sentence on how to get it from its origin.

    >>> local_file("absent/file.csv", "https://example.org")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    unnorm.errors.InputError: ...
    """
    folder = os.environ.get(VARIABLE)
    require(
        folder is not None,
        f"{relative} is not shipped; get it from {origin}, put it at {relative} in a folder, and set {VARIABLE} to "
        "that folder",
    )
    file = Path(folder or "") / relative
    require(file.is_file(), f"there is no file {str(file)!r}; get it from {origin} and put it there")
    return file
