"""The learnt density of two columns: as a surface beside the data and beside the truth, with draws over it.

Everything is in the data's own units: a model of standardised points z = (x - mean) / scale has
log p(x) = -E(z) - log Z - sum_j log scale_j.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from unnorm.energies import AbstractEnergy
from unnorm.evaluation import energies
from unnorm.plots import DATA, INK, MAP, MODEL, WIDE, Picture, label_of, new_figure, some_of, styled, unique
from unnorm.runs import Assessment, Prepared
from unnorm.runs.findings import AbstractDraws
from unnorm.runs.prepare import points_of

#: Lattice points along each axis, and points shown of a sample.
GRID = 160
SHOWN = 3000
#: Log densities are shown down to this many nats below the peak.
DEPTH = 10.0
#: Contours hold these shares of the mass.
SHARES = (0.99, 0.9, 0.5)
#: Axes keep one scale while height over width lies between these; beyond them a plot would be a sliver.
SHAPES = (0.3, 1.8)

Points = Float[np.ndarray, "n d"]


def log_density(model: AbstractEnergy, prepared: Prepared, log_z: float, points: Points) -> Float[np.ndarray, " n"]:
    """log p of points in the data's own units, under a model of unit coordinates."""
    return -energies(model, prepared.schema.to_points(points)) - log_z - prepared.schema.log_volume


def true_log_density(prepared: Prepared, points: Points) -> Float[np.ndarray, " n"] | None:
    """The same under the truth, where it is known."""
    truth = prepared.problem.truth if prepared.problem is not None else None
    return None if truth is None else -energies(truth, points)


def raw_draws(prepared: Prepared, assessment: Assessment) -> Points:
    """The draws of an assessment in the data's own units, chain after chain."""
    return prepared.schema.to_written(assessment.the(AbstractDraws).points)


def frame_of(points: Points) -> tuple[np.ndarray, np.ndarray]:
    """Corners of a box around nearly all points: a few far outliers must not shrink the rest to a dot."""
    low, high = np.quantile(points, [0.001, 0.999], axis=0)
    margin = np.where(high > low, 0.17 * (high - low), 1.0)
    return low - margin, high + margin


def outside(points: Points, low: np.ndarray, high: np.ndarray) -> int:
    """How many points a frame leaves out, those that are not finite among them."""
    return int(np.sum(~((points >= low) & (points <= high)).all(axis=1)))


@dataclass(frozen=True, eq=False)
class Surface:
    """Log densities on a lattice of the plane, indexed [i, j] at (x[j], y[i])."""

    x: Float[np.ndarray, " nx"]
    y: Float[np.ndarray, " ny"]
    model: Float[np.ndarray, "ny nx"]
    truth: Float[np.ndarray, "ny nx"] | None

    @property
    def points(self) -> Points:
        """The lattice as rows, in the order of `model.ravel()`."""
        return np.stack(np.meshgrid(self.x, self.y), axis=-1).reshape(-1, 2)

    @property
    def cell(self) -> float:
        """The area one lattice point stands for."""
        return float((self.x[1] - self.x[0]) * (self.y[1] - self.y[0]))

    def mass(self, log_values: np.ndarray) -> float:
        """The integral of a density over the frame, by the sum over the lattice."""
        return float(np.exp(log_values).sum() * self.cell)

    def levels(self) -> list[float]:
        """Log densities whose contours hold the `SHARES` of the learnt mass, rising."""
        values = np.sort(self.model[np.isfinite(self.model)])[::-1]
        held = np.cumsum(np.exp(values)) * self.cell
        found = [float(values[np.searchsorted(held, share)]) for share in SHARES if held.size and held[-1] > share]
        return sorted(set(found))

    @property
    def peak(self) -> float:
        """The largest log density: of the truth if it is known, so that models are shown on one scale."""
        shown = self.model if self.truth is None else self.truth
        finite = shown[np.isfinite(shown)]
        return float(finite.max()) if finite.size else 0.0


def surface_of(model: AbstractEnergy, prepared: Prepared, log_z: float) -> Surface:
    """The learnt and the true log density around the data."""
    low, high = frame_of(prepared.schema.to_written(points_of(prepared.train)))
    x, y = (np.linspace(low[k], high[k], GRID) for k in (0, 1))
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    truth = true_log_density(prepared, points)
    learnt = log_density(model, prepared, log_z, points).reshape(GRID, GRID)
    return Surface(x, y, learnt, None if truth is None else truth.reshape(GRID, GRID))


def show_surface(axes: Axes, surface: Surface, log_values: np.ndarray, *, log: bool = False) -> AxesImage:
    """One surface as an image: the density from zero to the peak, or its logarithm `DEPTH` nats down from it."""
    half_x, half_y = (surface.x[1] - surface.x[0]) / 2, (surface.y[1] - surface.y[0]) / 2
    extent = (surface.x[0] - half_x, surface.x[-1] + half_x, surface.y[0] - half_y, surface.y[-1] + half_y)
    low, high = (surface.peak - DEPTH, surface.peak) if log else (0.0, float(np.exp(surface.peak)))
    values = log_values if log else np.exp(log_values)
    image = axes.imshow(
        values, extent=extent, origin="lower", cmap=MAP, vmin=low, vmax=high, interpolation="bilinear", aspect="auto"
    )
    axes.spines[:].set_visible(False)
    return image


def fit_frame(axes: Axes, surface: Surface) -> None:
    """The frame of the surface, on one scale where that leaves a readable shape."""
    axes.set_xlim(surface.x[0], surface.x[-1])
    axes.set_ylim(surface.y[0], surface.y[-1])
    if _one_scale(surface):
        axes.set_aspect("equal", adjustable="box")


def _one_scale(surface: Surface) -> bool:
    return SHAPES[0] <= np.ptp(surface.y) / np.ptp(surface.x) <= SHAPES[1]


def shape_of(surface: Surface) -> float:
    """Height over width of a panel that shows the surface."""
    return float(np.ptp(surface.y) / np.ptp(surface.x)) if _one_scale(surface) else 0.9


def _scatter(axes: Axes, points: Points, colour: str, surface: Surface) -> None:
    """Points over the contours of the learnt density."""
    size = float(np.clip(6000 / max(len(points), 1), 2, 16))
    axes.scatter(points[:, 0], points[:, 1], s=size, color=colour, alpha=0.45, linewidths=0, rasterized=True)
    levels = surface.levels()
    if levels:
        axes.contour(surface.x, surface.y, surface.model, levels=levels, colors=INK, linewidths=0.8, linestyles="solid")
    axes.spines[:].set_visible(True)


@styled
def plane(model: AbstractEnergy, prepared: Prepared, assessment: Assessment) -> Picture:
    """Two columns: data and draws above each other, densities and log densities beside them."""
    surface = surface_of(model, prepared, assessment.log_z.value)
    rows, draws = prepared.schema.to_written(points_of(prepared.train)), raw_draws(prepared, assessment)
    data, drawn = some_of(rows, SHOWN), some_of(draws, SHOWN)
    figure = _draw_plane(surface, prepared, data, drawn)
    names = unique(prepared.columns, ("what", "log_density", "true_log_density"))
    points = np.concatenate([surface.points, data, drawn])
    columns = {
        "what": ["lattice"] * len(surface.points) + ["data"] * len(data) + ["draw"] * len(drawn),
        names[0]: points[:, 0],
        names[1]: points[:, 1],
        "log_density": log_density(model, prepared, assessment.log_z.value, points),
    }
    truth = true_log_density(prepared, points)
    if truth is not None:
        columns["true_log_density"] = truth
    return Picture(
        "density",
        figure,
        columns,
        alt=f"Learnt density of {prepared.columns[0]} and {prepared.columns[1]}"
        f"{'' if truth is None else ' beside the true density'}, with data and draws.",
        caption=f"{len(data):,} of {len(rows):,} rows and {len(drawn):,} of {len(draws):,} draws. "
        + _caption(surface, draws, assessment.log_z.stderr),
    )


def mass_in_words(mass: float, log_z_error: float) -> str:
    """How much of the learnt mass a frame holds; where it is more than 1, log Z is off."""
    return f"The frame holds {mass:.3f} ± {mass * log_z_error:.3f} of the learnt mass"


def _caption(surface: Surface, draws: Points, log_z_error: float) -> str:
    mass = mass_in_words(surface.mass(surface.model), log_z_error)
    if surface.truth is not None:
        mass += f" and {surface.mass(surface.truth):.3f} of the true one"
    beyond = outside(draws, np.array([surface.x[0], surface.y[0]]), np.array([surface.x[-1], surface.y[-1]]))
    lines = ", ".join(f"{100 * share:.0f}%" for share in sorted(SHARES))
    return (
        f"Lines enclose {lines} of the learnt mass. {mass} (sum over the lattice); "
        f"{beyond:,} of {len(draws):,} draws lie outside it. Log densities end {DEPTH:.0f} nats below the peak."
    )


def _draw_plane(surface: Surface, prepared: Prepared, data: Points, drawn: Points) -> Figure:
    ratio = shape_of(surface)
    panels: list[tuple[str, np.ndarray]] = [("learnt", surface.model)]
    if surface.truth is not None:
        panels.insert(0, ("true", surface.truth))
    count = 1 + len(panels)
    # As wide as the page, unless the panels would then be taller than it is comfortable to look at.
    wide = min((WIDE - 0.8) / count, max(4.0 / ratio, 2.3))
    figure = new_figure(wide * count + 0.8, 2 * (wide * 0.93 * ratio + 0.62))
    axes = figure.subplots(2, count, sharex=True, sharey=True, squeeze=False)
    for line, (what, colour, points) in enumerate((("Data", DATA, data), ("Draws", MODEL, drawn))):
        _scatter(axes[line, 0], points, colour, surface)
        axes[line, 0].set_title(what)
        axes[line, 0].set_ylabel(label_of(prepared.columns[1]))
        image = None
        for column, (kind, values) in enumerate(panels, 1):
            image = show_surface(axes[line, column], surface, values, log=line == 1)
            axes[line, column].set_title(f"{kind.capitalize()} {'log ' * line}density")
        assert image is not None
        bar = figure.colorbar(image, ax=list(axes[line]), pad=0.015, fraction=0.05, aspect=24)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        bar.set_label("log density (nats)" if line else "density")
    for column in range(count):
        axes[1, column].set_xlabel(label_of(prepared.columns[0]))
    for panel in axes.flat:
        fit_frame(panel, surface)
        panel.locator_params(nbins=5)
    return figure
