"""Whether to believe the fit of a network, in words: has it an estimate, and do its graphs look like the network?"""

from unnorm.graphs import FittedGraph, Goodness
from unnorm.report.verdict import Verdict

#: Monte Carlo may add so much to the square of a standard error before it is mentioned.
SHARE = 0.01


def judge_graph(fitted: FittedGraph, goodness: Goodness | None) -> Verdict:
    """The headline, what to add to it, and whether it is good news."""
    if not fitted.outcome.ok:
        shown, message = fitted.evidence, fitted.outcome.message
        told = (shown.sentence if shown is not None else f"{message[:1].upper()}{message[1:]}.",)
        return Verdict(
            "Do not use this model: it is degenerate and has no estimate.", (*told, fitted.outcome.advice), "bad"
        )
    details = [_errors(fitted)]
    infinite = [row.name for row in fitted.coefficients if row.kind == "infinite"]
    if infinite:
        details += [f"The estimate of {name} is infinite; its one-sided interval is in the table." for name in infinite]
    if infinite and not fitted.parameters:
        details[0] = "There is no finite estimate, and so no graph to compare with but the network itself."
        return Verdict("There is nothing to learn: the network is at an end of what it can be.", tuple(details), "open")
    if goodness is None:
        return Verdict(
            "Fitted; how well is not known yet: unnorm evaluate compares its graphs with the network.",
            tuple(details),
            "open",
        )
    if goodness.unlike:
        told = _and([f"{feature.name} (p {_p(feature.p_value, goodness.draws)})" for feature in goodness.unlike])
        details.append(
            "Its coefficients describe the network less than their errors suggest; another term may mend it."
        )
        return Verdict(
            f"Believe it with care: the network is unlike graphs drawn from the model in {told}.",
            tuple(details),
            "open",
        )
    shown = goodness.features[1:]
    least = min(shown, key=lambda feature: feature.p_value)
    details.append(
        f"Of {_and([feature.name for feature in shown])}, {least.name} is the least alike: "
        f"p = {least.p_value:.2g} over {goodness.draws} graphs."
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


def _p(p: float, draws: int) -> str:
    return f"< {1 / draws:.1g}" if p < 1 / draws else f"= {p:.2g}"


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def in_a_sentence(verdict: Verdict) -> str:
    """The verdict as one paragraph."""
    return " ".join((verdict.headline, *verdict.details))
