"""One mesh over all devices; batches and chains are split along it.

With a single device every function here is the identity, so the same program runs on a laptop and on eight cards.
Random numbers do not depend on how arrays are split (JAX's partitionable Threefry), so neither do results, to rounding.
"""

from typing import TypeVar

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unnorm.errors import require

T = TypeVar("T")


def device_mesh() -> Mesh:
    """The one mesh: every device along one axis called `batch`."""
    return jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))


def split_over_devices(tree: T, axis: int = 0) -> T:
    """Ask the compiler to split one axis of every array, the leading one unless told, over the devices."""
    if jax.device_count() == 1:
        return tree
    sharding = NamedSharding(device_mesh(), PartitionSpec(*[None] * axis, "batch"))
    return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, sharding), tree)


def require_divisible(count: int, what: str) -> None:
    """Refuse a batch or a number of chains that the devices cannot share equally."""
    devices = jax.device_count()
    require(
        count % devices == 0,
        f"{count} {what} cannot be shared equally by {devices} devices; use a multiple of {devices}",
    )
