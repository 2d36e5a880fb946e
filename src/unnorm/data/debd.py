"""Tables of zeros and ones on which tractable density models are compared, from UNNORM_DATA, under `debd/`.

Lowd and Davis 2010; van Haaren and Davis 2012. Each has a split of its own. The files hold the bits packed, as
`numpy.packbits` packs rows, and the number of columns.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from unnorm.data.local import local_file

_ORIGIN = "https://github.com/arranger1044/DEBD"


@dataclass(frozen=True, eq=False)
class BinaryTable:
    """Rows to learn from, to choose by and to judge on."""

    train: Float[np.ndarray, "n d"]
    valid: Float[np.ndarray, "m d"]
    test: Float[np.ndarray, "k d"]


def debd(name: str) -> BinaryTable:
    """The table of this name: nltcs (16 columns), plants (69), jester (100) and others."""
    with np.load(local_file(f"debd/{name}.npz", _ORIGIN)) as file:
        columns = int(file["n_vars"])
        return BinaryTable(*(unpacked(file[part], columns) for part in ("train", "valid", "test")))


def unpacked(packed: np.ndarray, columns: int) -> Float[np.ndarray, "n d"]:
    """Bits of packed rows.

    >>> unpacked(np.array([[0b10100000]], np.uint8), 3).tolist()
    [[1.0, 0.0, 1.0]]
    """
    return np.unpackbits(packed, count=columns, axis=1).astype(np.float32)
