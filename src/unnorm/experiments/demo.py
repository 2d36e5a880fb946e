"""Yu et al. 2025, Figure 1: two modes with unequal weights and a gap between them; which objective finds the weights?

The same network is trained twice on the same rows. Denoising score matching sees only slopes, and no slope crosses the
gap: it learns each mode's shape, but not how much each weighs. Conditional NCE with jumps compares points across it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unnorm.energies import AbstractEnergy
from unnorm.estimate import Estimate
from unnorm.runs.assess import assess
from unnorm.runs.build import train
from unnorm.runs.findings import Assessment
from unnorm.runs.prepare import Prepared, prepare
from unnorm.runs.references import references_of
from unnorm.runs.settings import Named, Training, settings_of
from unnorm.training import Fit

STEPS = 2000
OBJECTIVES = ("dsm", "cnce")
#: A weight is found when it is this close to the truth.
TOLERANCE = 0.03


@dataclass(frozen=True, eq=False)
class Demo:
    """Two fits of one network, and what they found."""

    prepared: Prepared
    fits: Mapping[str, Fit[AbstractEnergy]]
    assessments: Mapping[str, Assessment]

    def weight_error(self, name: str) -> Estimate:
        """How far the learnt weight of the first mode is from the truth."""
        truth, learnt = self.assessments[name].weights[0]
        return Estimate(abs(learnt.value - truth), learnt.stderr, learnt.method)

    def shortfall(self, name: str) -> float:
        """Nats per row below the true density, on the same rows."""
        assessment = self.assessments[name]
        assert assessment.truth is not None
        return assessment.truth.value - assessment.log_likelihood.value

    @property
    def verdict(self) -> str:
        """The answer in words, from the figures themselves."""
        sentences = []
        for name, assessment in self.assessments.items():
            truth, learnt = assessment.weights[0]
            error = self.weight_error(name)
            right = error.value <= TOLERANCE
            sentences.append(
                f"{name.upper()} {'finds' if right else 'misses'} the weights: it puts {learnt.number()} on the mode "
                f"of weight {truth:.2f}, and its log-likelihood is {self.shortfall(name):.3f} nats per row "
                f"{'below' if self.shortfall(name) >= 0 else 'above'} the true density's."
            )
        best = min(self.fits, key=lambda name: self.weight_error(name).value)
        found = self.weight_error(best).value <= TOLERANCE
        sentences.append(
            f"To know how much each mode weighs, train with {best.upper()}."
            if found
            else "Neither finds how much each mode weighs; train for more steps."
        )
        return " ".join(sentences)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "problem": "bimodal",
            "objectives": {name: self._figures(name) for name in self.fits},
            "verdict": self.verdict,
        }

    def _figures(self, name: str) -> dict[str, Any]:
        assessment, fitted = self.assessments[name], self.fits[name]
        assert assessment.truth is not None
        return {
            "weights": {
                "value": [learnt.value for _, learnt in assessment.weights],
                "stderr": [learnt.stderr for _, learnt in assessment.weights],
                "truth": [truth for truth, _ in assessment.weights],
            },
            "log_likelihood": assessment.log_likelihood.to_dict(),
            "true_log_likelihood": assessment.truth.to_dict(),
            "log_z": assessment.log_z.to_dict(),
            "outcome": fitted.outcome.to_dict(),
            "seconds": fitted.seconds,
        }


def run_demo(*, seed: int = 0, steps: int = STEPS, progress: bool = True) -> Demo:
    """Train by each objective and judge the results on held-out rows."""
    prepared = prepare("bimodal", seed)
    references = references_of(prepared, seed=seed)
    fits, assessments = {}, {}
    for name in OBJECTIVES:
        settings = settings_of(prepared, Named(name="mlp"), Named(name=name), Training(steps=steps), seed)
        fits[name] = train(settings, prepared, progress=progress)
        assessments[name] = assess(fits[name].model, prepared, references=references, seed=seed, progress=progress)
    return Demo(prepared, fits, assessments)
