"""The protocol of every generator's step: from noise level t to level s."""

from abc import abstractmethod

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from unnorm.noises.base import AbstractGaussianNoise, Level, Point
from unnorm.scores import AbstractScore


class AbstractTransition(eqx.Module):
    """x at level t -> x at level s, guided by a score."""

    @abstractmethod
    def __call__(
        self, score: AbstractScore, noise: AbstractGaussianNoise, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> Point:
        """One transition of one point."""


class Then(AbstractTransition):
    """One transition after another: predictor-corrector is `Then(predictor, corrector)`."""

    first: AbstractTransition
    second: AbstractTransition

    def __call__(
        self, score: AbstractScore, noise: AbstractGaussianNoise, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> Point:
        one, two = jax.random.split(key)
        return self.second(score, noise, t, s, self.first(score, noise, t, s, x, key=one), key=two)
