"""The exchange algorithm: the posterior of parameters whose likelihood has a normaliser that nobody knows.

With p(y | theta) = f(y, theta) / Z(theta) a step draws theta' near theta and y' from p(. | theta'), and goes to theta'
with probability
    min(1, prior(theta') f(y, theta') f(y', theta) / (prior(theta) f(y, theta) f(y', theta'))),
in which the normalisers have cancelled (Murray, Ghahramani and MacKay 2006). If y' is the end of a walk and no exact
draw, the posterior is as good as the walk (Caimo and Friel 2011).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from unnorm.arguments import at_least
from unnorm.errors import InputError, require
from unnorm.progress import progress as progress_bar
from unnorm.samplers.diagnostics import Diagnostics, summarise

Rows = Float[np.ndarray, "chains p"]
#: The share of accepted steps that the warm-up aims at, and after how many steps of all chains the proposal is renewed.
TARGET, RENEWED = 0.3, 50


class AbstractIntractable(ABC):
    """Data with a model whose draws can be had and whose normaliser cannot: what the exchange algorithm needs of it.

    All chains are asked at once, a row of parameters for each, so that draws may be made side by side.
    """

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """What each parameter is called."""

    @abstractmethod
    def log_prior(self, theta: Rows) -> Float[np.ndarray, " chains"]:
        """The logarithm of the prior density of each row, but for a constant."""

    @abstractmethod
    def begin(self, chains: int, *, seed: int | tuple[int, ...]) -> tuple[Rows, Any]:
        """Where each chain begins, different enough for R-hat to mean something, and the state of the draws to come."""

    @abstractmethod
    def exchange(self, state: Any, theta: Rows, proposed: Rows) -> tuple[Float[np.ndarray, " chains"], Any]:
        """For each row log f(y, theta') f(y', theta) / f(y, theta) f(y', theta'), y' drawn at theta'; a new state."""

    @abstractmethod
    def scale(self) -> Float[np.ndarray, "p p"]:
        """A first guess at the posterior's covariance."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws of parameters, chains x steps x parameters, with their names; `print` shows them as a table."""

    names: tuple[str, ...]
    draws: Float[np.ndarray, "chains steps p"]
    acceptance: float

    @property
    def flat(self) -> Float[np.ndarray, "draws p"]:
        """All draws of all chains, one after the other."""
        return self.draws.reshape(-1, self.draws.shape[-1])

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """R-hat, and effective sample sizes in the bulk and in the tails."""
        return summarise(self.draws)

    @property
    def mean(self) -> Float[np.ndarray, " p"]:
        """Of each parameter."""
        return self.flat.mean(0)

    @property
    def deviation(self) -> Float[np.ndarray, " p"]:
        """The standard deviation of each parameter."""
        return self.flat.std(0, ddof=1)

    @property
    def error(self) -> Float[np.ndarray, " p"]:
        """The Monte Carlo error of the means."""
        return self.deviation / np.sqrt(self.diagnostics.ess_bulk)

    def interval(self, level: float = 0.95) -> Float[np.ndarray, "2 p"]:
        """The ends of the central interval of each parameter."""
        return np.quantile(self.flat, [0.5 - level / 2, 0.5 + level / 2], axis=0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the chains, in sentences."""
        found = list(self.diagnostics.warnings())
        if self.acceptance < 0.02:
            found.append(f"only {self.acceptance:.1%} of the steps were accepted; use a longer warm-up")
        return tuple(found)

    def to_arviz(self) -> Any:
        """As ArviZ's InferenceData, one variable for each parameter; needs `pip install "unnorm[arviz]"`."""
        try:
            import arviz
        except ImportError:
            raise InputError('to_arviz needs ArviZ: pip install "unnorm[arviz]"') from None
        groups = {"posterior": {name: self.draws[..., k] for k, name in enumerate(self.names)}}
        convert: Any = arviz.from_dict
        return convert(**groups) if arviz.__version__.startswith("0.") else convert(groups)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        low, high = self.interval()
        told = self.diagnostics
        columns = {
            "mean": self.mean,
            "deviation": self.deviation,
            "error": self.error,
            "low": low,
            "high": high,
            "rhat": told.rhat,
            "ess": told.ess_bulk,
        }
        rows = [
            {"name": name} | {key: _for_json(float(column[k])) for key, column in columns.items()}
            for k, name in enumerate(self.names)
        ]
        return {"coefficients": rows, "acceptance": self.acceptance, "warnings": list(self.warnings)}

    def __str__(self) -> str:
        head = ["", "mean", "std. dev.", "MC error", "2.5%", "97.5%", "R-hat", "ESS"]
        (low, high), told = self.interval(), self.diagnostics
        rows = [head]
        for k, name in enumerate(self.names):
            numbers = (self.mean[k], self.deviation[k], self.error[k], low[k], high[k], told.rhat[k])
            rows.append([name, *(f"{x:.3f}" for x in numbers), f"{told.ess_bulk[k]:.0f}"])
        widths = [max(len(row[c]) for row in rows) for c in range(len(head))]
        lines = ["  ".join([r[0].ljust(widths[0]), *map(str.rjust, r[1:], widths[1:])]).rstrip() for r in rows]
        return "\n".join([*lines, *self.warnings])

    def __repr__(self) -> str:
        return str(self)


def _for_json(value: float) -> float | None:
    return value if math.isfinite(value) else None


def exchange(
    model: AbstractIntractable,
    *,
    chains: int = 4,
    steps: int = 2000,
    warmup: int = 1000,
    seed: int | tuple[int, ...] = 0,
    progress: bool = False,
) -> Posterior:
    """The posterior by the exchange algorithm, with Gaussian proposals.

    During the warm-up their covariance becomes that of all chains so far (Haario, Saksman and Tamminen 2001) and their
    size one at which three in ten are accepted; then both stay as they are, and the draws that count begin.
    """
    for least, number, what in ((2, chains, "chains"), (4, steps, "steps"), (0, warmup, "warm-up steps")):
        at_least(least, number, f"the number of {what}")
    random = np.random.default_rng(np.random.SeedSequence((*_whole(seed), 1)))
    theta, state = model.begin(chains, seed=seed)
    p = theta.shape[1]
    require(p == len(model.names), f"the model begins with {p} parameters and names {len(model.names)}")
    prior = model.log_prior(theta)
    require(bool(np.all(np.isfinite(prior))), "a chain begins where the prior has no density; begin elsewhere")
    root, size = np.linalg.cholesky(model.scale() + 1e-12 * np.eye(p)), 1.7 / math.sqrt(p)
    past, draws, accepted = [], np.zeros((chains, steps, p)), 0.0
    with progress_bar("exchange", warmup + steps, show=progress) as advance:
        for step in range(warmup + steps):
            proposed = theta + size * random.normal(size=theta.shape) @ root.T
            there = model.log_prior(proposed)
            ratio, state = model.exchange(state, theta, proposed)
            with np.errstate(over="ignore"):
                chance = np.minimum(1.0, np.exp(there - prior + ratio))
            moved = random.random(chains) < chance
            theta, prior = np.where(moved[:, None], proposed, theta), np.where(moved, there, prior)
            if step < warmup:
                size *= math.exp((float(chance.mean()) - TARGET) / math.sqrt(1 + step / 4))
                past.append(theta)
                if (step + 1) % RENEWED == 0:
                    root = _root(past[len(past) // 3 :], root)
            else:
                draws[:, step - warmup] = theta
                accepted += float(moved.mean())
            advance(1, "")
    return Posterior(model.names, draws, accepted / steps)


def _whole(seed: int | tuple[int, ...]) -> tuple[int, ...]:
    return seed if isinstance(seed, tuple) else (seed,)


def _root(past: Sequence[np.ndarray], before: np.ndarray) -> np.ndarray:
    """Of the covariance within chains, drawn a little towards what it was; their distance says nothing of its shape."""
    rows = np.array(past)
    centred = (rows - rows.mean(0)).reshape(-1, rows.shape[2])
    covariance = centred.T @ centred / max(len(centred) - rows.shape[1], 1)
    weight = len(centred) / (len(centred) + 10 * rows.shape[2])
    return np.linalg.cholesky(weight * covariance + (1 - weight) * before @ before.T)
