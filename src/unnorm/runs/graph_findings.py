"""What is found out about the fit of a network, each once and kept: draws, and why a degenerate model has no estimate."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unnorm.graphs import FittedGraph, Model, Network, logistic
from unnorm.graphs.chains import Chains
from unnorm.graphs.constraints import SameEdgeCount
from unnorm.runs.graphs import GraphRun

#: Chains of the trace, draws of each, and most proposals of all.
CHAINS, DRAWS, PROPOSALS = 4, 250, 20_000_000
#: The same at one place of a sweep, how many places, how many more around the leap, and most proposals at the places.
SWEPT, LET_GO, PLACES, CLOSER, SWEEP_PROPOSALS = 64, 32, 8, 5, 2_000_000
#: A spread of so many usual ones is a leap.
LEAP = 5.0
#: How far a sweep goes, in units of the pseudo-likelihood's maximum.
FARTHEST = 6.0


@dataclass(frozen=True, eq=False)
class Trace:
    """Statistics of graphs drawn from the fitted model, (chains, draws, statistics), and the last graph of a chain."""

    names: tuple[str, ...]
    observed: np.ndarray
    statistics: np.ndarray
    edges: np.ndarray


def trace_of(run: GraphRun) -> Trace:
    """Draws of a fitted model, made at the first call."""
    fitted = run.fitted

    def make() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        chains = Chains(fitted.model, [run.network.edges] * CHAINS, key=run.settings.seed, stream=101)
        interval = int(min(_gap(fitted), PROPOSALS // (CHAINS * DRAWS)))
        chains.draw(fitted.theta, 10, interval)
        statistics = chains.draw(fitted.theta, DRAWS, interval)
        return {"statistics": statistics, "edges": chains.edges_of(0)}, {"interval": interval}

    arrays, _ = run.kept("draws", make)
    return Trace(fitted.model.names, fitted.observed, arrays["statistics"], arrays["edges"])


def _gap(fitted: FittedGraph) -> float:
    """Proposals that make a draw of its own."""
    told = fitted.diagnostics
    if "autocorrelation" in told:
        return max(1.0, told["interval"] * told["autocorrelation"])
    return max(fitted.model.network.n, len(fitted.graphs[0])) + fitted.model.network.dyads / 10


@dataclass(frozen=True, eq=False)
class Evidence:
    """How a statistic goes with its coefficient where the number of edges is held at that observed: draws at each place.

    Where it leaps over what was observed, no coefficient draws graphs like the network, and none can be estimated.
    """

    name: str
    coefficients: np.ndarray
    #: (places, draws)
    statistics: np.ndarray
    observed: float
    edges: int

    @property
    def middle(self) -> np.ndarray:
        """The median at each place."""
        return np.median(self.statistics, axis=1)

    @property
    def leap(self) -> int | None:
        """The place before which the median is below what was observed and after which above; None: it never is."""
        above = self.middle >= self.observed
        crossed = np.flatnonzero(above[1:] & ~above[:-1])
        return int(crossed[0]) if crossed.size else None

    @property
    def leaps(self) -> bool:
        """Whether draws beside this place spread many times as far as those before it: from one kind of graph to another."""
        k = self.leap
        if k is None:
            return False
        low, high = np.quantile(self.statistics, [0.05, 0.95], axis=1)
        usual = float(np.median((high - low)[: max(k, 1)]))
        return bool(high[k : k + 2].max() - low[k : k + 2].min() > LEAP * max(usual, 1.0))

    @property
    def sentence(self) -> str:
        """What the sweep shows, in words."""
        at, k = self.coefficients, self.leap
        held = f"With {self.edges:,} edges, as observed, graphs drawn"
        if k is None:
            low, high = self.middle[[0, -1]]
            return (
                f"{held} have a {self.name} of {low:.4g} at coefficient {at[0]:.4g} and of {high:.4g} at {at[-1]:.4g}; "
                f"{self.observed:.4g} was observed."
            )
        if self.leaps:
            low, high = float(np.quantile(self.statistics[k], 0.05)), float(np.quantile(self.statistics[k + 1], 0.95))
            return (
                f"{held} leap from a {self.name} of about {low:.3g} to one of about {high:.3g} near coefficient "
                f"{at[k]:.4g}, over the {self.observed:.4g} that was observed: no coefficient draws graphs like this "
                "network."
            )
        return (
            f"{held} have a {self.name} of {self.middle[k]:.4g} at coefficient {at[k]:.4g} and of {self.middle[k + 1]:.4g} "
            f"at {at[k + 1]:.4g}; {self.observed:.4g} was observed. There is no leap here: it is the number of edges, or "
            "another term, that runs away."
        )


def evidence_of(run: GraphRun) -> Evidence:
    """Why there is no estimate, found out at the first call."""

    def make() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        found = sweep(run.fitted.model, run.network, run.settings.seed)
        arrays = {"coefficients": found.coefficients, "statistics": found.statistics}
        return arrays, {"name": found.name, "observed": found.observed, "edges": found.edges}

    arrays, notes = run.kept("evidence", make)
    return Evidence(
        notes["name"], arrays["coefficients"], arrays["statistics"], float(notes["observed"]), int(notes["edges"])
    )


def sweep(model: Model, network: Network, seed: int) -> Evidence:
    """Walks that keep the number of edges, with the dependent terms at shares of the pseudo-likelihood's maximum."""
    edges = network.edges
    end = logistic.maximise(logistic.design(model, [edges])).theta
    dependent = np.repeat([not term.independent for term in model.terms], [len(n) for n in model.statistics_names])
    k = int(np.flatnonzero(dependent & ~model.fixed)[0])
    observed = float(model.statistics(edges)[k])
    interval = int(np.clip(SWEEP_PROPOSALS / (PLACES * CHAINS * (SWEPT + LET_GO)), 16, 10 * len(edges) + 16))
    whole = model.full(end)
    within = replace(model, constraint=SameEdgeCount())

    def at(place: float) -> np.ndarray:
        theta = np.where(dependent & ~model.fixed, place * whole, whole)
        chains = Chains(within, [edges] * CHAINS, key=seed, stream=201)
        chains.draw(theta, LET_GO, interval)
        return chains.draw(theta, SWEPT, interval)[..., k].ravel()

    found = {0.0: at(0.0)}
    beyond = 0
    while beyond < 3 and max(found) < FARTHEST:
        place = max(max(found) + 1.0 / PLACES, 1.2 * max(found))
        found[place] = at(place)
        beyond += bool(np.median(found[place]) >= observed) or (whole[k] < 0 and place >= 1.0)
    for _ in range(CLOSER):
        places = sorted(found)
        middles = np.array([np.median(found[place]) for place in places])
        crossed = np.flatnonzero((middles[:-1] < observed) & (middles[1:] >= observed))
        if not crossed.size:
            break
        middle = 0.5 * (places[crossed[0]] + places[crossed[0] + 1])
        found[middle] = at(middle)
    places = np.array(sorted(found))
    statistics = np.stack([found[place] for place in places.tolist()])
    order = np.argsort(places * whole[k], kind="stable")
    return Evidence(model.names[k], (places * whole[k])[order], statistics[order], observed, len(edges))
