"""The reverse process with the score held and all else solved exactly."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from unnorm.generators.base import AbstractOneStep, Info, check_temperature, white
from unnorm.noises.base import Level, Point
from unnorm.scores import AbstractLevelledScore

#: Gauss and Legendre's points and weights on [0, 1].
_PLACES, _WEIGHTS = ((np.polynomial.legendre.leggauss(8)[0] + 1) / 2, np.polynomial.legendre.leggauss(8)[1] / 2)


class ExponentialIntegrator(AbstractOneStep):
    """x <- x / a + w s(t, x) + sqrt(v) z / a, w = integral from s to t of g(u)^2 alpha(s) / alpha(u) du.

    The linear equation that is left when the score stays what it was at (t, x), with a = alpha(t) / alpha(s) and v the
    variance added between s and t. For `OrnsteinUhlenbeck` it is x <- e^h x + 2 (e^h - 1) s + sqrt(e^2h - 1) z (Zhang
    2025; its error in total variation is bounded by Chen et al. 2023). The integral is found by Gauss's rule.
    """

    temperature: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        check_temperature(self.temperature)

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        noise = score.noise
        kept, variance = noise.between(s, t)
        weight = jnp.zeros((), x.dtype)
        for place, share in zip(_PLACES, _WEIGHTS, strict=True):
            u = s + float(place) * (t - s)
            weight += float(share) * (t - s) * noise.diffusion(u) ** 2 * noise.alpha(s) / noise.alpha(u)
        mean = x / kept + weight * score(t, x)
        return mean + jnp.sqrt(variance) / kept * white(x, self.temperature, key=key), {}
