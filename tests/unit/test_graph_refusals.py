"""What random graphs refuse, in a sentence that says what to do."""

import networkx
import numpy as np
import pytest

from unnorm.errors import InputError
from unnorm.graphs import fit, florentine


def _with(**attributes):
    graph = networkx.path_graph(6)
    for name, values in attributes.items():
        networkx.set_node_attributes(graph, {v: x for v, x in enumerate(values) if x is not None}, name)
    return graph


def _loops():
    graph = networkx.path_graph(5)
    graph.add_edge(2, 2)
    return graph


REFUSED = {
    "loops": (_loops, "edges", "have an edge to themselves"),
    "loops of a matrix": (lambda: np.eye(4), "edges", "set the diagonal to 0"),
    "repeated edges": (lambda: networkx.MultiGraph([(0, 1), (0, 1), (1, 2)]), "edges", "edges repeat another"),
    "one vertex": (lambda: networkx.empty_graph(1), "edges", "at least 2 vertices"),
    "not a graph": (lambda: [[0, 1]], "edges", "not list"),
    "weights": (lambda: np.array([[0, 2], [2, 0]]), "edges", "zeros and ones only"),
    "no terms": (florentine, "", "term"),
    "unknown term": (florentine, "edges, trianglez", "did you mean triangle"),
    "term of directed graphs": (florentine, "edges, mutual", "graphs with directions"),
    "term of graphs without directions": (lambda: networkx.DiGraph([(0, 1), (1, 2)]), "kstar(2)", "istar(k) or ostar"),
    "unknown attribute": (florentine, "edges, nodecov(age)", "the attributes there are: wealth"),
    "attribute missing": (lambda: _with(age=[1, 2, None, 4, 5, 6]), "nodecov(age)", "missing for 1 of 6"),
    "words for numbers": (lambda: _with(age=list("abcabc")), "nodecov(age)", "nodefactor(age)"),
    "one group": (lambda: _with(group=list("aaaaaa")), "edges, nodematch(group)", "at least two groups"),
    "collinear": (
        lambda: _with(age=[1, 2, 3, 4, 5, 6], twice=[2, 4, 6, 8, 10, 12]),
        "edges, nodecov(age), nodecov(twice)",
        "cannot be told apart",
    ),
    "term twice": (florentine, "edges, edges", "more than once"),
    "only offsets": (florentine, "offset(edges, -1)", "nothing to learn"),
    "no such covariate": (florentine, "edges, edgecov(distance)", "pass covariates="),
    "decay missing": (florentine, "edges, gwesp(a)", "is no number"),
    "bracket": (florentine, "edges, gwesp(0.5", "bracket"),
    "forbidden edge": (florentine, "edges, offset(nodecov(wealth), -inf)", "forbids"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_sentence(name):
    graph, terms, said = REFUSED[name]
    with pytest.raises(InputError) as caught:
        fit(graph(), terms)
    sentence = str(caught.value)
    assert said in sentence, sentence
    assert "\n" not in sentence


def test_method_and_lists_of_other_vertices_are_refused():
    with pytest.raises(InputError, match="methods are"):
        fit(florentine(), "edges", method="guess")
    with pytest.raises(InputError, match="on the same vertices"):
        fit([networkx.path_graph(4), networkx.path_graph(5)], "edges")
    with pytest.raises(InputError, match="at least one"):
        fit([], "edges")
