"""Numbers that carry their error, and endings that say what happened.

An estimate is never a bare float: log Z, log-likelihoods and divergences are `Estimate`s. A run never just stops:
it ends with an `Outcome`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import NormalDist
from typing import Any

import numpy as np

from unnorm.errors import require


@dataclass(frozen=True)
class Estimate:
    """A value, its standard error, how it was got, and what to know about it.

    The stated interval is value +- z * stderr, asymptotically normal. `diagnostics` holds plain numbers
    (effective samples, acceptance), `warnings` whole sentences, and `why` says what spoke for this method where one
    was chosen among several.

    >>> print(Estimate(-3.2104, 0.0213, "AIS"))
    -3.210 ± 0.021 (AIS)
    """

    value: float
    stderr: float
    method: str
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    why: str = ""

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The central interval that should hold the truth with probability `level`."""
        z = NormalDist().inv_cdf(0.5 + level / 2)
        return self.value - z * self.stderr, self.value + z * self.stderr

    def covers(self, truth: float, level: float = 0.95) -> bool:
        """Whether the stated interval holds the truth."""
        low, high = self.interval(level)
        return low <= truth <= high

    def plus(self, other: "Estimate", factor: float = 1.0) -> "Estimate":
        """self + factor * other, for estimates with independent errors."""
        return Estimate(
            self.value + factor * other.value,
            math.hypot(self.stderr, factor * other.stderr),
            self.method if self.method == other.method else f"{self.method} and {other.method}",
            {**other.diagnostics, **self.diagnostics},
            (*self.warnings, *(w for w in other.warnings if w not in self.warnings)),
            " ".join(dict.fromkeys(why for why in (self.why, other.why) if why)),
        )

    def minus(self, other: "Estimate") -> "Estimate":
        """self - other, for estimates with independent errors."""
        return self.plus(other, -1.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "value": self.value,
            "stderr": self.stderr,
            "method": self.method,
            "diagnostics": dict(self.diagnostics),
            "warnings": list(self.warnings),
            "why": self.why,
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "Estimate":
        """The inverse of `to_dict`."""
        return Estimate(
            data["value"],
            data["stderr"],
            data["method"],
            dict(data["diagnostics"]),
            tuple(data["warnings"]),
            data.get("why", ""),
        )

    def __str__(self) -> str:
        return f"{self.number()} ({self.method})"

    def number(self) -> str:
        """The value and its error, with as many digits as the error supports."""
        if not math.isfinite(self.stderr) or self.stderr <= 0:
            return f"{self.value:.4g} ± {self.stderr:.2g}"
        digits = max(0, 1 - math.floor(math.log10(self.stderr)))
        return f"{self.value:.{digits}f} ± {self.stderr:.{digits}f}"


def mean_estimate(samples: Any, method: str, groups: Any = None) -> Estimate:
    """The mean of draws with its standard error.

    Draws are independent, unless `groups` labels those that belong together (recordings of one person): then whole
    groups are, and the error is that of their sums, se^2 = G/(G-1) sum_g (sum_{i in g} (x_i - mean))^2 / n^2.

    >>> mean_estimate([1.0, 2.0, 3.0], "mean").value
    2.0
    >>> mean_estimate([1.0, 1.0, 3.0, 3.0], "mean", groups=[0, 0, 1, 1]).stderr
    1.0
    """
    values = np.asarray(samples, dtype=np.float64)
    mean, told = float(values.mean()), {"samples": float(values.size)}
    if groups is None:
        error = float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else math.inf
        return Estimate(mean, error, method, told)
    sums = np.bincount(np.unique(np.asarray(groups), return_inverse=True)[1].ravel(), weights=values - mean)
    count = sums.size
    error = math.sqrt(count / (count - 1) * float(sums @ sums)) / values.size if count > 1 else math.inf
    return Estimate(mean, error, method, {**told, "groups": float(count)})


def require_weights(log_weights: Any) -> None:
    """Refuse log-weights whose mean has no meaning: some are NaN or plus infinity, or all are minus infinity.

    A weight of zero (log-weight minus infinity) is a fact about a target with a wall; if all are, there is nothing to
    average.
    """
    values = np.asarray(log_weights, dtype=np.float64)
    nan, infinite = int(np.isnan(values).sum()), int(np.isposinf(values).sum())
    require(nan == 0, f"{nan} of {values.size} log-weights are NaN: the energy is not a number at some points; mend it")
    require(
        infinite == 0,
        f"{infinite} of {values.size} weights are infinite: the energy is minus infinity at some points; mend it",
    )
    require(
        bool(np.isfinite(values).any()),
        f"none of {values.size} weights is above zero: the energy is infinite wherever the base draws; "
        "use a base that lies inside the target",
    )


def log_mean_exp_estimate(log_weights: Any, method: str) -> Estimate:
    """log E[w] from independent log-weights, with its delta-method error.

    value = logsumexp(log w) - log n,  stderr = sd(w) / (mean(w) sqrt n). The effective sample size
    (sum w)^2 / sum w^2 says how many draws carry the estimate; below 100 the error itself cannot be trusted and the
    estimate says so. Weights that are not numbers, or all zero, are refused.
    """
    values = np.asarray(log_weights, dtype=np.float64)
    require(values.size >= 2, f"a mean of weights with an error needs at least 2 of them, not {values.size}")
    require_weights(values)
    largest = values.max()
    weights = np.exp(values - largest)
    mean = weights.mean()
    stderr = float(weights.std(ddof=1) / (mean * math.sqrt(values.size)))
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    warnings = ()
    if not effective >= 100:
        warnings = (
            f"Only {effective:.0f} of {values.size} weights are effective: the stated error is too small; "
            "use a proposal closer to the target or more annealing levels.",
        )
    return Estimate(
        float(largest + math.log(mean)),
        stderr,
        method,
        {"samples": float(values.size), "effective_samples": effective},
        warnings,
    )


class OutcomeCode(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    STOPPED_EARLY = "stopped early"
    DIVERGED = "diverged"
    UNFINISHED = "unfinished"


@dataclass(frozen=True)
class Outcome:
    """How a run ended, at which step, and what to try if that is not what was wanted."""

    code: OutcomeCode
    step: int
    message: str
    advice: str = ""
    retries: int = 0

    @property
    def ok(self) -> bool:
        """Whether the result may be used."""
        return self.code is not OutcomeCode.DIVERGED

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "code": self.code.value,
            "step": self.step,
            "message": self.message,
            "advice": self.advice,
            "retries": self.retries,
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "Outcome":
        """The inverse of `to_dict`."""
        return Outcome(**{**data, "code": OutcomeCode(data["code"])})

    def __str__(self) -> str:
        return f"{self.code.value} at step {self.step}: {self.message}{' ' + self.advice if self.advice else ''}"
