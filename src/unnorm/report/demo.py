"""The report of a comparison: the same problem learnt by several objectives, side by side."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from unnorm.energies import AbstractEnergy, GaussianMixture
from unnorm.errors import require
from unnorm.estimate import Estimate
from unnorm.files import write_atomically
from unnorm.plots import DATA, MODEL, TRUTH, WIDE, Picture, label_of, new_figure, some_of, styled, unique
from unnorm.report import curves
from unnorm.report.density import SHOWN, Surface, fit_frame, shape_of, show_surface, surface_of
from unnorm.report.html import all_warnings, duration, render, show
from unnorm.report.tables import Row, Table
from unnorm.report.verdict import PAIRED, gains
from unnorm.runs import Assessment, Prepared
from unnorm.samplers import Trace
from unnorm.training import Fit


@runtime_checkable
class Comparison(Protocol):
    """What a comparison must bring: one data set in the plane, and by objective the fit and what is known of it.

    `fits` and `assessments` have the same names; every model is one of unit coordinates.
    """

    @property
    def prepared(self) -> Prepared: ...
    @property
    def fits(self) -> Mapping[str, Fit[AbstractEnergy]]: ...
    @property
    def assessments(self) -> Mapping[str, Assessment]: ...
    @property
    def verdict(self) -> str: ...


def write_demo_report(path: Path, demo: Comparison) -> Path:
    """Write `report.html` and `figures/` into the folder `path`, and say where the page is."""
    path = Path(path)
    d = len(demo.prepared.columns)
    require(d == 2, f"a comparison is drawn in the plane, but {demo.prepared.source} has {d} columns")
    path.mkdir(parents=True, exist_ok=True)
    names = list(demo.fits)
    first = demo.assessments[names[0]]
    reached = {name: assessment.log_likelihood for name, assessment in demo.assessments.items()}
    page = render(
        "demo.html.j2",
        title=f"{demo.prepared.source}: {' against '.join(names)}",
        verdict=demo.verdict,
        tone="plain" if any(fit.outcome.ok for fit in demo.fits.values()) else "bad",
        densities=show(densities(demo), path),
        comparison=_comparison(demo),
        comparison_note=_comparison_note(demo),
        likelihood=show(curves.likelihoods(reached, first.baselines, first.truth), path),
        warnings_by_name=[
            (name, all_warnings(fit.outcome, fit.events, demo.assessments[name])) for name, fit in demo.fits.items()
        ],
        compared=_compared(demo),
    )
    report = path / "report.html"
    write_atomically(report, page)
    return report


def right_mode(prepared: Prepared) -> int | None:
    """Which mode of a true mixture lies farthest to the right; none if the truth is no mixture."""
    truth = prepared.problem.truth if prepared.problem is not None else None
    return int(np.argmax(truth.means[:, 0])) if isinstance(truth, GaussianMixture) else None


def _share_of_data(prepared: Prepared, rows: np.ndarray, mode: int) -> Estimate:
    """The share of rows nearest to a mode."""
    truth = prepared.problem.truth if prepared.problem is not None else None
    assert isinstance(truth, GaussianMixture)
    share = float(np.mean(np.asarray(jax.vmap(truth.assign)(jnp.asarray(rows, float))) == mode))
    return Estimate(share, float(np.sqrt(share * (1 - share) / len(rows))), "count")


@styled
def densities(demo: Comparison) -> Picture:
    """Data, truth and every learnt density in one row, with the weight of the right mode under each."""
    prepared, names = demo.prepared, list(demo.fits)
    surfaces = {name: surface_of(demo.fits[name].model, prepared, demo.assessments[name].log_z.value) for name in names}
    surface = surfaces[names[0]]
    rows = prepared.schema.to_written(prepared.train)
    data = some_of(rows, SHOWN)
    mode = right_mode(prepared)
    count = 1 + (surface.truth is not None) + len(names)
    side = min(2.9, WIDE / count)
    figure = new_figure(side * count, side * 0.93 * shape_of(surface) + 1.15)
    panels = list(figure.subplots(1, count, sharex=True, sharey=True, squeeze=False)[0])
    size = float(np.clip(4000 / max(len(data), 1), 1.5, 10))
    panels[0].scatter(*data.T, s=size, color=DATA, alpha=0.5, linewidths=0, rasterized=True)
    panels[0].spines[:].set_visible(True)
    share = None if mode is None else _share_of_data(prepared, rows, mode)
    _finish(panels[0], surface, "data", share, DATA, prepared)
    shown = [] if surface.truth is None else [("truth", surface.truth, TRUTH, _true_share(demo, mode))]
    shown += [(name, surfaces[name].model, MODEL, _learnt_share(demo, name, mode)) for name in names]
    for panel, (name, values, colour, weight) in zip(panels[1:], shown, strict=True):
        show_surface(panel, surface, values)
        _finish(panel, surface, name, weight, colour, prepared)
    panels[0].set_ylabel(label_of(prepared.columns[1]))
    return Picture(
        "demo",
        figure,
        _columns(demo, surfaces, data),
        alt=f"Data, true density and the densities learnt by {', '.join(names)}, side by side.",
        caption="All densities share one colour scale, from zero to the peak of the truth. "
        + ("" if mode is None else "Below each: the weight of the right mode."),
    )


def _columns(demo: Comparison, surfaces: Mapping[str, Surface], data: np.ndarray) -> dict[str, Any]:
    surface = next(iter(surfaces.values()))
    # A row of data has no density in this table, only a place.
    none = np.full(len(data), np.nan)
    points = np.concatenate([surface.points, data])
    densities = {f"log_density_{name}": np.append(s.model.ravel(), none) for name, s in surfaces.items()}
    if surface.truth is not None:
        densities = {"true_log_density": np.append(surface.truth.ravel(), none), **densities}
    names = unique(demo.prepared.columns, ("what", *densities))
    return {
        "what": ["lattice"] * len(surface.points) + ["data"] * len(data),
        names[0]: points[:, 0],
        names[1]: points[:, 1],
        **densities,
    }


def _true_share(demo: Comparison, mode: int | None) -> Estimate | None:
    weights = next(iter(demo.assessments.values())).weights
    return None if mode is None or not weights else Estimate(weights[mode][0], 0.0, "known exactly")


def _learnt_share(demo: Comparison, name: str, mode: int | None) -> Estimate | None:
    weights = demo.assessments[name].weights
    return None if mode is None or not weights else weights[mode][1]


def _finish(
    panel: Axes, surface: Surface, title: str, weight: Estimate | None, colour: str, prepared: Prepared
) -> None:
    panel.set_title(label_of(title, 20))
    fit_frame(panel, surface)
    panel.locator_params(nbins=4)
    panel.set_xlabel(label_of(prepared.columns[0]))
    if weight is not None:
        text = f"{weight.value:g}" if weight.stderr == 0 else weight.number()
        # Measured in points from the axis, so that it clears the label whatever the size of the panel.
        panel.annotate(
            text, (0.5, 0), xytext=(0, -42), xycoords="axes fraction", textcoords="offset points",
            ha="center", va="top", fontsize=13, color=colour,
        )  # fmt: skip


def _comparison(demo: Comparison) -> Table:
    mode = right_mode(demo.prepared)
    first = next(iter(demo.assessments.values()))
    rows = []
    for name, assessment in demo.assessments.items():
        weight = _learnt_share(demo, name, mode)
        difference = gains(demo.fits[name].model, demo.prepared, assessment, None)
        gap = "" if "truth" not in difference else difference["truth"].number()
        rows.append(
            Row(
                (
                    name,
                    "" if weight is None else weight.number(),
                    assessment.log_likelihood.number(),
                    gap,
                    _rhat(assessment),
                    duration(demo.fits[name].seconds),
                ),
                strong=True,
            )
        )
    rows += [Row((name, "", value.number(), "", "", "")) for name, value in first.baselines.items()]
    if first.truth is not None:
        weight = _true_share(demo, mode)
        known = "" if weight is None else f"{weight.value:g}"
        rows.append(Row(("truth", known, first.truth.number(), "", "", "")))
    header = (
        "", "weight of the right mode", "log-likelihood, nats per row", "above the truth by", "worst R-hat of draws",
        "time to train",
    )  # fmt: skip
    return Table(header, tuple(rows))


def _rhat(assessment: Assessment) -> str:
    sampled = assessment.sampled
    return f"{sampled.diagnostics.worst_rhat:.3f}" if isinstance(sampled, Trace) else "independent"


def _comparison_note(demo: Comparison) -> str:
    first_name, first = next(iter(demo.assessments.items()))
    methods = {value.method for value in gains(demo.fits[first_name].model, demo.prepared, first, None).values()}
    paired = "Differences to the truth are paired: taken row by row, with the error of log Z added. "
    return (
        f"Log-likelihoods are of {demo.prepared.sizes[2]:,} held-out rows in the data's own units. "
        f"{paired if PAIRED in methods else ''}"
        "Draws start at training rows: where R-hat is far above 1 they have not mixed, and do not "
        "tell what the model thinks of the weights."
    )


def _compared(demo: Comparison) -> list[tuple[str, str]]:
    prepared = demo.prepared
    found = [
        ("Data", prepared.source),
        ("Rows", "{:,} to train, {:,} to choose, {:,} to judge".format(*prepared.sizes)),
        ("Columns", " · ".join(prepared.columns)),
        *((name, f"{fit.outcome}, {duration(fit.seconds)}") for name, fit in demo.fits.items()),
    ]
    if prepared.problem is not None:
        found.insert(1, ("Problem", prepared.problem.summary))
    return found
