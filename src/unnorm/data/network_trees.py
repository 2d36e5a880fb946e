"""Networks in formats that carry attributes: GraphML, GML, and JSON."""

import json
from pathlib import Path
from typing import Any

from unnorm.data.network_raw import RawNetwork, require_text
from unnorm.errors import InputError, require

#: The attribute that names vertices in files that number them.
NAMES = ("vertex.names", "name", "names", "label", "labels")


def read_graphml(path: Path) -> RawNetwork:
    """GraphML, as networkx, igraph, Gephi and yEd write it."""
    import xml.etree.ElementTree as tree

    import networkx
    from networkx.readwrite.graphml import GraphMLReader

    shown = repr(str(path))
    try:
        graphs = list(GraphMLReader()(path=str(path)))
    except tree.ParseError as error:
        raise InputError(f"{shown} is no whole GraphML file ({error}); write it again") from error
    except (networkx.NetworkXException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{shown} cannot be read as GraphML: {_short(error)}") from error
    require(len(graphs) > 0, f"{shown} holds no graph; write it again")
    require(
        len(graphs) == 1,
        f"{shown} holds {len(graphs)} graphs, and a fit takes one; in Python unnorm.graphs.fit takes a list of them",
    )
    return _of_graph(graphs[0])


def read_gml(path: Path) -> RawNetwork:
    """GML, with the labels of vertices or else their numbers."""
    import networkx

    shown = repr(str(path))
    text = require_text(path.read_bytes(), shown)
    try:
        try:
            graph = networkx.parse_gml(text)
        except networkx.NetworkXError as error:
            if "label" not in str(error):
                raise
            graph = networkx.parse_gml(text, label="id")
    except (networkx.NetworkXException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{shown} cannot be read as GML: {_short(error)}") from error
    return _of_graph(graph)


def read_json(path: Path) -> RawNetwork:
    """{"n", "directed", "edges", "vertex_attributes"} with vertices numbered from 0, or networkx's node-link data."""
    shown = repr(str(path))
    try:
        content = json.loads(require_text(path.read_bytes(), shown))
    except json.JSONDecodeError as error:
        raise InputError(f"{shown} is no whole JSON document ({_short(error)}); write it again") from error
    require(isinstance(content, dict), f"{shown} is JSON, but no network: it needs at least n and edges")
    if "nodes" in content and ("links" in content or "edges" in content):
        return _node_link(content, shown)
    require("n" in content and "edges" in content, f"{shown} is JSON, but no network: it needs at least n and edges")
    n, edges = content["n"], content["edges"]
    require(isinstance(n, int) and not isinstance(n, bool) and n >= 0, f"n in {shown} is no whole number: {n!r}")
    require(
        isinstance(edges, list)
        and all(isinstance(e, list) and len(e) >= 2 and all(_is_vertex(v, n) for v in e[:2]) for e in edges),
        f"edges in {shown} should be pairs of whole numbers from 0 to {n - 1}",
    )
    require(not content.get("bipartite"), f"{shown} is bipartite, which these models do not know yet")
    require(
        not content.get("edge_missing"),
        f"{shown} has pairs of which nothing is known (edge_missing); write the network as a matrix with NA there, or "
        "remove edge_missing to count them as without an edge",
    )
    attributes = content.get("vertex_attributes") or {}
    require(isinstance(attributes, dict), f"vertex_attributes in {shown} should be lists by name")
    for name, values in attributes.items():
        require(
            isinstance(values, list) and len(values) == n,
            f"the attribute {name!r} in {shown} should be a list of {n} values, one for each vertex",
        )
    labels, attributes = _named(list(range(n)), {name: list(map(_plain, v)) for name, v in attributes.items()})
    pairs = [(labels[e[0]], labels[e[1]]) for e in edges]
    return RawNetwork(labels, pairs, bool(content.get("directed", False)), attributes, complete=True)


def _is_vertex(value: Any, n: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < n


def _node_link(content: dict[str, Any], shown: str) -> RawNetwork:
    import networkx

    try:
        graph = networkx.node_link_graph(content, edges="links" if "links" in content else "edges")
    except (networkx.NetworkXException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{shown} cannot be read as node-link data: {_short(error)}") from error
    return _of_graph(graph)


def _of_graph(graph: Any) -> RawNetwork:
    names = dict.fromkeys(str(name) for _, data in graph.nodes(data=True) for name in data)
    attributes = {name: [_plain(data.get(name)) for _, data in graph.nodes(data=True)] for name in names}
    return RawNetwork(
        list(graph.nodes), [(a, b) for a, b in graph.edges()], bool(graph.is_directed()), attributes, complete=True
    )


def _named(labels: list[Any], attributes: dict[str, list[Any]]) -> tuple[list[Any], dict[str, list[Any]]]:
    """Numbers replaced by names, where an attribute holds one for each."""
    for name in NAMES:
        values = attributes.get(name)
        if values is not None and all(v is not None for v in values) and len(set(values)) == len(values):
            return [str(v) for v in values], {key: v for key, v in attributes.items() if key != name}
    return labels, attributes


def _plain(value: Any) -> Any:
    """A value of an attribute: a number, a word, a truth value; what else there is as words, NaN as nothing."""
    if value is None or (isinstance(value, float) and value != value):
        return None
    return value if isinstance(value, bool | int | float | str) else str(value)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 120 else text[:119] + "…"
