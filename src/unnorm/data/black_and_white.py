"""Pictures of zeros and ones on which Boltzmann machines are compared, from the folder UNNORM_DATA."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from unnorm.data.local import local_file
from unnorm.errors import InputError, require

_DIGITS = "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist"
_SILHOUETTES = "https://people.cs.umass.edu/~marlin/data.shtml"
PIXELS = 784


class BlackAndWhite(NamedTuple):
    """Rows of 784 zeros and ones: to learn from, to choose by, to judge on."""

    train: Float[np.ndarray, "n 784"]
    valid: Float[np.ndarray, "m 784"]
    test: Float[np.ndarray, "k 784"]


def _rows(relative: str, origin: str) -> Float[np.ndarray, "n 784"]:
    from scipy.io import loadmat

    file = local_file(relative, origin)
    try:
        found = loadmat(file)
    except (ValueError, OSError, NotImplementedError) as error:
        raise InputError(f"{str(file)!r} is damaged ({error}); get it again from {origin}") from error
    rows = found.get("X")
    require(
        rows is not None and rows.ndim == 2 and rows.shape[1] == PIXELS,
        f"{str(file)!r} holds no array X of n x {PIXELS}; get it again from {origin}",
    )
    rows = np.asarray(rows, np.float32)
    require(bool(np.isin(rows, (0, 1)).all()), f"{str(file)!r} holds numbers other than 0 and 1; get it again")
    return rows


def binarised_mnist() -> BlackAndWhite:
    """The digits, binarised once and for all (Larochelle and Murray 2011): 50,000, 10,000 and 10,000."""
    parts = (_rows(f"binarized_mnist/binarized_mnist_{part}.mat", _DIGITS) for part in ("train", "valid", "test"))
    return BlackAndWhite(*parts)


def silhouettes(seed: int = 0) -> BlackAndWhite:
    """8,671 outlines of Caltech 101 (Marlin et al. 2010), split at random by the seed: 6,000, 1,000 and the rest."""
    rows = _rows("caltech101_silhouettes/caltech101_silhouettes_28.mat", _SILHOUETTES)
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    return BlackAndWhite(rows[:6000], rows[6000:7000], rows[7000:])
