"""Processes from data to noise by their equation, where no alpha(t) and sigma(t) exist (Song et al. 2021, App. A).

    dX = f(t, X) dt + G(t, X) dB   in the sense of Ito, t from 0 to 1,

with any drift, and a G that may be a number, a diagonal or a matrix, and may depend on the state.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.errors import require
from unnorm.noises.base import AbstractGaussianNoise, Level

Point = Float[Array, "..."]


class Equation(eqx.Module):
    """f and G; G(t, x) is a number, an array like x (a diagonal), or a matrix of D x D for D coordinates.

    `draw` is x_t given x_0, by `steps` of Euler and Maruyama's method unless t is 0.

    >>> growth = Equation(lambda t, x: -x, lambda t, x: 0.5 * x)
    >>> growth.draw(jnp.asarray(0.5), jnp.ones(2), key=jax.random.key(0)).shape
    (2,)
    >>> growth.spread_out(0.0, 2 * jnp.ones(2), jnp.ones(2)).tolist()  # G v
    [1.0, 1.0]
    """

    drift: Callable[[Level, Point], Point]
    spread: Callable[[Level, Point], Array]
    steps: int = eqx.field(static=True, default=100)

    def __check_init__(self):
        require_count(self.steps, 1, "steps of a simulation")

    def spread_out(self, t: Level, x: Point, v: Point) -> Point:
        """G(t, x) v."""
        return _times(jnp.asarray(self.spread(t, x), x.dtype), v, False)

    def covariance_times(self, t: Level, x: Point, v: Point) -> Point:
        """G G' v."""
        g = jnp.asarray(self.spread(t, x), x.dtype)
        return _times(g, _times(g, v, True), False)

    def divergence(self, t: Level, x: Point) -> Point:
        """div G G': its i-th coordinate is sum_j d (G G')_ij / d x_j."""

        def column(i):
            unit = jax.nn.one_hot(i, x.size, dtype=x.dtype).reshape(x.shape)
            return jax.jvp(lambda y: self.covariance_times(t, y, unit), (x,), (unit,))[1]

        return jnp.sum(jax.vmap(column)(jnp.arange(x.size)), axis=0)

    def draw(self, t: Level, x: Point, *, key: PRNGKeyArray) -> Point:
        """A draw of X_t that began at x at time 0."""
        time = jnp.asarray(t, x.dtype) / self.steps

        def step(y, inputs):
            i, k = inputs
            z = jax.random.normal(k, y.shape, y.dtype)
            return y + time * self.drift(i * time, y) + jnp.sqrt(time) * self.spread_out(i * time, y, z), None

        return jax.lax.scan(step, x, (jnp.arange(self.steps), jax.random.split(key, self.steps)))[0]


def _times(g: Array, v: Point, transposed: bool) -> Point:
    size = v.size
    if g.ndim == 2 and g.shape == (size, size) and size > 1:
        return ((g.T if transposed else g) @ v.reshape(-1)).reshape(v.shape)
    require(
        g.size in (1, size),
        f"the diffusion at a point of {size} numbers is one number, {size} of them or a matrix of {size} x {size}, "
        f"not of shape {g.shape}",
    )
    return (g.reshape(v.shape) if g.size == size else g.reshape(())) * v


def equation_of(noise: AbstractGaussianNoise) -> Equation:
    """dX = f(t) X dt + g(t) dB of a process that has alpha and sigma.

    >>> from unnorm.noises import OrnsteinUhlenbeck
    >>> equation_of(OrnsteinUhlenbeck(1.0)).drift(0.5, jnp.ones(2)).tolist()
    [-1.0, -1.0]
    """
    return Equation(lambda t, x: noise.drift(t) * x, lambda t, x: noise.diffusion(t))
