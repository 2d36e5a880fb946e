"""Sets of pictures that have a name: the digits that are shipped, and files of the folder UNNORM_DATA."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from unnorm.data.local import local_file


@dataclass(frozen=True)
class NamedPictures:
    """Where a set lies in the folder UNNORM_DATA, where to get it, and what it is; shipped if it lies nowhere."""

    summary: str
    file: str = ""
    origin: str = ""


#: The name of each set that `unnorm fit` knows.
NAMED: dict[str, NamedPictures] = {
    "digits": NamedPictures("1,797 hand-written digits of 8 x 8 pixels, with labels (UCI, CC BY 4.0)."),
    "mnist": NamedPictures(
        "60,000 hand-written digits of 28 x 28 pixels, with labels; a file of UNNORM_DATA.",
        "mnist/train-images-idx3-ubyte.gz",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
    "freyfaces": NamedPictures(
        "1,965 pictures of one face, 28 x 20 pixels; a file of UNNORM_DATA.",
        "freyfaces/freyfaces.npz",
        "https://cs.nyu.edu/~roweis/data.html (as an array x of bytes in an .npz file)",
    ),
}


def is_named(source: str | Path) -> bool:
    """Whether this names a set, and no file or folder is in its way.

    >>> is_named("digits"), is_named("numbers")
    (True, False)
    """
    return str(source) in NAMED and not Path(source).exists()


def file_of(source: str | Path) -> Path:
    """The file that holds a set of this name, or one sentence on how to get it; another path is its own.

    >>> file_of("digits").name, file_of("mine.npz").name
    ('digits.npz', 'mine.npz')
    """
    if not is_named(source):
        return Path(source)
    known = NAMED[str(source)]
    return local_file(known.file, known.origin) if known.file else Path(str(files("unnorm.data") / f"{source}.npz"))
