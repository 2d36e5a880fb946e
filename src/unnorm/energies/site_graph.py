"""Which sites are neighbours: lattices, and graphs of any kind."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int

from unnorm.arguments import require_count, shown
from unnorm.errors import InputError, require


@dataclass(frozen=True, eq=False)
class SiteGraph:
    """Sites in an array of a shape, numbered along the flattened array, and the edges (i, j), i < j, between them.

    Two of the same sites and edges are equal, so that they ride as static data through compiled programs.

    >>> lattice((2, 2)).edges.tolist()
    [[0, 1], [0, 2], [1, 3], [2, 3]]
    """

    shape: tuple[int, ...]
    edges: Int[np.ndarray, "edges 2"]

    def __post_init__(self) -> None:
        edges = np.asarray(self.edges, np.int64).reshape(-1, 2)
        inside = edges.size == 0 or (edges.min() >= 0 and edges.max() < self.size)
        require(bool(inside), f"an edge leads to a site that does not exist; there are sites 0 to {self.size - 1}")
        require(bool(np.all(edges[:, 0] != edges[:, 1])), "an edge leads from a site to itself; remove it")
        object.__setattr__(self, "edges", np.unique(np.sort(edges, axis=1), axis=0).astype(np.int32))

    @property
    def size(self) -> int:
        """The number of sites."""
        return int(np.prod(self.shape))

    @cached_property
    def _digest(self) -> bytes:
        return hashlib.sha256(repr(self.shape).encode() + self.edges.tobytes()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SiteGraph) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    @cached_property
    def neighbours(self) -> tuple[Int[np.ndarray, "sites degree"], Int[np.ndarray, "sites degree"]]:
        """The neighbours of every site and the numbers of the edges to them, filled up by site n and edge m."""
        count, m = self.size, len(self.edges)
        ends = np.concatenate([self.edges, self.edges[:, ::-1]])
        number = np.tile(np.arange(m), 2)
        order = np.argsort(ends[:, 0], kind="stable")
        ends, number = ends[order], number[order]
        degrees = np.bincount(ends[:, 0], minlength=count)
        place = np.arange(2 * m) - np.repeat(np.cumsum(degrees) - degrees, degrees)
        width = max(1, int(degrees.max(initial=0)))
        sites, edges = np.full((count, width), count, np.int32), np.full((count, width), m, np.int32)
        sites[ends[:, 0], place], edges[ends[:, 0], place] = ends[:, 1], number
        return sites, edges

    @cached_property
    def colours(self) -> tuple[Int[np.ndarray, " sites"], ...]:
        """Sites of one colour are no neighbours; a lattice that is a checkerboard has two colours."""
        neighbours, count = self.neighbours[0], self.size
        colour = np.full(count + 1, -1)
        for first in range(count):
            if colour[first] >= 0:
                continue
            # Breadth first: every site but the first has a neighbour with a colour, so that a checkerboard needs two.
            waiting = [first]
            while waiting:
                following = []
                for site in waiting:
                    if colour[site] >= 0:
                        continue
                    taken = set(colour[neighbours[site]].tolist())
                    colour[site] = next(c for c in range(count) if c not in taken)
                    following += [int(j) for j in neighbours[site] if j < count and colour[j] < 0]
                waiting = following
        return tuple(np.flatnonzero(colour[:count] == c) for c in range(int(colour.max()) + 1))


def lattice(shape: Sequence[int], *, periodic: bool = False) -> SiteGraph:
    """The square lattice of any dimension: neighbours differ by one in one coordinate; round the edges if `periodic`.

    >>> len(lattice((3, 4)).edges), len(lattice((3, 4), periodic=True).edges)
    (17, 24)
    """
    for length in shape:
        require_count(length, 1, "the sides of a lattice")
    numbers, edges = np.arange(int(np.prod(shape))).reshape(tuple(shape)), []
    for axis, length in enumerate(shape):
        further = np.roll(numbers, -1, axis)
        pairs = np.stack([numbers, further], axis=-1)
        # Round a side of two both ways lead to the same neighbour, and round a side of one to the site itself.
        around = periodic and length > 2
        edges.append(pairs.take(range(length if around else length - 1), axis).reshape(-1, 2))
    return SiteGraph(tuple(int(n) for n in shape), np.concatenate(edges))


def site_graph(graph: Any) -> SiteGraph:
    """The sites and edges of a networkx graph without directions, its vertices numbered in their order.

    >>> import networkx
    >>> site_graph(networkx.path_graph(3)).edges.tolist()
    [[0, 1], [1, 2]]
    """
    if not (hasattr(graph, "nodes") and hasattr(graph, "edges")):
        raise InputError(f"sites and edges are those of a networkx graph, not of {shown(graph)}; or use lattice(shape)")
    numbers = {vertex: i for i, vertex in enumerate(graph.nodes)}
    pairs = [(numbers[a], numbers[b]) for a, b, *_ in graph.edges]
    return SiteGraph((len(numbers),), np.asarray(pairs, np.int64).reshape(-1, 2))
