"""Towards the maximum of a likelihood whose means are known from draws only (Geyer and Thompson 1992).

Where the observed statistics lie outside of what has been drawn, the target is moved towards the mean of the draws
until it lies inside (Hummel, Hunter and Handcock 2012).
"""

from dataclasses import dataclass

import numpy as np

from unnorm.estimate import Outcome, OutcomeCode
from unnorm.graphs.chains import Chains, autocovariance_time
from unnorm.graphs.model import Model

#: Draws that decide a step, of each chain; those that are let go before; most steps.
DRAWS, LET_GO, MOST_STEPS = 256, 32, 60
#: How often steps may be halved.
MOST_HALVED = 8
#: Most proposals between draws, over all pairs a graph has.
LONGEST = 40
#: Most proposals of all steps: at least and at most so many, and between them so many for every pair.
PROPOSALS, PER_PAIR = (20_000_000, 400_000_000), 2000


@dataclass(frozen=True, eq=False)
class Approach:
    """Where the steps ended, and how."""

    theta: np.ndarray
    interval: int
    shares: tuple[float, ...]
    outcome: Outcome


def whitened(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, covariance, and its pseudo-inverse, which leaves out directions in which nothing moved."""
    mean, covariance = draws.mean(0), np.atleast_2d(np.cov(draws.T))
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    inverse = np.linalg.pinv(covariance / np.outer(scale, scale), rcond=1e-10, hermitian=True)
    return mean, covariance, inverse / np.outer(scale, scale)


def reach(draws: np.ndarray, target: np.ndarray, margin: float = 1.05) -> float:
    """The largest share g <= 1 for which mean + margin g (target - mean) is among the draws' convex combinations.

    By the linear program min t: (draw - mean) . z <= t for all draws, (target - mean) . z = 1.
    """
    from scipy.optimize import linprog

    mean, _, inverse = whitened(draws)
    root = np.linalg.cholesky(inverse + 1e-12 * np.trace(inverse) * np.eye(len(mean)))
    points, towards = (draws - mean) @ root, (target - mean) @ root
    length = float(np.linalg.norm(towards))
    if length < 1e-9:
        return 1.0
    towards = towards / length
    p = len(mean)
    solved = linprog(
        np.append(np.zeros(p), 1.0),
        A_ub=np.column_stack([points, -np.ones(len(points))]),
        b_ub=np.zeros(len(points)),
        A_eq=np.append(towards, 0.0)[None],
        b_eq=[1.0],
        bounds=[(None, None)] * (p + 1),
        method="highs",
    )
    inside = float(solved.fun) if solved.status == 0 else 0.5 * float(np.quantile(points @ towards, 0.9))
    return min(1.0, inside / (margin * length))


def frozen(drawn: np.ndarray, observed: np.ndarray) -> bool:
    """Whether the draws hardly move in a direction in which they are not where the observed statistics are."""
    points = drawn.reshape(-1, drawn.shape[-1])
    mean, covariance, _ = whitened(points)
    scale = np.maximum(np.abs(observed), 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    gaps = vectors.T @ ((observed - mean) / scale)
    return bool(np.any((values < 1e-12) & (np.abs(gaps) > 1e-6)))


def approach(model: Model, chains: Chains, observed: np.ndarray, theta: np.ndarray, interval: int) -> Approach:
    """Steps from theta until the observed statistics lie in the midst of the draws.

    A step after which the walk runs away, or freezes, is halved, from where it was; the walk begins again at the data.
    """
    free, shares = ~model.fixed, []
    longest = max(LONGEST * model.network.dyads, interval)
    begun, affordable = chains.proposals, float(np.clip(PER_PAIR * model.network.dyads, *PROPOSALS))
    near, halved, sound = 0, 0, None
    drawn = points = np.empty((0, 0))
    for step in range(MOST_STEPS):
        chains.draw(model.full(theta), LET_GO, interval)
        drawn = chains.draw(model.full(theta), DRAWS, interval)[..., free]
        if chains.lost or frozen(drawn, observed):
            halved += 1
            if sound is None or halved > MOST_HALVED:
                return Approach(theta, interval, tuple(shares), ran_away(model, chains, observed, sound, theta, step))
            theta = 0.5 * (theta + sound[0])
            chains.restart()
            continue
        points = drawn.reshape(-1, drawn.shape[-1])
        ended = at_an_end(model, points, step)
        if ended is not None:
            return Approach(theta, interval, tuple(shares), ended)
        time = float(autocovariance_time(drawn).max())
        mean, _, inverse = whitened(points)
        gap = observed - mean
        distance = float(np.sqrt(max(gap @ inverse @ gap, 0.0)))
        share = 1.0 if distance < 0.5 else reach(points[:: max(1, len(points) // 512)], observed)
        shares.append(share)
        sound = theta, np.median(points, axis=0)
        if time > 12 and interval < longest:
            interval = int(min(longest, interval * min(8.0, time / 6)))
        near = near + 1 if share >= 1.0 and distance < 1.0 else 0
        theta = theta + share * (inverse @ gap)
        if near and time < 0.2 * DRAWS and (near > 1 or distance < 0.5):
            message = f"the observed statistics are among the draws after {step + 1} steps"
            return Approach(theta, interval, tuple(shares), Outcome(OutcomeCode.COMPLETED, step + 1, message))
        if chains.proposals - begun > affordable:
            return Approach(theta, interval, tuple(shares), stuck(model, points, observed, drawn, step + 1))
    return Approach(theta, interval, tuple(shares), stuck(model, points, observed, drawn, MOST_STEPS))


def at_an_end(model: Model, points: np.ndarray, step: int) -> Outcome | None:
    """Where the steps have led to graphs that all have the observed value of a statistic, its estimate is infinite."""
    still = np.flatnonzero(np.ptp(points, axis=0) < 1e-9)
    if not still.size:
        return None
    name, value = model.learnt[still[0]], points[0, still[0]]
    message = (
        f"{name} is {value:g} in every graph that is drawn, as in the observed one: an end of what it can be, and the "
        "estimate is infinite"
    )
    return Outcome(OutcomeCode.DIVERGED, step, message, f"Leave {name} out.")


def _advice(model: Model) -> str:
    words = [term.word for term in model.terms]
    if any(word in ("triangle", "kstar", "ttriple", "istar", "ostar", "twopath") for word in words):
        return "Use gwesp(0.5) in place of triangles and gwdegree(0.5) in place of stars: their changes do not pile up."
    return "Use a smaller decay, or fewer terms."


def ran_away(
    model: Model,
    chains: Chains,
    observed: np.ndarray,
    sound: tuple[np.ndarray, np.ndarray] | None,
    theta: np.ndarray,
    step: int,
) -> Outcome:
    """The model jumps from sparse to dense graphs and passes over what was observed."""
    names = model.learnt
    far = f"graphs of more than {chains.most} edges" if chains.lost else "graphs that hardly change any more"

    def at(place: np.ndarray) -> str:
        return ", ".join(f"{name} {x:.4g}" for name, x in zip(names, place, strict=True))

    message = f"the model is degenerate: with coefficients {at(theta)} the walk leaves what was observed for {far}"
    if sound is not None:
        message += (
            f", and with {at(sound[0])} half of its graphs have at most {at(sound[1])} (observed: {at(observed)})"
        )
    return Outcome(OutcomeCode.DIVERGED, step, message, _advice(model))


def stuck(model: Model, points: np.ndarray, observed: np.ndarray, drawn: np.ndarray, steps: int) -> Outcome:
    """What the last draws were like, beside what was observed."""
    low, middle, high = np.quantile(points, [0.05, 0.5, 0.95], axis=0)
    told = "; ".join(
        f"{name} {a:g} to {c:g} (median {b:g}, observed {o:g})"
        for name, a, b, c, o in zip(model.learnt, low, middle, high, observed, strict=True)
    )
    time = autocovariance_time(drawn).max()
    message = (
        f"the model is degenerate or mixes too slowly: after {steps} steps 90% of the draws have {told}, and "
        f"{time:.0f} draws are worth one"
    )
    return Outcome(OutcomeCode.DIVERGED, steps, message, _advice(model))
