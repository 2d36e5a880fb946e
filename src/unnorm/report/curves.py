"""Figures of numbers: how training went, how models compare, what modes weigh, whether chains mixed."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from unnorm.estimate import Estimate, Outcome
from unnorm.evaluation import Marginals
from unnorm.plots import (
    DATA,
    INK,
    MODEL,
    QUIET,
    TRUTH,
    WIDE,
    Picture,
    few_ticks,
    grid_lines,
    label_of,
    new_figure,
    styled,
    unique,
)
from unnorm.runs import Prepared
from unnorm.samplers import Trace
from unnorm.samplers.diagnostics import ESS_LIMIT, RHAT_LIMIT
from unnorm.training import RECORDED

#: Chains and columns whose walks are shown.
CHAINS = 4
COLUMNS = 3
#: How much of what an objective says is drawn; the file of the figure has all of it.
SAID = 4


def roll_backs(history: Mapping[str, np.ndarray], outcome: Outcome) -> list[int]:
    """The steps a run returned to: the last recorded ones before its rate was halved."""
    steps, factor = np.asarray(history["step"]), np.asarray(history["rate_factor"])
    before = np.concatenate([[0], steps])
    halvings = np.round(-np.diff(np.log2(np.concatenate([[1.0], factor])))).astype(int)
    found = [int(step) for step, times in zip(before[:-1], halvings, strict=True) for _ in range(times)]
    # What failed after the last record is only in the outcome.
    return found + [int(before[-1])] * (outcome.retries - len(found))


@styled
def learning(history: Mapping[str, np.ndarray], outcome: Outcome) -> Picture:
    """Loss and held-out loss against the step, roll-backs marked; below, what the objective says beside its loss."""
    steps = np.asarray(history["step"])
    said = [name for name in history if name not in RECORDED]
    heights = [3.4, *(1.5 for _ in said[:SAID])]
    figure = new_figure(WIDE, sum(heights))
    axes, *below = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    marker = "o" if len(steps) < 12 else ""
    series = (("loss", "training", DATA), ("held_out", "held out (averaged weights)", MODEL))
    shown = [np.asarray(history[name], float) for name, _, _ in series]
    for (_, label, colour), values in zip(series, shown, strict=True):
        if np.isfinite(values).any():
            axes.plot(steps, values, color=colour, label=label, marker=marker, markersize=4)
    cut = _leave_out_the_start(axes, np.stack(shown))
    backs = roll_backs(history, outcome)
    for i, step in enumerate(sorted(set(backs))):
        axes.axvline(step, color=INK, linewidth=1, linestyle=(0, (2, 2)), label="rolled back to" if i == 0 else None)
    for panel, name in zip(below, said, strict=False):
        panel.plot(steps, np.asarray(history[name], float), color=DATA, marker=marker, markersize=4)
        panel.set_ylabel(label_of(name, 18))
        panel.locator_params(axis="y", nbins=4)
        grid_lines(panel, "y")
    figure.align_ylabels()
    [axes, *below][-1].set_xlabel("step")
    axes.set_ylabel("loss")
    axes.set_xlim(0, max([int(steps.max()) if len(steps) else 1, 1]))
    grid_lines(axes, "y")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best")
    if not len(steps):
        axes.text(0.5, 0.5, "nothing was recorded", transform=axes.transAxes, ha="center", color=QUIET)
    caption = "Each point is one evaluation; the training loss is the mean since the one before. "
    caption += f"{len(backs)} roll-backs to the last good state, at half the rate each. " if backs else ""
    caption += "The first values lie above the frame. " if cut else ""
    caption += "Below, means of what the objective says of its training batches. " if said else ""
    caption += f"Drawn are {SAID} of {len(said)} such numbers; the file has all. " if len(said) > SAID else ""
    described = f" Below: {', '.join(said[:SAID])}." if said else ""
    return Picture(
        "learning",
        figure,
        {name: np.asarray(history[name]) for name in (*RECORDED, *said)},
        alt=f"Training loss and held-out loss against the step.{described}",
        caption=caption.strip(),
    )


def _leave_out_the_start(axes: Axes, series: np.ndarray) -> bool:
    """End the axis above the later losses, if the first ones would flatten all the rest."""
    later = series[:, series.shape[1] // 10 :]
    later = later[np.isfinite(later)]
    every = series[np.isfinite(series)]
    if len(later) < 20:
        return False
    low, high = float(every.min()), float(later.max())
    if every.max() - low <= 3 * (high - low) or high <= low:
        return False
    axes.set_ylim(low - 0.06 * (high - low), high + 0.12 * (high - low))
    return True


@styled
def likelihoods(models: Mapping[str, Estimate], baselines: Mapping[str, Estimate], truth: Estimate | None) -> Picture:
    """Log-likelihood of held-out rows, one line per model, with 95% intervals."""
    lines = [(name, value, QUIET) for name, value in baselines.items()]
    lines += [(name, value, MODEL) for name, value in models.items()]
    if truth is not None:
        lines.append(("truth", truth, TRUTH))
    figure = new_figure(WIDE, 0.9 + 0.42 * len(lines))
    axes = figure.subplots()
    _dots(axes, lines)
    axes.set_xlabel("log-likelihood (nats per row), with 95% interval")
    return Picture(
        "likelihood",
        figure,
        {
            "model": [name for name, _, _ in lines],
            "log_likelihood": [value.value for _, value, _ in lines],
            "stderr": [value.stderr for _, value, _ in lines],
        },
        alt="Log-likelihood of held-out rows: " + ", ".join(f"{name} {value.number()}" for name, value, _ in lines),
        caption="Farther right is better. Rows are shared, so differences are surer than the intervals suggest: "
        "see the table.",
    )


def _dots(axes: Axes, lines: list[tuple[str, Estimate, str]]) -> None:
    """Named estimates from top to bottom, each a dot on its 95% interval."""
    z = 1.96
    for row, (_, estimate, colour) in enumerate(lines):
        if math.isfinite(estimate.value):
            error = z * estimate.stderr if math.isfinite(estimate.stderr) else 0.0
            axes.errorbar(
                estimate.value, row, xerr=error, color=colour, marker="o", markersize=6.5, capsize=3.5, linewidth=1.6
            )
        else:
            axes.text(0.01, row, f"{estimate.value}", transform=axes.get_yaxis_transform(), va="center", color=QUIET)
    axes.set_yticks(range(len(lines)), [label_of(name, 40) for name, _, _ in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.08)
    grid_lines(axes, "x")


@styled
def mode_weights(weights: tuple[tuple[float, Estimate], ...]) -> Picture:
    """The true weight of every mode beside the learnt one."""
    modes = np.arange(1, len(weights) + 1)
    truth = np.array([true for true, _ in weights])
    learnt = np.array([value.value for _, value in weights])
    errors = np.array([value.stderr for _, value in weights])
    figure = new_figure(float(np.clip(2.6 + 0.32 * len(weights), 4.6, WIDE)), 3.2)
    axes = figure.subplots()
    axes.hlines(truth, modes - 0.36, modes + 0.36, color=TRUTH, linewidth=2.6, label="true")
    axes.errorbar(
        modes, learnt, yerr=1.96 * errors, color=MODEL, marker="o", markersize=5, capsize=3, linestyle="",
        label="learnt, with 95% interval", linewidth=1.4,
    )  # fmt: skip
    axes.set_xticks(modes if len(modes) <= 25 else modes[4::5])
    axes.set_xlim(0.3, len(modes) + 0.7)
    top = np.nanmax(np.concatenate([truth, learnt + 1.96 * errors])) if np.isfinite(learnt).any() else truth.max()
    # Room above for the legend.
    axes.set_ylim(0, 1.3 * float(top))
    axes.set_xlabel("mode")
    axes.set_ylabel("weight")
    axes.legend(loc="upper center", ncols=2)
    grid_lines(axes, "y")
    return Picture(
        "weights",
        figure,
        {"mode": modes, "true": truth, "learnt": learnt, "stderr": errors},
        alt="True and learnt weight of every mode.",
        caption="The learnt weight of a mode is the mass the model puts nearest to it.",
    )


@styled
def traces(prepared: Prepared, trace: Trace) -> Picture:
    """The walks of a few chains through the columns with the largest R-hat."""
    rhat = trace.diagnostics.rhat
    # nan (a chain that broke or never moved) sorts last, which is where the worst belong.
    columns = sorted(np.argsort(rhat)[::-1][:COLUMNS].tolist())
    draws = prepared.schema.to_written(trace.draws[:CHAINS])
    chains, steps, _ = draws.shape
    figure = new_figure(WIDE, 0.5 + 1.25 * len(columns))
    panels = figure.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
    shades = np.linspace(0.3, 1.0, chains)
    for panel, column in zip(panels, columns, strict=True):
        for chain in range(chains):
            colour = (MODEL, DATA)[chain % 2]
            panel.plot(np.arange(1, steps + 1), draws[chain, :, column], color=colour, alpha=shades[chain], lw=0.7)
        panel.set_ylabel(label_of(prepared.columns[column], 14))
        panel.set_xlim(1, max(steps, 2))
        panel.locator_params(axis="y", nbins=4)
    panels[-1].set_xlabel("draw")
    names = unique([prepared.columns[c] for c in columns], ("chain", "draw"))
    which = "" if len(columns) == len(prepared.columns) else f" of the {len(columns)} columns with the largest R-hat"
    return Picture(
        "traces",
        figure,
        {
            "chain": np.repeat(np.arange(1, chains + 1), steps),
            "draw": np.tile(np.arange(1, steps + 1), chains),
            **{name: draws[:, :, c].ravel() for name, c in zip(names, columns, strict=True)},
        },
        alt=f"Walks of {chains} chains.",
        caption=f"Walks of {chains} of {len(trace.draws)} chains{which}. "
        "Chains that stay in different places have not mixed.",
    )


@styled
def mixing(prepared: Prepared, trace: Trace) -> Picture:
    """R-hat and effective sample sizes of every column, with the limits they should keep."""
    found = trace.diagnostics
    names = list(prepared.columns)
    figure = new_figure(WIDE, 1.0 + 0.27 * len(names))
    left, right = figure.subplots(1, 2, sharey=True)
    rows = np.arange(len(names))
    left.axvline(RHAT_LIMIT, color=QUIET, linewidth=1, linestyle=(0, (3, 2)))
    left.scatter(found.rhat, rows, color=MODEL, s=28, zorder=3)
    left.set_xlabel(f"R-hat (at most {RHAT_LIMIT})")
    right.axvline(ESS_LIMIT, color=QUIET, linewidth=1, linestyle=(0, (3, 2)))
    right.scatter(found.ess_bulk, rows, color=MODEL, s=28, zorder=3, label="bulk")
    right.scatter(found.ess_tail, rows, color=DATA, s=28, marker="D", zorder=3, label="tail")
    right.set_xlabel(f"effective draws (at least {ESS_LIMIT:.0f})")
    right.set_xlim(left=0)
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    left.set_yticks(rows, [label_of(name, 24) for name in names])
    left.set_ylim(len(names) - 0.5, -0.5)
    finite = found.rhat[np.isfinite(found.rhat)]
    left.set_xlim(0.998, max(1.02, float(finite.max()) * 1.02 - 0.02 if finite.size else 1.02))
    for panel in (left, right):
        panel.tick_params(axis="y", length=0)
        panel.spines["left"].set_visible(False)
        grid_lines(panel, "both")
        few_ticks(panel)
    return Picture(
        "mixing",
        figure,
        {"column": names, "rhat": found.rhat, "ess_bulk": found.ess_bulk, "ess_tail": found.ess_tail},
        alt="R-hat and effective sample size of every column.",
        caption="Dashed: the limits. R-hat near 1 means that chains agree; a column without a dot has no answer.",
    )


@styled
def agreement(prepared: Prepared, found: Marginals) -> Picture:
    """How far the draws of every column are from its held-out rows, and how far rows are from rows."""
    names = list(prepared.columns)
    figure = new_figure(WIDE, 1.0 + 0.27 * len(names))
    axes = figure.subplots()
    rows = np.arange(len(names))
    axes.axvline(found.limit, color=QUIET, linewidth=1, linestyle=(0, (3, 2)))
    axes.scatter(found.distances, rows, color=MODEL, s=28, zorder=3)
    axes.set_xlabel("Kolmogorov's distance of draws to held-out rows")
    axes.set_yticks(rows, [label_of(name, 24) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 1.08 * max(found.limit, found.worst))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    grid_lines(axes, "both")
    return Picture(
        "agreement",
        figure,
        {"column": names, "distance": found.distances, "limit": [found.limit] * len(names)},
        alt="Distance of draws to held-out rows, column by column.",
        caption="Draws are rounded as their column was recorded. Dashed: what the worst column is between rows and "
        "other rows of the table, one time in a hundred.",
    )
