"""What every figure has in common: its look, the numbers behind it, and how the two are saved.

A `Picture` is a drawing together with its data as named columns. Figures are built by matplotlib's objects alone, on
the Agg canvas: no window, no current figure, nothing left open.
"""

import csv
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import MaxNLocator

from unnorm.files import write_atomically

# One colour per role, the same in every figure; told apart also without red and green.
DATA = "#2f6db3"
MODEL = "#d8602a"
TRUTH = "#1d8a6b"
QUIET = "#8a929e"
INK = "#22272e"
MAP = "viridis"
#: For curves that have no role, in this order.
COLOURS = (DATA, MODEL, TRUTH, "#e0a100", "#8d5fb0", "#4cb3d4", "#b8557a", INK, QUIET)

#: Pixels per inch on a page, and the factor by which files are finer than that.
DPI = 100
FINER = 2
#: The width of the page in inches.
WIDE = 10.2

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 7,
    "axes.labelsize": 10,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9aa3af",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.limits": (-4, 6),
    "axes.formatter.useoffset": False,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.color": "#6b7480",
    "ytick.color": "#6b7480",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.8,
    "axes.prop_cycle": cycler("color", COLOURS),
    "figure.facecolor": "white",
    "figure.dpi": DPI,
    "savefig.facecolor": "white",
    # A column may be called "$": text is text, not mathematics.
    "text.parse_math": False,
}

P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in the house style, whatever the settings of the process, and leave those as they were."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def png(figure: Figure) -> bytes:
    """The drawing as a PNG file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A column name in a script the font lacks shows boxes here; the page around it has it right.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, the numbers it shows, and what it says to those who cannot see it.

    `columns` are of one length; `name` is that of the files; `alt` describes the drawing, `caption` how to read it.
    """

    name: str
    figure: Figure
    columns: Mapping[str, Sequence[Any] | np.ndarray]
    alt: str
    caption: str

    @property
    def width(self) -> int:
        """The width on a page, in pixels."""
        return round(self.figure.get_figwidth() * DPI)

    @property
    def height(self) -> int:
        """The height on a page, in pixels."""
        return round(self.figure.get_figheight() * DPI)

    @styled
    def png(self) -> bytes:
        """The drawing, at twice the resolution of the page."""
        return png(self.figure)

    def csv(self) -> bytes:
        """The numbers, as a table with one header line."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_cell(value) for value in row] for row in zip(*map(list, self.columns.values()), strict=True))
        return text.getvalue().encode()

    def save(self, folder: Path) -> bytes:
        """Write `NAME.png` and `NAME.csv`, each whole or not at all, and return the image."""
        folder.mkdir(parents=True, exist_ok=True)
        image = self.png()
        write_atomically(folder / f"{self.name}.csv", self.csv())
        write_atomically(folder / f"{self.name}.png", image)
        return image


def _cell(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float | np.floating) else str(value)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, laid out so that labels do not collide."""
    return Figure(figsize=(width, height), dpi=DPI * FINER, layout="constrained")


def panels(rows: int = 1, columns: int = 1, width: float = 3.2, height: float = 2.8, **options: Any) -> tuple[Any, Any]:
    """A figure of rows x columns panels of so many inches each, and its axes as an array of that shape."""
    figure = new_figure(width * columns, height * rows)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def dots(axes: Axes, points: Any, limit: float | None = None, **options: Any) -> None:
    """Points of the plane as small dots, in a square from -limit to limit without numbers on it."""
    xs = np.asarray(points).reshape(-1, 2)
    axes.plot(xs[:, 0], xs[:, 1], ".", **{"markersize": 1.5, "alpha": 0.6, **options})
    if limit is not None:
        axes.set(xlim=(-limit, limit), ylim=(-limit, limit), xticks=[], yticks=[], aspect="equal")


def picture(axes: Axes, image: Any, **options: Any) -> None:
    """An image without a frame, in shades of grey unless said otherwise."""
    axes.imshow(np.asarray(image), **{"cmap": "gray", **options})
    axes.set_axis_off()


def named_rows(axes: Axes, names: Sequence[str]) -> None:
    """Names down the left side, the first on top, at the heights 0, 1, 2 ..."""
    axes.set_yticks(range(len(names)), list(names))
    axes.set_ylim(len(names) - 0.5, -0.5)


def named_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Ticks of the lower axis at these values alone, written as they are."""
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()


def bars(axes: Axes, xs: Any, estimates: Sequence[Any], times: float = 2, **options: Any) -> None:
    """Points with bars of so many standard errors; estimates as they are, or as `Estimate.to_dict` wrote them."""
    found = [e if isinstance(e, Mapping) else e.to_dict() for e in estimates]
    values, errors = ([e[part] for e in found] for part in ("value", "stderr"))
    axes.errorbar(xs, values, times * np.asarray(errors), **{"fmt": "o", "markersize": 4, "capsize": 2, **options})


def grid_lines(axes: Axes, axis: str = "both") -> None:
    """Faint lines behind the data."""
    axes.grid(True, axis=axis)  # pyright: ignore[reportArgumentType]


def few_ticks(axes: Axes, most: int = 5) -> None:
    """So few ticks along the lower axis that numbers of many digits do not run into each other."""
    axes.xaxis.set_major_locator(MaxNLocator(most))


def label_of(column: str, longest: int = 28) -> str:
    """A column's name as an axis label: one line, of bounded length."""
    text = " ".join(column.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def unique(columns: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Names for the data's columns in a table that has others: a name that is taken gets a dash below it."""
    found: list[str] = []
    for column in columns:
        name = column
        while name in taken or name in found:
            name += "_"
        found.append(name)
    return found


def some_of(rows: np.ndarray, most: int, seed: int = 0) -> np.ndarray:
    """At most so many rows that are finite, chosen at random but always the same ones."""
    rows = rows[np.isfinite(rows).all(axis=1)]
    if len(rows) <= most:
        return rows
    return rows[np.random.default_rng(seed).choice(len(rows), most, replace=False)]


def bins_for(values: np.ndarray) -> int:
    """How many bins a histogram of so many values deserves: few enough not to be noise."""
    return int(np.clip(round(3.5 * len(values) ** (1 / 3)), 10, 80))
