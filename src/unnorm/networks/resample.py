"""Pictures of half and of twice the size, by means and copies or by the smoother (1, 3, 3, 1) filter.

Plain sums of slices, apart from any convolution: a processor does them in no time, and their derivatives too.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from unnorm.errors import require


def halve(x: Float[Array, "h w c"], *, smooth: bool = False) -> Float[Array, "p q c"]:
    """Half as many rows and columns: the mean of each square of four.

    `smooth` weighs (1, 3, 3, 1) / 8 along each axis instead (Karras et al. 2020, Zhang 2019), edges repeated, so that
    fine patterns are not taken for coarse ones.

    >>> halve(jnp.arange(4.0).reshape(2, 2, 1)).tolist()
    [[[1.5]]]
    """
    rows, columns, _ = x.shape
    require(rows % 2 == 0 and columns % 2 == 0, f"a picture of {rows} x {columns} cannot be halved; pad it first")
    for axis in (0, 1):
        x = jnp.moveaxis(x, axis, 0)
        if smooth:
            wide = jnp.concatenate([x[:1], x, x[-1:]])
            x = (wide[:-3:2] + 3 * wide[1:-2:2] + 3 * wide[2:-1:2] + wide[3::2]) / 8
        else:
            x = (x[::2] + x[1::2]) / 2
        x = jnp.moveaxis(x, 0, axis)
    return x


def double(x: Float[Array, "h w c"], *, smooth: bool = False) -> Float[Array, "p q c"]:
    """Twice as many rows and columns: every value four times.

    `smooth` makes them (3, 1) / 4 and (1, 3) / 4 of neighbours along each axis, edges repeated.

    >>> double(jnp.ones((1, 2, 1)), smooth=True).shape
    (2, 4, 1)
    """
    for axis in (0, 1):
        x = jnp.moveaxis(x, axis, 0)
        if smooth:
            before, after = jnp.concatenate([x[:1], x[:-1]]), jnp.concatenate([x[1:], x[-1:]])
            pair = jnp.stack([(3 * x + before) / 4, (3 * x + after) / 4], axis=1)
        else:
            pair = jnp.stack([x, x], axis=1)
        x = jnp.moveaxis(pair.reshape(-1, *x.shape[1:]), 0, axis)
    return x
