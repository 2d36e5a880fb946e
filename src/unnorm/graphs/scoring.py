"""Newton's steps up a likelihood whose slope and information are known from draws only (Fisher scoring).

For likelihoods that are no plain exponential family in what is learnt: curved ones, and those of a graph of which some
pairs are not known.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from unnorm.estimate import Outcome, OutcomeCode
from unnorm.graphs.likelihood import SHARE

#: Draws of each chain on the way, and at most; most steps on the way, and at the end; most halvings of a step.
DRAWS, MOST_DRAWS, MOST_STEPS, ROUNDS, MOST_HALVED = 256, 65_536, 60, 8, 8


@dataclass(frozen=True, eq=False)
class Slope:
    """Of the log-likelihood: its slope, the information, and the covariance that chance adds to the slope."""

    slope: np.ndarray
    information: np.ndarray
    noise: np.ndarray


class AbstractScored(ABC):
    """A likelihood whose slope is had by drawing."""

    @abstractmethod
    def at(self, place: np.ndarray, draws: int) -> Slope | None:
        """From so many draws of each chain; None if a walk ran away, and then walks begin again."""

    @abstractmethod
    def limit(self, place: np.ndarray, step: np.ndarray) -> np.ndarray:
        """The step, shortened where it would leave what is allowed."""


@dataclass(frozen=True, eq=False)
class Climbed:
    """The maximum, its information, the covariance that chance adds, and how it ended."""

    place: np.ndarray
    information: np.ndarray
    monte_carlo: np.ndarray
    outcome: Outcome
    steps: int


def climb(scored: AbstractScored, start: np.ndarray, share: float | None = None) -> Climbed:
    """Steps of at most one standard error of one graph, then one from a sample in which chance counts for little."""
    wanted, place, sound, halved = share or SHARE, start.copy(), None, 0
    nothing = np.full((len(start), len(start)), np.nan)
    draws, near, found = DRAWS, 0, None
    for step in range(MOST_STEPS + ROUNDS):
        found = scored.at(place, draws)
        if found is None:
            halved += 1
            if sound is None or halved > MOST_HALVED:
                message = "the model is degenerate: the walk runs away to dense graphs on the way to the maximum"
                advice = "Use fewer terms, or a fixed decay."
                return Climbed(place, nothing, nothing, Outcome(OutcomeCode.DIVERGED, step, message, advice), step)
            place = 0.5 * (place + sound)
            continue
        if np.diag(found.information).min() < 1e-9:
            message = "the graphs that are drawn no longer differ: the likelihood grows without end"
            outcome = Outcome(OutcomeCode.DIVERGED, step, message, "Use fewer terms.")
            return Climbed(place, nothing, nothing, outcome, step)
        sound = place.copy()
        inverse = np.linalg.pinv(found.information, hermitian=True)
        towards = inverse @ found.slope
        length = float(np.sqrt(max(found.slope @ towards, 0.0)))
        errors = np.sqrt(np.maximum(np.diag(inverse), 1e-300))
        chance = np.sqrt(np.maximum(np.diag(inverse @ found.noise @ inverse), 0.0)) / errors
        enough = chance.max() < wanted or draws >= MOST_DRAWS
        moved = scored.limit(place, towards * min(1.0, 1.0 / max(length, 1e-300)))
        place = place + moved
        near = near + 1 if length < max(0.3, 3 * float(chance.max())) else 0
        if near and enough and np.max(np.abs(moved) / errors) < 0.15:
            done = Outcome(OutcomeCode.COMPLETED, step + 1, f"a maximum was found after {step + 1} steps")
            return Climbed(place, found.information, inverse @ found.noise @ inverse, done, step + 1)
        if near > 1 and not enough:
            more = draws * min(64.0, 1.3 * (float(chance.max()) / wanted) ** 2)
            draws = int(min(MOST_DRAWS, max(draws, more)))
    message = f"no maximum was found in {MOST_STEPS + ROUNDS} steps; the last place was {np.round(place, 3).tolist()}"
    advice = "The likelihood may grow without end; use a fixed decay, or fewer terms."
    return Climbed(place, nothing, nothing, Outcome(OutcomeCode.DIVERGED, MOST_STEPS, message, advice), MOST_STEPS)
