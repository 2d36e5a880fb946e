"""The posterior of a random graph model, by the exchange algorithm (Caimo and Friel 2011)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from unnorm.errors import require
from unnorm.graphs import logistic
from unnorm.graphs.chains import CLOSING, cores
from unnorm.graphs.model import Model
from unnorm.graphs.network import networks_of
from unnorm.graphs.randomness import entropy, generators
from unnorm.graphs.terms import AbstractTerm, parse
from unnorm.samplers.exchange import AbstractIntractable, Posterior, Rows, exchange

#: Walks of more proposals than this run side by side; below, starting threads costs more.
WORTH_A_THREAD = 20_000


class GraphPosterior(AbstractIntractable):
    """Coefficients with independent Gaussian priors, given graphs on the same vertices.

    An auxiliary graph is the end of a walk of so many `proposals` from each observed graph.
    """

    def __init__(
        self,
        model: Model,
        graphs: Sequence[np.ndarray],
        prior: tuple[Any, Any],
        proposals: int,
    ) -> None:
        self.model, self.graphs, self.proposals = model, tuple(graphs), proposals
        learnt = int((~model.fixed).sum())
        self.mean, self.deviation = (np.broadcast_to(np.asarray(x, np.float64), (learnt,)) for x in prior)
        require(
            bool(np.all(self.deviation > 0) and np.all(np.isfinite(self.deviation)) and np.all(np.isfinite(self.mean))),
            "a prior is a mean and a positive standard deviation, for all coefficients or one for each",
        )
        self._built = [model.build(edges) for edges in self.graphs]
        self._observed = np.sum([stats for _, _, stats in self._built], axis=0)
        self._peak, self._curvature = self._pseudo()

    @property
    def names(self) -> tuple[str, ...]:
        return self.model.learnt

    def log_prior(self, theta: Rows) -> np.ndarray:
        return -0.5 * (((theta - self.mean) / self.deviation) ** 2).sum(1)

    def scale(self) -> np.ndarray:
        return np.linalg.inv(self._curvature)

    def begin(self, chains: int, *, seed: Any) -> tuple[Rows, np.ndarray]:
        spread = np.linalg.cholesky(self.scale())
        random = np.random.default_rng(np.random.SeedSequence((*entropy(seed), 31)))
        return self._peak + 1.5 * random.normal(size=(chains, len(self.names))) @ spread.T, generators(seed, 32, chains)

    def exchange(self, state: np.ndarray, theta: Rows, proposed: Rows) -> tuple[np.ndarray, np.ndarray]:
        def one(c: int) -> np.ndarray:
            return self._simulated(proposed[c], state[c])

        if self.proposals * len(self.graphs) < WORTH_A_THREAD:
            drawn = [one(c) for c in range(len(theta))]
        else:
            with ThreadPoolExecutor(cores()) as pool:
                drawn = list(pool.map(one, range(len(theta))))
        gap = (self._observed - np.array(drawn))[:, ~self.model.fixed]
        return ((proposed - theta) * gap).sum(1), state

    def _simulated(self, theta: np.ndarray, random: np.ndarray) -> np.ndarray:
        """The sum of the statistics of one graph drawn for each that was observed."""
        from unnorm.graphs import walking

        model, total = self.model, np.zeros(self.model.size)
        whole, draws = model.full(theta), np.zeros((1, self.model.size))
        closing = CLOSING if model.clustered else 0.0
        for graph, edges, stats in self._built:
            given = (graph.copy(), edges.copy(), model.network.directed, random, whole, model.table, model.values)
            most = model.network.dyads + 1
            walking.walk(*given, stats.copy(), draws, self.proposals, most, closing, True)
            total += draws[0]
        return total

    def _pseudo(self) -> tuple[np.ndarray, np.ndarray]:
        """The peak of pseudo-likelihood times prior, and minus its curvature."""
        design, precision = logistic.design(self.model, self.graphs), np.diag(self.deviation**-2)

        def at(theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
            value, slope, information = logistic.log_odds_terms(design, theta)
            off = theta - self.mean
            return value - 0.5 * float(off @ precision @ off), slope - precision @ off, information + precision

        theta = self.mean.copy()
        value, slope, curvature = at(theta)
        for _ in range(100):
            step, share = np.linalg.solve(curvature, slope), 1.0
            if float(step @ slope) < 1e-10:
                break
            while at(theta + share * step)[0] < value - 1e-9 * abs(value) and share > 1e-8:
                share /= 2
            theta = theta + share * step
            value, slope, curvature = at(theta)
        return theta, curvature


def posterior(
    graph: Any,
    terms: str | AbstractTerm | Sequence[AbstractTerm | str],
    *,
    prior: tuple[Any, Any] = (0.0, 5.0),
    chains: int = 4,
    steps: int = 2000,
    warmup: int = 1000,
    proposals: int | None = None,
    covariates: Any = None,
    key: Any = 0,
    progress: bool = False,
) -> Posterior:
    """The coefficients of a random graph model and how sure they are, as draws from their posterior.

    `prior` holds the mean and standard deviation of a Gaussian, one for all coefficients or one for each. `graph`,
    `terms` and `covariates` are those of `fit`. `proposals` is the length of the walk to each auxiliary graph; by
    default ten for each pair of vertices and each edge, but at most a million.

    >>> import networkx
    >>> found = posterior(networkx.path_graph(5), "edges", prior=(0, 1), steps=200, warmup=100)
    >>> found.draws.shape, found.names
    ((4, 200, 1), ('edges',))
    """
    networks = networks_of(graph)
    model = Model(parse(terms, covariates), networks[0])
    graphs = [network.edges for network in networks]
    if proposals is None:
        proposals = min(1_000_000, 10 * (model.network.dyads + max(len(edges) for edges in graphs)))
    require(proposals >= 1, f"a walk has at least one proposal, not {proposals}")
    data = GraphPosterior(model, graphs, prior, proposals)
    return exchange(data, chains=chains, steps=steps, warmup=warmup, seed=entropy(key), progress=progress)
