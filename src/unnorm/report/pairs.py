"""Data against draws where a density cannot be shown whole: one column as a curve, many as pairs of columns."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from unnorm.energies import AbstractEnergy
from unnorm.plots import (
    DATA,
    INK,
    MODEL,
    TRUTH,
    WIDE,
    Picture,
    bins_for,
    label_of,
    new_figure,
    some_of,
    styled,
    unique,
)
from unnorm.report.density import frame_of, log_density, mass_in_words, outside, plane, raw_draws, true_log_density
from unnorm.runs import Assessment, Prepared
from unnorm.runs.prepare import points_of

#: How many columns are shown against each other, and how many rows of each kind.
MOST_COLUMNS = 4
SHOWN = 1500
CURVE_POINTS = 512


def density_picture(model: AbstractEnergy, prepared: Prepared, assessment: Assessment) -> Picture:
    """The figure that suits the number of columns: a curve, a surface, or pairs."""
    d = len(prepared.columns)
    if d == 1:
        return curve(model, prepared, assessment)
    return plane(model, prepared, assessment) if d == 2 else pairs(prepared, assessment)


@styled
def curve(model: AbstractEnergy, prepared: Prepared, assessment: Assessment) -> Picture:
    """One column: the learnt density over the histogram of the data."""
    rows, draws = prepared.schema.to_written(points_of(prepared.train)), raw_draws(prepared, assessment)
    low, high = frame_of(rows)
    x = np.linspace(low[0], high[0], CURVE_POINTS)
    learnt = np.exp(log_density(model, prepared, assessment.log_z.value, x[:, None]))
    edges = np.linspace(low[0], high[0], bins_for(rows) + 1)
    heights = {"data": _heights(rows[:, 0], edges), "draws": _heights(draws[:, 0], edges)}
    where = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
    figure = new_figure(WIDE, 4.2)
    axes = figure.subplots()
    axes.stairs(heights["data"], edges, fill=True, color=DATA, alpha=0.3, label=f"data ({len(rows):,} rows)")
    axes.stairs(heights["draws"], edges, color=MODEL, alpha=0.6, linewidth=1.0, label=f"draws ({len(draws):,})")
    log_truth = true_log_density(prepared, x[:, None])
    if log_truth is not None:
        axes.plot(x, np.exp(log_truth), color=TRUTH, linestyle=(0, (4, 2)), label="true density")
    axes.plot(x, learnt, color=MODEL, label="learnt density")
    axes.set_xlabel(label_of(prepared.columns[0], 60))
    axes.set_ylabel("density")
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(bottom=0)
    axes.legend(loc="best")
    mass = float(learnt.sum() * (x[1] - x[0]))
    columns = {
        unique(prepared.columns, ("density", "true_density", "data", "draws"))[0]: x,
        "density": learnt,
        **({} if log_truth is None else {"true_density": np.exp(log_truth)}),
        "data": heights["data"][where],
        "draws": heights["draws"][where],
    }
    beyond = outside(draws, low, high)
    return Picture(
        "density",
        figure,
        columns,
        alt=f"Learnt density of {prepared.columns[0]} over the histogram of the data.",
        caption=f"{mass_in_words(mass, assessment.log_z.stderr)}; {beyond:,} of {len(draws):,} draws lie outside it.",
    )


def _heights(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """A histogram as a density of all the values, those outside the frame too."""
    counts, _ = np.histogram(values[np.isfinite(values)], edges)
    return counts / max(len(values), 1) / np.diff(edges)


def farthest_columns(data: np.ndarray, draws: np.ndarray) -> list[int]:
    """The columns in which draws differ the most from the data (Kolmogorov's distance), in their own order."""
    # Loaded here: it takes half a second, which tables of few columns need not wait for.
    from scipy.stats import ks_2samp

    if data.shape[1] <= MOST_COLUMNS or not len(draws):
        return list(range(min(data.shape[1], MOST_COLUMNS)))
    apart = [ks_2samp(data[:, k], draws[:, k], method="asymp").statistic for k in range(data.shape[1])]  # pyright: ignore
    return sorted(np.argsort(apart)[::-1][:MOST_COLUMNS].tolist())


@styled
def pairs(prepared: Prepared, assessment: Assessment) -> Picture:
    """Several columns: data and draws for every pair below the diagonal, each column alone on it."""
    rows, draws = prepared.schema.to_written(points_of(prepared.train)), raw_draws(prepared, assessment)
    # As `unnorm sample` writes them; the rows come back from single precision to the steps they were recorded in.
    rows, draws = prepared.schema.recorded(rows), prepared.schema.recorded(draws)
    shown = farthest_columns(rows, draws[np.isfinite(draws).all(axis=1)])
    low, high = frame_of(rows)
    # As many of the one as of the other, or the eye compares numbers instead of shapes.
    most = min(SHOWN, len(rows), len(draws))
    data, drawn = some_of(rows, most), some_of(draws, most)
    k = len(shown)
    side = 2.5 if k == 4 else 2.9
    figure = new_figure(side * k, side * k * 0.94)
    axes = figure.subplots(k, k, sharex="col", squeeze=False)
    for i, row in enumerate(shown):
        for j, column in enumerate(shown):
            panel = axes[i, j]
            if j > i:
                panel.set_visible(False)
                continue
            panel.set_xlim(low[column], high[column])
            panel.locator_params(nbins=4)
            if i == j:
                edges = np.linspace(low[row], high[row], min(bins_for(rows), 40) + 1)
                panel.stairs(_heights(rows[:, row], edges), edges, fill=True, color=DATA, alpha=0.3)
                panel.stairs(_heights(draws[:, row], edges), edges, color=MODEL, linewidth=1.5)
                panel.set_yticks([])
                panel.spines["left"].set_visible(False)
                panel.set_ylim(bottom=0)
                panel.set_title(label_of(prepared.columns[row], 26))
            else:
                _mixed(panel, data[:, [column, row]], drawn[:, [column, row]])
                panel.set_ylim(low[row], high[row])
                if j > 0:
                    panel.tick_params(labelleft=False)
            if i == k - 1:
                panel.set_xlabel(label_of(prepared.columns[column], 26))
            if j == 0 and i > 0:
                panel.set_ylabel(label_of(prepared.columns[row], 26))
    handles = [
        Line2D([], [], marker="o", linestyle="", color=colour, markersize=7, label=text)
        for colour, text in ((DATA, f"data ({len(rows):,} rows)"), (MODEL, f"draws ({len(draws):,})"))
    ]
    figure.legend(handles=handles, loc="upper right", fontsize=11, labelcolor=INK, borderaxespad=1.5)
    names = unique([prepared.columns[c] for c in shown], ("what",))
    values = np.concatenate([data, drawn])[:, shown]
    d = len(prepared.columns)
    which = "" if d <= MOST_COLUMNS else f"Of {d} columns, the {k} in which draws differ the most from the data. "
    beyond = outside(draws, low, high)
    return Picture(
        "pairs",
        figure,
        {"what": ["data"] * len(data) + ["draw"] * len(drawn), **dict(zip(names, values.T, strict=True))},
        alt=f"Data and draws for each pair of the columns {', '.join(prepared.columns[c] for c in shown)}.",
        caption=f"{which}Pairs show {most:,} rows and as many draws; the diagonal counts all of them. "
        f"{beyond:,} of {len(draws):,} draws lie outside the frame of the data in some column.",
    )


def _mixed(axes: Axes, data: Float[np.ndarray, "n 2"], draws: Float[np.ndarray, "m 2"]) -> None:
    """Both samples in one random order, so that neither hides the other."""
    points = np.concatenate([data, draws])
    colours = np.array([DATA] * len(data) + [MODEL] * len(draws))
    order = np.random.default_rng(0).permutation(len(points))
    size = float(np.clip(6000 / max(len(points), 1), 2.5, 14))
    axes.scatter(*points[order].T, s=size, c=colours[order], alpha=0.5, linewidths=0, rasterized=True)
