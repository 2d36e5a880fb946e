"""Networks from files: what is written is read back, and wrong files are refused in one sentence."""

from pathlib import Path

import networkx
import numpy as np
import pytest
from scipy import sparse

from unnorm.data.network_writing import network_bytes, write_networks
from unnorm.data.networks import read_network
from unnorm.errors import InputError


def friends():
    """Five people with attributes, one of them without an edge."""
    graph = networkx.Graph()
    for age, (name, team) in enumerate(zip("abcde", "xxyyy", strict=True)):
        graph.add_node(name, age=age, team=team)
    graph.add_edges_from([("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")])
    return graph


def pairs(found):
    """The edges by their labels."""
    ends = [(found.labels[i], found.labels[j]) for i, j in found.edges.tolist()]
    return {pair if found.directed else frozenset(pair) for pair in ends}


WHOLE = [frozenset(pair) for pair in ("ab", "bc", "ac", "cd")]


@pytest.mark.parametrize("ending", [".graphml", ".gml", ".json"])
def test_formats_with_attributes_come_back_whole(ending, tmp_path):
    write_networks([friends()], tmp_path / f"net{ending}")
    found = read_network(tmp_path / f"net{ending}")
    assert list(found.labels) == list("abcde") and pairs(found) == set(WHOLE) and not found.directed
    assert found.attributes == {"age": [0, 1, 2, 3, 4], "team": list("xxyyy")}
    assert list(found.to_networkx().nodes(data=True)) == list(friends().nodes(data=True))


@pytest.mark.parametrize("ending", [".csv", ".edges", ".txt"])
def test_lists_of_edges_come_back_with_a_table_of_nodes(ending, tmp_path):
    write_networks([friends()], tmp_path / f"net{ending}")
    alone = read_network(tmp_path / f"net{ending}")
    assert pairs(alone) == set(WHOLE) and sorted(alone.labels) == list("abcd")
    (tmp_path / "nodes.csv").write_text("name,age\na,1\nb,\nc,3\nd,4\ne,5\n")
    joined = read_network(tmp_path / f"net{ending}", nodes=tmp_path / "nodes.csv")
    assert joined.labels == tuple("abcde") and pairs(joined) == set(WHOLE)
    assert joined.attributes == {"age": [1, None, 3, 4, 5]}
    assert any("missing for 1 of 5" in remark for remark in joined.remarks)


def test_directions_come_back(tmp_path):
    graph = networkx.DiGraph([("a", "b"), ("b", "a"), ("b", "c")])
    write_networks([graph], tmp_path / "net.graphml")
    assert pairs(read_network(tmp_path / "net.graphml")) == set(graph.edges)
    write_networks([graph], tmp_path / "net.csv")
    assert pairs(read_network(tmp_path / "net.csv", directed=True)) == set(graph.edges)
    assert len(read_network(tmp_path / "net.csv", directed=False).edges) == 2
    with pytest.raises(InputError, match="say --directed"):
        read_network(tmp_path / "net.csv")


def test_matrices_in_every_format_are_one_network(tmp_path):
    matrix = networkx.to_numpy_array(friends())
    np.save(tmp_path / "net.npy", matrix)
    np.savez(tmp_path / "net.npz", adjacency=matrix, labels=np.array(list("abcde")), other=np.zeros(3))
    sparse.save_npz(tmp_path / "thin.npz", sparse.csr_array(matrix))
    rows = [",".join(f"{x:.0f}" for x in row) for row in matrix]
    (tmp_path / "net.csv").write_text("\n".join(rows))
    named = [f"{name},{row}" for name, row in zip("abcde", rows, strict=True)]
    (tmp_path / "named.csv").write_text("\n".join([",a,b,c,d,e", *named]))
    for name in ("net.npy", "net.npz", "thin.npz", "net.csv", "named.csv"):
        found = read_network(tmp_path / name)
        assert found.edges.tolist() == [[0, 1], [0, 2], [1, 2], [2, 3]] and not found.directed, name
    assert read_network(tmp_path / "named.csv").labels == read_network(tmp_path / "net.npz").labels == tuple("abcde")
    (tmp_path / "one-way.csv").write_text("0,1,0\n0,0,1\n0,0,0\n")
    assert read_network(tmp_path / "one-way.csv").directed


def test_what_is_not_known_is_no_edge_and_no_gap(tmp_path):
    """NA off the diagonal is a pair that nobody knows, once; on the diagonal it says nothing."""
    (tmp_path / "net.csv").write_text("NA,1,0,NA\n1,NA,0,1\n0,0,NA,0\n,1,0,NA\n")
    found = read_network(tmp_path / "net.csv")
    assert found.edges.tolist() == [[0, 1], [1, 3]] and found.missing.tolist() == [[0, 3]] and not found.directed
    (tmp_path / "one-way.csv").write_text("0,1,0,NA\n1,0,0,1\n0,0,0,0\n0,1,0,0\n")
    assert read_network(tmp_path / "one-way.csv").directed


def test_loops_and_repeats_are_left_out_and_said(tmp_path):
    (tmp_path / "net.csv").write_text("from,to\na,b\na,b\nc,c\nb,c\n")
    found = read_network(tmp_path / "net.csv")
    assert pairs(found) == {frozenset("ab"), frozenset("bc")}
    said = " ".join(found.remarks)
    assert "1 vertex has an edge to itself (c)" in said and "1 of 3 edges repeat another" in said


def test_ends_are_found_by_their_names(tmp_path):
    (tmp_path / "net.csv").write_text("weight,source,target\n2,a,b\n3,b,c\n")
    found = read_network(tmp_path / "net.csv")
    assert pairs(found) == {frozenset("ab"), frozenset("bc")}
    assert any("source and target are the ends" in remark for remark in found.remarks)


WRONG = {
    "empty.csv": ("", "is empty"),
    "header.csv": ("from,to\n", "header but no edges"),
    "half.csv": ("a,b\nc\n", "line 2 of"),
    "ragged.csv": ("x,y,1\nz,w\n", "line 2 of"),
    "tall.csv": ("0,1,0,1\n1,0,0,0\n0,0,0,0\n", "3 rows of 4 zeros and ones"),
    "words.csv": ("0,1,0,1\n1,0,x,0\n0,0,0,0\n1,0,0,0\n", "has 'x' in it"),
    "two.csv": ("graph,from,to\n1,a,b\n2,a,b\n", "holds 2 graphs"),
    "cut.graphml": ("<graphml>", "no whole GraphML"),
    "none.graphml": ("<html></html>", "holds no graph"),
    "cut.gml": ("graph [ node [ id x", "cannot be read as GML"),
    "cut.json": ('{"n": 3', "no whole JSON"),
    "list.json": ("[1, 2]", "needs at least n and edges"),
    "number.json": ('{"n": -1, "edges": []}', "no whole number"),
    "strange.json": ('{"n": 2, "edges": [[0, 5]]}', "from 0 to 1"),
    "two-sided.json": ('{"n": 2, "edges": [[0, 1]], "bipartite": 1}', "bipartite"),
    "one.json": ('{"n": 1, "edges": []}', "at least 2"),
    "what.xyz": ("a b", "no ending that networks are read from"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused_in_one_sentence(name, tmp_path):
    text, said = WRONG[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        read_network(tmp_path / name)
    sentence = str(caught.value)
    assert said in sentence and "\n" not in sentence, sentence


def test_wrong_arrays_are_refused(tmp_path):
    wrong = {
        "is not square": np.zeros((3, 4)),
        "infinite values": np.full((3, 3), np.inf),
        "does not hold numbers": np.full((3, 3), "a"),
    }
    for said, array in wrong.items():
        np.save(tmp_path / "net.npy", array)
        with pytest.raises(InputError, match=said):
            read_network(tmp_path / "net.npy")
    (tmp_path / "net.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"no \.npz file"):
        read_network(tmp_path / "net.npz")
    np.savez(tmp_path / "net.npz", first=np.zeros((2, 2)), second=np.zeros((2, 2)))
    with pytest.raises(InputError, match="call the matrix adjacency"):
        read_network(tmp_path / "net.npz")
    (tmp_path / "bytes.csv").write_bytes(b"a,b\xff\n")
    with pytest.raises(InputError, match="not UTF-8"):
        read_network(tmp_path / "bytes.csv")
    with pytest.raises(InputError, match="is a folder"):
        read_network(tmp_path)


NODES = {
    "name,age\na,1\n": "have no row",
    "name,age\na,1\na,2\n": "names a vertex twice",
    "name,age\na,1,2\n": "has 3 fields",
    "name,name\na,a\n": "two columns of one name",
    "name,age\n": "needs a header and a row",
    "name,age\n,1\n": "has empty fields",
    "name,\na,1\n": "has no name",
}


@pytest.mark.parametrize("text", NODES)
def test_wrong_tables_of_nodes_are_refused(text, tmp_path):
    (tmp_path / "net.csv").write_text("a,b\nb,c\n")
    (tmp_path / "nodes.csv").write_text(text)
    with pytest.raises(InputError, match=NODES[text]):
        read_network(tmp_path / "net.csv", nodes=tmp_path / "nodes.csv")


def test_files_of_many_are_refused_where_one_fits():
    many = network_bytes([friends(), friends()], ".graphml")
    assert many.count(b"<graph ") == 2
    with pytest.raises(InputError, match="holds one network, not 2"):
        write_networks([friends(), friends()], Path("net.gml"))
