"""Ozaki's discretisation: Langevin that knows the curvature, exact where the log density is a parabola."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Point
from unnorm.errors import require
from unnorm.samplers.base import AbstractGradientSampler, Info
from unnorm.samplers.denoising_gibbs import hessian_diagonal
from unnorm.samplers.langevin import positive


def _growth(rate: Array, time: Array) -> Array:
    """(exp(rate time) - 1) / rate, which is `time` where the rate is zero."""
    small = jnp.abs(rate * time) < 1e-4
    safe = jnp.where(small, 1.0, rate)
    return jnp.where(small, time * (1 + 0.5 * rate * time), jnp.expm1(safe * time) / safe)


class Ozaki(AbstractGradientSampler):
    """x_i <- x_i + M_i s_i(x) + sqrt(V_i) z_i,  M = (e^{hc} - 1)/c,  V = (e^{2hc} - 1)/c,  c = diag of grad s.

    The Langevin equation dx = s dt + sqrt(2) dB solved exactly for time h with the score linearised coordinate by
    coordinate (Ozaki 1992; thesis Eq. 4.20): on a Gaussian with independent coordinates it has no bias at any step,
    where Langevin's variance is wrong and its walk explodes. `probes` of fair signs estimate the diagonal, D forward
    derivatives give it exactly (the default, for small D). Where the density curves upwards (c > 0, between modes) the
    exponentials would explode with h: c is taken as 0 there, and counted.

    >>> float(Ozaki(2.0).step_size)
    2.0
    """

    step_size: Float[Array, ""] = eqx.field(converter=lambda h: positive(h, "the step size of Ozaki"))
    probes: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        require(
            self.probes is None or self.probes >= 1,
            f"an estimate of a diagonal needs at least one probe, not {self.probes}",
        )

    def init(self, target: AbstractEnergy, x: Point) -> Point:
        return x

    def _curvatures(self, target: AbstractEnergy, x: Point, key: PRNGKeyArray) -> tuple[Point, Point]:
        def score(y):
            return -jax.grad(target)(y)

        if self.probes is not None:
            return score(x), hessian_diagonal(score, x, probes=self.probes, key=key)
        s, derivative = jax.linearize(score, x)
        basis = jnp.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
        return s, jnp.sum(jax.vmap(lambda v: v * derivative(v))(basis), axis=0)

    def step(self, target: AbstractEnergy, state: Point, *, key: PRNGKeyArray) -> tuple[Point, Info]:
        probe, draw = jax.random.split(key)
        h = self.step_size.astype(state.dtype)
        s, c = self._curvatures(target, state, probe)
        upwards = c > 0
        c = jnp.where(upwards, 0.0, c)
        noise = jax.random.normal(draw, state.shape, state.dtype)
        moved = state + _growth(c, h) * s + jnp.sqrt(_growth(c, 2 * h)) * noise
        return moved, Info(jnp.ones(()), ~jnp.all(jnp.isfinite(moved)), jnp.sum(upwards).astype(float))

    def position(self, state: Point) -> Point:
        return state
