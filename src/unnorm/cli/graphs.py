"""The commands as they are for a network: fit, sample, evaluate, report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unnorm.cli.output import emit_json, note, require_new
from unnorm.data.network_writing import edges_text, network_bytes, require_network_format, write_networks
from unnorm.errors import InputError, require
from unnorm.files import write_atomically
from unnorm.graphs import Goodness
from unnorm.graphs.constraints import CONSTRAINTS
from unnorm.graphs.estimation import METHODS
from unnorm.report.graph_verdict import in_a_sentence, judge_graph
from unnorm.report.graphs import write_graph_report
from unnorm.report.verdict import Verdict
from unnorm.runs.graph_data import USUAL, is_network, prepare_graph
from unnorm.runs.graph_findings import goodness_of, trace_of
from unnorm.runs.graphs import GraphRun, graph_settings
from unnorm.runs.stages import Stages


def wants_graph(data: str, model: str | None, kind: str | None, asked: Mapping[str, Any]) -> bool:
    """Whether a fit is that of a network: said by --model or --kind, by an option of networks, or by the data."""
    said = "graph" in (model, kind)
    given = [option for option, value in asked.items() if value is not None]
    if not said and not given and not is_network(data):
        return False
    require(
        model in (None, "graph"),
        f"{given[0] if given else data} is for a network, and --model {model} for rows; the model of a network is "
        "graph, with --terms",
    )
    require(kind in (None, "graph"), f"--kind {kind} is for rows; {given[0] if given else data} is for a network")
    return True


def refuse_others(options: Mapping[str, Any], what: str) -> None:
    """Refuse options that say nothing about a network."""
    given = [option for option, value in options.items() if value not in (None, False, [], ())]
    require(not given, f"{given[0] if given else ''} does not apply to {what}")


def parse_covariates(given: Sequence[str]) -> dict[str, str]:
    """`["distance=km.csv"]` to `{"distance": "km.csv"}`."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, file = text.partition("=")
        require(bool(equals and name and file), f"--covariate {text} is not understood; write it as NAME=FILE")
        require(name not in found, f"--covariate names {name} twice")
        found[name] = file
    return found


def fit_graph_command(
    data: str,
    terms: str | None,
    nodes: str | None,
    directed: bool | None,
    covariates: Sequence[str],
    method: str | None,
    constraint: str | None,
    out: Path | None,
    *,
    resume: bool,
    report: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit a network, print its table, and say whether to believe it."""
    require(method is None or method in METHODS, f"--method {method}: the methods are {', '.join(METHODS)}")
    require(
        constraint is None or constraint in CONSTRAINTS,
        f"--constraint {constraint}: the constraints are {', '.join(CONSTRAINTS)}",
    )
    prepared = prepare_graph(data, nodes=nodes, directed=directed, covariates=parse_covariates(covariates))
    usual = USUAL[prepared.network.directed]
    settings = graph_settings(prepared, terms, usual, method=method or "auto", constraint=constraint, seed=seed)
    path = out or Path(f"{Path(data).stem}-graph")
    begun = (path / "run.json").exists()
    run = GraphRun.create_or_resume(path, settings, prepared, resume=resume)
    network = prepared.network
    kind = "with directions" if network.directed else "without directions"
    note(
        f"A network of {network.n:,} vertices and {len(network.edges):,} edge{'s' * (len(network.edges) != 1)} {kind}; "
        f"terms {settings.terms}; saved in {path}",
        quiet=quiet,
    )
    for remark in settings.remarks:
        note(remark, quiet=quiet)
    stages = Stages(3 if report else 1, show=not quiet)
    try:
        with stages("the coefficients"):
            fitted = run.learn()
    except InputError:
        if not begun:
            run.discard()
        raise
    goodness = found_out(run, stages) if report else None
    verdict = judge_graph(fitted, goodness)
    content = content_of(run, goodness, verdict)
    page = None
    if report:
        with stages("the report"):
            page = write_graph_report(run, goodness)
        content["report"] = str(page)
    run.write_json("result.json", content)
    if as_json:
        emit_json(content)
    else:
        # Of a degenerate model the verdict says all that the table would.
        print(fitted if fitted.outcome.ok else "\n".join(str(fitted).splitlines()[:2]))
        print(f"\n{in_a_sentence(verdict)}")
        print(f"Saved in {path}" if page is None else f"Report: {page}")
    require(
        fitted.outcome.ok, "no estimate: the model is degenerate, as said above; use the terms that are advised there"
    )


def found_out(run: GraphRun, stages: Stages) -> Goodness | None:
    """How graphs drawn compare with the network; None where there is no estimate to draw at."""
    if not run.fitted.outcome.ok:
        return None
    with stages("graphs drawn beside the network"):
        trace_of(run)
        return goodness_of(run)


def content_of(run: GraphRun, goodness: Goodness | None, verdict: Verdict) -> dict[str, Any]:
    """All that is known, for JSON."""
    content = {
        "run": str(run.path),
        "source": run.settings.source,
        "remarks": list(run.settings.remarks),
        **run.fitted.to_dict(),
        "verdict": {"headline": verdict.headline, "details": list(verdict.details), "tone": verdict.tone},
    }
    if goodness is not None:
        content["goodness"] = goodness.to_dict()
    return content


def sample_graph_command(
    path: Path, n: int, out: Path | None, force: bool, seed: int, as_json: bool, quiet: bool
) -> None:
    """n graphs: in one file, in a folder with a file for each, or as lines of edges on stdout."""
    folder = out if out is not None and not out.suffix else None
    if folder is not None:
        require(
            force or not folder.exists() or (folder.is_dir() and not any(folder.iterdir())),
            f"{folder} already exists and is not empty; choose another folder or add --force",
        )
    elif out is not None:
        require_network_format(out, n)
        require_new(out, force=force)
    run = GraphRun.open(path)
    require(
        run.fitted.outcome.ok, f"there is nothing to draw from: the model of {path} is degenerate and has no estimate"
    )
    graphs = run.fitted.simulate(n, key=seed)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        width = len(str(n))
        for number, graph in enumerate(graphs, 1):
            write_atomically(folder / f"graph-{number:0{width}d}.graphml", network_bytes([graph], ".graphml"))
    elif out is not None:
        write_networks(graphs, out)
    if out is not None:
        note(f"{n} graph{'s' * (n > 1)} in {out}", quiet=quiet)
    if as_json:
        drawn = None if out is not None else [[list(edge) for edge in graph.edges()] for graph in graphs]
        emit_json({"n": n, "out": None if out is None else str(out), "edges": drawn})
    elif out is None:
        print(edges_text(graphs), end="")


def evaluate_graph_command(path: Path, as_json: bool, quiet: bool) -> None:
    """Goodness of fit: what the network has, and what graphs drawn from the model have."""
    run = GraphRun.open(path)
    goodness = found_out(run, Stages(1, show=not quiet))
    verdict = judge_graph(run.fitted, goodness)
    if as_json:
        emit_json(content_of(run, goodness, verdict))
        return
    if goodness is not None:
        print(f"{goodness}\n")
    print(in_a_sentence(verdict))


def report_graph_command(path: Path, as_json: bool, quiet: bool) -> None:
    """Write report.html of the run of a network again."""
    run = GraphRun.open(path)
    goodness = found_out(run, Stages(1, show=not quiet))
    page = write_graph_report(run, goodness)
    emit_json({"report": str(page)}) if as_json else print(f"Report: {page}")
