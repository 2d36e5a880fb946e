"""Networks that come with the library."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import networkx

#: Net wealth of the families in 1427, in thousands of lira (Padgett; in Wasserman and Faust 1994).
WEALTH = {
    "Acciaiuoli": 10,
    "Albizzi": 36,
    "Barbadori": 55,
    "Bischeri": 44,
    "Castellani": 20,
    "Ginori": 32,
    "Guadagni": 8,
    "Lamberteschi": 42,
    "Medici": 103,
    "Pazzi": 48,
    "Peruzzi": 49,
    "Pucci": 3,
    "Ridolfi": 27,
    "Salviati": 10,
    "Strozzi": 146,
    "Tornabuoni": 48,
}


def florentine() -> "networkx.Graph":
    """Marriages between 16 families of Florence in the 15th century, with their wealth (Padgett and Ansell 1993).

    The edges are those of networkx, which leaves out the Pucci, who married none of the others.

    >>> graph = florentine()
    >>> graph.number_of_nodes(), graph.number_of_edges(), graph.nodes["Medici"]["wealth"]
    (16, 20, 103)
    """
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from((family, {"wealth": wealth}) for family, wealth in WEALTH.items())
    graph.add_edges_from(networkx.florentine_families_graph().edges)
    return graph


def local_network(name: str) -> "networkx.Graph":
    """A network from the file networks/NAME.json of the folder UNNORM_DATA: n, directed, edges, vertex_attributes."""
    import networkx

    from unnorm.data.local import local_file

    file = local_file(f"networks/{name}.json", "the R packages ergm and network, written out as JSON")
    told = json.loads(file.read_text())
    graph: Any = networkx.DiGraph() if told["directed"] else networkx.Graph()
    graph.add_nodes_from(range(told["n"]))
    graph.add_edges_from(told["edges"])
    for attribute, values in told["vertex_attributes"].items():
        networkx.set_node_attributes(graph, dict(enumerate(values)), attribute)
    return graph
