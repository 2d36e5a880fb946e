"""Chains of random graphs, one thread for each, and how much their draws are worth."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from unnorm.graphs.constraints import Walker
from unnorm.graphs.model import Model
from unnorm.graphs.randomness import apart, generators


def cores() -> int:
    """How many walks may run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


#: The share of proposals that close two-paths, where a term asks for it.
CLOSING = 0.25


class Chains:
    """Walks that remember where they are. What they draw depends on the key and their number, not on the cores.

    They stay among the graphs that the model is over. A walk that gets more than `most` edges is `lost`: it has run
    into the dense graphs, and its further draws are missing.
    """

    def __init__(
        self,
        model: Model,
        starts: Sequence[np.ndarray],
        *,
        key: Any,
        stream: int = 0,
        most: int | None = None,
        closing: float | None = None,
    ) -> None:
        self.model = model
        self.most = model.network.dyads + 1 if most is None else most
        self.closing = (CLOSING if model.clustered else 0.0) if closing is None else closing
        self.random = generators(key, stream, len(starts))
        self.lost = False
        self.proposals = 0
        self.accepted = 0
        self.starts = [np.asarray(start, np.int32) for start in starts]
        self.graphs: list[np.ndarray] = []
        self.edges: list[np.ndarray] = []
        self.stats: list[np.ndarray] = []
        self.restart()

    def restart(self) -> None:
        """Every walk back to where it began; the random numbers go on."""
        built = [self.model.build(start) for start in self.starts]
        self.graphs = [graph for graph, _, _ in built]
        self.edges = [edges for _, edges, _ in built]
        self.stats = list(apart(np.stack([stats for _, _, stats in built])))
        self.lost = False

    def __len__(self) -> int:
        return len(self.graphs)

    def draw(self, theta: np.ndarray, draws: int, interval: int) -> np.ndarray:
        """The statistics after every `interval` proposals, (chains, draws, statistics); fewer draws if one is lost."""
        model, theta = self.model, np.ascontiguousarray(theta, np.float64)
        table, values, directed = model.table, model.values, model.network.directed
        found = np.zeros((len(self), draws, model.size))

        def one(c: int) -> tuple[int, int]:
            walker = Walker(
                self.graphs[c], self.edges[c], directed, self.random[c], theta, table, values, self.stats[c]
            )
            done = model.constraint.walk(walker, found[c], interval, self.most, self.closing)
            self.graphs[c], self.edges[c], accepted, rows = done
            return accepted, rows

        # One thread compiles.
        first = 0 if model.constraint.compiled() else 1
        results = [one(c) for c in range(first)]
        with ThreadPoolExecutor(min(len(self), cores())) as pool:
            results += pool.map(one, range(first, len(self)))
        rows = min(rows for _, rows in results)
        self.proposals += draws * interval * len(self)
        self.accepted += sum(accepted for accepted, _ in results)
        self.lost = self.lost or rows < draws
        return found[:, :rows]

    def edges_of(self, c: int) -> np.ndarray:
        """The edges of a chain's graph, in rows."""
        from unnorm.graphs.layout import EDGES

        pairs = self.edges[c][: 2 * self.graphs[c][EDGES]].reshape(-1, 2)
        return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].copy()


# ------------------------------------------------------------------------------------------------- what draws are worth


def autocovariance_time(draws: np.ndarray) -> np.ndarray:
    """For each statistic how many draws are worth one: 1 + 2 sum of autocorrelations, over (chains, draws, statistics).

    Geyer's initial positive sequence, on autocovariances about the mean of all chains, so that chains that disagree
    count as correlated.
    """
    _chains, length, p = draws.shape
    centred = draws - draws.reshape(-1, p).mean(0)
    size = 1 << (2 * length - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, size, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, size, axis=1)[:, :length].mean(0) / length
    times = np.ones(p)
    for k in range(p):
        if not covariance[0, k] > 0:
            continue
        rho = covariance[:, k] / covariance[0, k]
        pairs = rho[: length // 2 * 2].reshape(-1, 2).sum(1)
        negative = np.flatnonzero(pairs <= 0)
        stop = negative[0] if negative.size else len(pairs)
        times[k] = max(1.0, 2.0 * np.minimum.accumulate(pairs[:stop]).sum() - 1.0)
    return times


def mean_covariance(draws: np.ndarray) -> np.ndarray:
    """The covariance of the mean over all draws (chains, draws, statistics), by means of batches within chains.

    Batches are about the square root of a chain long, but not shorter than five autocorrelation times.
    """
    chains, length, p = draws.shape
    size = int(max(np.sqrt(length), 5 * autocovariance_time(draws).max()))
    count = max(length // size, 2)
    size = length // count
    batches = draws[:, : size * count].reshape(chains * count, size, p).mean(1)
    centred = batches - batches.mean(0)
    return centred.T @ centred / (len(batches) - 1) / len(batches)
