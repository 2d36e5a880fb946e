"""What is found out about the fit of a network, each once and kept: draws, and how they compare with the network."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unnorm.graphs import Feature, Goodness, goodness
from unnorm.graphs.chains import Chains
from unnorm.runs.graphs import GraphRun

#: Chains of the trace, draws of each, and most proposals of all.
CHAINS, DRAWS, PROPOSALS = 4, 250, 20_000_000


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
        # Half of what makes draws of their own, so that a chain's way is seen.
        interval = max(1, min(fitted.gap // 2, PROPOSALS // (CHAINS * DRAWS)))
        chains.draw(fitted.theta, 10, interval)
        statistics = chains.draw(fitted.theta, DRAWS, interval)
        return {"statistics": statistics, "edges": chains.edges_of(0)}, {"interval": interval}

    arrays, _ = run.kept("draws", make)
    return Trace(fitted.model.names, fitted.observed, arrays["statistics"], arrays["edges"])


def goodness_of(run: GraphRun) -> Goodness:
    """How graphs drawn compare with the network, made at the first call."""

    def make() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        features = goodness(run.fitted, key=run.settings.seed).features
        arrays = {f"{k}/observed": feature.observed for k, feature in enumerate(features)}
        arrays |= {f"{k}/draws": feature.draws for k, feature in enumerate(features)}
        return arrays, {"features": [[f.name, list(f.values), f.least_variance] for f in features]}

    arrays, notes = run.kept("goodness", make)
    return Goodness(
        tuple(
            Feature(name, tuple(values), arrays[f"{k}/observed"], arrays[f"{k}/draws"], least)
            for k, (name, values, least) in enumerate(notes["features"])
        )
    )
