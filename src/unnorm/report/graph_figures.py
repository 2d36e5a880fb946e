"""Figures of a network's fit: beside it a drawn one, features in their bands, traces, a degenerate model's leap."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from unnorm.graphs import Evidence, Feature, Goodness, Network
from unnorm.plots import (
    COLOURS,
    DATA,
    INK,
    MODEL,
    QUIET,
    TRUTH,
    WIDE,
    Picture,
    grid_lines,
    label_of,
    new_figure,
    styled,
)
from unnorm.runs.graph_findings import Trace

#: Statistics whose traces are drawn; ticks below a feature; vertices of a network that is drawn.
TRACES, TICKS, DRAWABLE = 8, 16, 3000


@styled
def goodness_picture(goodness: Goodness) -> Picture:
    """For every feature that the model does not state: the band of the graphs drawn, their median, and the network."""
    shown = goodness.features[1:]
    down = -(-len(shown) // 2)
    figure = new_figure(WIDE, 3.1 * down)
    grid = figure.add_gridspec(down, 2)
    for k, feature in enumerate(shown):
        # One without a neighbour has the room of two.
        row, column = divmod(k, 2)
        alone = column == 0 and k == len(shown) - 1
        _band(figure.add_subplot(grid[row, :] if alone else grid[row, column]), feature)
    figure.axes[0].legend(loc="best")
    numbers: dict[str, list[Any]] = {
        name: [] for name in ("feature", "value", "observed", "low", "median", "high", "p_value")
    }
    for feature in goodness.features:
        rows = (feature.values, feature.observed, *feature.band, feature.p_values)
        numbers["feature"] += [feature.name] * len(feature.values)
        for name, row in zip(list(numbers)[1:], rows, strict=True):
            numbers[name] += list(row)
    return Picture(
        "goodness",
        figure,
        numbers,
        alt=f"Counts of {', '.join(f.name for f in shown)}: the network against {goodness.draws} drawn graphs.",
        caption=f"The shaded band holds 95% of {goodness.draws} graphs drawn from the model at each value, "
        "the thin line is their median. Where the network leaves the band, the model does not know something "
        "about it. Heights are square roots of counts, so that rare values are seen too.",
    )


def _band(axes: Axes, feature: Feature) -> None:
    x = np.arange(len(feature.values))
    low, median, high = feature.band
    axes.fill_between(x, low, high, color=MODEL, alpha=0.25, linewidth=0, label="95% of graphs drawn")
    axes.plot(x, median, color=MODEL, linewidth=1, label="their median")
    axes.plot(x, feature.observed, color=DATA, marker="o", markersize=4, clip_on=False, zorder=5, label="the network")
    step = -(-len(x) // TICKS)
    ticks = [t for t in range(0, len(x), step) if len(x) - 1 - t not in range(1, step)] + [len(x) - 1] * (step > 1)
    axes.set_xticks(ticks, [feature.values[t] for t in ticks], fontsize=7 if feature.name == "triads" else None)
    axes.set_title(f"{feature.name}  (p = {feature.p_value:.2g})")
    axes.set_ylabel("how many")
    axes.set_yscale("function", functions=(_root, np.square))
    most = max(high.max(), feature.observed.max(), 1.0)
    axes.set_ylim(0, 1.1 * most)
    axes.set_yticks(_counts(most))
    grid_lines(axes, "y")


def _root(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(x, 0.0))


def _counts(most: float) -> list[int]:
    """Round counts of which the roots are about as far from each other."""
    wanted = [most * (k / 4) ** 2 for k in range(1, 5)]
    found = [0]
    for count in wanted:
        unit = 10 ** max(0, int(np.floor(np.log10(max(count, 1.0)))))
        rounded = int(max(f * unit for f in (1, 2, 3, 5) if f * unit <= max(count, 1.0)))
        found += [rounded] * (rounded not in found)
    return found


@styled
def trace_picture(trace: Trace) -> Picture:
    """Every chain of every statistic, and what was observed."""
    shown = [k for k in range(len(trace.names)) if np.isfinite(trace.statistics[:, :, k]).all()][:TRACES]
    chains, draws, _ = trace.statistics.shape
    figure = new_figure(WIDE, 1.6 * len(shown) + 0.5)
    places = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, k in zip(places, shown, strict=True):
        for c in range(chains):
            axes.plot(trace.statistics[c, :, k], color=COLOURS[1 + c % 4], linewidth=0.7, alpha=0.8)
        axes.axhline(trace.observed[k], color=DATA, linewidth=1.8)
        axes.set_title(label_of(trace.names[k], 40))
        axes.locator_params(axis="y", nbins=4)
        grid_lines(axes, "y")
    places[-1].set_xlabel("draw")
    rest = (
        f" Drawn are {TRACES} of {len(trace.names)} statistics; the file has all."
        if len(trace.names) > len(shown)
        else ""
    )
    chain, draw = np.indices((chains, draws)).reshape(2, -1)
    return Picture(
        "trace",
        figure,
        {
            "chain": chain + 1,
            "draw": draw + 1,
            **{name: trace.statistics[:, :, k].ravel() for k, name in enumerate(trace.names)},
        },
        alt=f"Statistics of {chains} chains of {draws} graphs each: {', '.join(trace.names)}.",
        caption=f"{chains} chains of {draws} graphs drawn at the estimate; the blue line is the network's own. Chains "
        f"that wander about that line, and about each other, have mixed.{rest}",
    )


@styled
def network_picture(network: Network, drawn: np.ndarray | None, attribute: str | None) -> Picture | None:
    """The network, and beside it one graph drawn from the model; None where there is too much to see."""
    if network.n > DRAWABLE:
        return None
    parts = [("the network", network.edges), *([("a graph drawn from the model", drawn)] if drawn is not None else [])]
    figure = new_figure(WIDE, 5.0)
    colours, labels = _colours(network, attribute)
    numbers: dict[str, list[Any]] = {name: [] for name in ("what", "from", "to", "x_from", "y_from", "x_to", "y_to")}
    for axes, (title, edges) in zip(
        figure.subplots(1, 2, squeeze=False)[0], [*parts, *[("", None)] * (2 - len(parts))], strict=True
    ):
        if edges is None:
            axes.set_visible(False)
            continue
        place = layout(network, edges)
        _draw(axes, network, edges, place, colours)
        axes.set_title(f"{title}: {len(edges):,} edges")
        rows = zip(edges.tolist(), place[edges[:, 0]].tolist(), place[edges[:, 1]].tolist(), strict=True)
        for (i, j), a, b in rows:
            cells = (title, network.labels[i], network.labels[j], *a, *b)
            for name, cell in zip(numbers, cells, strict=True):
                numbers[name].append(cell)
    for colour, label in labels:
        figure.axes[0].plot([], [], "o", color=colour, label=label, markersize=6)
    if labels:
        figure.axes[0].legend(loc="upper left", fontsize=8, title=attribute, title_fontsize=8)
    return Picture(
        "network",
        figure,
        numbers,
        alt=f"The network of {network.n} vertices, drawn; beside it a graph drawn from the model.",
        caption="Vertices that have edges in common lie close together; those without an edge stand in rows below. "
        + (f"Colours tell {attribute} apart." if labels else ""),
    )


def layout(network: Network, edges: np.ndarray) -> np.ndarray:
    """Places of the vertices: by springs, always the same; those without an edge in rows below."""
    import networkx

    graph = networkx.Graph()
    graph.add_edges_from(edges.tolist())
    place = np.zeros((network.n, 2))
    if len(graph):
        nodes = sorted(graph.nodes)
        ordered = networkx.Graph()
        ordered.add_nodes_from(nodes)
        ordered.add_edges_from(sorted((min(e), max(e)) for e in graph.edges))
        found = networkx.spring_layout(ordered, seed=0, iterations=100, k=1.6 / np.sqrt(len(nodes)))
        place[nodes] = np.array([found[v] for v in nodes])
        middle, half = (place[nodes].max(0) + place[nodes].min(0)) / 2, np.ptp(place[nodes], axis=0) / 2
        place[nodes] = (place[nodes] - middle) / np.maximum(half, 1e-9)
    alone = np.setdiff1d(np.arange(network.n), edges)
    across = max(10, int(np.ceil(np.sqrt(6 * len(alone)))))
    for number, v in enumerate(alone):
        place[v] = (-1 + 2 * (number % across) / max(across - 1, 1), -1.18 - 0.09 * (number // across))
    return place


def _colours(network: Network, attribute: str | None) -> tuple[list[str], list[tuple[str, str]]]:
    """A colour for each vertex by an attribute of few values, and what the colours say."""
    if attribute is None or attribute not in network.attributes:
        return [MODEL] * network.n, []
    values = [str(v) if isinstance(v, str) else f"{v:g}" for v in network.attributes[attribute].tolist()]
    levels = sorted(set(values), key=lambda v: (len(v), v) if v.replace(".", "").isdigit() else (99, v))
    if len(levels) > len(COLOURS):
        return [MODEL] * network.n, []
    by = dict(zip(levels, COLOURS, strict=False))
    return [by[v] for v in values], [(by[level], level) for level in levels]


def _draw(axes: Axes, network: Network, edges: np.ndarray, place: np.ndarray, colours: list[str]) -> None:
    segments = np.stack([place[edges[:, 0]], place[edges[:, 1]]], axis=1)
    size = float(np.clip(900 / network.n, 5, 60))
    width = float(np.clip(120 / max(len(edges), 1), 0.35, 1.2))
    if network.directed and len(edges) <= 1000:
        for a, b in segments:
            arrow = {
                "arrowstyle": "-|>",
                "color": QUIET,
                "linewidth": width,
                "shrinkA": 3,
                "shrinkB": 3,
                "mutation_scale": 7,
            }
            axes.annotate("", xy=b, xytext=a, arrowprops=arrow)
    else:
        axes.add_collection(LineCollection(segments.tolist(), colors=QUIET, linewidths=width, zorder=1))
    axes.scatter(*place.T, s=size, c=colours, edgecolors="white", linewidths=0.5, zorder=2)
    if network.n <= 40:
        for v, label in enumerate(network.labels):
            axes.annotate(
                label_of(str(label), 14), place[v], xytext=(4, 4), textcoords="offset points", fontsize=6.5, color=INK
            )
    axes.set_xlim(-1.1, 1.35 if network.n <= 40 else 1.1)
    axes.set_ylim(min(-1.12, place[:, 1].min() - 0.06), 1.12)
    axes.set_axis_off()


@styled
def evidence_picture(evidence: Evidence) -> Picture:
    """The statistic against its coefficient, for walks from the network and from the complete graph."""
    figure = new_figure(WIDE, 4.2)
    axes = figure.subplots()
    at = evidence.coefficients
    walks = [("from the network", evidence.sparse, MODEL)]
    walks += [] if evidence.dense is None else [("from the complete graph", evidence.dense, TRUTH)]
    for name, (low, middle, high), colour in ((name, rows.T, colour) for name, rows, colour in walks):
        axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(
            at, middle, color=colour, marker="o", markersize=3.5, linewidth=1.4, label=f"graphs drawn, walking {name}"
        )
    axes.axhline(evidence.observed, color=DATA, linewidth=1.8, label="the network")
    if evidence.left.any():
        axes.plot(
            at[evidence.left], evidence.sparse[evidence.left, 1], "x", color=INK, label="ran away to dense graphs"
        )
    top = max(np.nanmax(rows) for _, rows, _ in walks)
    if evidence.observed > 0 and top > 20 * evidence.observed:
        axes.set_yscale("symlog", linthresh=max(1.0, evidence.observed / 10))
        axes.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    axes.set_xlabel(f"coefficient of {evidence.name}, the others moving with it")
    axes.set_ylabel(evidence.name)
    axes.legend(loc="best")
    grid_lines(axes, "y")
    numbers: dict[str, Any] = {"coefficient": np.tile(at, len(walks))}
    numbers["from"] = np.repeat([name.removeprefix("from the ") for name, _, _ in walks], len(at))
    for k, name in enumerate(("low", "median", "high")):
        numbers[name] = np.concatenate([rows[:, k] for _, rows, _ in walks])
    numbers["ran_away"] = np.concatenate([evidence.left, *[np.zeros(len(at), bool)] * (len(walks) - 1)]).astype(int)
    return Picture(
        "leap",
        figure,
        numbers,
        alt=f"{evidence.name} of graphs drawn against its coefficient, beside the network's own.",
        caption="The median of graphs drawn and a band that holds 90% of them, as the model goes from one without "
        "dependence (left) through its pseudo-likelihood's maximum and beyond. A model that can be fitted climbs "
        "steadily through the blue line, wherever its walk begins; a degenerate one leaps over it.",
    )
