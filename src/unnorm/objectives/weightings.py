"""What each noise level counts in a denoising loss, as a factor of | sigma s + z |^2."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp

from unnorm.errors import InputError
from unnorm.noises import AbstractGaussianNoise
from unnorm.objectives.base import Scalar
from unnorm.scores import AbstractScore
from unnorm.scores.levelled import AbstractNetworkScore


class AbstractWeighting(eqx.Module):
    """w(t) of the loss E_t w(t) | sigma s + z |^2."""

    @abstractmethod
    def __call__(self, noise: AbstractGaussianNoise, score: AbstractScore, t: Scalar) -> Scalar:
        """The weight of level t."""


class Even(AbstractWeighting):
    """w = 1: the error of the noise counts alike at every level (Song and Ermon 2019; "simple" in Ho et al. 2020)."""

    def __call__(self, noise: AbstractGaussianNoise, score: AbstractScore, t: Scalar) -> Scalar:
        return jnp.ones_like(t)


class LikelihoodWeighting(AbstractWeighting):
    """w = g^2 / (2 sigma^2): the loss bounds the negative log-likelihood, up to what the score has no part in.

    Song, Durkan, Murray and Ermon 2021; with `noises.LikelihoodTimes` its variance is bounded.

    >>> import unnorm as un
    >>> vp = un.noises.VarianceExploding(0.01, 50.0)
    >>> score = un.scores.LevelledFunction(lambda t, x: -x, vp)
    >>> round(float(LikelihoodWeighting()(vp, score, jnp.asarray(0.5))), 3)  # ln(high / low), at every level
    8.517
    """

    def __call__(self, noise: AbstractGaussianNoise, score: AbstractScore, t: Scalar) -> Scalar:
        return noise.diffusion(t) ** 2 / (2 * noise.variance(t))


class FlowWeighting(AbstractWeighting):
    """w = (g^2 / (2 sigma))^2: the loss is flow matching, | v(t, x) - (alpha' x_0 + sigma' z) |^2 (Lipman et al. 2023).

    For the velocity is v = f x - g^2 s / 2, and what it should be differs from it by g^2 / (2 sigma) (sigma s + z).
    """

    def __call__(self, noise: AbstractGaussianNoise, score: AbstractScore, t: Scalar) -> Scalar:
        return noise.diffusion(t) ** 4 / (4 * noise.variance(t))


class AnswerWeighting(AbstractWeighting):
    """w so that the error of the network's own answer counts alike at every level (Karras et al. 2022).

    For a score made of a network and a preconditioning: | F - what it should be |^2.
    """

    def __call__(self, noise: AbstractGaussianNoise, score: AbstractScore, t: Scalar) -> Scalar:
        if not isinstance(score, AbstractNetworkScore):
            raise InputError(
                f"AnswerWeighting weighs the answers of a network, and a {type(score).__name__} has none; "
                "use objectives.Even()"
            )
        reading = score.preconditioning.read(noise, t)
        return (reading.width / (reading.ratio * noise.sigma(t))) ** 2
