"""Where within its step a value that was rounded may have been: a density that is learnt (Ho et al. 2019).

A value v of step h is taken for a point y = v + h (u - 1/2), u in (0, 1). With a density p of points, the probability
of the value is P(v) = Int p(v + h (u - 1/2)) h^D du, and for every density q(u | v)

    log P(v) >= E_q[ log p(y) - log q(u | v) ] + D log h,

with equality where q is proportional to p within the step. q uniform is `data.Dequantise`.
"""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import require
from unnorm.networks.levelled import silent_mlp
from unnorm.networks.mlp import MLP
from unnorm.spaces import AbstractOnRealRows

Point = Float[Array, "..."]
Scalar = Float[Array, ""]
#: Log scales are held within this of that of the uniform density, so that no step of training makes u 0 or 1.
WIDEST = 3.0


class AbstractDequantiser(eqx.Module):
    """q(u | v) for values whose step is h."""

    step: eqx.AbstractVar[float]

    def __check_init__(self):
        require(self.step > 0, f"the step that values were rounded to is positive, not {self.step}")

    @abstractmethod
    def __call__(self, value: Point, *, key: PRNGKeyArray) -> tuple[Point, Scalar]:
        """A point y of the step of this value, and log q(u | v)."""


class UniformDequantiser(AbstractDequantiser):
    """q = 1 (Theis et al. 2016).

    >>> UniformDequantiser(0.5)(jnp.zeros(2), key=jax.random.key(0))[1].tolist()
    0.0
    """

    step: float = eqx.field(static=True)

    def __call__(self, value: Point, *, key: PRNGKeyArray) -> tuple[Point, Scalar]:
        u = jax.random.uniform(key, value.shape, value.dtype)
        return value + self.step * (u - 0.5), jnp.zeros((), value.dtype)


class FlowDequantiser(AbstractDequantiser, AbstractOnRealRows):
    """q(u | v): u = sigmoid(y_n), y_0 = m(v) + exp(l(v)) e with e logistic, and affine couplings between.

    log q = log p(e) - sum l - sum_couplings log scales - sum log u (1 - u), p(e) = prod_i sigma(e_i) sigma(-e_i).
    `step` is h. With m = l = 0, as it begins, q is uniform, for the sigmoid of a logistic number is.
    Coupling i scales and moves every other coordinate by what the rest of them and v say, the two halves taking turns.

    >>> uneven = dequantiser(2, 0.125, width=8, depth=1, key=jax.random.key(0))
    >>> point, log_q = uneven(jnp.zeros(2), key=jax.random.key(1))
    >>> bool(jnp.all(jnp.abs(point) < 0.0625)), bool(abs(log_q) < 1e-5)
    (True, True)
    """

    network: Callable[[Array], Array]
    couplings: tuple[MLP, ...]
    step: float = eqx.field(static=True)

    def __call__(self, value: Point, *, key: PRNGKeyArray) -> tuple[Point, Scalar]:
        flat = value.reshape(-1)
        e = jax.random.logistic(key, flat.shape, flat.dtype)
        place, scale = self._first(flat)
        y = place + jnp.exp(scale) * e
        log_q = -jnp.sum(jax.nn.softplus(e) + jax.nn.softplus(-e) + scale)
        for i, network in enumerate(self.couplings):
            y, log_scale = self._coupled(i, network, flat, y)
            log_q = log_q - jnp.sum(log_scale)
        u = jax.nn.sigmoid(y)
        # log u (1 - u) by what u is the sigmoid of: 1 - u may be rounded away.
        log_q = log_q + jnp.sum(jax.nn.softplus(y) + jax.nn.softplus(-y))
        return value + self.step * (u - 0.5).reshape(value.shape), log_q

    def _first(self, flat: Array) -> tuple[Array, Array]:
        place, scale = jnp.split(self.network(flat), 2)
        return place, WIDEST * jnp.tanh(scale / WIDEST)

    def _coupled(self, i: int, network: MLP, flat: Array, y: Array) -> tuple[Array, Array]:
        """One coupling: every other coordinate moved and scaled by the others, and the logs of the scales."""
        moves = (jnp.arange(y.size) + i) % 2 == 0
        shift, scale = jnp.split(network(jnp.concatenate([flat, jnp.where(moves, 0.0, y)])), 2)
        scale = jnp.where(moves, jnp.tanh(scale), 0.0)
        return jnp.where(moves, y * jnp.exp(scale) + shift, y), scale


def dequantiser(
    dimension: int, step: float, *, couplings: int = 0, width: int = 128, depth: int = 2, key: PRNGKeyArray
) -> FlowDequantiser:
    """A dequantiser of values that are vectors, or pictures of so many numbers, whose networks begin at zero."""
    require(couplings == 0 or dimension >= 2, "a coupling needs at least two coordinates")
    first, *keys = jax.random.split(key, couplings + 1)
    network = silent_mlp(dimension, 2 * dimension, width=width, depth=depth, key=first)
    turns = tuple(silent_mlp(2 * dimension, 2 * dimension, width=width, depth=depth, key=k) for k in keys)
    return FlowDequantiser(network=network, couplings=turns, step=step)
