"""All graphs on few vertices: the truth against which everything else here is checked.

With D pairs there are 2^D graphs: 2^21 on seven vertices without directions, 2^20 on five with them.
"""

from functools import cached_property

import numpy as np

from unnorm.errors import require
from unnorm.graphs.constraints import Unconstrained
from unnorm.graphs.model import Model

#: Up to so many pairs all graphs are looked at.
MOST_DYADS = 21


class Enumerated:
    """A model on few vertices, exactly: log Z, means, covariances and probabilities of its statistics.

    >>> import networkx
    >>> from unnorm.graphs import Model, network_of, parse
    >>> every = Enumerated(Model(parse("edges"), network_of(networkx.empty_graph(4))))
    >>> round(float(every.log_partition([0.0]) / np.log(2)), 10)  # 2^6 graphs
    6.0
    """

    def __init__(self, model: Model) -> None:
        dyads = model.network.dyads
        require(
            dyads <= MOST_DYADS,
            f"all graphs are looked at where {MOST_DYADS} pairs may have an edge, and here {dyads} may; "
            'use method="mcmc"',
        )
        self.model = model

    @cached_property
    def every(self) -> np.ndarray:
        """The statistics of all graphs, in the order of Gray's code."""
        from unnorm.graphs import layout, walking

        model, network = self.model, self.model.network
        graph, edges = layout.packed(network.n, network.directed, np.zeros((0, 2), np.int32))
        rows = np.zeros((2**network.dyads, model.size))
        walking.enumerated(graph, edges, network.pairs(), model.table, model.values, model.empty.copy(), rows)
        return rows

    @cached_property
    def allowed(self) -> np.ndarray:
        """Which of all graphs the model is over."""
        network, codes = self.model.network, np.arange(len(self.every))
        if isinstance(self.model.constraint, Unconstrained):
            return np.ones(len(codes), bool)
        codes = codes ^ (codes >> 1)
        present = (codes[:, None] >> np.arange(network.dyads)) & 1
        return self.model.constraint.keeps(present, network)

    @cached_property
    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """The different statistics and how many graphs have each."""
        every = self.every[self.allowed]
        for k, (_, held) in self.model.pinned.items():
            every = every[np.isclose(every[:, k], held, atol=1e-9)]
        rows = np.round(every, 9) + 0.0
        projected = np.round(rows @ np.random.default_rng(1).normal(size=self.model.size), 7)
        _, first, counts = np.unique(projected, return_index=True, return_counts=True)
        return every[first], counts

    def _log_weights(self, theta: np.ndarray) -> np.ndarray:
        rows, counts = self.table
        return np.log(counts) + self.model.weighed(self.model.full(np.asarray(theta, np.float64)), rows)

    def log_partition(self, theta: np.ndarray) -> float:
        """log Z, the sum over all graphs."""
        weights = self._log_weights(theta)
        most = weights.max()
        return float(most + np.log(np.exp(weights - most).sum()))

    def probabilities(self, theta: np.ndarray) -> np.ndarray:
        """Of each row of the table."""
        return np.exp(self._log_weights(theta) - self.log_partition(theta))

    def moments(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean and covariance of the statistics whose coefficients are learnt."""
        p, rows = self.probabilities(theta), self.table[0][:, ~self.model.fixed]
        mean = p @ rows
        return mean, (rows * p[:, None]).T @ rows - np.outer(mean, mean)

    def sample(self, theta: np.ndarray, count: int, *, seed: int) -> list[np.ndarray]:
        """Independent graphs (lists of edges) from the model."""
        rows = self.every
        weights = self.model.weighed(self.model.full(np.asarray(theta, np.float64)), rows)
        weights = np.where(self.allowed, weights, -np.inf)
        p = np.exp(weights - weights.max())
        codes = np.random.default_rng(seed).choice(len(rows), count, p=p / p.sum())
        pairs = self.model.network.pairs()
        bits = np.arange(len(pairs))
        return [pairs[((code ^ (code >> 1)) >> bits) & 1 == 1] for code in codes.tolist()]

    def maximise(self, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The coefficients whose mean is what was observed, and the information of one graph there."""
        theta = np.zeros(len(observed))

        def value(t: np.ndarray) -> float:
            return float(observed @ t - self.log_partition(t))

        for _ in range(1000):
            mean, information = self.moments(theta)
            step = np.linalg.lstsq(information, observed - mean, rcond=None)[0]
            rise = float(step @ (observed - mean))
            if rise < 1e-20:
                break
            # Damped far away (Nesterov and Nemirovskii 1994), full steps near the maximum.
            before, share = value(theta), 1.0 if rise < 0.01 else 1.0 / (1.0 + np.sqrt(rise))
            while value(theta + share * step) < before - 1e-12 * abs(before) and share > 1e-12:
                share /= 2
            theta = theta + share * step
        return theta, self.moments(theta)[1]
