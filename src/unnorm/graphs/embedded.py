"""Networks that come with the library."""

from typing import TYPE_CHECKING

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
