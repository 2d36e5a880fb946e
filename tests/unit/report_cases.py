"""Tiny runs, and everything their reports are made from."""

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np

from unnorm.energies import AbstractEnergy, fit_gaussian
from unnorm.estimate import Estimate, Outcome, OutcomeCode
from unnorm.evaluation import defensive, log_likelihood, log_partition, mmd
from unnorm.report import write_report
from unnorm.runs import Assessment, Named, Prepared, RunSettings, Training, prepare, settings_of
from unnorm.runs.assess import in_unit_coordinates
from unnorm.runs.build import train
from unnorm.runs.findings import Chains, Discrepancy, Likelihood, LogZ, ModeWeights
from unnorm.runs.references import References
from unnorm.samplers import HMC, Trace
from unnorm.training import Fit

EXACT = Estimate(0.0, 0.0, "known exactly")
EVENT = "The loss stopped being finite at step 7: rolled back & halved <the rate>."
WARNING = "Chains have not mixed: R-hat is 9.999 in coordinate 0."
ODD = "<b>x</b>"
DONE = Outcome(OutcomeCode.COMPLETED, 30, "all steps were taken")


@dataclass(frozen=True, eq=False)
class Case:
    """A tiny run, and everything its report is made from."""

    path: Path
    settings: RunSettings
    prepared: Prepared
    fit: Fit[AbstractEnergy]
    references: References
    assessment: Assessment

    def write(self, **changes: object) -> str:
        arguments = {
            "history": self.fit.history,
            "outcome": self.fit.outcome,
            "events": (EVENT,),
            "model": self.fit.model,
            "assessment": self.assessment,
            "seconds": 75.0,
            "references": self.references,
            **changes,
        }
        return write_report(self.path, self.settings, self.prepared, **arguments).read_text()  # pyright: ignore


def assessment_of(
    model: AbstractEnergy, prepared: Prepared, references: References, weights: bool = False
) -> Assessment:
    """What `assess` finds, from fewer draws and without a chain."""
    key = jax.random.key(0)
    volume = prepared.schema.log_volume
    log_z = log_partition(model, base=references.proposal, draws=5000, key=key)
    truth = prepared.problem.truth if prepared.problem is not None else None
    draws = np.asarray(references.proposal.samples(8 * 30, key=key))
    return Assessment.of(
        LogZ(log_z),
        Likelihood(
            log_likelihood(model, prepared.test, log_z, log_volume=volume),
            {
                name: log_likelihood(density, prepared.test, EXACT, log_volume=volume)
                for name, density in references.baselines.items()
            },
            None if truth is None else log_likelihood(in_unit_coordinates(truth, prepared), prepared.test, EXACT),
        ),
        ModeWeights(
            ((0.8, Estimate(0.7512, 0.0123, "test")), (0.2, Estimate(0.2488, 0.0123, "test"))) if weights else ()
        ),
        Discrepancy(mmd(draws, prepared.test[:100])),
        Chains(Warned(draws.reshape(8, 30, -1), np.full(8, 0.9), 3, HMC())),
    )


class Warned(Trace):
    """Draws of which one known thing is wrong."""

    @property
    def warnings(self) -> tuple[str, ...]:
        return (WARNING,)


def with_likelihood(assessment: Assessment, **changes: object) -> Assessment:
    """The same with another likelihood."""
    return assessment.replacing(replace(assessment.the(Likelihood), **changes))  # pyright: ignore


def case_of(path: Path, prepared: Prepared, weights: bool = False) -> Case:
    settings = settings_of(
        prepared,
        Named(name="mlp", options={"width": 8, "depth": 1}),
        Named(name="cnce-local"),
        Training(steps=30, batch=32, evaluations=15),
        seed=0,
    )
    fit = train(settings, prepared, progress=False)
    gaussian = fit_gaussian(prepared.train)
    mixture = defensive(gaussian, prepared.train)
    references = References({"one Gaussian": gaussian, "mixture of 2": mixture}, mixture)
    path.mkdir(exist_ok=True)
    return Case(path, settings, prepared, fit, references, assessment_of(fit.model, prepared, references, weights))


def table(folder: Path, name: str, columns: tuple[str, ...]) -> Prepared:
    """A table whose columns have very different units."""
    file = folder / f"{name}.csv"
    scales = np.array([1e3, 0.01, 1.0])[: len(columns)]
    values = np.random.default_rng(0).normal(size=(300, len(columns))) * scales
    with open(file, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows((values + 7.0).tolist())
    return prepare(str(file), 0)
