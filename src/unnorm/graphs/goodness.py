"""Goodness of fit: whether graphs drawn from a fitted model look like the one that was fitted (Hunter et al. 2008).

They are compared in what the model does not state: degrees, partners that the ends of an edge share, distances, and
triads. For each count there is a band that holds 95% of the draws, and a p-value. For each feature as a whole the
observed counts and the draws are ranked by their Mahalanobis distance from the mean of all of them, which has an exact
p-value where the observed graph comes from the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unnorm.errors import require
from unnorm.graphs.features import TRIADS, degrees, distances, partners, triad_census
from unnorm.graphs.fitted import FittedGraph, aligned
from unnorm.graphs.layout import packed
from unnorm.graphs.network import Network

#: Distances are counted from at most so many vertices.
SOURCES = 2000
#: Counts by value are shown up to the last that 5% of the draws have, and at most so many.
MOST_VALUES = 40
#: The chance that a model that is right is doubted.
DOUBTFUL = 0.05


@dataclass(frozen=True, eq=False)
class Feature:
    """Counts of one kind: by value (`values`), observed, and in each draw (draws, values)."""

    name: str
    values: tuple[str, ...]
    observed: np.ndarray
    draws: np.ndarray
    #: What is added to the variances, so that a single rare vertex is not infinitely far from the mean.
    least_variance: float = 1.0

    @property
    def band(self) -> np.ndarray:
        """The 2.5%, 50% and 97.5% quantiles of the draws, in rows."""
        return np.quantile(self.draws, [0.025, 0.5, 0.975], axis=0)

    @property
    def p_values(self) -> np.ndarray:
        """Of each count, both sides: twice the smaller share of counts as extreme, the observed one among them."""
        below = (1 + (self.draws <= self.observed).sum(0)) / (1 + len(self.draws))
        above = (1 + (self.draws >= self.observed).sum(0)) / (1 + len(self.draws))
        return np.minimum(1.0, 2 * np.minimum(below, above))

    @property
    def p_value(self) -> float:
        """Of all counts together, by the rank of the observed ones' distance from the mean."""
        rows = np.concatenate([self.observed[None], self.draws])
        centred = rows - rows.mean(0)
        scale = np.sqrt((centred**2).mean(0) + self.least_variance)
        centred = centred[:, scale > 0] / scale[scale > 0]
        if not centred.size:
            return 1.0
        covariance = centred.T @ centred / len(centred) + np.diag(self.least_variance / scale[scale > 0] ** 2)
        inverse = np.linalg.pinv(covariance, rcond=1e-8, hermitian=True)
        far = np.einsum("ij,jk,ik->i", centred, inverse, centred)
        return float(np.mean(far >= far[0] * (1 - 1e-9)))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: what a picture needs."""
        low, median, high = self.band.tolist()
        return {
            "name": self.name,
            "values": list(self.values),
            "observed": self.observed.tolist(),
            "low": low,
            "median": median,
            "high": high,
            "p_values": self.p_values.tolist(),
            "p_value": self.p_value,
        }


@dataclass(frozen=True, eq=False)
class Goodness:
    """All features of a fit, the first of which is what the model states itself; `print` shows them as a table."""

    features: tuple[Feature, ...]

    def __getitem__(self, name: str) -> Feature:
        known = {feature.name: feature for feature in self.features}
        require(name in known, f"there is no feature {name!r}; the features are: {', '.join(known)}")
        return known[name]

    @property
    def draws(self) -> int:
        """How many graphs were drawn."""
        return len(self.features[0].draws)

    @property
    def unlike(self) -> tuple[Feature, ...]:
        """Features that a model that is right would have by a chance of 5%, all of them together.

        With few draws none can be so rare; then those that are farther off than every draw.
        """
        level = max(DOUBTFUL / len(self.features), 1.5 / (self.draws + 1))
        return tuple(feature for feature in self.features if feature.p_value < level)

    @property
    def sentence(self) -> str:
        """Whether to believe the model, in a sentence."""
        if not self.unlike:
            return f"Graphs drawn from the model look like the observed one in all {len(self.features)} features."
        told = ", ".join(f"{f.name} (p = {f.p_value:.3f})" for f in self.unlike)
        return f"Graphs drawn from the model differ from the observed one in: {told}; {self.draws} draws."

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "draws": self.draws,
            "features": [feature.to_dict() for feature in self.features],
            "sentence": self.sentence,
        }

    def __str__(self) -> str:
        lines = [self.sentence]
        for feature in self.features:
            low, median, high = feature.band
            rows = [["", "observed", "2.5%", "median", "97.5%", "p-value"]]
            for k, value in enumerate(feature.values):
                counts = [feature.observed[k], low[k], median[k], high[k]]
                rows.append([value, *(f"{count:.4g}" for count in counts), f"{feature.p_values[k]:.3f}"])
            lines += ["", f"{feature.name}: p = {feature.p_value:.3f}", *aligned(rows)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def goodness(fitted: FittedGraph, *, draws: int = 200, key: Any = None) -> Goodness:
    """Draw graphs from a fitted model and count what they and the observed graph are like.

    Of several graphs that were fitted together the means are compared with means of as many draws. Pairs that are not
    known count as without an edge, in the observed graph as in the draws.

    >>> import networkx
    >>> from unnorm.graphs import fit
    >>> found = goodness(fit(networkx.path_graph(6), "edges"), draws=50)
    >>> [feature.name for feature in found.features]
    ['model', 'degree', 'shared partners', 'distance', 'triads']
    """
    require(draws >= 20, f"goodness of fit needs at least 20 draws, not {draws}")
    model, network, graphs = fitted.model, fitted.model.network, fitted.graphs
    simulated = [_without(edges, fitted.missing) for edges in fitted.simulated_edges(draws * len(graphs), key=key)]
    free = [k for k in range(model.size) if k not in model.pinned] or list(range(model.size))
    own = Feature(
        "model",
        tuple(model.names[k] for k in free),
        fitted.observed[free],
        _meaned([model.statistics(edges)[free] for edges in simulated], len(graphs)),
        0.0,
    )
    random = np.random.default_rng(0)
    sources = np.sort(random.permutation(network.n)[:SOURCES])
    seen = [_counts(network, edges, sources) for edges in graphs]
    drawn = [_counts(network, edges, sources) for edges in simulated]
    features = [own]
    for name in seen[0]:
        features.append(_feature(name, [s[name] for s in seen], [d[name] for d in drawn], network.directed))
    return Goodness(tuple(features))


def _without(edges: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The edges but for these pairs."""
    if not len(pairs):
        return edges
    most = 1 + max(int(edges.max(initial=0)), int(pairs.max()))
    return edges[~np.isin(edges @ [most, 1], pairs @ [most, 1])]


def _counts(network: Network, edges: np.ndarray, sources: np.ndarray) -> Mapping[str, np.ndarray]:
    """How many vertices, edges, pairs or triads there are of each kind."""
    graph, _ = packed(network.n, network.directed, edges)
    steps = distances(graph, sources)
    # From all vertices, and each pair once where there are no directions.
    steps = steps * (network.n / len(sources)) / (1 if network.directed else 2)
    found = {
        "shared partners": np.bincount(partners(graph, np.ascontiguousarray(edges, np.int32))),
        "distance": np.concatenate([steps[-1:], steps[1:-1]]),
        "triads": triad_census(graph, network.directed, edges),
    }
    if network.directed:
        return {
            "in-degree": np.bincount(degrees(graph, True)),
            "out-degree": np.bincount(degrees(graph, False)),
            **found,
        }
    return {"degree": np.bincount(degrees(graph, False)), **found}


def _meaned(rows: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Means of so many rows each."""
    whole = np.array(rows, np.float64)
    return whole.reshape(-1, count, whole.shape[1]).mean(1)


def _feature(name: str, seen: Sequence[np.ndarray], drawn: Sequence[np.ndarray], directed: bool) -> Feature:
    """Counts of one length, the rare large values taken together as the last."""
    width = max(1, *(len(row) for row in (*seen, *drawn)))
    whole = np.array([np.pad(row, (0, width - len(row))) for row in (*seen, *drawn)], np.float64)
    if name == "triads":
        labels = TRIADS if directed else ("no edge", "1 edge", "2 edges", "3 edges")
    else:
        often = np.flatnonzero((whole > 0).mean(0) > 0.05)
        last = min(int(often[-1]) if often.size else 0, MOST_VALUES)
        if last < width - 1:
            whole = np.concatenate([whole[:, :last], whole[:, last:].sum(1, keepdims=True)], axis=1)
        labels = [str(k) for k in range(last + 1)]
        if last < width - 1:
            labels[-1] += "+"
        if name == "distance":
            labels[0] = "none"
    return Feature(name, tuple(labels), whole[: len(seen)].mean(0), _meaned(list(whole[len(seen) :]), len(seen)))
