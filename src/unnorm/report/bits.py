"""Bits of data beside bits of draws: how often each column is 1, and how columns go together."""

import numpy as np

from unnorm.plots import DATA, INK, MODEL, QUIET, WIDE, Picture, few_ticks, grid_lines, new_figure, styled
from unnorm.runs import Prepared
from unnorm.runs.findings import AbstractDraws
from unnorm.runs.prepare import points_of

#: Columns whose pairs are shown: their number grows with the square.
MOST_COLUMNS = 64


@styled
def shares_picture(prepared: Prepared, draws: AbstractDraws) -> Picture:
    """The share of ones of every column, and the covariance of every pair, of draws against held-out rows."""
    rows, drawn = points_of(prepared.test), draws.points
    rows, drawn = (np.asarray(part, float).reshape(len(part), -1) for part in (rows, drawn))
    names = prepared.columns
    first, second = _pairs(rows, drawn)
    figure = new_figure(WIDE, 4.6)
    left, right = figure.subplots(1, 2)
    shares = rows.mean(axis=0), drawn.mean(axis=0)
    left.scatter(*shares, s=14, color=MODEL, alpha=0.8, linewidths=0)
    left.set_xlabel("share of ones, held-out rows")
    left.set_ylabel("share of ones, draws")
    right.scatter(first, second, s=8, color=DATA, alpha=0.6, linewidths=0)
    right.set_xlabel("covariance of two columns, held-out rows")
    right.set_ylabel("covariance, draws")
    for axes in (left, right):
        low, high = min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])
        axes.plot([low, high], [low, high], color=QUIET, linewidth=1, linestyle=(0, (3, 2)))
        axes.tick_params(colors=INK)
        grid_lines(axes)
        few_ticks(axes)
    error = float(np.sqrt(0.25 / len(rows)))
    shown = "" if len(names) <= MOST_COLUMNS else f" Pairs are of the first {MOST_COLUMNS} of {len(names)} columns."
    return Picture(
        "shares",
        figure,
        {
            "what": ["share"] * len(names) + ["covariance"] * len(first),
            "columns": [*names, *(f"{names[i]} {names[j]}" for i, j in zip(*_above(len(names)), strict=True))],
            "data": np.concatenate([shares[0], first]),
            "draws": np.concatenate([shares[1], second]),
        },
        alt="Share of ones of every column, and covariance of every pair of columns: draws against held-out rows.",
        caption=f"Points on the dashed line agree. The share of a column among {len(rows):,} held-out rows errs by "
        f"{error:.3f} at most (one standard error).{shown}",
    )


def _above(columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The two columns of every pair that is shown."""
    return np.triu_indices(min(columns, MOST_COLUMNS), 1)


def _pairs(rows: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The covariance of every two columns in both."""
    some, above = min(rows.shape[1], MOST_COLUMNS), _above(rows.shape[1])
    return tuple(np.cov(part[:, :some].T, ddof=0).reshape(some, some)[above] for part in (rows, draws))  # pyright: ignore
