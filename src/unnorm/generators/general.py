"""The ways back of any equation dX = f dt + G dB, affine or not (Anderson 1982; Song et al. 2021, App. A).

    dX = (f - div G G' - G G' s) dt + G dB   backwards in time, and   dx / dt = f - (div G G' + G G' s) / 2

have the marginals of the process, where s is the score of X_t. With G a number that does not depend on X they are the
equations of every other generator here.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.errors import require
from unnorm.noises.base import Level
from unnorm.noises.equations import Equation
from unnorm.scores import AbstractScore

Point = Float[Array, "..."]


class ReverseProcess(eqx.Module):
    """The reverse process of an equation with the score of its marginals: a drift, a diffusion, and a flow.

    >>> import unnorm as un
    >>> growth = un.noises.Equation(lambda t, x: -x, lambda t, x: 0.5 * x)
    >>> back = ReverseProcess(growth, un.scores.FunctionScore(lambda t, x: -x))
    >>> back.drift(0.5, jnp.ones(1)).tolist(), back.diffusion(0.5, jnp.ones(1)).tolist()  # -x - x / 2 + x^3 / 4
    ([-1.25], [0.5])
    """

    equation: Equation
    score: AbstractScore

    def _pulled(self, t: Level, x: Point, condition: Any) -> Point:
        """div G G' + G G' s."""
        slope = self.score(t, x, condition)
        return self.equation.divergence(t, x) + self.equation.covariance_times(t, x, slope)

    def drift(self, t: Level, x: Point, condition: Any = None) -> Point:
        """f - div G G' - G G' s."""
        return self.equation.drift(t, x) - self._pulled(t, x, condition)

    def diffusion(self, t: Level, x: Point) -> Array:
        """G: a number, a diagonal or a matrix."""
        return jnp.asarray(self.equation.spread(t, x), x.dtype)

    def flow(self, t: Level, x: Point, condition: Any = None) -> Point:
        """f - (div G G' + G G' s) / 2, the velocity of the probability flow."""
        return self.equation.drift(t, x) - 0.5 * self._pulled(t, x, condition)

    def walk(
        self, starts: Float[ArrayLike, "n ..."], times: Float[ArrayLike, " k"], *, key: PRNGKeyArray
    ) -> Float[Array, "n ..."]:
        """Points at `times[0]` taken down to `times[-1]` by Euler and Maruyama's method."""
        times = _falling(times)
        return _walked(self, jnp.asarray(starts, float), times, key)

    def follow(self, starts: Float[ArrayLike, "n ..."], times: Float[ArrayLike, " k"]) -> Float[Array, "n ..."]:
        """Points taken along the flow by Heun's method, of order 2; up or down in time."""
        return _followed(self, jnp.asarray(starts, float), jnp.asarray(times, float))


def _falling(times: Float[ArrayLike, " k"]) -> Float[Array, " k"]:
    found = np.asarray(times, np.float64)
    require(
        found.ndim == 1 and len(found) >= 2 and bool(np.all(np.diff(found) < 0)),
        "the times of a walk back are two or more numbers that fall",
    )
    return jnp.asarray(found, float)


@compiled
def _walked(process: ReverseProcess, starts: Array, times: Array, key: PRNGKeyArray) -> Array:
    def one(x, key):
        def step(x, inputs):
            t, s, k = inputs
            z = jax.random.normal(k, x.shape, x.dtype)
            moved = x - (t - s) * process.drift(t, x) + jnp.sqrt(t - s) * process.equation.spread_out(t, x, z)
            return moved, None

        return jax.lax.scan(step, x, (times[:-1], times[1:], jax.random.split(key, len(times) - 1)))[0]

    return jax.vmap(one)(starts, jax.random.split(key, len(starts)))


@compiled
def _followed(process: ReverseProcess, starts: Array, times: Array) -> Array:
    def one(x):
        def step(x, inputs):
            t, s = inputs
            here = process.flow(t, x)
            there = process.flow(s, x + (s - t) * here)
            return x + 0.5 * (s - t) * (here + there), None

        return jax.lax.scan(step, x, (times[:-1], times[1:]))[0]

    return jax.vmap(one)(starts)
