"""The probability flow by the methods of Euler and Heun."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unnorm.arguments import require_weight
from unnorm.generators.base import AbstractOneStep, Info
from unnorm.noises.base import Level, Point, Scalar
from unnorm.scores import AbstractLevelledScore


class FlowEuler(AbstractOneStep):
    """x <- x - (f x - g^2 s(t, x) / 2) (t - s): Euler's method in time, of order 1."""

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        return x - score.noise.flow(t, x, score(t, x)) * (t - s), {}


class Heun(AbstractOneStep):
    """Heun's method on y = x / alpha as a function of r = sigma / alpha, of order 2, with churn (Karras et al. 2022).

    dy / dr = d = -sigma s(t, x), the noise that is in x: y <- y + (r_s - r_t) (d + d') / 2, d' the same at the end of a
    step of Euler. Where no noise is left at the end, that step stands. With alpha = 1 it is that paper's Algorithm 2 to
    the letter, for other processes the same in their terms.

    Churn first raises the noise at each step, r <- (1 + churn) r by fresh noise of standard deviation `inflation`, as
    long as `low` <= r <= `high` and there is such a level: it mends errors of earlier steps. (That paper's S_churn is
    churn times the number of steps, at most 0.41 of them.) Two scores a step.

    >>> Heun(churn=0.2, low=0.05, high=50.0, inflation=1.003).churn
    0.2
    """

    churn: float = eqx.field(static=True, default=0.0)
    low: float = eqx.field(static=True, default=0.0)
    high: float = eqx.field(static=True, default=float("inf"))
    inflation: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        for number, what in ((self.churn, "the churn of Heun's method"), (self.inflation, "the inflation of churn")):
            require_weight(number, what)

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        noise = score.noise
        t, x = self._raised(score, t, x, key) if self.churn > 0 else (t, x)

        def ratio(t: Level) -> Scalar:
            return noise.sigma(t) / noise.alpha(t)

        step, alpha = ratio(s) - ratio(t), noise.alpha(s)
        slope = -noise.sigma(t) * score(t, x)
        euler = x / noise.alpha(t) + step * slope
        # A score at a level without noise is no number: another level is asked, and not heard.
        left = noise.variance(s) > 0
        after = -noise.sigma(s) * score(jnp.where(left, s, t), alpha * euler)
        return alpha * jnp.where(left, euler + 0.5 * step * (after - slope), euler), {}

    def _raised(self, score: AbstractLevelledScore, t: Level, x: Point, key: PRNGKeyArray) -> tuple[Scalar, Point]:
        """A level with more noise, and the point there."""
        noise, here = score.noise, score.noise.log_ratio(t)
        inside = (jnp.exp(-here) >= self.low) & (jnp.exp(-here) <= self.high)
        up = jnp.where(inside, noise.level_at(here - jnp.log1p(self.churn)), jnp.asarray(t, here.dtype))
        kept, variance = noise.between(t, up)
        return up, kept * x + jnp.sqrt(variance) * self.inflation * jax.random.normal(key, x.shape, x.dtype)
