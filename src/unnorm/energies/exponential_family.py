"""Exponential families: an energy that is linear in its parameters."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unnorm.energies.base import AbstractEnergy, Point, Scalar
from unnorm.errors import require
from unnorm.spaces import AbstractSpace


class ExponentialFamily(AbstractEnergy):
    """E(x) = -theta'T(x), with statistics T given as a function of one point (seed 002).

    The likelihood is concave in theta, and at its maximum E_p[T] is the mean of T over the data.

    >>> from unnorm.spaces import Real
    >>> bell = ExponentialFamily(Real((1,)), lambda x: jnp.array([x[0], -0.5 * x[0] ** 2]), [0.0, 1.0])
    >>> float(bell(jnp.array([2.0])))
    2.0
    """

    theta: Float[Array, " k"]
    statistics: Callable[[Point], Float[Array, " k"]]
    space: AbstractSpace = eqx.field(static=True)

    def __init__(self, space: AbstractSpace, statistics: Callable[[Point], Float[Array, " k"]], theta: Any):
        self.space, self.statistics, self.theta = space, statistics, jnp.asarray(theta, float)
        found: Any = jax.eval_shape(statistics, space.struct())
        require(
            self.theta.ndim == 1 and found.shape == self.theta.shape,
            f"as many parameters as statistics are needed, one row of each, not {self.theta.shape} and {found.shape}",
        )

    def __call__(self, x: Point) -> Scalar:
        return -(self.theta @ self.statistics(x))
