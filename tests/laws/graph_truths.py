"""What the laws of random graphs share: small networks, and draws against all graphs by chi-square."""

import networkx
import numpy as np
from scipy.stats import chi2

from unnorm.graphs import Model, network_of, parse


def model_of(terms, n, directed=False):
    """A model on n vertices, of which the first half are of group a, whose ages are 0, 1, 2 ..."""
    graph = networkx.empty_graph(n, create_using=networkx.DiGraph if directed else networkx.Graph)
    networkx.set_node_attributes(graph, {v: "ab"[2 * v >= n] for v in range(n)}, "group")
    networkx.set_node_attributes(graph, {v: float(v) for v in range(n)}, "age")
    return Model(parse(terms), network_of(graph))


def networks_of(model, graphs):
    """Lists of edges as networks on the model's vertices."""
    return [model.network.with_edges(edges) for edges in graphs]


def chi_square(codes, probabilities, fewest=8.0):
    """The p-value of counts of codes against probabilities; states that are expected too seldom are taken together."""
    counts = np.bincount(codes, minlength=len(probabilities)).astype(float)
    expected = probabilities * len(codes)
    order = np.argsort(expected)
    counts, expected = counts[order], expected[order]
    small = max(int(np.searchsorted(np.cumsum(expected), fewest)), int(np.sum(expected < fewest)))
    if small:
        counts = np.concatenate([[counts[:small].sum()], counts[small:]])
        expected = np.concatenate([[expected[:small].sum()], expected[small:]])
    kept = expected > 0
    assert not counts[~kept].any(), "states of no probability were drawn"
    statistic = np.sum((counts[kept] - expected[kept]) ** 2 / expected[kept])
    return float(chi2.sf(statistic, int(kept.sum()) - 1))
