"""What a report says of each finding: a section, and the figures that stand at its top."""

from collections.abc import Mapping
from functools import singledispatch

from unnorm.data.tabular import TableSchema
from unnorm.estimate import Estimate
from unnorm.report import curves, draws
from unnorm.report.section import Section, Subject
from unnorm.report.tables import Row, Table
from unnorm.report.verdict import PAIRED, gains, plural
from unnorm.runs import Prepared
from unnorm.runs.diffusions import Fidelity, FlowLikelihood
from unnorm.runs.findings import AbstractDraws, AbstractFinding, Discrepancy, Likelihood, LogZ, ModeWeights
from unnorm.runs.picture_features import FeatureFidelity


@singledispatch
def section_of(finding: AbstractFinding, subject: Subject) -> Section | None:
    """The section of a finding; None where another one tells of it."""
    return None


@singledispatch
def tiles_of(finding: AbstractFinding) -> list[tuple[str, str]]:
    """The figures of a finding that stand at the top of the page, by name."""
    return []


@section_of.register
def _(finding: LogZ, subject: Subject) -> Section | None:
    if subject.assessment.find(Likelihood) is not None:
        return None
    return Section("log Z", sentences=(f"log Z = {finding.estimate}. {finding.estimate.why}".strip(),))


@section_of.register
def _(finding: Likelihood, subject: Subject) -> Section:
    differences = gains(subject.model, subject.prepared, subject.assessment, subject.references)
    return Section(
        "Log-likelihood of held-out rows",
        tables=(_likelihood_table(finding, differences),),
        figures=(curves.likelihoods({"this model": finding.model}, finding.baselines, finding.truth),),
        notes=(_likelihood_note(subject, differences),),
    )


@tiles_of.register
def _(finding: Likelihood) -> list[tuple[str, str]]:
    found = [("Log-likelihood, nats per row", finding.model.number())]
    return found if finding.truth is None else [*found, ("Log-likelihood of the truth", finding.truth.number())]


@section_of.register
def _(finding: ModeWeights, subject: Subject) -> Section | None:
    if not finding.pairs:
        return None
    table = _weights_table(finding, subject.prepared)
    few = len(table.rows) <= 10
    return Section(
        "Weights of the modes",
        figures=(curves.mode_weights(finding.pairs),),
        tables=(table,),
        beside=few,
        folded="" if few else f"All {len(table.rows)} modes",
    )


@tiles_of.register
def _(finding: ModeWeights) -> list[tuple[str, str]]:
    if not finding.pairs:
        return []
    worst = max(finding.pairs, key=lambda pair: abs(pair[1].value - pair[0]))
    return [(f"Worst mode weight (true {worst[0]:.3g})", worst[1].number())]


@tiles_of.register
def _(finding: Discrepancy) -> list[tuple[str, str]]:
    return [("MMD² to held-out rows", finding.mmd.number())]


@section_of.register
def _(finding: AbstractDraws, subject: Subject) -> Section:
    found = draws.distances(subject.prepared, finding)
    table = draws.table(finding, subject.assessment.find(Discrepancy), found)
    return Section(
        "Draws and whether to trust them",
        sentences=(draws.words(finding.sampled),),
        tables=(table,) if table.rows else (),
        figures=tuple(draws.pictures(subject.prepared, finding, found)),
    )


@tiles_of.register
def _(finding: AbstractDraws) -> list[tuple[str, str]]:
    return [draws.tile(finding.sampled)]


@section_of.register
def _(finding: FlowLikelihood, subject: Subject) -> Section:
    rows = [
        Row(("by the probability flow", finding.flow.number(), _number(finding.bits)), strong=True),
        Row(("bound of the reverse process", finding.bound.number(), _number(finding.bits_bound))),
    ]
    asked = finding.flow.diagnostics.get("evaluations", 0.0)
    return Section(
        "Log-likelihood of held-out rows",
        tables=(Table(("", "log-likelihood, nats per row", "bits per dimension"), tuple(rows)),),
        notes=(
            f"Of {plural(finding.rows, 'held-out row')}, in the data's own units. The flow asked the network "
            f"{asked:.0f} times a row. The bound is below the likelihood of the reverse process, a model of its own, "
            "and need not be below that of the flow."
            + (" Values were spread over their step, so that bits bound those of the values from above."
               if finding.bits is not None else ""),
        ),
    )  # fmt: skip


@tiles_of.register
def _(finding: FlowLikelihood) -> list[tuple[str, str]]:
    if finding.bits is not None:
        return [("Bits per dimension", finding.bits.number())]
    return [("Log-likelihood, nats per row", finding.flow.number())]


def _number(value: Estimate | None) -> str:
    return "" if value is None else value.number()


@section_of.register
def _(finding: Fidelity, subject: Subject) -> Section:
    rows = (
        Row(("draws", finding.draws.number(), f"{finding.draws.diagnostics['floor']:.2f}"), strong=True),
        Row(("as many training pictures", finding.train.number(), f"{finding.train.diagnostics['floor']:.2f}")),
    )
    return Section(
        "How near draws are to held-out pictures",
        tables=(Table(("", "Frechet distance of pixels", "floor"), rows),),
        notes=(
            "The floor is what two samples of these sizes from one law would have. These are distances of pixels, "
            "and no published FID, which is one of features of a certain network. The median draw is "
            f"{finding.nearness:.2f} times as far from its nearest training picture as the median held-out picture is "
            "(far below 1: copies).",
        ),
    )


@tiles_of.register
def _(finding: Fidelity) -> list[tuple[str, str]]:
    return [("Frechet distance of pixels", finding.draws.number())]


@section_of.register
def _(finding: FeatureFidelity, subject: Subject) -> Section:
    rows = tuple(Row((name, own.number(), ideal.number())) for name, own, ideal in finding.table())
    return Section(
        "How draws look to a classifier of their labels",
        tables=(Table(("", "draws", "halves of the held-out pictures"), rows),),
        notes=(
            f"The classifier, which was trained here, names {finding.figures.accuracy.number()} of held-out pictures "
            "right. The last column is what a perfect model would have, about. None of these is a published figure, "
            "which is one of another network's features.",
        ),
    )


def _likelihood_table(finding: Likelihood, differences: Mapping[str, Estimate]) -> Table:
    rows = [Row(("this model", finding.model.number(), ""), strong=True)]
    others = dict(finding.baselines)
    if finding.truth is not None:
        others["truth"] = finding.truth
    rows += [Row((name, value.number(), differences[name].number())) for name, value in others.items()]
    return Table(("", "log-likelihood, nats per row", "this model is above it by"), tuple(rows))


def _likelihood_note(subject: Subject, differences: Mapping[str, Estimate]) -> str:
    paired = [name for name, value in differences.items() if value.method == PAIRED]
    if len(paired) == len(differences):
        errors = "Errors of differences are paired: taken row by row, with that of log Z added."
    elif paired:
        errors = (
            f"The error of the difference to {' and '.join(paired)} is paired (row by row, with that of log Z added); "
            "the others combine both errors as if they were independent, which overstates them."
        )
    else:
        errors = "Errors of differences are combined as if they were independent, which overstates them."
    chosen = ""
    if any(name.startswith("mixture") for name in differences):
        chosen = f"The size of the mixture was chosen by {plural(subject.prepared.sizes[1], 'validation row')}. "
    log_z = subject.assessment.find(LogZ)
    said = "" if log_z is None else f"log Z = {log_z.estimate}. "
    return f"In the data's own units. {chosen}{said}{errors}{_of_grid(subject.prepared)}"


def _of_grid(prepared: Prepared) -> str:
    """What a density is worth where values were recorded in steps."""
    if not isinstance(prepared.schema, TableSchema):
        return ""
    count = sum(places is not None for places in prepared.schema.decimals)
    if not count:
        return ""
    return (
        f" {count} of {len(prepared.columns)} columns were recorded in steps (whole numbers, or a fixed number of "
        "decimals), and are taken for continuous here: nats depend on the step, so compare models of this table only."
    )


def _weights_table(finding: ModeWeights, prepared: Prepared) -> Table:
    facts = prepared.problem.facts if prepared.problem is not None else {}
    centres = facts.get("mode_centres")
    where = [""] * len(finding.pairs)
    if isinstance(centres, tuple) and len(prepared.columns) <= 3:
        where = [str(centre) for centre in centres]
    rows = [
        Row((f"{i} {place}".strip(), f"{truth:.4g}", learnt.number(), f"{learnt.value - truth:+.4f}"))
        for i, ((truth, learnt), place) in enumerate(zip(finding.pairs, where, strict=True), 1)
    ]
    return Table(("mode", "true", "learnt", "difference"), tuple(rows))
