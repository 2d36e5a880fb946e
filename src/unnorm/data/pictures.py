"""Pictures: points of R^(height x width x channels) in [-1, 1], with the levels they were written in.

A value v of 0, 1, ..., L - 1 is z = 2 v / (L - 1) - 1. A density of z is one of v by the change of measure
log p(v) = log p(z) - d log((L - 1) / 2), and with noise spread over the steps (`PictureSchema.rounding`)
-log2 p(v) / d bounds the bits per dimension from above (Theis et al. 2016).
"""

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from unnorm.data.columns import copies_and_groups
from unnorm.data.kinds import AbstractKind, AbstractSchema, Dataset, Origin, require_conditions
from unnorm.data.named_pictures import file_of, is_named
from unnorm.data.picture_files import is_pictures, read_pictures
from unnorm.data.tables import MINIMUM_ROWS
from unnorm.data.transforms import Dequantise
from unnorm.errors import InputError, require
from unnorm.files import write_atomically
from unnorm.spaces import Categorical, Conditioned, Real

#: Where drawn pictures can be written.
FORMATS = (".npz", ".npy", ".png")
#: The least size of a picture on a sheet, in pixels.
LEAST = 24


@dataclass(frozen=True, eq=False)
class PictureSchema(AbstractSchema):
    """Height, width and channels, the values that stand for black and white, and how many levels there are between.

    >>> schema = PictureSchema((1, 1, 1), 0.0, 255.0, 256)
    >>> schema.to_points(np.array([[[[255]]]])).item(), schema.written(np.full((1, 1, 1, 1), -0.5)).item()
    (1.0, 64)
    """

    shape: tuple[int, ...]
    low: float
    high: float
    #: None where values have no steps.
    levels: int | None = None
    labels: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    #: Whether what is blacker than black or whiter than white is brought back.
    clipped: bool = True

    @property
    def space(self) -> Real:
        return Real(self.shape)

    @property
    def condition(self) -> Categorical | None:
        return Categorical((), len(self.labels)) if self.named else None

    @property
    def conditions(self) -> tuple[str, ...]:
        return self.named

    @property
    def scale(self) -> float:
        """How much written values change where a point changes by one."""
        return (self.high - self.low) / 2

    @property
    def log_volume(self) -> float:
        return self.space.size * math.log(self.scale)

    @property
    def rounding(self) -> Dequantise | None:
        """Spreads points over the steps between levels, for densities that have bits per dimension."""
        return None if self.levels is None else Dequantise(1 / self.scale)

    def bits_per_dimension(self, log_density: float) -> float:
        """-log2 p(v) / d of a log density of written values, in nats.

        >>> PictureSchema((2, 2, 1), 0.0, 255.0, 256).bits_per_dimension(-4 * math.log(256))
        8.0
        """
        return -log_density / (self.space.size * math.log(2))

    def fitted(self, rows: Any) -> "PictureSchema":
        return self

    def to_points(self, written: Any) -> Float[np.ndarray, "... h w c"]:
        return ((np.asarray(written, np.float64) - self.low) / self.scale - 1).astype(np.float32)

    def to_written(self, points: Any) -> Float[np.ndarray, "... h w c"]:
        return (np.asarray(points, np.float64) + 1) * self.scale + self.low

    def recorded(self, written: Any) -> np.ndarray:
        """Between black and white, and in levels: what a picture can show."""
        inside = np.asarray(written, np.float64)
        inside = np.clip(inside, self.low, self.high) if self.clipped else inside
        if self.levels is None:
            return inside
        return np.round(inside).astype(np.uint8 if self.high <= 255 else np.uint16)

    def exact(self) -> "PictureSchema":
        return replace(self, levels=None, clipped=False)

    def condition_points(self, written: Any) -> np.ndarray:
        return np.asarray(written, np.int32)

    def rows_of(self, rows: Any) -> Any:
        require(
            not self.named or (isinstance(rows, tuple | list) and len(rows) == 2),
            "rows of this model are pictures and a label for each, as in (pictures, labels)",
        )
        x, labels = rows if self.named else (rows, None)
        values = _array(x)
        values = values[..., None] if values.ndim == 3 and self.shape[-1] == 1 else values
        _require_numbers(values, "the pictures")
        require(values.shape[1:] == self.shape, f"pictures here have shape {self.shape}, not {values.shape[1:]}")
        require(
            labels is None or np.asarray(labels).shape == (len(values),),
            f"there are {len(values)} pictures, and labels of shape {np.asarray(labels).shape}; give one for each",
        )
        return values if labels is None else Conditioned(values, np.array([self._number(label) for label in labels]))

    def given(self, values: Mapping[str, Any]) -> np.ndarray:
        require_conditions(values, self.named)
        return np.asarray(self._number(values[self.named[0]]), np.int32)

    def _number(self, label: Any) -> int:
        """The number of a label: of its name, or of a number that is one."""
        text = str(int(label)) if isinstance(label, float | np.floating) and float(label).is_integer() else str(label)
        require(text in self.labels, f"there is no label {text!r}; the labels are {', '.join(self.labels[:12])}")
        return self.labels.index(text)

    def to_dict(self) -> dict[str, Any]:
        return {
            "shape": list(self.shape), "low": self.low, "high": self.high, "levels": self.levels,
            "labels": list(self.labels), "named": list(self.named),
        }  # fmt: skip


class PictureKind(AbstractKind):
    """A folder of picture files (sub-folders are labels), an .npy or .npz array, or an idx file."""

    name: ClassVar[str] = "images"
    has_text: ClassVar[bool] = False

    def recognises(self, origin: Origin) -> bool:
        return is_named(origin.path) or is_pictures(origin.path)

    def read(self, origin: Origin) -> Dataset:
        return self._read(origin, None)

    def read_like(self, origin: Origin, schema: PictureSchema) -> Dataset:
        return self._read(origin, schema)

    def _read(self, origin: Origin, like: PictureSchema | None) -> Dataset:
        source, asked = str(origin.path), origin.asked
        found = read_pictures(file_of(origin.path))
        require(asked.group is None, "pictures have no column to group by; leave --group out")
        n = len(found.values)
        _require_numbers(found.values, repr(source))
        names = _label_names(found.names, asked.conditions, source, least=2 if like is None else 1)
        schema = _schema_of(found.values, found.names, names) if like is None else like
        require(
            found.values.shape[1:] == schema.shape,
            f"the pictures in {source!r} have shape {found.values.shape[1:]}, and the model is one of {schema.shape}",
        )
        remarks, together, beside = list(found.remarks), None, found.labels if names else None
        if like is not None:
            _require_scale(found.values, like, source)
            beside = None if beside is None else _renumbered(beside, found.names, like, source)
        else:
            require(
                n >= MINIMUM_ROWS,
                f"{source!r} has {n} picture{'s' * (n != 1)}, but training, validation and test together need at least "
                f"{MINIMUM_ROWS}; add some",
            )
            together, said = copies_and_groups(found.values, None, None, repr(source))
            remarks += said
            remarks.append(_in_words(schema, n))
            if found.labels is not None and not names:
                remarks.append(
                    f"Their {len(found.names)} labels are left out (--condition label: pictures given theirs)."
                )
        return Dataset(found.values, schema, self, source, beside, together, remarks=tuple(remarks))

    def write(self, written: Any, path: Path, schema: PictureSchema) -> None:
        if path.suffix == ".png":
            write_atomically(path, sheet_png(written, schema))
            return
        buffer = io.BytesIO()
        array = written[..., 0] if schema.shape[-1] == 1 else written
        np.save(buffer, array) if path.suffix == ".npy" else np.savez(buffer, x=array)
        write_atomically(path, buffer.getvalue())

    def text(self, written: Any, schema: PictureSchema) -> str:
        raise InputError("pictures have no text; name a file with --out")

    def require_writable(self, path: Path) -> None:
        require(path.suffix in FORMATS, f"{path} should end in one of {', '.join(FORMATS)}; a .png is a sheet of them")

    def schema_from(self, data: Mapping[str, Any]) -> PictureSchema:
        return PictureSchema(
            tuple(data["shape"]), data["low"], data["high"], data["levels"], tuple(data["labels"]), tuple(data["named"])
        )


def _array(rows: Any) -> np.ndarray:
    try:
        return np.asarray(rows)
    except ValueError as error:
        raise InputError("these pictures are of unequal sizes; bring them to one") from error


def _require_numbers(values: np.ndarray, shown: str) -> None:
    require(
        values.ndim == 4 and values.dtype.kind in "fiub", f"{shown} should be n x height x width x channels numbers"
    )
    require(bool(np.isfinite(values).all()), f"{shown} hold values that are not finite; mend them")


def _require_scale(values: np.ndarray, like: PictureSchema, source: str) -> None:
    """Refuse pictures written in other numbers than those of a model: levels for shares, or shares for levels."""
    low, high, span = float(values.min()), float(values.max()), like.high - like.low
    apart = f"the pictures in {source!r} have values from {low:g} to {high:g}, and those of the model from "
    if like.levels is None:
        # Other pictures may be a little darker or brighter.
        require(
            low >= like.low - span and high <= like.high + span,
            f"{apart}{like.low:g} to {like.high:g}; bring them to the same scale",
        )
        return
    whole = values.dtype.kind in "iub" or bool((values == np.round(values)).all())
    require(
        whole and low >= like.low and high <= like.high,
        f"{apart}{like.low:g} to {like.high:g} in whole numbers; bring them to the same scale",
    )


def _renumbered(numbers: np.ndarray, names: tuple[str, ...], like: PictureSchema, source: str) -> np.ndarray:
    """Labels by the numbers that the model's own data gave them."""
    strange = [name for name in names if name not in like.labels]
    require(
        not strange,
        f"{source!r} has the label {strange[0] if strange else ''!r}, which the model has never seen; its labels are "
        f"{', '.join(like.labels[:12])}",
    )
    return np.array([like.labels.index(name) for name in names])[numbers]


def _label_names(names: tuple[str, ...], asked: tuple[str, ...], source: str, *, least: int) -> tuple[str, ...]:
    """The name of the condition, if the labels are one."""
    if not asked:
        return ()
    require(asked == ("label",), f"the condition of pictures is called label, not {', '.join(asked)}")
    require(
        len(names) >= least, f"{source!r} has no labels; put pictures of each kind in a folder of its own, or add y"
    )
    return asked


def _schema_of(values: np.ndarray, labels: tuple[str, ...], named: tuple[str, ...]) -> PictureSchema:
    """What stands for black and white, by the type of the numbers and their range."""
    shape, low, high = tuple(int(n) for n in values.shape[1:]), float(values.min()), float(values.max())
    require(high > low, f"all values of these pictures are {low:g}; pictures need some contrast")
    if values.dtype.kind in "iub":
        require(low >= 0, f"these pictures hold the whole number {low:g}; write levels as 0, 1, ...")
        usual = {np.dtype(np.uint16): 65535, np.dtype(bool): 1}.get(values.dtype, 255)
        # Digits of 17 levels are no dark pictures of 256.
        most = int(high) if high <= 16 or high > 255 >= usual else usual
        return PictureSchema(shape, 0.0, float(most), most + 1, labels, named)
    bounds = next(((a, b) for a, b in ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0)) if a <= low and high <= b), (low, high))
    return PictureSchema(shape, bounds[0], bounds[1], None, labels, named)


def _in_words(schema: PictureSchema, n: int) -> str:
    height, width, channels = schema.shape
    grey = {1: "grey", 3: "colour"}.get(channels, f"{channels} channels")
    levels = "no steps" if schema.levels is None else f"{schema.levels:,} levels"
    return f"{n:,} pictures of {width} x {height}, {grey}, {levels} from {schema.low:g} to {schema.high:g}."


def shades(written: Any, schema: PictureSchema) -> np.ndarray:
    """Pictures as bytes, of one channel or three."""
    share = np.clip((np.asarray(written, np.float64) - schema.low) / (schema.high - schema.low), 0, 1)
    found = np.round(255 * share).astype(np.uint8)
    return found if found.shape[-1] in (1, 3) else found[..., :1]


def sheet(written: Any, schema: PictureSchema, *, across: int | None = None, least: int = LEAST) -> np.ndarray:
    """Pictures side by side with a white line between, each at least `least` pixels high and wide, enlarged whole.

    >>> sheet(np.zeros((4, 8, 8, 1)), PictureSchema((8, 8, 1), 0.0, 16.0, 17)).shape
    (52, 52, 1)
    """
    found = shades(written, schema)
    n, height, width, channels = found.shape
    factor = max(1, -(-least // min(height, width)))
    large = found.repeat(factor, axis=1).repeat(factor, axis=2)
    across = across or math.ceil(math.sqrt(n))
    down, gap = -(-n // across), 2
    page = np.full((down, across, height * factor + gap, width * factor + gap, channels), 255, np.uint8)
    page.reshape(-1, *page.shape[2:])[:n, : height * factor, : width * factor] = large
    return page.swapaxes(1, 2).reshape(down * page.shape[2], across * page.shape[3], channels)


def sheet_png(written: Any, schema: PictureSchema) -> bytes:
    """The sheet as a PNG file."""
    return png_of(sheet(written, schema))


def png_of(values: np.ndarray) -> bytes:
    """Bytes of one or three channels as a PNG file (ISO/IEC 15948), without a library: it is a compressed array."""
    import struct
    import zlib

    height, width, channels = values.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), values.reshape(height, -1)], axis=1).tobytes()

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
