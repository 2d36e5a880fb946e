"""From a file or a name to rows ready for training: split, standardised, measured."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unnorm.data import PROBLEMS, Problem, Standardiser, load, read_table, split
from unnorm.errors import InputError
from unnorm.noises import Scales, scales_of
from unnorm.spaces import Real


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows in unit coordinates (mean 0, standard deviation 1 per column) and the way back."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    columns: tuple[str, ...]
    source: str
    standardiser: Standardiser
    scales: Scales
    problem: Problem | None

    @property
    def space(self) -> Real:
        return Real((self.train.shape[1],))

    @property
    def fingerprint(self) -> str:
        """A hash of every row, so that a resumed run knows its data."""
        digest = hashlib.sha256()
        for part in (self.train, self.valid, self.test):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()


def problem_named(source: str) -> Problem | None:
    """The built-in problem of this name, if there is one and no file is in its way."""
    return load(source) if source in PROBLEMS and not Path(source).exists() else None


def prepare(source: str, seed: int) -> Prepared:
    """Read a table or a built-in problem, split it 8:1:1 (a problem brings its own split), and standardise it."""
    problem = problem_named(source)
    if problem is not None:
        parts = (problem.train, problem.valid, problem.test)
        columns = tuple(f"x{i + 1}" for i in range(problem.train.shape[1]))
    else:
        looks_like_a_name = Path(source).suffix == "" and not Path(source).exists()
        if looks_like_a_name:
            raise InputError(
                f"{source!r} is neither a file nor a built-in data set; the built-in ones are {', '.join(PROBLEMS)}"
            )
        table = read_table(source)
        parts, columns = split(table.values, seed), table.columns
    standardiser = Standardiser.fit(parts[0])
    train, valid, test = (standardiser.to_unit(part).astype(np.float32) for part in parts)
    return Prepared(train, valid, test, columns, source, standardiser, scales_of(train, valid), problem)
