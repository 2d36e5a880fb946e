"""Networks as files: GraphML with attributes, GML, JSON, lists of edges; many as one file or a folder."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unnorm.errors import require
from unnorm.files import write_atomically

#: Endings that any number of networks can be written to, and those for one.
MANY, ONE = (".graphml", ".csv"), (".gml", ".json", ".edges", ".txt")


def require_network_format(path: Path, count: int) -> None:
    """Refuse an ending that so many networks cannot be written to."""
    require(
        path.suffix in (*MANY, *ONE),
        f"{path} should end in one of {', '.join((*MANY, *ONE))}, or in nothing, for a folder",
    )
    require(
        count == 1 or path.suffix in MANY,
        f"a {path.suffix} file holds one network, not {count}; write {' or '.join(MANY)}, or a folder (a name without "
        "an ending)",
    )


def write_networks(graphs: Sequence[Any], path: Path) -> None:
    """Graphs of networkx in one file; whole or not there."""
    require_network_format(path, len(graphs))
    write_atomically(path, network_bytes(graphs, path.suffix))


def network_bytes(graphs: Sequence[Any], suffix: str) -> bytes:
    """Graphs of networkx as the content of a file with this ending."""
    if suffix == ".graphml":
        return _graphml(graphs)
    if suffix == ".csv":
        return edges_text(graphs).encode()
    if suffix == ".gml":
        import networkx

        return ("\n".join(networkx.generate_gml(graphs[0])) + "\n").encode()
    if suffix == ".json":
        return _json(graphs[0])
    return "".join(f"{_word(a)} {_word(b)}\n" for a, b in graphs[0].edges()).encode()


def edges_text(graphs: Sequence[Any]) -> str:
    """A line for each edge: the number of its graph, from 1, and its two ends; vertices without edges have none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["graph", "from", "to"])
    for number, graph in enumerate(graphs, 1):
        writer.writerows([number, a, b] for a, b in graph.edges())
    return text.getvalue()


def _word(label: Any) -> str:
    text = str(label)
    return f'"{text}"' if any(sign.isspace() or sign in "\"'#%," for sign in text) else text


def _graphml(graphs: Sequence[Any]) -> bytes:
    from networkx.readwrite.graphml import GraphMLWriter

    writer = GraphMLWriter(encoding="utf-8", prettyprint=True)
    for number, graph in enumerate(graphs, 1):
        writer.add_graph_element(graph)
        if len(graphs) > 1:
            writer.xml[-1].set("id", str(number))
    buffer = io.BytesIO()
    writer.dump(buffer)
    return buffer.getvalue()


def _json(graph: Any) -> bytes:
    number = {label: v for v, label in enumerate(graph.nodes)}
    names = dict.fromkeys(name for _, data in graph.nodes(data=True) for name in data)
    attributes = {name: [data.get(name) for _, data in graph.nodes(data=True)] for name in names}
    content = {
        "n": len(number),
        "directed": graph.is_directed(),
        "edges": [[number[a], number[b]] for a, b in graph.edges()],
        "vertex_attributes": {"vertex.names": [str(label) for label in number], **attributes},
    }
    return (json.dumps(content, indent=1) + "\n").encode()
