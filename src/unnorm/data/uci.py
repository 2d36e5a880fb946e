"""Three tables of the UCI repository, as density estimation uses them: red wine, white wine, Parkinson's voices.

`uci_table` gives the cleaned columns in their own units. `uci` makes them ready to learn from as Song 2022 does
(section 3.6.1 and appendix B.1.2): grid values are spread over their cells, rows are split, principal components are
scaled to variance one, and a little Gaussian noise is added.

The files are not shipped: UNNORM_DATA names a folder with `uci/winequality-red.csv`, `uci/winequality-white.csv`
(https://archive.ics.uci.edu/dataset/186/wine+quality) and `uci/parkinsons_updrs.data`
(https://archive.ics.uci.edu/dataset/189/parkinsons+telemonitoring).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from unnorm.data.delimited import read_delimited
from unnorm.data.local import local_file
from unnorm.data.splits import copies, in_order, joined, parts
from unnorm.data.tables import Table
from unnorm.errors import require

Whitening = Literal["train", "all", "none"]

_WINE = "https://archive.ics.uci.edu/dataset/186/wine+quality"
_PARKINSONS = "https://archive.ics.uci.edu/dataset/189/parkinsons+telemonitoring"
_FILES = {
    "redwine": ("uci/winequality-red.csv", _WINE),
    "whitewine": ("uci/winequality-white.csv", _WINE),
    "parkinsons": ("uci/parkinsons_updrs.data", _PARKINSONS),
}
UCI_TABLES = tuple(_FILES)

#: Two columns that say the same up to this correlation count as one.
CORRELATED = 0.98
#: The most rows kept for validation, and for the test.
HELD_OUT_ROWS = 1000


@dataclass(frozen=True, eq=False)
class UCISplit:
    """Rows ready to learn from: train, valid, test, and the columns they were made of."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    columns: tuple[str, ...]
    #: Labels of the test rows, the same for those that are copies or of one person; None if nobody asked.
    together: np.ndarray | None = None


def uci_table(name: str) -> Table:
    """The columns of `redwine`, `whitewine` (without the quality) or `parkinsons` in their own units, nothing added.

    Of Parkinson's table the first three columns (subject, age, sex) go, then columns with a correlation above 0.98 to
    another, the first such column each time, until none is left: 15 columns stay.
    """
    values, columns, file = _whole(name)
    kept = list(range(3, values.shape[1])) if name == "parkinsons" else list(range(values.shape[1] - 1))
    if name == "parkinsons":
        kept = [kept[j] for j in distinct_columns(values[:, kept])]
    return Table(np.ascontiguousarray(values[:, kept]), tuple(columns[j] for j in kept), str(file))


def _whole(name: str) -> tuple[np.ndarray, tuple[str, ...], Path]:
    """All columns of a table, and its file."""
    require(name in _FILES, f"no UCI table is called {name!r}; there are {', '.join(_FILES)}")
    relative, origin = _FILES[name]
    file = local_file(relative, origin)
    values, columns, _ = read_delimited(file, repr(str(file)))
    require(bool(np.all(np.isfinite(values))), f"{str(file)!r} has missing values; get it again from {origin}")
    return values, columns, file


def distinct_columns(values: np.ndarray, limit: float = CORRELATED) -> list[int]:
    """The columns left when the first one correlated above the limit with another is dropped, again and again.

    >>> x = np.arange(5.0)
    >>> distinct_columns(np.stack([x, 2 * x, x**2 - 4 * x], axis=1))
    [1, 2]
    """
    alike = np.abs(np.corrcoef(values, rowvar=False)) > limit
    np.fill_diagonal(alike, False)
    kept = list(range(values.shape[1]))
    while True:
        twins = alike[np.ix_(kept, kept)].any(axis=1)
        if not twins.any():
            return kept
        kept.pop(int(np.argmax(twins)))


def dequantise(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each column plus U[-d, d], d the median gap between its neighbouring distinct values.

    >>> grid = np.array([[0.0], [1.0], [2.0]])
    >>> bool(np.all(np.abs(dequantise(grid, np.random.default_rng(0)) - grid) <= 1))
    True
    """
    gaps = np.array([np.median(np.diff(np.unique(column).astype(np.float64))) for column in values.T])
    return values + gaps * rng.uniform(-1, 1, values.shape)


def whiten(rows: np.ndarray, fitted_on: np.ndarray) -> np.ndarray:
    """z = L^-1/2 V'(x - mean), with V L V' the covariance of `fitted_on`.

    >>> x = np.random.default_rng(0).normal(size=(100, 2)) @ np.array([[2.0, 1.0], [0.0, 0.5]])
    >>> bool(np.allclose(np.cov(whiten(x, x), rowvar=False), np.eye(2)))
    True
    """
    mean = fitted_on.mean(axis=0)
    _, singular, axes = np.linalg.svd(fitted_on - mean, full_matrices=False)
    require(
        len(fitted_on) > fitted_on.shape[1] and bool(singular[-1] > 1e-10 * singular[0]),
        "these rows lie in a plane, so that their principal components cannot all be scaled to one; drop a column",
    )
    return (rows - mean) @ axes.T * (np.sqrt(len(fitted_on) - 1) / singular)


def uci(name: str, seed: int = 2019, *, whitening: Whitening = "train", noise: float = 0.05) -> UCISplit:
    """A table shuffled and split (10% test, 10% of the rest validation, at most 1000 each), whitened and jittered.

    `whitening` is fitted on the training rows (`train`), on all rows as the released code of Song 2022 does (`all`,
    which lets the test rows leak into it), or left out (`none`). Wine is measured on a grid and is dequantised first.
    Rows are shuffled as if each were on its own, which they are not: see `uci_apart`.
    """
    _check(whitening, noise)
    table, rng = uci_table(name), np.random.default_rng(seed)
    values = _spread(name, table.values, rng)
    order = rng.permutation(len(values))
    n_test = min(len(values) // 10, HELD_OUT_ROWS)
    n_valid = min((len(values) - n_test) // 10, HELD_OUT_ROWS)
    ends = [len(values) - n_test - n_valid, len(values) - n_test]
    return _ready(values, np.split(order, ends), table.columns, whitening, noise, rng)


def uci_apart(name: str, seed: int = 2019, *, whitening: Whitening = "train", noise: float = 0.05) -> UCISplit:
    """As `uci`, but no test row was seen in training: copies, and recordings of one person, lie in one part.

    Copies are told by the recorded values, before anything is added to them. Of the rows of white wine one in five is a
    copy of an earlier one, of red wine one in seven; Parkinson's are 5,875 recordings of 42 people. The parts are
    8:1:1.
    """
    _check(whitening, noise)
    table, rng = uci_table(name), np.random.default_rng(seed)
    labels = copies(table.values)
    if name == "parkinsons":
        labels = joined(labels, in_order(_whole(name)[0][:, 0]))
    places = parts(labels, seed)
    split = _ready(_spread(name, table.values, rng), places, table.columns, whitening, noise, rng)
    return replace(split, together=in_order(labels[places[2]]))


def _check(whitening: str, noise: float) -> None:
    require(whitening in ("train", "all", "none"), f"whitening must be train, all or none, not {whitening!r}")
    require(noise >= 0, f"the noise must be a standard deviation, not {noise}")


def _spread(name: str, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return values if name == "parkinsons" else dequantise(values, rng)


def _ready(
    values: np.ndarray,
    places: Sequence[np.ndarray],
    columns: tuple[str, ...],
    whitening: Whitening,
    noise: float,
    rng: np.random.Generator,
) -> UCISplit:
    """The rows of three parts whitened and jittered."""
    values = values[np.concatenate(places)]
    ends = np.cumsum([len(part) for part in places])[:-1]
    if whitening != "none":
        values = whiten(values, values[: ends[0]] if whitening == "train" else values)
    values = values + noise * rng.normal(size=values.shape)
    train, valid, test = np.split(values.astype(np.float32), ends)
    return UCISplit(train, valid, test, columns)
