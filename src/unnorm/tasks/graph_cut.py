"""The exact minimum of an Ising model whose neighbours like to be equal: a cut of least weight through a network."""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from unnorm.energies import Ising
from unnorm.errors import require
from unnorm.tasks.restoration import Restored, energy_of, numbers_of

#: Capacities are whole numbers of 32 bits up to this one, so that an edge and its reverse together still are.
LARGEST = 2**30 - 1


def graph_cut(posterior: Ising) -> Restored:
    """The picture of least energy, exactly (Greig, Porteous and Seheult 1989); the fewest ones, of several such.

    But for a constant E(x) = sum_i a_i^+ (1 - x_i) + a_i^- x_i + sum_{i~j} beta_ij 1[x_i != x_j], a = a^+ - a^-: the
    weight of a cut through the network with edges a_i^+ from the source to i, a_i^- from i to the sink, and beta_ij
    both ways between neighbours. Sites on the source's side are 1. Couplings below 0 would be capacities below 0, and
    are refused.

    Capacities are rounded down to whole numbers, the largest being 2^30 - 1. A flow under them is one under the true
    ones too, so that its value bounds every cut from below: `above` is the picture's weight minus that bound, some
    billionths of the largest capacity for every edge, and 0 in exact arithmetic.

    >>> from unnorm.energies import lattice
    >>> found = graph_cut(Ising(lattice((1, 3)), [[2.0, -0.5, 2.0]], 1.0))
    >>> found.picture.tolist(), round(found.energy, 6)
    ([[1.0, 1.0, 1.0]], -5.5)
    """
    field, coupling = numbers_of(posterior)
    worst = float(coupling.min(initial=0.0))
    require(
        worst >= 0,
        f"a cut needs neighbours that like to be equal, couplings from 0 up, and one is {worst:g}, which anneal takes",
    )
    n, (a, b) = len(field), posterior.sites.edges.T.astype(np.int64)
    source, sink, every = np.full(n, n), np.full(n, n + 1), np.arange(n)
    begin, end = np.concatenate([source, every, a, b]), np.concatenate([every, sink, b, a])
    weights = np.concatenate([np.maximum(field, 0), np.maximum(-field, 0), coupling, coupling])
    largest = float(weights.max())
    scale = LARGEST / largest if largest > 0 else 1.0
    capacity = np.floor(weights * scale).astype(np.int32)
    kept = capacity > 0
    network = coo_array((capacity[kept], (begin[kept], end[kept])), shape=(n + 2, n + 2)).tocsr()
    flow = maximum_flow(network, n, n + 1).flow
    left = (network - flow).tocsr()
    left.eliminate_zeros()
    side = breadth_first_order(left, n, return_predecessors=False)
    ones = np.zeros(n + 2, np.float32)
    ones[side] = 1
    picture = ones[:n].reshape(posterior.sites.shape)
    energy = energy_of(posterior, picture)
    value = int(flow[[n]].sum(dtype=np.int64)) / scale
    bound = value - float(np.maximum(field, 0).sum() + coupling.sum())
    return Restored(picture, energy, max(0.0, energy - bound), 0)
