"""Data: the bank of problems with known answers, and a user's own tables made ready to learn from."""

import difflib
import inspect
from typing import Any

from unnorm.data.problems import PROBLEMS, Draws, Problem
from unnorm.data.sources import AbstractSource, Blocks, InMemory, ParquetRows
from unnorm.data.splits import split
from unnorm.data.standardise import Standardiser
from unnorm.data.tables import Table, read_table
from unnorm.data.transforms import AbstractTransform, Dequantise, DropLabel, Flip, InTurn, Shift, Turn
from unnorm.errors import InputError, require

__all__ = [
    "load", "Problem", "PROBLEMS", "read_table", "Table", "Standardiser", "split",
    "AbstractSource", "InMemory", "Blocks", "ParquetRows",
    "AbstractTransform", "InTurn", "Flip", "Shift", "Turn", "Dequantise", "DropLabel",
]  # fmt: skip


def load(name: str, seed: int = 0, **options: Any) -> Problem:
    """The problem of this name; the same seed gives the same rows.

    Options are the sizes `n_train`, `n_valid`, `n_test` and whatever the problem itself takes.

    >>> load("funnel", n_train=100, dimension=3).train.shape
    (100, 3)
    """
    if name not in PROBLEMS:
        near = difflib.get_close_matches(str(name).lower(), PROBLEMS, n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise InputError(f"no problem is called {str(name)!r}{hint}; the problems are {', '.join(PROBLEMS)}")
    own = inspect.signature(PROBLEMS[name]).parameters
    known = [option for option in (*own, *Draws.__annotations__) if option not in ("draws", "seed")]
    for option in options:
        require(option in known, f"problem {name!r} has no option {option!r}; it takes {', '.join(known)}")
    return PROBLEMS[name](seed=seed, **options)
