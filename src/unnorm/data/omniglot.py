"""Omniglot, handwritten characters of fifty alphabets in black and white, from UNNORM_DATA, under `omniglot/`."""

import numpy as np
from jaxtyping import Float

from unnorm.data.local import local_file
from unnorm.errors import require

_ORIGIN = "https://github.com/brendenlake/omniglot"
_SIDE = 105


def omniglot(side: int = 15) -> Float[np.ndarray, "n side side"]:
    """The 32,460 drawings, 1 where ink is; smaller ones have ink where a square of pixels has any."""
    require(_SIDE % side == 0, f"the drawings have side {_SIDE}, or one that divides it, not {side}")
    with np.load(local_file("omniglot/omniglot_105_packed.npz", _ORIGIN)) as file:
        bits = np.unpackbits(file["images_packed"], axis=1, count=_SIDE * _SIDE)
    drawings = ink(bits).reshape(-1, _SIDE, _SIDE)
    factor = _SIDE // side
    return drawings.reshape(-1, side, factor, side, factor).max(axis=(2, 4)).astype(np.float32)


def ink(bits: np.ndarray) -> np.ndarray:
    """The bits with 1 for what there is less of, the ink.

    >>> ink(np.array([[1, 1, 0], [1, 1, 1]])).tolist()
    [[0, 0, 1], [0, 0, 0]]
    """
    return bits if bits.mean() <= 0.5 else 1 - bits
