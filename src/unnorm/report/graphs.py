"""The report of a network's fit: the verdict, the table, how the model's graphs compare, draws, and the network."""

import shlex
from pathlib import Path

from unnorm.files import write_atomically
from unnorm.graphs import Evidence, FittedGraph, Goodness
from unnorm.report.graph_figures import evidence_picture, goodness_picture, network_picture, trace_picture
from unnorm.report.graph_verdict import judge_graph
from unnorm.report.html import render, show
from unnorm.report.section import Section
from unnorm.report.tables import Row, Table
from unnorm.runs.graph_findings import trace_of
from unnorm.runs.graphs import GraphRun

#: How terms call the attribute that they read.
_ATTRIBUTED = ("nodematch", "nodefactor", "nodemix")


def write_graph_report(run: GraphRun, goodness: Goodness | None) -> Path:
    """Write `report.html` and `figures/` into the folder of the run, and say where the page is."""
    fitted = run.fitted
    sections = [
        coefficients_section(fitted),
        *([goodness_section(goodness)] if goodness is not None else []),
        *([evidence_section(fitted.evidence)] if fitted.evidence is not None else []),
        *network_sections(run),
        fitted_section(run),
        again_section(run),
    ]
    tiles = [("vertices", f"{run.network.n:,}"), ("edges", f"{len(run.network.edges):,}")]
    if fitted.outcome.ok:
        if fitted.log_likelihood.value == fitted.log_likelihood.value:
            tiles += [("log-likelihood", fitted.log_likelihood.number()), ("AIC", f"{fitted.aic:.2f}")]
        tiles.append(("coefficients learnt", str(fitted.parameters)))
    page = render(
        "run.html.j2",
        title=f"{run.settings.source}: {run.settings.terms}",
        verdict=judge_graph(fitted, goodness),
        tiles=tiles,
        warnings=() if fitted.outcome.ok else (fitted.outcome.message[:1].upper() + fitted.outcome.message[1:] + ".",),
        sections=[(part, [show(picture, run.path) for picture in part.figures]) for part in sections],
    )
    path = run.path / "report.html"
    write_atomically(path, page)
    return path


def coefficients_section(fitted: FittedGraph) -> Section:
    """The table, as it is printed."""
    if not fitted.outcome.ok:
        return Section("Coefficients", sentences=("There is no estimate.", fitted.outcome.advice), notes=fitted.notes)
    head, *rows = fitted.rows()
    facts = [("Fitted by", fitted.method)]
    if fitted.log_likelihood.value == fitted.log_likelihood.value:
        facts += [
            ("Log-likelihood", str(fitted.log_likelihood)),
            ("AIC, BIC", f"{fitted.aic:.2f}, {fitted.bic:.2f} (smaller is better)"),
        ]
    table = Table(("statistic", *head[1:]), tuple(Row(tuple(row)) for row in rows))
    stars = "*** p < 0.001, ** p < 0.01, * p < 0.05, . p < 0.1. The Monte Carlo share is that of the squared error."
    return Section("Coefficients", tables=(table,), facts=facts, notes=(stars, *fitted.notes))


def goodness_section(goodness: Goodness) -> Section:
    """Features of the network in the bands of the model."""
    rows = []
    for feature in goodness.features:
        low, _, high = feature.band
        for value, seen, a, b, p in zip(feature.values, feature.observed, low, high, feature.p_values, strict=True):
            cells = (f"{feature.name} {value}", f"{seen:,.5g}", f"{a:,.5g} to {b:,.5g}", f"{p:.2g}")
            rows.append(Row(cells, strong=not a <= seen <= b))
    table = Table(("feature", "observed", "95% of graphs drawn", "p-value"), tuple(rows))
    return Section(
        "Does it draw graphs like the network?",
        figures=(goodness_picture(goodness),),
        tables=(table,),
        folded="All counts; those outside of their band are bold",
    )


def evidence_section(evidence: Evidence) -> Section:
    """Why there is no estimate."""
    return Section("Why there is no estimate", sentences=(evidence.sentence,), figures=(evidence_picture(evidence),))


def network_sections(run: GraphRun) -> list[Section]:
    """Traces of graphs drawn, and the network beside the last of them."""
    attribute = next(
        (
            name
            for name in run.network.attributes
            for term in run.fitted.model.terms
            if term.word in _ATTRIBUTED and getattr(term, "name", None) == name
        ),
        None,
    )
    if not run.fitted.outcome.ok:
        seen = network_picture(run.network, None, attribute)
        return [] if seen is None else [Section("The network", figures=(seen,))]
    trace = trace_of(run)
    seen = network_picture(run.network, trace.edges, attribute)
    beside = [] if seen is None else [Section("The network beside a drawn graph", figures=(seen,))]
    return [*beside, Section("Draws", figures=(trace_picture(trace),))]


def fitted_section(run: GraphRun) -> Section:
    """What was fitted to what."""
    network, settings = run.network, run.settings
    known = ", ".join(network.attributes) or "none"
    facts = [
        ("Data", settings.source),
        ("Vertices", f"{network.n:,}, of which {_alone(run):,} have no edge"),
        (
            "Edges",
            f"{len(network.edges):,} {'with' if network.directed else 'without'} directions, {network.dyads:,} pairs",
        ),
        ("Attributes", known),
        ("Terms", settings.terms),
        *([] if settings.constraint is None else [("Compared with", f"graphs with the same {settings.constraint}")]),
        ("Seed", str(settings.seed)),
        *(("", remark) for remark in settings.remarks),
    ]
    return Section("What was fitted", facts=facts)


def _alone(run: GraphRun) -> int:
    return run.network.n - len(set(run.network.edges.ravel().tolist()))


def again_section(run: GraphRun) -> Section:
    """The command that makes the run again."""
    settings = run.settings
    words = ["unnorm", "fit", settings.source, "--model", "graph", "--terms", settings.terms]
    words += [] if settings.nodes is None else ["--nodes", settings.nodes]
    words += [] if settings.directed is None else ["--directed" if settings.directed else "--undirected"]
    for name, file in settings.covariates.items():
        words += ["--covariate", f"{name}={file}"]
    words += [] if settings.method == "auto" else ["--method", settings.method]
    words += [] if settings.constraint is None else ["--constraint", settings.constraint]
    words += ["--seed", str(settings.seed), "--out", f"{run.path.name}-again"]
    note = (
        f"The same release (unnorm {settings.unnorm}) and the same network give the same numbers; the settings are in "
        f"run.json, the SHA-256 of the network begins with {settings.fingerprint[:12]}."
    )
    return Section("Do it again", code=shlex.join(words), notes=(note,))
