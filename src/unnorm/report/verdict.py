"""What the numbers say, in words: does the model beat what is simple, and how far is it from the truth?

Log-likelihoods of two models on the same rows err together: a row that is unlikely for one is unlikely for both. So
the error of a difference is that of the mean of row-by-row differences (paired), to which log Z adds its own. Without
the rows' own values the errors are combined as if independent, which overstates them; the words say which was done.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unnorm.energies import AbstractEnergy, fit_gaussian
from unnorm.estimate import Estimate, Outcome, mean_estimate
from unnorm.evaluation import energies
from unnorm.runs import Assessment, Prepared
from unnorm.runs.assess import in_unit_coordinates
from unnorm.runs.findings import Likelihood, LogZ
from unnorm.runs.prepare import points_of
from unnorm.runs.references import References

PAIRED = "paired over rows"
COMBINED = "errors combined as if independent"


@dataclass(frozen=True)
class Verdict:
    """A headline, what to add to it, and whether it is "good", "open" or "bad" news."""

    headline: str
    details: tuple[str, ...]
    tone: str


def gains(model: Any, prepared: Prepared, assessment: Assessment, references: References | None) -> dict[str, Estimate]:
    """How many nats per row the model is above each baseline and the truth; negative where it is below.

    Differences are paired where the other density is at hand and the assessment was made on the run's own test rows.
    """
    likelihood = assessment.find(Likelihood)
    if likelihood is None:
        return {}
    at_hand: dict[str, AbstractEnergy] = {} if references is None else dict(references.baselines)
    if references is None and "one Gaussian" in likelihood.baselines:
        at_hand["one Gaussian"] = fit_gaussian(prepared.train)
    volume = prepared.schema.log_volume
    found = {
        name: _gain(model, prepared, assessment, value, at_hand.get(name), volume)
        for name, value in likelihood.baselines.items()
    }
    problem = prepared.problem
    if likelihood.truth is not None and problem is not None and problem.truth is not None:
        truth = in_unit_coordinates(problem.truth, prepared)
        found["truth"] = _gain(model, prepared, assessment, likelihood.truth, truth, 0.0)
    return found


def _gain(
    model: AbstractEnergy,
    prepared: Prepared,
    assessment: Assessment,
    value: Estimate,
    density: AbstractEnergy | None,
    log_volume: float,
) -> Estimate:
    combined = assessment.log_likelihood.minus(value)
    combined = Estimate(combined.value, combined.stderr, COMBINED)
    if density is None or not math.isfinite(combined.value):
        return combined
    rows = points_of(prepared.test)
    pairs = energies(density, rows) - energies(model, rows)
    apart = mean_estimate(pairs, PAIRED, prepared.test_together).minus(assessment.log_z)
    difference = apart.value - prepared.schema.log_volume + log_volume
    # Other rows than those of the assessment give another mean: their spread would be the error of something else.
    if abs(difference - combined.value) > 1e-3 * max(1.0, combined.stderr, abs(combined.value)):
        return combined
    return Estimate(combined.value, apart.stderr, PAIRED)


def in_words(name: str) -> str:
    """A baseline as the object of a sentence."""
    count = name.removeprefix("mixture of ")
    if count == name:
        return name
    return f"the best Gaussian mixture ({count} component{'s' * (count != '1')})"


def size(estimate: Estimate) -> str:
    """The absolute value with its error."""
    return Estimate(abs(estimate.value), estimate.stderr, estimate.method).number()


def sign_of(estimate: Estimate) -> int:
    """1 or -1 when the 95% interval lies on one side of zero, else 0."""
    low, high = estimate.interval()
    return int(np.sign(low)) if math.isfinite(low) and math.isfinite(high) and low * high > 0 else 0


def judge(assessment: Assessment, outcome: Outcome, differences: Mapping[str, Estimate]) -> Verdict:
    """The verdict of a run."""
    if not outcome.ok:
        return Verdict(
            "Training diverged: do not use this model.",
            (f"At step {outcome.step} {outcome.message}. {outcome.advice}".strip(),),
            "bad",
        )
    likelihood = assessment.find(Likelihood)
    if likelihood is None:
        return Verdict("The model was fitted; no likelihood of it is known.", (_instead(assessment),), "open")
    if not math.isfinite(likelihood.model.value):
        words = f"The log-likelihood of held-out rows came out as {likelihood.model.value}: it is not known."
        return Verdict("It cannot be said how good the model is.", (words,), "bad")
    best = max(likelihood.baselines, key=lambda name: likelihood.baselines[name].value, default=None)
    details = []
    headline, tone = f"The model reaches {likelihood.model.number()} nats per row.", "open"
    if best is not None:
        gain, other = differences[best], in_words(best)
        side = sign_of(gain)
        headline = {
            1: f"The model beats {other} by {size(gain)} nats per row.",
            0: f"The model does not beat {other}: the difference of {gain.number()} nats per row may be chance.",
            -1: f"The model does not beat {other}: it is worse by {size(gain)} nats per row.",
        }[side]
        tone = {1: "good", 0: "open", -1: "bad"}[side]
        details.append(f"± is one standard error ({gain.method}).")
    if "truth" in differences:
        details.append(_against_truth(differences["truth"]))
    if any(found.estimate.warnings for found in assessment.all(LogZ)):
        tone = "open" if tone == "good" else tone
        details.append("All this rests on a log Z that is itself in doubt: see the warnings.")
    return Verdict(headline, tuple(details), tone)


def _instead(assessment: Assessment) -> str:
    """What there is to judge a model by that has no likelihood."""
    if not assessment:
        return "Nothing on this page judges it yet; its training is shown below."
    return "Judge it by its draws below."


def _against_truth(gap: Estimate) -> str:
    side = sign_of(gap)
    if side < 0:
        return f"It falls short of the true density by {size(gap)} nats per row."
    if side == 0:
        return f"It cannot be told from the true density on these rows ({gap.number()} nats per row)."
    return (
        f"It is above the true density by {size(gap)} nats per row, which no model is on average: "
        "suspect the estimate of log Z, or the luck of these rows."
    )


def plural(count: int, word: str) -> str:
    """3 rows, 1 row."""
    return f"{count:,} {word}{'s' * (count != 1)}"
