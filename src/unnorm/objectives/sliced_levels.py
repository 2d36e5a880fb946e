"""Sliced score matching over the levels of any process, for those whose kernels have no closed form."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.energies import AbstractEnergy
from unnorm.errors import require
from unnorm.noises import AbstractGaussianNoise, Equation
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_kind
from unnorm.objectives.slices import AbstractSlices, RademacherSlices, require_directions
from unnorm.scores import AbstractScore, as_score


def _even(t: Scalar) -> Scalar:
    return jnp.ones_like(t)


class LevelledSSM(AbstractObjective):
    """L = E_t w(t) E_{x_t} E_v[ |s(t, x_t)|^2 / 2 + v'(grad s(t, x_t)) v ],  t uniform on [least, 1].

    No density of x_t given x_0 appears, so that x_t may be simulated: `process` is a `noises.Equation`, of any drift
    and diffusion, or a Gaussian noise. At its minimum s is the score of the data's own x_t (Song et al. 2021, App. A;
    its print has v's v). Directions have E[v v'] = I.

    >>> import unnorm as un
    >>> growth = un.noises.Equation(lambda t, x: -x, lambda t, x: 0.5 * x)
    >>> LevelledSSM(growth).least
    0.0
    """

    comparable: ClassVar[bool] = True
    process: Equation | AbstractGaussianNoise
    weighting: Callable[[Scalar], Scalar] = _even
    least: float = eqx.field(static=True, default=0.0)
    slices: AbstractSlices = RademacherSlices()
    draws: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        require_kind(
            self.process,
            (Equation, AbstractGaussianNoise),
            "LevelledSSM runs a noises.Equation or a Gaussian noise, not {}",
        )
        require_directions(self.slices, self.draws, white=True)
        require_count(self.draws, 1, "directions a point")
        require(0 <= self.least < 1, f"the least level lies from 0 up to 1, not at {self.least}")

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model without a score is refused here."""
        as_score(model)
        return None

    def __call__(
        self, model: AbstractEnergy | AbstractScore, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        score = as_score(model)
        levels, key = jax.random.split(key)
        ts = self.least + (1 - self.least) * jax.random.uniform(levels, (len(batch),), batch.dtype)

        def one(t, x, key):
            forth, sides = jax.random.split(key)
            y = jax.lax.stop_gradient(self._noised(t, x, forth))
            s, derivative = jax.linearize(lambda z: score(t, z), y)
            vs = jax.vmap(lambda k: self.slices(y, key=k))(jax.random.split(sides, self.draws))
            trace = jnp.mean(jax.vmap(lambda v: jnp.vdot(v, derivative(v)))(vs))
            return self.weighting(t) * (0.5 * jnp.sum(s**2) + trace)

        return jnp.mean(jax.vmap(one)(ts, batch, jax.random.split(key, len(batch)))), (None, {})

    def _noised(self, t: Scalar, x: Array, key: PRNGKeyArray) -> Array:
        if isinstance(self.process, Equation):
            return self.process.draw(t, x, key=key)
        return self.process.sample(t, x, key=key)
