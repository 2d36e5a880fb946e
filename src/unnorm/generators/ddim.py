"""Implicit models of denoising: from one level straight to another."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unnorm.errors import require
from unnorm.generators.base import AbstractOneStep, Info, white
from unnorm.noises.base import Level, Point
from unnorm.scores import AbstractLevelledScore


class DDIM(AbstractOneStep):
    """x <- alpha_s D + sqrt(sigma_s^2 - w) e + sqrt(w) z, D and e the data and the noise that x is likely to be.

    e = -sigma_t s(t, x), D = (x - sigma_t e) / alpha_t, w = eta^2 v sigma_s^2 / sigma_t^2, v the variance added between
    s and t (Song, Meng and Ermon 2021, Eqs 12, 16). `eta` 0 is the flow by a method of order 1 that is exact where the
    data are one point; `eta` 1 is `Ancestral()`.

    >>> DDIM().eta
    0.0
    """

    eta: float = eqx.field(static=True, default=0.0)

    def __check_init__(self):
        require(0 <= self.eta <= 1, f"the eta of DDIM lies between 0 and 1, not at {self.eta}")

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        noise = score.noise
        inside = -noise.sigma(t) * score(t, x)
        data = (x - noise.sigma(t) * inside) / noise.alpha(t)
        _, added = noise.between(s, t)
        fresh = self.eta**2 * added * noise.variance(s) / noise.variance(t)
        # Rounding may leave less than nothing where all the noise is fresh.
        kept = jnp.sqrt(jnp.maximum(noise.variance(s) - fresh, 0))
        moved = noise.alpha(s) * data + kept * inside
        return (moved + jnp.sqrt(fresh) * white(x, 1.0, key=key) if self.eta > 0 else moved), {}
