"""Pictures in a report: draws beside data on one sheet, and the training pictures that draws are nearest to."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from unnorm.data.pictures import PictureSchema, shades, sheet
from unnorm.plots import WIDE, Picture, new_figure, styled
from unnorm.report.section import Section, Subject
from unnorm.report.tables import Row, Table
from unnorm.runs.findings import AbstractDraws
from unnorm.runs.prepare import points_of

#: Pictures on each side of a sheet, in a square.
ACROSS = 8
#: Draws whose neighbours are shown, and how many of them.
DRAWS, NEIGHBOURS = 8, 4
#: The least size of a picture on the page, in pixels.
LEAST = 24


def sections(schema: PictureSchema, subject: Subject) -> list[Section]:
    """The sheet, and the neighbours."""
    draws = subject.assessment.find(AbstractDraws)
    if draws is None:
        return []
    train, test = points_of(subject.prepared.train), points_of(subject.prepared.test)
    found = neighbours(draws.thinned(), train, NEIGHBOURS)
    of_rows = neighbours(test[:500], train, 1)
    return [
        Section("Draws beside data", figures=(sheet_picture(schema, draws.thinned(), train),)),
        Section(
            "Nearest training pictures",
            sentences=(_verdict(found.distances[:, 0], of_rows.distances[:, 0]),),
            figures=(neighbours_picture(schema, draws.thinned(), train, found),),
            tables=(_table(found.distances[:, 0], of_rows.distances[:, 0]),),
        ),
    ]


class Neighbours(NamedTuple):
    """For every picture the numbers of the nearest training pictures, and how far they are."""

    numbers: np.ndarray
    distances: Float[np.ndarray, "n k"]


def neighbours(pictures: np.ndarray, train: np.ndarray, k: int) -> Neighbours:
    """The k nearest training pictures by the root mean square difference of points, between 0 and 2.

    >>> found = neighbours(np.ones((1, 2, 2, 1)), np.stack([np.zeros((2, 2, 1)), np.ones((2, 2, 1))]), 1)
    >>> found.numbers.tolist(), found.distances.tolist()
    ([[1]], [[0.0]])
    """
    a, b = (part.reshape(len(part), -1).astype(np.float64) for part in (pictures, train))
    k = min(k, len(b))
    numbers, distances = np.empty((len(a), k), int), np.empty((len(a), k))
    lengths = (b**2).sum(axis=1)
    for first in range(0, len(a), 256):
        some = a[first : first + 256]
        squared = (some**2).sum(axis=1)[:, None] - 2 * some @ b.T + lengths
        nearest = np.argsort(squared, axis=1, kind="stable")[:, :k]
        numbers[first : first + 256] = nearest
        # Differences of large numbers would leave rounding where two pictures are equal.
        distances[first : first + 256] = np.sqrt(((some[:, None] - b[nearest]) ** 2).mean(axis=2))
    return Neighbours(numbers, distances)


def _spread(n: int, most: int) -> np.ndarray:
    return np.linspace(0, n - 1, min(most, n)).astype(int)


@styled
def sheet_picture(schema: PictureSchema, draws: np.ndarray, train: np.ndarray) -> Picture:
    """A square of training pictures beside one of draws."""
    most = ACROSS**2
    rows, drawn = train[_spread(len(train), most)], draws[_spread(len(draws), most)]
    height, width, _ = schema.shape
    side = WIDE / 2 - 0.2
    figure = new_figure(WIDE, max(side * height / width, 1.0) + 0.4)
    for axes, title, points in zip(figure.subplots(1, 2), ("Data", "Draws"), (rows, drawn), strict=True):
        _show(axes, sheet(schema.written(points), schema, across=ACROSS, least=LEAST))
        axes.set_title(title)
    columns = _numbers({"data": schema.written(rows), "draw": schema.written(drawn)})
    return Picture(
        "sheet",
        figure,
        columns,
        alt=f"{len(rows)} training pictures beside {len(drawn)} draws.",
        caption=f"{len(rows)} of {len(train):,} training pictures, and {len(drawn)} draws far apart in their chains.",
    )


@styled
def neighbours_picture(schema: PictureSchema, draws: np.ndarray, train: np.ndarray, found: Neighbours) -> Picture:
    """A draw in every column; below it the training pictures that are nearest to it, with their distances."""
    chosen = _spread(len(draws), DRAWS)
    k = found.numbers.shape[1]
    figure = new_figure(WIDE, 1.35 * (k + 1))
    axes = figure.subplots(k + 1, len(chosen), squeeze=False)
    for column, draw in enumerate(chosen):
        _show(axes[0, column], shades(schema.written(draws[draw]), schema))
        axes[0, column].set_title("draw")
        for line, (number, distance) in enumerate(zip(found.numbers[draw], found.distances[draw], strict=True), 1):
            _show(axes[line, column], shades(schema.written(train[number]), schema))
            axes[line, column].set_title(f"{distance:.3f}", fontweight="normal", fontsize=9)
    return Picture(
        "neighbours",
        figure,
        {
            "draw": np.repeat(chosen, k),
            "rank": np.tile(np.arange(1, k + 1), len(chosen)),
            "training_picture": found.numbers[chosen].ravel(),
            "distance": found.distances[chosen].ravel(),
        },
        alt=f"{len(chosen)} draws, each above the {k} training pictures nearest to it.",
        caption="Distances are root mean square differences of pixels, where black and white are 2 apart.",
    )


def _show(axes: Axes, values: np.ndarray) -> None:
    shown = values[..., 0] if values.shape[-1] == 1 else values
    axes.imshow(shown, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set_axis_off()


def _numbers(parts: dict[str, np.ndarray]) -> dict[str, np.ndarray | list[str]]:
    """Every pixel of pictures in a table."""
    what, columns = [], []
    for name, pictures in parts.items():
        n, height, width, channels = pictures.shape
        places = np.indices(pictures.shape).reshape(4, -1)
        columns.append(np.concatenate([places, pictures.reshape(1, -1)]))
        what += [name] * (n * height * width * channels)
    table = np.concatenate(columns, axis=1)
    names = ("picture", "row", "column", "channel")
    return {"what": what, **{name: table[i].astype(int) for i, name in enumerate(names)}, "value": table[4]}


def _table(draws: np.ndarray, rows: np.ndarray) -> Table:
    """Quantiles of the distance to the nearest training picture."""
    levels = (0.01, 0.1, 0.5, 0.9)
    lines = [
        Row((name, *(f"{value:.3f}" for value in np.quantile(values, levels))))
        for name, values in (("draws", draws), ("held-out pictures", rows))
    ]
    return Table(("distance to the nearest", *(f"{100 * level:.0f}% below" for level in levels)), tuple(lines))


def _verdict(draws: np.ndarray, rows: np.ndarray) -> str:
    """Whether draws are nearer to training pictures than new pictures are."""
    limit = float(np.quantile(rows, 0.01))
    share = float(np.mean(draws < limit))
    if share > 0.05:
        return (
            f"{share:.0%} of the draws are nearer to a training picture than all but one in a hundred held-out "
            "pictures are: they may be copies."
        )
    return (
        f"{share:.0%} of the draws are nearer to a training picture than all but one in a hundred held-out pictures "
        "are: no sign of copies."
    )
