"""The reverse process with the score held and all else solved exactly."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from unnorm.generators.base import AbstractWhiteStep
from unnorm.noises.base import Level, Point, Scalar
from unnorm.scores import AbstractLevelledScore

#: Gauss and Legendre's points and weights on [0, 1].
_PLACES, _WEIGHTS = ((np.polynomial.legendre.leggauss(8)[0] + 1) / 2, np.polynomial.legendre.leggauss(8)[1] / 2)


class ExponentialIntegrator(AbstractWhiteStep):
    """x <- x / a + w s(t, x) + sqrt(v) z / a, w = integral from s to t of g(u)^2 alpha(s) / alpha(u) du.

    The linear equation that is left when the score stays what it was at (t, x), with a = alpha(t) / alpha(s) and v the
    variance added between s and t. For `OrnsteinUhlenbeck` it is x <- e^h x + 2 (e^h - 1) s + sqrt(e^2h - 1) z (Zhang
    2025; its error in total variation is bounded by Chen et al. 2023). The integral is found by Gauss's rule.
    """

    temperature: float = eqx.field(static=True, default=1.0)
    steps: ClassVar[int] = 1

    def parts(self, score: AbstractLevelledScore, t: Level, s: Level, x: Point) -> tuple[Point, Scalar]:
        noise = score.noise
        kept, variance = noise.between(s, t)
        weight = jnp.zeros((), x.dtype)
        for place, share in zip(_PLACES, _WEIGHTS, strict=True):
            u = s + float(place) * (t - s)
            weight += float(share) * (t - s) * noise.diffusion(u) ** 2 * noise.alpha(s) / noise.alpha(u)
        return x / kept + weight * score(t, x), jnp.sqrt(variance) / kept
