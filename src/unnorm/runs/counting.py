"""log Z of an energy on zeros and ones, by counting all of them; possible for few."""

import jax
import jax.numpy as jnp
import numpy as np

from unnorm.compiling import compiled
from unnorm.energies import AbstractEnergy
from unnorm.estimate import Estimate
from unnorm.spaces import AbstractSpace, Binary

#: Points of so many bits are counted one by one.
MOST_BITS = 16
#: How many at a time.
BLOCK = 4096


def few_points(space: AbstractSpace) -> bool:
    """Whether the space has few enough points to be counted.

    >>> few_points(Binary((3, 4))), few_points(Binary((40,)))
    (True, False)
    """
    return isinstance(space, Binary) and space.size <= MOST_BITS


@compiled
def _block(model: AbstractEnergy, numbers: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    size = int(np.prod(shape))

    def at(number):
        bits = (number >> jnp.arange(size)) & 1
        return -model(bits.astype(float).reshape(shape))

    return jax.nn.logsumexp(jax.vmap(at)(numbers))


def counted_log_z(model: AbstractEnergy) -> Estimate:
    """log sum_x exp(-E(x)) over all points.

    >>> import unnorm as un
    >>> coins = un.energies.FunctionEnergy(lambda x: 0.0 * x.sum(), Binary((5,)))
    >>> round(counted_log_z(coins).value / np.log(2), 4)
    5.0
    """
    space = model.space
    assert isinstance(space, Binary)
    count = 2**space.size
    numbers = np.arange(count).reshape(-1, min(count, BLOCK))
    parts = np.array([float(_block(model, jnp.asarray(some), space.shape)) for some in numbers])
    largest = parts.max()
    value = float(largest + np.log(np.sum(np.exp(parts - largest))))
    return Estimate(value, 0.0, f"all {count:,} points counted")
