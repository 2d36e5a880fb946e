"""Bits and categories of data beside those of draws, and which columns the model ties to which."""

import jax.numpy as jnp
import numpy as np

from unnorm.energies import AbstractEnergy, pair_couplings
from unnorm.plots import DATA, INK, MODEL, QUIET, WIDE, Picture, few_ticks, grid_lines, new_figure, styled
from unnorm.report.section import Section
from unnorm.report.tables import Row, Table
from unnorm.runs import Prepared
from unnorm.runs.findings import AbstractDraws
from unnorm.runs.prepare import points_of
from unnorm.runs.trees import numbers_of
from unnorm.spaces import Categorical

#: Columns whose pairs are shown: their number grows with the square.
MOST_COLUMNS = 64
#: Rows over which couplings are averaged, and pairs that are listed.
COUPLED_ROWS, LISTED = 32, 12


@styled
def shares_picture(prepared: Prepared, draws: AbstractDraws) -> Picture:
    """The share of ones of every column, and the covariance of every pair, of draws against held-out rows."""
    space, names = prepared.space, prepared.columns
    rows, drawn = (np.asarray(numbers_of(space, part), float) for part in (points_of(prepared.test), draws.points))
    what = "ones"
    if isinstance(space, Categorical):
        names, what = tuple(f"{name}={c}" for name in names for c in range(space.categories)), "every category"
    first, second = _pairs(rows, drawn)
    figure = new_figure(WIDE, 4.6)
    left, right = figure.subplots(1, 2)
    shares = rows.mean(axis=0), drawn.mean(axis=0)
    left.scatter(*shares, s=14, color=MODEL, alpha=0.8, linewidths=0)
    left.set_xlabel(f"share of {what}, held-out rows")
    left.set_ylabel(f"share of {what}, draws")
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
        alt=f"Share of {what} of every column, and covariance of every pair of columns: draws against held-out rows.",
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


@styled
def couplings_picture(couplings: np.ndarray, names: tuple[str, ...], rows: int, average: bool) -> Picture:
    """Every pair of columns as a square, red where they are 1 together and blue where they are not."""
    figure = new_figure(WIDE, 5.2)
    axes = figure.subplots()
    most = float(np.abs(couplings).max()) or 1.0
    image = axes.imshow(couplings, cmap="RdBu_r", vmin=-most, vmax=most, interpolation="nearest")
    figure.colorbar(image, ax=axes, label="log odds ratio given all other columns")
    if len(names) <= 24:
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
    above = np.triu_indices(len(names), 1)
    said = f"Averages over {rows} rows: how strongly two columns go together depends on the others." if average else ""
    return Picture(
        "couplings",
        figure,
        {"columns": [f"{names[i]} {names[j]}" for i, j in zip(*above, strict=True)], "coupling": couplings[above]},
        alt="The coupling of every pair of columns as a coloured square.",
        caption=f"0 where two columns are independent given the others. {said}".strip(),
    )


def couplings_section(model: AbstractEnergy, prepared: Prepared) -> Section:
    """The couplings that were learnt, and the strongest of them in a table."""
    rows, names = np.asarray(points_of(prepared.train))[:COUPLED_ROWS], prepared.columns
    if len(names) > MOST_COLUMNS or len(names) < 2:
        return Section("Which columns go together", (f"With {len(names)} columns the pairs are not shown.",))
    found = pair_couplings(model, jnp.asarray(rows))
    other = pair_couplings(model, jnp.asarray(rows[:1]))
    average = not np.allclose(found, other, atol=1e-3)
    i, j = np.triu_indices(len(names), 1)
    first = np.argsort(-np.abs(found[i, j]), kind="stable")[:LISTED]
    lines = tuple(Row((names[i[p]], names[j[p]], f"{found[i[p], j[p]]:.2f}")) for p in first)
    return Section(
        "Which columns go together",
        figures=(couplings_picture(found, names, len(rows), average),),
        tables=(Table(("column", "column", "coupling"), lines),),
        beside=True,
    )
