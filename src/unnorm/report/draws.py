"""Draws of a model and whether to trust them: what a report says and shows of chains, and of independent draws."""

from typing import Any

import numpy as np

from unnorm.data.kinds import count_of
from unnorm.data.tabular import TableSchema
from unnorm.evaluation import Marginals, marginals
from unnorm.plots import Picture
from unnorm.report import curves
from unnorm.report.tables import Row, Table
from unnorm.report.verdict import plural
from unnorm.runs import Prepared
from unnorm.runs.findings import AbstractDraws, Discrepancy
from unnorm.runs.generating import Walked
from unnorm.runs.prepare import points_of
from unnorm.samplers import Resampled, Trace
from unnorm.samplers.diagnostics import RHAT_LIMIT

#: Draws that are compared with held-out rows.
COMPARED = 2000
#: Columns that have room for a line each.
MOST_COLUMNS = 200


def distances(prepared: Prepared, draws: AbstractDraws) -> Marginals | None:
    """How far draws are from held-out rows column by column, in the data's own units and steps.

    None if the draws broke, or points have no columns.
    """
    if not isinstance(prepared.schema, TableSchema):
        return None
    flat = draws.points[np.isfinite(draws.points).all(axis=1)]
    if len(flat) < 2 or prepared.sizes[2] < 2:
        return None
    spread = flat[np.linspace(0, len(flat) - 1, min(COMPARED, len(flat))).astype(int)]
    # Rows were rounded to single precision on the way: all three are put back on the grid they were recorded on.
    drawn, test, train = (
        prepared.schema.recorded(prepared.schema.to_written(points_of(part)))
        for part in (spread, prepared.test, prepared.train)
    )
    return marginals(drawn, test, train, groups=_together(prepared))


def _together(prepared: Prepared) -> np.ndarray | None:
    """Which of the test and then the training rows are copies or of one group."""
    if prepared.test_together is None:
        return None
    return np.concatenate([prepared.test_together, prepared.test_together.max() + 1 + prepared.labels])[
        : prepared.sizes[2] + prepared.sizes[0]
    ]


def tile(sampled: Any) -> tuple[str, str]:
    """The one figure that tells most of the draws."""
    if isinstance(sampled, Walked):
        return "Levels walked", f"{sampled.steps}"
    if not isinstance(sampled, Trace | Resampled):
        return "Exact draws", f"{count_of(sampled):,}"
    if isinstance(sampled, Resampled):
        return "Effective share of proposals", f"{sampled.effective:.0%}"
    return "Worst R-hat of draws", f"{sampled.diagnostics.worst_rhat:.3f}"


def words(sampled: Any) -> str:
    """Where the draws come from, in sentences."""
    if isinstance(sampled, Walked):
        return (
            f"{plural(len(sampled.points), 'independent draw')}, walked from noise to data by {sampled.solver} over "
            f"{plural(sampled.steps, 'level')}."
        )
    if not isinstance(sampled, Trace | Resampled):
        return f"{plural(count_of(sampled), 'independent draw')}, made by the model itself."
    if isinstance(sampled, Resampled):
        return (
            f"{plural(len(sampled.draws), 'independent draw')}, chosen by weight among "
            f"{plural(sampled.proposals, 'proposal')} of the model's reference. Nothing has to mix: modes have the "
            "weights that the model gives them."
        )
    said = (
        f"{plural(sampled.draws.shape[0], 'chain')} of {plural(sampled.draws.shape[1], 'draw')} each by "
        f"{type(sampled.sampler).__name__}, started at training rows."
    )
    if not sampled.diagnostics.worst_rhat <= RHAT_LIMIT:
        said += (
            " They have not mixed: where they stay in the mode they started in, the draws weigh modes as the data do, "
            "whatever the model says. Judge the weights of modes by the density itself, not by these draws."
        )
    return said


def table(draws: AbstractDraws, apart: Discrepancy | None, found: Marginals | None) -> Table:
    """The figures by which draws are judged."""
    sampled = draws.sampled
    rows: list[tuple[str, str, str]] = []
    if isinstance(sampled, Trace | Resampled):
        rows = _of_weights(sampled) if isinstance(sampled, Resampled) else _of_chains(sampled)
    if apart is not None:
        rows.append(("MMD² to held-out rows", apart.mmd.number(), "0 where the laws agree"))
    if found is not None:
        limit = f"worst column; {found.limit:.3f} between rows and rows, one time in a hundred"
        rows.append(("Kolmogorov's distance", f"{found.worst:.3f}", limit))
    return Table(("", "value", ""), tuple(Row(cells) for cells in rows), words=True)


def _of_weights(sampled: Resampled) -> list[tuple[str, str, str]]:
    return [
        ("Proposals", f"{sampled.proposals:,}", f"for {plural(len(sampled.draws), 'draw')}"),
        ("Effective share", f"{sampled.effective:.1%}", "(sum w)² / sum w² of the weights, over their number"),
        ("Repeated draws", f"{sampled.repeated:,}", f"of {len(sampled.draws):,}"),
    ]


def _of_chains(trace: Trace) -> list[tuple[str, str, str]]:
    found = trace.diagnostics
    low, high = float(np.min(trace.acceptance)), float(np.max(trace.acceptance))
    return [
        ("Acceptance", f"{float(np.mean(trace.acceptance)):.3f}", f"{low:.3f} to {high:.3f} over chains"),
        ("Divergences", f"{trace.divergences:,}", f"of {trace.draws.shape[0] * trace.draws.shape[1]:,} draws"),
        ("R-hat", f"{found.worst_rhat:.3f}", "worst column"),
        ("Effective draws, bulk", _whole(found.worst_ess_bulk), "worst column"),
        ("Effective draws, tail", _whole(found.worst_ess_tail), "worst column"),
    ]


def pictures(prepared: Prepared, draws: AbstractDraws, found: Marginals | None) -> list[Picture]:
    """What is shown of the draws: where points have columns, how each of them mixed; walks of real numbers."""
    shown, trace = [] if found is None else [curves.agreement(prepared, found)], draws.sampled
    if isinstance(trace, Trace) and 0 < len(prepared.columns) <= MOST_COLUMNS:
        shown.append(curves.mixing(prepared, trace))
    if isinstance(trace, Trace) and isinstance(prepared.schema, TableSchema):
        shown.append(curves.traces(prepared, trace))
    return shown


def _whole(value: float) -> str:
    return f"{value:,.0f}" if np.isfinite(value) else str(value)
