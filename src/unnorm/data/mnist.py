"""MNIST digits, from the four files of the original (idx format, gzipped) in the folder UNNORM_DATA, under `mnist/`."""

import gzip
import zlib
from dataclasses import dataclass

import numpy as np

from unnorm.data.local import local_file
from unnorm.errors import InputError, require

_ORIGIN = "https://storage.googleapis.com/cvdf-datasets/mnist"
_UNSIGNED_BYTES = 0x08


@dataclass(frozen=True, eq=False)
class Images:
    """Grey images in [0, 1], n x side x side, and the label of each."""

    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True, eq=False)
class MNIST:
    """60,000 digits to learn from and 10,000 to test on."""

    train: Images
    test: Images


def mnist(side: int = 28) -> MNIST:
    """The digits as float images in [0, 1]; `side=14` or `7` averages squares of 2 x 2 or 4 x 4 pixels."""
    require(side in (28, 14, 7), f"MNIST images have side 28, or 14 or 7 by pooling, not {side}")
    parts = []
    for prefix in ("train", "t10k"):
        images = _read(f"mnist/{prefix}-images-idx3-ubyte.gz").astype(np.float32) / 255
        parts.append(Images(mean_pool(images, 28 // side), _read(f"mnist/{prefix}-labels-idx1-ubyte.gz")))
    return MNIST(*parts)


def mean_pool(images: np.ndarray, factor: int) -> np.ndarray:
    """The means of factor x factor squares.

    >>> mean_pool(np.array([[[0.0, 1.0], [2.0, 3.0]]]), 2).tolist()
    [[[1.5]]]
    """
    n, height, width = images.shape
    require(height % factor == width % factor == 0, f"{height} x {width} images cannot be pooled by {factor}")
    return images.reshape(n, height // factor, factor, width // factor, factor).mean(axis=(2, 4))


def _read(relative: str) -> np.ndarray:
    file = local_file(relative, _ORIGIN)
    try:
        raw = gzip.decompress(file.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{str(file)!r} is damaged ({error}); get it again from {_ORIGIN}") from error
    return parse_idx(raw, repr(str(file)))


def parse_idx(raw: bytes, shown: str) -> np.ndarray:
    """The array of unsigned bytes in an idx file: two zero bytes, type, rank, the sizes, then the numbers.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 7]), "example").tolist()
    [5, 7]
    """
    good = len(raw) >= 4 and raw[:2] == b"\0\0" and raw[2] == _UNSIGNED_BYTES and len(raw) >= 4 + 4 * raw[3]
    require(good, f"{shown} is not an idx file of bytes; get it again from {_ORIGIN}")
    rank = raw[3]
    sizes = np.frombuffer(raw, ">u4", rank, 4)
    content = np.frombuffer(raw, np.uint8, offset=4 + 4 * rank)
    require(
        content.size == int(np.prod(sizes)),
        f"{shown} holds {content.size} numbers where its header says {int(np.prod(sizes))}; get it again",
    )
    return content.reshape(tuple(int(s) for s in sizes))
