"""Whether to believe the fit of a network, in words: does it have an estimate, and do its graphs look like the network?"""

from unnorm.graphs import FittedGraph
from unnorm.report.verdict import Verdict
from unnorm.runs.graph_findings import Evidence
from unnorm.runs.graph_goodness import Goodness

#: Below this a feature of the network is not one that the model draws.
DOUBTFUL = 0.05
#: Monte Carlo may add so much to the square of a standard error before it is mentioned.
SHARE = 0.01


def judge_graph(fitted: FittedGraph, goodness: Goodness | None, evidence: Evidence | None = None) -> Verdict:
    """The headline, what to add to it, and whether it is good news."""
    if not fitted.outcome.ok:
        told = (evidence.sentence,) if evidence is not None else (fitted.outcome.message.capitalize() + ".",)
        return Verdict(
            "Do not use this model: it is degenerate and has no estimate.", (*told, fitted.outcome.advice), "bad"
        )
    details = [_errors(fitted)]
    infinite = [row.name for row in fitted.coefficients if row.kind == "infinite"]
    if infinite:
        details.append(f"The estimate of {_and(infinite)} is infinite; its one-sided interval is in the table.")
    if goodness is None:
        return Verdict(
            "Fitted; how well is not known yet: unnorm evaluate compares its graphs with the network.",
            tuple(details),
            "open",
        )
    level = DOUBTFUL / len(goodness.panels)
    odd = [panel for panel in goodness.panels if panel.p_value < level]
    if odd:
        told = _and([f"{panel.name} (p {_p(panel.p_value, goodness.graphs)})" for panel in odd])
        details.append(
            "Its coefficients describe the network less than their errors suggest; another term may mend it."
        )
        return Verdict(
            f"Believe it with care: the network is unlike graphs drawn from the model in {told}.",
            tuple(details),
            "open",
        )
    least = min(goodness.panels, key=lambda panel: panel.p_value)
    details.append(
        f"Of {_and([panel.name for panel in goodness.panels])}, {least.name} is the least alike: "
        f"p = {least.p_value:.2g} over {goodness.graphs} graphs."
    )
    return Verdict(
        "Believe it as far as this shows: graphs drawn from the model look like the network.", tuple(details), "good"
    )


def _errors(fitted: FittedGraph) -> str:
    share = max((row.monte_carlo_share for row in fitted.coefficients), default=0.0)
    if "pseudo" in fitted.method:
        return "It maximises the pseudo-likelihood, which is rougher than the likelihood; its errors were simulated."
    if share == 0:
        return "The estimate is exact."
    if share < SHARE:
        return f"Monte Carlo adds at most {100 * share:.2g}% to the square of a standard error, which is nothing."
    return f"Monte Carlo adds {100 * share:.2g}% to the square of a standard error: another seed gives other digits."


def _p(p: float, graphs: int) -> str:
    return f"< {1 / graphs:.2g}" if p <= 1 / graphs else f"= {p:.2g}"


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def in_a_sentence(verdict: Verdict) -> str:
    """The verdict as one paragraph."""
    return " ".join((verdict.headline, *verdict.details))
