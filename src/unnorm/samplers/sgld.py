"""Stochastic-gradient Langevin: posteriors of many rows, at the cost of a few rows a step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, Shaped

from unnorm.arguments import at_least, positive
from unnorm.energies.base import AbstractEnergy, Point, Scalar
from unnorm.errors import InputError, require
from unnorm.samplers.base import AbstractSampler, Info, Target, require_gradients
from unnorm.spaces import AbstractSpace


class SumOverRows(AbstractEnergy):
    """E(x) = E_0(x) + sum_i e(x, row_i): a prior and one term for every row, such as -log p(row_i | x).

    An energy like any other, at the cost of all rows; `SGLD` looks at a few of them at a time.

    >>> import unnorm as un
    >>> prior = un.energies.FunctionEnergy(lambda x: 0.5 * jnp.sum(x**2), un.spaces.Real((1,)))
    >>> energy = SumOverRows(prior, lambda x, row: 0.5 * jnp.sum((row - x) ** 2), jnp.ones((3, 1)))
    >>> float(energy(jnp.zeros(1)))
    1.5
    """

    prior: AbstractEnergy
    term: Callable[[Point, Any], Scalar]
    rows: Shaped[Array, "n ..."]
    space: AbstractSpace = eqx.field(static=True)

    def __init__(self, prior: AbstractEnergy, term: Callable[[Point, Any], Scalar], rows: Shaped[ArrayLike, "n ..."]):
        self.prior, self.term, self.rows = prior, term, jnp.asarray(rows)
        require(self.rows.ndim >= 1 and len(self.rows) >= 1, "a sum over rows needs at least one row")
        self.space = prior.space

    def __call__(self, x: Point) -> Scalar:
        return self.prior(x) + jnp.sum(jax.vmap(lambda row: self.term(x, row))(self.rows))

    def estimate(self, x: Point, chosen: Int[Array, " batch"]) -> Scalar:
        """E_0(x) + (n / batch) sum over the chosen rows: right on average over a uniform choice."""
        return self.prior(x) + len(self.rows) * jnp.mean(jax.vmap(lambda row: self.term(x, row))(self.rows[chosen]))


class Walk(NamedTuple):
    """Where a chain stands, and how many steps it has taken."""

    x: Point
    step: Int[Array, ""]


class SGLD(AbstractSampler):
    """x <- x - h_t g + sqrt(2 h_t) z,  h_t = h (1 + t / delay)^-decay,  g the gradient over `batch` random rows.

    Rows are drawn with replacement and their sum is scaled up to all of them (Welling and Teh 2011, whose step is
    2 h_t). With `decay` between 1/2 and 1 the walk settles on the posterior. A constant step, `decay` = 0, leaves two
    errors: Langevin's, and the noise of the gradient. Where E is a parabola of curvature a and the gradient has the
    variance v, the stationary variance is (2 + h v) / (a (2 - h a)) in place of 1 / a. A step from where the energy of
    the chosen rows is not finite, or to a point that is not finite, counts as divergent.

    >>> float(SGLD(0.5, batch=8, decay=0.5, delay=1.0).step_at(jnp.asarray(3)))
    0.25
    """

    step_size: Float[Array, ""] = eqx.field(converter=lambda h: positive(h, "the step size of SGLD"))
    batch: int = eqx.field(static=True)
    decay: float = eqx.field(static=True, default=0.0)
    delay: float = eqx.field(static=True, default=100.0)

    def __check_init__(self):
        at_least(1, self.batch, "SGLD needs at least one row per step")
        require(0 <= self.decay <= 1, f"the steps of SGLD fall with a power between 0 and 1, not {self.decay}")
        require(self.delay > 0, f"the delay of SGLD must be positive, not {self.delay}")

    def check(self, target: Target) -> None:
        if not isinstance(target, SumOverRows):
            raise InputError(
                f"SGLD needs a sum over rows (samplers.SumOverRows), not {type(target).__name__}; "
                "use samplers.Langevin there"
            )
        require_gradients(target.space, "SGLD")

    def step_at(self, step: Int[Array, ""]) -> Scalar:
        """h_t."""
        return self.step_size * (1 + step / self.delay) ** -self.decay

    def init(self, target: AbstractEnergy, x: Point) -> Walk:
        return Walk(x, jnp.zeros((), jnp.int32))

    def step(self, target: AbstractEnergy, state: Walk, *, key: PRNGKeyArray) -> tuple[Walk, Info]:
        assert isinstance(target, SumOverRows)
        choose, draw = jax.random.split(key)
        chosen = jax.random.randint(choose, (self.batch,), 0, len(target.rows))
        energy, gradient = jax.value_and_grad(target.estimate)(state.x, chosen)
        h = self.step_at(state.step).astype(state.x.dtype)
        moved = state.x - h * gradient + jnp.sqrt(2 * h) * jax.random.normal(draw, state.x.shape, state.x.dtype)
        divergent = ~(jnp.isfinite(energy) & jnp.all(jnp.isfinite(moved)))
        return Walk(moved, state.step + 1), Info(jnp.ones(()), divergent)

    def position(self, state: Walk) -> Point:
        return state.x
