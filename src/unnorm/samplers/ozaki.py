"""Ozaki's discretisation: Langevin that knows the curvature, exact where the log density is a parabola."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import at_least, positive
from unnorm.energies.base import Point
from unnorm.samplers.base import AbstractScoreSampler, Info, Target
from unnorm.samplers.slopes import slope_and_diagonal


def _growth(rate: Array, time: Array) -> Array:
    """(exp(rate time) - 1) / rate, which is `time` where the rate is zero."""
    small = jnp.abs(rate * time) < 1e-4
    safe = jnp.where(small, 1.0, rate)
    return jnp.where(small, time * (1 + 0.5 * rate * time), jnp.expm1(safe * time) / safe)


class Ozaki(AbstractScoreSampler):
    """x_i <- x_i + M_i s_i(x) + sqrt(V_i) z_i,  M = (e^{hc} - 1)/c,  V = (e^{2hc} - 1)/c,  c = diag of grad s.

    The Langevin equation dx = s dt + sqrt(2) dB solved exactly for time h with the score linearised coordinate by
    coordinate (Ozaki 1992; Song 2022, Eq. 4.20): on a Gaussian with independent coordinates it has no bias at any step,
    where Langevin's variance is wrong and its walk explodes. The target is an energy or a score at one level
    (`score.at(t)`): `probes` of fair signs estimate the diagonal, D forward derivatives give it exactly (the default,
    for small D), and a second-order score (`scores.DiagonalSecondOrder`) brings the one it has learnt. Where the
    density curves upwards (c > 0, between modes) the exponentials would explode with h: c is taken as 0 there, and
    counted. A step from where the energy (or the score) is not finite, or to a point that is not finite, counts as
    divergent.

    >>> float(Ozaki(2.0).step_size)
    2.0
    """

    step_size: Float[Array, ""] = eqx.field(converter=lambda h: positive(h, "the step size of Ozaki"))
    probes: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.probes is not None:
            at_least(1, self.probes, "an estimate of a diagonal needs at least one probe")

    def init(self, target: Target, x: Point) -> Point:
        return x

    def step(self, target: Target, state: Point, *, key: PRNGKeyArray) -> tuple[Point, Info]:
        probe, draw = jax.random.split(key)
        h = self.step_size.astype(state.dtype)
        finite, s, c = slope_and_diagonal(target, state, probes=self.probes, key=probe)
        upwards = c > 0
        c = jnp.where(upwards, 0.0, c)
        noise = jax.random.normal(draw, state.shape, state.dtype)
        moved = state + _growth(c, h) * s + jnp.sqrt(_growth(c, 2 * h)) * noise
        divergent = ~(finite & jnp.all(jnp.isfinite(moved)))
        return moved, Info(jnp.ones(()), divergent, jnp.sum(upwards).astype(float))

    def position(self, state: Point) -> Point:
        return state
