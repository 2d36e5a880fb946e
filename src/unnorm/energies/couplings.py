"""Which sites go together, of any energy: how much more likely two are 1 together than their odds apart say."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from unnorm.compiling import compiled
from unnorm.energies.base import AbstractEnergy
from unnorm.energies.factorised import array_space, values_of

#: Pairs of sites whose energies are computed together.
AT_ONCE = 64


@compiled
def _strengths(energy: AbstractEnergy, rows: Shaped[Array, "n ..."], pairs: Int[Array, "p 2"]) -> Float[Array, "p k k"]:
    k = values_of(energy.space)
    values = jnp.arange(k)

    def at(x: Array, i: Array, j: Array) -> Float[Array, "k k"]:
        flat = x.reshape(-1)

        def of(a: Array, b: Array) -> Array:
            there = flat.at[i].set(a.astype(x.dtype)).at[j].set(b.astype(x.dtype))
            return -energy(there.reshape(x.shape))

        table = jax.vmap(lambda a: jax.vmap(lambda b: of(a, b))(values))(values)
        return table - table[:1] - table[:, :1] + table[:1, :1]

    def of_pair(pair: Int[Array, "2"]) -> Float[Array, "k k"]:
        return jnp.mean(jax.vmap(lambda x: at(x, pair[0], pair[1]))(rows), axis=0)

    return jax.lax.map(of_pair, pairs, batch_size=AT_ONCE)


def pair_couplings(energy: AbstractEnergy, rows: Shaped[Array, "n ..."]) -> Float[np.ndarray, "sites sites"]:
    """J_ij = mean over rows of log [p(1, 1) p(0, 0) / (p(1, 0) p(0, 1))] of sites i and j given all others.

    A log odds ratio, from -E alone. Of a pairwise network and of an Ising model it is the coupling, the same at every
    row; of other energies an average of what the others' values make of it. Of more than two values it is the norm of
    the table of log odds ratios against the first value.

    >>> from unnorm.energies import FunctionEnergy
    >>> from unnorm.spaces import Binary
    >>> tied = FunctionEnergy(lambda x: -2.0 * x[0] * x[2], Binary((3,)))
    >>> pair_couplings(tied, jnp.zeros((1, 3))).tolist()
    [[0.0, 0.0, 2.0], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]
    """
    n, k = energy.space.size, values_of(array_space(energy.space))
    above = np.triu_indices(n, 1)
    tables = np.asarray(_strengths(energy, jnp.asarray(rows), jnp.asarray(np.stack(above, axis=1))))
    found = tables[:, 1, 1] if k == 2 else np.sqrt((tables[:, 1:, 1:] ** 2).sum((1, 2)))
    couplings = np.zeros((n, n))
    couplings[above] = found
    return couplings + couplings.T
