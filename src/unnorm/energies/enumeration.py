"""Small discrete spaces, point by point: what can be summed exactly need not be estimated."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from unnorm.energies.base import AbstractEnergy, Scalar
from unnorm.errors import InputError, require
from unnorm.spaces import AbstractSpace, Binary, Categorical, Graph

#: More points than this are not enumerated.
MOST_POINTS = 2**22
#: Points whose energies are computed together.
BLOCK = 4096


def count_points(space: AbstractSpace) -> int | None:
    """How many points a space has; None if they cannot be counted.

    >>> from unnorm.spaces import Real
    >>> (
    ...     count_points(Binary((3, 4))),
    ...     count_points(Categorical((2,), 3)),
    ...     count_points(Graph(3)),
    ...     count_points(Real((1,))),
    ... )
    (4096, 9, 8, None)
    """
    if isinstance(space, Binary | Graph):
        return 2**space.size
    return space.categories**space.size if isinstance(space, Categorical) else None


def _require_few(space: AbstractSpace) -> int:
    count = count_points(space)
    if count is None:
        raise InputError(f"the points of {space} cannot be enumerated; use log_partition, which estimates")
    require(
        count <= MOST_POINTS,
        f"{space} has {count:.2g} points, too many to enumerate (at most {MOST_POINTS}); use log_partition, which "
        "estimates",
    )
    return count


def every_point(space: AbstractSpace) -> Shaped[np.ndarray, "n ..."]:
    """All points of a small discrete space, along a leading axis; the last coordinate changes fastest.

    >>> every_point(Binary((2,))).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    count = _require_few(space)
    k = space.categories if isinstance(space, Categorical) else 2
    powers = k ** np.arange(space.size - 1, -1, -1, dtype=np.int64)
    digits = (np.arange(count, dtype=np.int64)[:, None] // powers % k).astype(space.struct().dtype)
    if not isinstance(space, Graph):
        return digits.reshape(count, *space.struct().shape)
    pairs = ~np.eye(space.n, dtype=bool) if space.directed else np.triu(np.ones((space.n, space.n), bool), 1)
    graphs = np.zeros((count, space.n, space.n), digits.dtype)
    graphs[:, pairs] = digits
    return graphs if space.directed else graphs + graphs.swapaxes(1, 2)


def enumerated_log_z(energy: AbstractEnergy) -> Scalar:
    """log Z = log of the sum of exp(-E) over all points of a small discrete space, as a function of the parameters.

    >>> import unnorm as un
    >>> float(enumerated_log_z(un.energies.uniform(Binary((3,)))))
    0.0
    """
    points = jnp.asarray(every_point(energy.space))
    # What is computed of a block is computed once more for the gradient, not kept.
    one = eqx.filter_checkpoint(lambda energy, x: energy(x))
    values = jax.lax.map(lambda x: one(energy, x), points, batch_size=BLOCK)
    return jax.nn.logsumexp(-values)


def enumerated_energies(energy: AbstractEnergy, points: Shaped[Array, "n ..."]) -> Shaped[Array, " n"]:
    """E of every point, some thousands at a time."""
    return jax.lax.map(lambda x: energy(x), points, batch_size=BLOCK)
