"""Every term of random graphs against its definition, counted vertex by vertex, on random graphs."""

import itertools
import math

import networkx
import numpy as np
import pytest

from unnorm.graphs import TERMS, Model, network_of, parse
from unnorm.graphs.layout import out_degree
from unnorm.graphs.terms import Own

N, DECAY = 9, 0.4
AGE = np.random.default_rng(5).normal(size=N).round(2)
GROUP = ["a", "b", "c", "a", "b", "b", "c", "a", "b"]
DISTANCE = np.random.default_rng(6).normal(size=(N, N))


def _pairs(y, directed):
    """The pairs with an edge, each once."""
    return [(i, j) for i, j in itertools.permutations(range(N), 2) if y[i, j] and (directed or i < j)]


def _weighted(counts):
    return math.exp(DECAY) * sum(1 - (1 - math.exp(-DECAY)) ** c for c in counts)


def _partners(y, i, j):
    return sum(y[i, k] and y[k, j] for k in range(N) if k not in (i, j))


def _triples(y):
    return itertools.permutations(range(N), 3)


def _out(y):
    return [sum(y[v]) for v in range(N)]


def _in(y):
    return [sum(y[:, v]) for v in range(N)]


def _stars(degrees, *sizes):
    return [sum(math.comb(int(d), k) for d in degrees) for k in sizes]


def _number(degrees, *which):
    return [sum(int(d) == k for d in degrees) for k in which]


def _all_pairs(directed):
    return [(i, j) for i, j in itertools.permutations(range(N), 2) if directed or i < j]


def _matched(y, d, group=None):
    return sum(GROUP[i] == GROUP[j] and group in (None, GROUP[i]) for i, j in _pairs(y, d))


def _mixed(y, d):
    found = []
    cells = itertools.product("abc", "abc") if d else itertools.combinations_with_replacement("abc", 2)
    for a, b in sorted(cells, key=lambda cell: cell[::-1]):
        ends = [(GROUP[i], GROUP[j]) for i, j in _pairs(y, d)]
        found.append(sum(e == (a, b) or (not d and e == (b, a)) for e in ends))
    return found[1:]


def _both(y, d):
    return sum(y[i, j] and y[j, k] and y[i, k] for i, j, k in _triples(y))


def _round(y, d):
    return sum(y[i, j] and y[j, k] and y[k, i] for i, j, k in _triples(y)) / 3


def _covered(y, d):
    matrix = DISTANCE if d else DISTANCE + DISTANCE.T
    return sum(matrix[i, j] for i, j in _pairs(y, d))


#: How a term is written, the graphs it is of, and its statistics counted plainly.
DEFINITIONS = {
    "edges": ("both", lambda y, d: len(_pairs(y, d))),
    "triangle": ("both", lambda y, d: _both(y, d) + _round(y, d) if d else _both(y, d) / 6),
    "isolates": ("both", lambda y, d: sum(not y[v].any() and not y[:, v].any() for v in range(N))),
    "kstar(2, 3)": ("no", lambda y, d: _stars(_out(y), 2, 3)),
    "degree(0, 2)": ("no", lambda y, d: _number(_out(y), 0, 2)),
    "gwdegree(0.4)": ("no", lambda y, d: _weighted(_out(y))),
    "gwesp(0.4)": ("both", lambda y, d: _weighted([_partners(y, i, j) for i, j in _pairs(y, d)])),
    "gwdsp(0.4)": ("both", lambda y, d: _weighted([_partners(y, i, j) for i, j in _all_pairs(d)])),
    "mutual": ("yes", lambda y, d: sum(y[i, j] and y[j, i] for i, j in _all_pairs(False))),
    "ttriple": ("yes", _both),
    "ctriple": ("yes", _round),
    "twopath": ("yes", lambda y, d: sum(y[i, j] and y[j, k] for i, j, k in _triples(y))),
    "ostar(1, 2)": ("yes", lambda y, d: _stars(_out(y), 1, 2)),
    "istar(2, 3)": ("yes", lambda y, d: _stars(_in(y), 2, 3)),
    "odegree(1, 2)": ("yes", lambda y, d: _number(_out(y), 1, 2)),
    "idegree(0, 3)": ("yes", lambda y, d: _number(_in(y), 0, 3)),
    "gwodegree(0.4)": ("yes", lambda y, d: _weighted(_out(y))),
    "gwidegree(0.4)": ("yes", lambda y, d: _weighted(_in(y))),
    "sender": ("yes", lambda y, d: _out(y)[1:]),
    "receiver": ("yes", lambda y, d: _in(y)[1:]),
    "nodecov(age)": ("both", lambda y, d: sum(AGE[i] + AGE[j] for i, j in _pairs(y, d))),
    "nodeocov(age)": ("yes", lambda y, d: sum(AGE[i] for i, j in _pairs(y, d))),
    "nodeicov(age)": ("yes", lambda y, d: sum(AGE[j] for i, j in _pairs(y, d))),
    "nodefactor(group)": ("both", lambda y, d: [sum(GROUP[v] == g for e in _pairs(y, d) for v in e) for g in "bc"]),
    "nodematch(group)": ("both", _matched),
    "nodematch(group, each)": ("both", lambda y, d: [_matched(y, d, g) for g in "abc"]),
    "nodemix(group)": ("both", _mixed),
    "absdiff(age)": ("both", lambda y, d: sum(abs(AGE[i] - AGE[j]) for i, j in _pairs(y, d))),
    "absdiff(age, 2)": ("both", lambda y, d: sum(abs(AGE[i] - AGE[j]) ** 2 for i, j in _pairs(y, d))),
    "edgecov(distance)": ("both", _covered),
    "offset(triangle, 0.3)": ("no", lambda y, d: _both(y, d) / 6),
}
DIRECTED = {"both": (False, True), "yes": (True,), "no": (False,)}
CASES = [(text, d) for text, (kinds, _) in DEFINITIONS.items() for d in DIRECTED[kinds]]


def _graph(directed, density, seed):
    matrix = np.random.default_rng(seed).random((N, N)) < density
    np.fill_diagonal(matrix, False)
    matrix = matrix if directed else np.triu(matrix) | np.triu(matrix).T
    graph = networkx.from_numpy_array(matrix, create_using=networkx.DiGraph if directed else networkx.Graph)
    networkx.set_node_attributes(graph, dict(enumerate(AGE.tolist())), "age")
    networkx.set_node_attributes(graph, dict(enumerate(GROUP)), "group")
    return network_of(graph)


def _gaps(terms, definition, directed, extra=0):
    """The largest differences of statistics and of changes from what is counted, over graphs sparse and dense."""
    worst = np.zeros(2)
    for seed, density in enumerate((0.08, 0.2, 0.4, 0.8)):
        network = _graph(directed, density, seed)
        model = Model([*parse("edges"), *terms] if extra else terms, network)
        y = network.adjacency()
        truth = np.atleast_1d(definition(y, directed)).astype(float)
        worst[0] = max(
            worst[0],
            np.abs(model.statistics(network.edges)[extra:] - truth).max(),
            np.abs(model.defined(y)[extra:] - truth).max(),
        )
        pairs = network.pairs()
        pairs = pairs[np.random.default_rng(seed).permutation(len(pairs))[:20]]
        present, rows = model.changes(network.edges, pairs)
        for (i, j), here, row in zip(pairs.tolist(), present, rows, strict=True):
            other = y.copy()
            other[i, j] = not here
            if not directed:
                other[j, i] = not here
            change = (truth - np.atleast_1d(definition(other, directed))) * (1 if here else -1)
            worst[1] = max(worst[1], np.abs(row[extra:] - change).max())
    return worst


@pytest.mark.parametrize(("text", "directed"), CASES)
def test_statistics_and_changes_are_those_of_the_definition(text, directed):
    covariates = {"distance": DISTANCE if directed else DISTANCE + DISTANCE.T}
    terms = parse(text, covariates)
    worst = _gaps(terms, DEFINITIONS[text][1], directed, extra=int("offset" in text))
    assert worst.max() < 1e-9, worst


def test_every_term_is_among_these():
    assert {text.split("(")[0] for text in DEFINITIONS} == set(TERMS)


def one_too_many(graph, i, j, present, values, delta):
    """Degrees are taken with the edge in them, where it is."""
    delta[0] = out_degree(graph, i) + out_degree(graph, j)


def test_a_wrong_change_function_is_found():
    worst = _gaps([Own(one_too_many, ("stars",))], lambda y, d: _stars(_out(y), 2), False)
    assert worst[1] > 0.5
