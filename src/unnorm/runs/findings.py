"""What can be found out about a model, each finding by itself: plain data and arrays, saved and read back.

An `Assessment` is an ordered set of findings. Which are made depends on what the model and its space can do
(`runs.assess`); a report has a section for each.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import jax
import numpy as np

from unnorm.data.kinds import count_of, taken
from unnorm.errors import require
from unnorm.estimate import Estimate
from unnorm.runs.diffusions import Fidelity, FlowLikelihood, Generated
from unnorm.runs.finding import THINNED as THINNED
from unnorm.runs.finding import AbstractDraws as AbstractDraws
from unnorm.runs.finding import AbstractFinding as AbstractFinding
from unnorm.runs.finding import AbstractPlainFinding as AbstractPlainFinding
from unnorm.runs.finding import Arrays
from unnorm.runs.picture_features import FeatureFidelity
from unnorm.runs.trees import named_arrays, tree_of
from unnorm.runs.walks import chains_of
from unnorm.samplers import Resampled, Trace
from unnorm.spaces import AbstractSpace


@dataclass(frozen=True, eq=False)
class LogZ(AbstractFinding):
    """log Z of the model."""

    name: ClassVar[str] = "log_z"
    estimate: Estimate

    def fields(self) -> dict[str, Any]:
        return {"log_z": self.estimate.to_dict()}

    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.estimate.warnings

    @classmethod
    def restored(cls, fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "LogZ":
        return LogZ(Estimate.from_dict(fields["log_z"]))


@dataclass(frozen=True, eq=False)
class Likelihood(AbstractPlainFinding):
    """Log-likelihood of held-out rows, in nats per row of the data's own units; of the model, baselines, the truth."""

    name: ClassVar[str] = "likelihood"
    model: Estimate
    baselines: Mapping[str, Estimate]
    truth: Estimate | None = None

    def fields(self) -> dict[str, Any]:
        return {
            "log_likelihood": self.model.to_dict(),
            "baselines": {name: value.to_dict() for name, value in self.baselines.items()},
            "true_log_likelihood": None if self.truth is None else self.truth.to_dict(),
        }

    @classmethod
    def restored(cls, fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "Likelihood":
        truth = fields["true_log_likelihood"]
        return Likelihood(
            Estimate.from_dict(fields["log_likelihood"]),
            {name: Estimate.from_dict(value) for name, value in fields["baselines"].items()},
            None if truth is None else Estimate.from_dict(truth),
        )


@dataclass(frozen=True, eq=False)
class ModeWeights(AbstractPlainFinding):
    """The true weight of every mode, and the mass that the model puts nearest to it; empty where no modes are known."""

    name: ClassVar[str] = "weights"
    pairs: tuple[tuple[float, Estimate], ...]

    def fields(self) -> dict[str, Any]:
        return {"weights": [{"truth": truth, **value.to_dict()} for truth, value in self.pairs]}

    @classmethod
    def restored(cls, fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "ModeWeights":
        return ModeWeights(tuple((value["truth"], Estimate.from_dict(value)) for value in fields["weights"]))


@dataclass(frozen=True, eq=False)
class Discrepancy(AbstractPlainFinding):
    """How far draws are from held-out rows: 0 where their laws agree."""

    name: ClassVar[str] = "discrepancy"
    mmd: Estimate

    def fields(self) -> dict[str, Any]:
        return {"mmd": self.mmd.to_dict()}

    @classmethod
    def restored(cls, fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "Discrepancy":
        return Discrepancy(Estimate.from_dict(fields["mmd"]))


@dataclass(frozen=True, eq=False)
class Chains(AbstractDraws):
    """Draws of chains."""

    name: ClassVar[str] = "chains"
    trace: Trace

    @property
    def sampled(self) -> Trace:
        return self.trace

    @property
    def points(self) -> Any:
        return self.trace.flat

    def thinned(self) -> Any:
        def some(draws: np.ndarray) -> np.ndarray:
            far = draws[:, :: max(1, draws.shape[1] // 25)]
            return far.reshape(-1, *far.shape[2:])[:THINNED]

        return jax.tree.map(some, self.trace.draws)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.trace.warnings

    def fields(self) -> dict[str, Any]:
        worst = self.trace.diagnostics
        return {
            "sampler": {
                "kind": "chains",
                "acceptance": float(np.mean(self.trace.acceptance)),
                "divergences": self.trace.divergences,
                "rhat": worst.worst_rhat,
                "ess_bulk": worst.worst_ess_bulk,
                "ess_tail": worst.worst_ess_tail,
            }
        }

    def arrays(self) -> dict[str, np.ndarray]:
        told = {"acceptance": self.trace.acceptance, "clipped": self.trace.clipped}
        # In C order, which is how they are hashed.
        return {
            **named_arrays("draws", self.trace.draws),
            **{name: np.asarray(part, order="C") for name, part in told.items()},
        }

    @classmethod
    def restored(cls, fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "Chains":
        told, draws = fields["sampler"], tree_of("draws", space.struct(), arrays)
        return Chains(Trace(draws, arrays["acceptance"], told["divergences"], chains_of(space), int(arrays["clipped"])))


@dataclass(frozen=True, eq=False)
class Independent(AbstractDraws):
    """Independent draws: proposed by a reference, kept by weight."""

    name: ClassVar[str] = "independent"
    resampled: Resampled

    @property
    def sampled(self) -> Resampled:
        return self.resampled

    @property
    def points(self) -> np.ndarray:
        return self.resampled.flat

    def thinned(self) -> np.ndarray:
        return self.resampled.draws[:THINNED]

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.resampled.warnings

    def fields(self) -> dict[str, Any]:
        return {
            "sampler": {
                "kind": "independent",
                "proposals": self.resampled.proposals,
                "effective_share": self.resampled.effective,
                "repeated": self.resampled.repeated,
            }
        }

    def arrays(self) -> dict[str, np.ndarray]:
        return {"draws": np.ascontiguousarray(self.resampled.draws)}

    @classmethod
    def restored(cls, fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "Independent":
        told = fields["sampler"]
        return Independent(Resampled(arrays["draws"], told["proposals"], told["effective_share"], told["repeated"]))


@dataclass(frozen=True, eq=False)
class Exact(AbstractDraws):
    """Independent draws of a model that can be drawn from itself; points of any structure."""

    name: ClassVar[str] = "exact"
    draws: Any

    @property
    def sampled(self) -> Any:
        return self.draws

    @property
    def points(self) -> Any:
        return self.draws

    def thinned(self) -> Any:
        return taken(self.draws, slice(THINNED))

    def fields(self) -> dict[str, Any]:
        return {"sampler": {"kind": "exact", "draws": count_of(self.draws)}}

    def arrays(self) -> dict[str, np.ndarray]:
        return named_arrays("draws", self.draws)

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()

    @classmethod
    def restored(cls, fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "Exact":
        return Exact(tree_of("draws", space.struct(), arrays))


def draws_finding(sampled: Trace | Resampled) -> AbstractDraws:
    """Draws as a finding.

    >>> draws_finding(Resampled(np.zeros((3, 1)), 48, 0.9, 0)).fields()["sampler"]["proposals"]
    48
    """
    return Independent(sampled) if isinstance(sampled, Resampled) else Chains(sampled)


#: Everything that can be found out; a saved assessment is read back by the names.
FINDINGS: tuple[type[AbstractFinding], ...] = (
    LogZ, Likelihood, FlowLikelihood, ModeWeights, Discrepancy, Fidelity, FeatureFidelity, Chains, Independent, Exact,
    Generated,
)  # fmt: skip

F = TypeVar("F", bound=AbstractFinding)


@dataclass(frozen=True, eq=False)
class Assessment(Mapping[str, AbstractFinding]):
    """What was found out about a model, by name and in order; log-likelihoods are nats per row in own units.

    >>> found = Assessment.of(LogZ(Estimate(1.5, 0.1, "AIS")))
    >>> list(found), found.log_z.value, found.find(Likelihood)
    (['log_z'], 1.5, None)
    """

    findings: Mapping[str, AbstractFinding] = field(default_factory=dict)

    @staticmethod
    def of(*findings: AbstractFinding) -> "Assessment":
        """An assessment of these findings, in this order."""
        return Assessment({finding.name: finding for finding in findings})

    def __getitem__(self, name: str) -> AbstractFinding:
        return self.findings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def find(self, kind: type[F]) -> F | None:
        """The finding of this kind, if it was made."""
        return next(iter(self.all(kind)), None)

    def all(self, kind: type[F]) -> tuple[F, ...]:
        """The findings of this kind: one, or none."""
        return tuple(finding for finding in self.findings.values() if isinstance(finding, kind))

    def the(self, kind: type[F]) -> F:
        """The finding of this kind, or one sentence about what there is instead."""
        found = self.find(kind)
        require(found is not None, f"nothing is known of {kind.__name__} here; what was found is {', '.join(self)}")
        assert found is not None
        return found

    def replacing(self, *findings: AbstractFinding) -> "Assessment":
        """The same with these findings in the places of others of their name, or at the end."""
        return Assessment({**self.findings, **{finding.name: finding for finding in findings}})

    @property
    def log_z(self) -> Estimate:
        """log Z."""
        return self.the(LogZ).estimate

    @property
    def log_likelihood(self) -> Estimate:
        """Held-out log-likelihood of the model."""
        return self.the(Likelihood).model

    @property
    def baselines(self) -> Mapping[str, Estimate]:
        """The same of the baselines."""
        return self.the(Likelihood).baselines

    @property
    def truth(self) -> Estimate | None:
        """The same of the true density, where it is known."""
        return self.the(Likelihood).truth

    @property
    def weights(self) -> tuple[tuple[float, Estimate], ...]:
        """True and learnt weights of the modes, where they are known."""
        found = self.find(ModeWeights)
        return () if found is None else found.pairs

    @property
    def mmd(self) -> Estimate:
        """MMD^2 between draws and held-out rows."""
        return self.the(Discrepancy).mmd

    @property
    def sampled(self) -> Any:
        """The draws as the sampler left them."""
        return self.the(AbstractDraws).sampled

    @property
    def warnings(self) -> tuple[str, ...]:
        """All that is wrong with what was found, in sentences."""
        return tuple(sentence for finding in self.findings.values() for sentence in finding.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the draws."""
        fields = {name: value for finding in self.findings.values() for name, value in finding.fields().items()}
        return {**fields, "warnings": list(self.warnings)}

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of all findings."""
        return {name: array for finding in self.findings.values() for name, array in finding.arrays().items()}

    @staticmethod
    def restored(names: list[str], fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "Assessment":
        """The inverse of `to_dict` and `arrays`, by the names of the findings."""
        kinds = {kind.name: kind for kind in FINDINGS}
        return Assessment.of(*(kinds[name].restored(fields, arrays, space) for name in names))
