"""Networks as matrices: square, with something other than zero where there is an edge; NaN or NA where nobody knows."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unnorm.data.network_raw import RawNetwork, whole_or_words
from unnorm.errors import InputError, require

#: Which array of several is the matrix.
KEYS = ("adjacency", "matrix", "A", "a", "x")


def from_matrix(matrix: Any, names: Sequence[str] | None, shown: str) -> RawNetwork:
    """The network of a matrix, dense or sparse; symmetric means without directions."""
    from scipy import sparse

    require(
        matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1],
        f"the matrix in {shown} is not square: it has shape {tuple(matrix.shape)}",
    )
    require(matrix.dtype.kind in "biuf", f"the matrix in {shown} does not hold numbers")
    coordinates = sparse.coo_array(matrix)
    values, rows, columns = coordinates.data, *coordinates.coords
    endless = int(np.isinf(values).sum())
    require(endless == 0, f"the matrix in {shown} has {endless} infinite values; write 0, 1, or NA where nobody knows")
    unknown = np.isnan(values) & (rows != columns)
    absent = set(zip(rows[unknown].tolist(), columns[unknown].tolist(), strict=True))
    there = (values != 0) & ~np.isnan(values)
    values, rows, columns = values[there], rows[there], columns[there]
    remarks = []
    if len(values) and not np.all(values == 1):
        remarks.append(f"The matrix in {shown} has values other than 0 and 1: every value that is not 0 is an edge.")
    pairs = set(zip(rows.tolist(), columns.tolist(), strict=True))
    symmetric = all((j, i) in each for each in (pairs, absent) for i, j in each)
    kept = [(i, j) for i, j in sorted(pairs) if not symmetric or i <= j]
    remarks.append(
        f"The matrix in {shown} is symmetric: edges have no directions."
        if symmetric
        else f"The matrix in {shown} is not symmetric: row i, column j is an edge from i to j."
    )
    n = int(matrix.shape[0])
    labels = list(range(n)) if names is None else whole_or_words(list(names))
    require(len(labels) == n, f"{shown} has {len(labels)} names of vertices for a matrix of {n}")
    edges, missing = (
        [(labels[i], labels[j]) for i, j in each]
        for each in (kept, [(i, j) for i, j in sorted(absent) if not symmetric or i < j])
    )
    return RawNetwork(labels, edges, not symmetric, {}, True, tuple(remarks), missing)


def read_npy(path: Path) -> RawNetwork:
    """A square array."""
    shown = repr(str(path))
    try:
        return from_matrix(np.load(path, allow_pickle=False), None, shown)
    except (ValueError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{shown} is no .npy file of numbers; write it with numpy.save") from error


def read_npz(path: Path) -> RawNetwork:
    """A square array, alone or called `adjacency`, with `labels` beside it; or a sparse matrix as scipy saves it."""
    shown = repr(str(path))
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{shown} is no .npz file of arrays; write it with numpy.savez or scipy.sparse.save_npz"
        ) from error
    names = arrays.pop("labels", None)
    labels = None if names is None else [str(name) for name in names.tolist()]
    if "format" in arrays and "shape" in arrays:
        from scipy import sparse

        return from_matrix(sparse.load_npz(path), labels, shown)
    square = [name for name, array in arrays.items() if array.ndim == 2]
    chosen = next((name for name in KEYS if name in square), square[0] if len(square) == 1 else None)
    if chosen is None:
        raise InputError(f"{shown} holds {', '.join(arrays) or 'nothing'}; call the matrix adjacency")
    return from_matrix(arrays[chosen], labels, shown)


def read_values(path: Path, n: int) -> np.ndarray | None:
    """A matrix of one number for each pair of n vertices; None if the file holds something else."""
    shown = repr(str(path))
    require(path.is_file(), f"there is no file {shown}; check its name and folder")
    try:
        if path.suffix.lower() == ".npy":
            values = np.load(path, allow_pickle=False)
        else:
            values = np.loadtxt(path, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", ndmin=2)
    except ValueError:
        return None
    if values.ndim == 2 and values.shape[1] in (2, 3) and values.shape[0] != values.shape[1]:
        return None  # a list of edges
    require(
        values.shape == (n, n), f"{shown} has shape {tuple(values.shape)}; a matrix for {n} vertices has ({n}, {n})"
    )
    require(values.dtype.kind in "biuf" and bool(np.isfinite(values).all()), f"{shown} has values that are no numbers")
    return values.astype(np.float64)
