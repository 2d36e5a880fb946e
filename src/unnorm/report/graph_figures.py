"""Figures of a network's fit: the network beside a drawn one, features in their bands, traces, the leap of a degenerate model."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from unnorm.graphs import Network
from unnorm.plots import COLOURS, DATA, INK, MODEL, QUIET, WIDE, Picture, grid_lines, label_of, new_figure, styled
from unnorm.runs.graph_findings import Evidence, Trace
from unnorm.runs.graph_goodness import Goodness, Panel

#: Statistics whose traces are drawn; ticks below a feature; vertices of a network that is drawn.
TRACES, TICKS, DRAWABLE = 8, 16, 3000


@styled
def goodness_picture(goodness: Goodness) -> Picture:
    """For every feature the band of the graphs drawn, their median, and the network."""
    count = len(goodness.panels)
    across = 2 if count > 1 else 1
    down = -(-count // across)
    figure = new_figure(WIDE, 3.1 * down)
    places = figure.subplots(down, across, squeeze=False).ravel()
    for axes, panel in zip(places, goodness.panels, strict=False):
        _band(axes, panel)
    for axes in places[count:]:
        axes.set_visible(False)
    places[0].legend(loc="best")
    numbers: dict[str, list[Any]] = {
        name: [] for name in ("feature", "value", "observed", "low", "median", "high", "p_value")
    }
    for panel in goodness.panels:
        low, high = panel.band()
        rows = (panel.values, panel.observed, low, np.median(panel.drawn, axis=0), high, panel.p_values)
        numbers["feature"] += [panel.name] * len(panel.values)
        for name, row in zip(list(numbers)[1:], rows, strict=True):
            numbers[name] += list(row)
    return Picture(
        "goodness",
        figure,
        numbers,
        alt=f"Counts of {', '.join(p.name for p in goodness.panels)}: the network against {goodness.graphs} drawn graphs.",
        caption=f"The shaded band holds 95% of {goodness.graphs} graphs drawn from the model at each value, the thin line "
        "is their median. Where the network leaves the band, the model does not know something about it.",
    )


def _band(axes: Axes, panel: Panel) -> None:
    x = np.arange(len(panel.values))
    low, high = panel.band()
    axes.fill_between(x, low, high, color=MODEL, alpha=0.25, linewidth=0, label="95% of graphs drawn")
    axes.plot(x, np.median(panel.drawn, axis=0), color=MODEL, linewidth=1, label="their median")
    axes.plot(x, panel.observed, color=DATA, marker="o", markersize=4, label="the network")
    step = -(-len(x) // TICKS)
    ticks = sorted(
        {*x[::step].tolist(), len(x) - 1} - ({x[::step][-1]} if len(x) - 1 - x[::step][-1] in range(1, step) else set())
    )
    axes.set_xticks(ticks, [panel.values[t] for t in ticks])
    axes.set_title(f"{panel.name}  (p = {panel.p_value:.2g})")
    axes.set_ylabel("how many")
    axes.set_ylim(bottom=0)
    grid_lines(axes, "y")


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
        caption=f"{chains} chains of {draws} graphs drawn at the estimate; the blue line is the network's own. Chains that "
        f"wander about that line, and about each other, have mixed.{rest}",
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
    axes.set_aspect("equal")
    axes.margins(0.06)
    axes.set_axis_off()


@styled
def evidence_picture(evidence: Evidence) -> Picture:
    """The statistic against its coefficient, with the number of edges held; what was observed as a line."""
    figure = new_figure(WIDE, 4.2)
    axes = figure.subplots()
    at, drawn = evidence.coefficients, evidence.statistics
    low, high = np.quantile(drawn, [0.05, 0.95], axis=1)
    axes.fill_between(at, low, high, color=MODEL, alpha=0.15, linewidth=0, label="90% of graphs drawn")
    some = drawn[:, :: max(1, drawn.shape[1] // 64)]
    axes.plot(
        np.repeat(at, some.shape[1]), some.ravel(), ".", color=MODEL, markersize=3, alpha=0.35, label="graphs drawn"
    )
    axes.plot(at, evidence.middle, color=MODEL, linewidth=1.4, label="their median")
    axes.axhline(evidence.observed, color=DATA, label="the network")
    if evidence.leap is not None and evidence.observed > 0 and high.max() > 20 * evidence.observed:
        axes.set_yscale("symlog", linthresh=max(1.0, evidence.observed / 10))
    axes.set_xlabel(f"coefficient of {evidence.name}")
    axes.set_ylabel(f"{evidence.name}, with {evidence.edges:,} edges")
    axes.legend(loc="best")
    grid_lines(axes, "y")
    return Picture(
        "leap",
        figure,
        {
            "coefficient": np.repeat(at, drawn.shape[1]),
            "draw": np.tile(np.arange(1, drawn.shape[1] + 1), len(at)),
            "statistic": drawn.ravel(),
        },
        alt=f"{evidence.name} of graphs drawn against its coefficient, beside the network's own.",
        caption="Graphs drawn with the number of edges held at that of the network. A model that can be fitted climbs "
        "steadily through the blue line; a degenerate one leaps over it.",
    )
