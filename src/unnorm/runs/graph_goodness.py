"""How graphs drawn from a fitted model compare with the network in what was not fitted."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unnorm.graphs import Network
from unnorm.runs.graphs import GraphRun

#: Graphs drawn, and the most values of one feature.
DRAWN, MOST = 100, 30


@dataclass(frozen=True, eq=False)
class Panel:
    """One feature: how many vertices, edges or pairs have each value, in the network and in graphs drawn (rows)."""

    name: str
    values: tuple[str, ...]
    observed: np.ndarray
    drawn: np.ndarray

    def band(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Between which counts so many of the graphs drawn lie."""
        low, high = np.quantile(self.drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return low, high

    @property
    def p_values(self) -> np.ndarray:
        """Twice the smaller share of graphs drawn that are as low or as high; at least 1 / graphs."""
        low, high = (self.drawn <= self.observed).mean(0), (self.drawn >= self.observed).mean(0)
        return np.clip(2 * np.minimum(low, high), 1 / len(self.drawn), 1.0)

    @property
    def p_value(self) -> float:
        """Of all values together: how many graphs drawn are at least as far from the others, in standard deviations."""
        rows = np.vstack([self.observed, self.drawn]).astype(float)
        spread = rows.std(0)
        distance = (((rows - rows.mean(0)) / np.where(spread > 0, spread, 1.0)) ** 2).sum(1)
        return float(np.mean(distance >= distance[0]))


@dataclass(frozen=True, eq=False)
class Goodness:
    """All features."""

    panels: tuple[Panel, ...]

    @property
    def graphs(self) -> int:
        """How many graphs were drawn."""
        return len(self.panels[0].drawn)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "graphs": self.graphs,
            "features": [
                {
                    "name": panel.name,
                    "p_value": panel.p_value,
                    "values": list(panel.values),
                    "observed": panel.observed.tolist(),
                    "low": panel.band()[0].tolist(),
                    "high": panel.band()[1].tolist(),
                    "p_values": panel.p_values.tolist(),
                }
                for panel in self.panels
            ],
        }


def goodness_of(run: GraphRun) -> Goodness:
    """The comparison, made at the first call."""

    def make() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        network = run.network
        drawn = run.fitted.simulated_edges(DRAWN, key=run.settings.seed)
        rows = [features(network, edges) for edges in (network.edges, *drawn)]
        names = list(rows[0])
        return {f"{k}": np.stack([row[name] for row in rows]) for k, name in enumerate(names)}, {"names": names}

    arrays, notes = run.kept("goodness", make)
    return Goodness(tuple(_panel(name, arrays[str(k)]) for k, name in enumerate(notes["names"])))


def _panel(name: str, counts: np.ndarray) -> Panel:
    used = int(np.max(np.flatnonzero(counts.any(0)), initial=0)) + 1
    kept = counts[:, : max(used, 2)]
    values = [str(k) for k in range(kept.shape[1])]
    if name == "distance":
        values = [*map(str, range(1, kept.shape[1])), "none"]
        kept = np.column_stack([kept[:, 1:], kept[:, 0]])
    return Panel(name, tuple(values), kept[0], kept[1:])


def features(network: Network, edges: np.ndarray) -> dict[str, np.ndarray]:
    """Counts of each feature of a graph with these edges; those above the last go into the last."""
    from scipy import sparse
    from scipy.sparse.csgraph import shortest_path

    n, ones = network.n, np.ones(len(edges), np.int64)
    a = sparse.csr_array((ones, (edges[:, 0], edges[:, 1])), shape=(n, n))
    if not network.directed:
        a = a + a.T
    found = {}
    if network.directed:
        found["out-degree"], found["in-degree"] = _counted(a.sum(1)), _counted(a.sum(0))
    else:
        found["degree"] = _counted(a.sum(1))
    shared = (a @ a).tocsr()
    found["shared partners of an edge"] = _counted(np.asarray(shared[edges[:, 0], edges[:, 1]]).ravel())
    lengths = shortest_path(a, unweighted=True, directed=network.directed)
    pairs = lengths[~np.eye(n, dtype=bool)]
    found["distance"] = _counted(np.where(np.isfinite(pairs), pairs, 0)) // (1 if network.directed else 2)
    return found


def _counted(values: Any) -> np.ndarray:
    whole = np.minimum(np.asarray(values).astype(np.int64).ravel(), MOST)
    return np.bincount(whole, minlength=MOST + 1)
