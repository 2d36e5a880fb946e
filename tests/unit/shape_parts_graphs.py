"""Random graphs, each function once, on the marriages of Florence and on four vertices."""

from collections.abc import Iterator

import networkx
import numpy as np
from shape_parts import KEY, Piece

from unnorm import graphs, samplers
from unnorm.graphs.evidence import evidence


def random_graphs() -> Iterator[Piece]:
    small = networkx.path_graph(5)

    def fits() -> None:
        fitted = graphs.fit(graphs.florentine(), "edges, triangle", key=KEY)
        str(fitted), fitted.to_dict(), fitted["edges"], fitted.aic, fitted.bic
        fitted.simulate(2)
        found = graphs.goodness(fitted, draws=20)
        str(found), found.to_dict(), found[found.features[0].name].p_value
        directed = graphs.fit(networkx.DiGraph([(0, 1), (1, 0), (1, 2), (3, 0), (2, 3), (3, 2)]), "edges")
        str(directed), directed.coefficients[0].z, directed.coefficients[0].p_value

    def models() -> None:
        model = graphs.Model(graphs.parse("edges, triangle"), graphs.network_of(small))
        model.statistics(model.network.edges), model.table, model.learnt
        every = graphs.Enumerated(model)
        theta = np.zeros(2)
        every.log_partition(theta), every.moments(theta), every.sample(theta, 2, seed=0)
        graphs.check_term(graphs.parse("triangle")[0], small)
        network = graphs.network_of(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
        network.pairs(), network.adjacency(), network.to_networkx()

    def astray() -> None:
        model = graphs.Model(graphs.parse("edges, triangle"), graphs.network_of(small))
        start, observed = np.zeros(2), model.statistics(model.network.edges)
        found = evidence(model, model.network.edges, observed, start, np.array([-1.0, 1.0]), key=0)
        assert isinstance(found, graphs.Evidence) and found.to_dict()

    def own() -> None:
        def early(graph, i, j, present, values, delta):
            delta[0] = 1.0 if i < 2 else 0.0

        graphs.fit(small, [graphs.Own(early, ("early",))])

    def posteriors() -> None:
        found = graphs.posterior(small, "edges", prior=(0, 1), chains=2, steps=20, warmup=10)
        assert isinstance(found, samplers.Posterior)
        str(found), found.to_dict(), found.interval()

    yield "graphs/fit", fits
    yield "graphs/Model", models
    yield "graphs/Evidence", astray
    yield "graphs/Own", own
    yield "graphs/posterior", posteriors
