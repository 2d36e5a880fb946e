"""What is done about the noise that is left at the last level of a walk."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import PRNGKeyArray

from unnorm.generators.base import Info
from unnorm.noises.base import Level, Point
from unnorm.samplers.denoising_gibbs import AbstractCovariance, FullCovariance, take_away
from unnorm.scores import AbstractLevelledScore


class AbstractFinish(eqx.Module):
    """What is done about the noise that is left at the last level."""

    @abstractmethod
    def __call__(self, score: AbstractLevelledScore, t: Level, x: Point, *, key: PRNGKeyArray) -> tuple[Point, Info]:
        """The point to hand over, and counts as those of a transition."""


class Stay(AbstractFinish):
    """Nothing: the points keep the noise of the last level."""

    def __call__(self, score: AbstractLevelledScore, t: Level, x: Point, *, key: PRNGKeyArray) -> tuple[Point, Info]:
        return x, {}


class PosteriorMean(AbstractFinish):
    """E[x_0 | x_t] = (x_t + sigma^2 s) / alpha, as in Zhang et al. 2023, Algs 1, 2: a little sharper than the data."""

    def __call__(self, score: AbstractLevelledScore, t: Level, x: Point, *, key: PRNGKeyArray) -> tuple[Point, Info]:
        return (x + score.noise.variance(t) * score(t, x)) / score.noise.alpha(t), {}


class PosteriorDraw(AbstractFinish):
    """x_0 ~ N(E[x_0 | x_t], Cov[x_0 | x_t]): as spread as the data, exact where they are Gaussian.

    >>> PosteriorDraw().covariance.floor
    1e-06
    """

    covariance: AbstractCovariance = FullCovariance()

    def __call__(self, score: AbstractLevelledScore, t: Level, x: Point, *, key: PRNGKeyArray) -> tuple[Point, Info]:
        x, clipped = take_away(lambda y: score(t, y), self.covariance, score.noise.variance(t), x, key=key)
        return x / score.noise.alpha(t), {"clipped": clipped}
