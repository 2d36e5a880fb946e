"""Pictures as one array of n x height x width x channels: from a folder of files, .npy and .npz arrays, idx files."""

import gzip
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unnorm.data.mnist import parse_idx
from unnorm.errors import InputError, require

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
KEYS = ("x", "X", "images", "data", "train")
LABELS = ("y", "labels", "label", "target")


@dataclass(frozen=True, eq=False)
class Pictures:
    """n x height x width x channels as they were written, the label of each if there are any, and what was seen."""

    values: np.ndarray
    labels: np.ndarray | None
    names: tuple[str, ...]
    remarks: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------- which files


def is_pictures(path: Path) -> bool:
    """Whether this is a folder with pictures in it, an array of them, or an idx file; its content is asked."""
    if path.is_dir():
        return not (path / "run.json").exists() and bool(files_in(path))
    if not path.is_file():
        return False
    try:
        if path.suffix == ".npy":
            with path.open("rb") as file:
                return len(_header(file)) in (3, 4)
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return _chosen(archive.files) is not None and archive[_chosen(archive.files)].ndim in (3, 4)
        return _is_idx(path)
    except (ValueError, OSError, EOFError, KeyError, zlib.error):
        return False


def files_in(path: Path) -> list[Path]:
    """The pictures in a folder and in the folders in it, in the order of their names."""
    found = [file for file in path.glob("*") if file.suffix.lower() in ENDINGS]
    found += [
        file for file in path.glob("*/*") if file.suffix.lower() in ENDINGS and not file.parent.name.startswith(".")
    ]
    return sorted(file for file in found if file.is_file() and not file.name.startswith("."))


def _header(file: Any) -> tuple[int, ...]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)[0]


def _chosen(keys: list[str]) -> str | None:
    named = [key for key in KEYS if key in keys]
    others = [key for key in keys if key not in LABELS]
    return named[0] if named else others[0] if len(others) == 1 else None


def _is_idx(path: Path) -> bool:
    with _opened(path) as file:
        start = file.read(4)
    return len(start) == 4 and start[:3] == b"\0\0\x08" and start[3] in (3, 4)


def _opened(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


# ----------------------------------------------------------------------------------------------------------- reading


def read_pictures(path: Path) -> Pictures:
    """All pictures of a folder or a file; whatever is wrong with them is one sentence."""
    shown = repr(str(path))
    try:
        if path.is_dir():
            return _from_folder(path, shown)
        if path.suffix == ".npy":
            return _from_arrays(np.load(path, allow_pickle=False), None, shown)
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                key = _chosen(archive.files)
                require(key is not None, f"{shown} holds the arrays {', '.join(archive.files)}; call the pictures x")
                labels = next((archive[name] for name in LABELS if name in archive.files), None)
                return _from_arrays(archive[key], labels, shown)
        return _from_idx(path, shown)
    except FileNotFoundError:
        raise InputError(f"there is no file {shown}; check its name and folder") from None
    except (ValueError, OSError, EOFError, KeyError, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{shown} is damaged or cut short ({_reason(error)}); write it again") from error


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:100] if str(error).strip() else type(error).__name__


def _from_idx(path: Path, shown: str) -> Pictures:
    require(_is_idx(path), f"{shown} is no picture file that unnorm reads; give a folder of them, .npy, .npz or idx")
    beside = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    labels = _idx(beside) if beside != path and beside.is_file() else None
    return _from_arrays(_idx(path), labels, shown)


def _idx(path: Path) -> np.ndarray:
    with _opened(path) as file:
        return parse_idx(file.read(), repr(str(path)))


def _from_arrays(values: np.ndarray, labels: np.ndarray | None, shown: str) -> Pictures:
    require(
        values.ndim in (3, 4) and values.dtype.kind in "fiub",
        f"{shown} holds {values.dtype} of shape {values.shape}; pictures are numbers, n x height x width [x channels]",
    )
    require(values.size > 0, f"{shown} holds no pictures: its shape is {values.shape}")
    values = values[..., None] if values.ndim == 3 else values
    n, _, width, channels = values.shape
    first = values.shape[1]
    require(
        channels <= 4 or not (first <= 4 < width),
        f"{shown} has shape {values.shape}, with the channels first; move them last by x.transpose(0, 2, 3, 1)",
    )
    require(channels <= 4, f"{shown} has pictures of {channels} channels; they have 1 (grey), 3 (colour) or 4 (alpha)")
    found, remarks = without_alpha(values)
    if labels is None:
        return Pictures(found, None, (), remarks)
    require(labels.shape == (n,), f"{shown} has {n} pictures and labels of shape {labels.shape}; give one for each")
    kinds, numbers = np.unique(labels, return_inverse=True)
    return Pictures(found, numbers.ravel(), tuple(str(kind) for kind in kinds), remarks)


def without_alpha(values: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Pictures with an alpha channel (the second of two, the fourth of four) laid over white."""
    if values.shape[-1] not in (2, 4):
        return values, ()
    colour, alpha = values[..., :-1], values[..., -1:]
    most = float(np.iinfo(values.dtype).max) if values.dtype.kind in "iu" else 1.0
    if bool((alpha == most).all()):
        return colour, ()
    share = alpha.astype(np.float64) / most
    over = share * colour + (1 - share) * most
    over = np.round(over).astype(values.dtype) if values.dtype.kind in "iu" else over.astype(values.dtype)
    seen = int((alpha < most).reshape(len(values), -1).any(axis=1).sum())
    return over, (f"{seen:,} of {len(values):,} pictures are see-through in places, and are laid over white.",)


def _opened_image(file: Path, shown: str) -> np.ndarray:
    """One picture file as height x width x channels."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise InputError(f'reading {shown} needs pillow; install it: pip install "unnorm[imaging]"') from None
    try:
        with Image.open(file) as image:
            return _array(image)
    except FileNotFoundError:
        raise InputError(f"there is no file {shown}; check its name and folder") from None
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, EOFError) as error:
        raise InputError(f"{str(file)!r} is no whole picture ({_reason(error)}); remove it or put it back") from error


def read_picture(path: Path) -> Pictures:
    """One picture: a picture file, or an .npy array of height x width [x channels]."""
    shown = repr(str(path))
    if path.suffix != ".npy":
        found, remarks = without_alpha(_opened_image(path, shown)[None])
        return Pictures(found, None, (), remarks)
    try:
        values = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"there is no file {shown}; check its name and folder") from None
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{shown} is damaged or cut short ({_reason(error)}); write it again") from error
    return _from_arrays(values[None, ..., None] if values.ndim == 2 else values[None], None, shown)


def _from_folder(path: Path, shown: str) -> Pictures:
    files = files_in(path)
    require(len(files) > 0, f"{shown} holds no pictures; they end in {', '.join(ENDINGS)}")
    found = [_opened_image(file, f"the pictures in {shown}") for file in files]
    sizes = Counter(array.shape[:2] for array in found)
    if len(sizes) > 1:
        (usual, _), *_ = sizes.most_common()
        odd = next(file for file, array in zip(files, found, strict=True) if array.shape[:2] != usual)
        told = ", ".join(f"{n} of {width} x {height}" for (height, width), n in sizes.most_common(3))
        raise InputError(
            f"the pictures in {shown} have {len(sizes)} sizes ({told}; {odd.name!r} is an odd one); bring them "
            "to one size"
        )
    found, remarks = _alike(found)
    stacked, more = without_alpha(np.stack(found))
    others = sum(file.is_file() and not file.name.startswith(".") for file in (*path.glob("*"), *path.glob("*/*")))
    if others > len(files):
        remarks = (*remarks, f"{others - len(files):,} files in {shown} are no pictures, and are left out.")
    folders = [file.parent.name if file.parent != path else "" for file in files]
    names, numbers = np.unique(folders, return_inverse=True)
    labels = numbers.ravel() if len(names) > 1 and "" not in names else None
    return Pictures(stacked, labels, tuple(map(str, names)) if labels is not None else (), (*remarks, *more))


def _array(image: Any) -> np.ndarray:
    """A picture of PIL as height x width x channels: grey, grey and alpha, colour, colour and alpha; 8 or 16 bits."""
    if image.mode.startswith("I;16") or image.mode == "I":
        return np.asarray(image).astype(np.uint16)[..., None]
    if image.mode == "F":
        return np.asarray(image)[..., None]
    if image.mode in ("1", "L"):
        return np.asarray(image.convert("L"))[..., None]
    if image.mode == "LA":
        return np.asarray(image)
    see_through = image.mode in ("RGBA", "PA") or "transparency" in image.info
    return np.asarray(image.convert("RGBA" if see_through else "RGB"))


def _alike(found: list[np.ndarray]) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """All with the channels and the depth of the richest."""
    depths = {array.dtype for array in found}
    require(len(depths) == 1, f"some pictures have {' and others '.join(sorted(map(str, depths)))}; save all alike")
    channels = {array.shape[2] for array in found}
    if len(channels) == 1:
        return found, ()
    colour, alpha = bool(channels & {3, 4}), bool(channels & {2, 4})
    most = np.iinfo(found[0].dtype).max if found[0].dtype.kind in "iu" else 1.0

    def alike(array: np.ndarray) -> np.ndarray:
        own = array.shape[2] in (2, 4)
        shades = array[..., :-1] if own else array
        shades = np.repeat(shades, 3, axis=2) if colour and shades.shape[2] == 1 else shades
        cover = array[..., -1:] if own else np.full((*array.shape[:2], 1), most, array.dtype)
        return np.concatenate([shades, cover], axis=2) if alpha else shades

    grey = sum(array.shape[2] <= 2 for array in found)
    said = (f"{grey:,} of {len(found):,} pictures are grey and the others in colour; all are read in colour.",)
    return [alike(array) for array in found], said if colour and grey else ()
