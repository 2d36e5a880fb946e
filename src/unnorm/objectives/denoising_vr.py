"""Denoising score matching whose gradient does not explode at small noise."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from unnorm.noises import AbstractGaussianNoise
from unnorm.objectives.base import Scalar
from unnorm.objectives.denoising import AbstractDenoising
from unnorm.scores import AbstractScore


class DSMVR(AbstractDenoising):
    """L = DSM - (2 sigma s(x)'z + |z|^2 - d) / d,  with x short for (t, alpha(t) x), the point before the noise.

    What is subtracted has mean zero, so the loss has the mean and the mean gradient of `DSM` (and its normalisation:
    weighted by sigma^2, mean over the d coordinates). Written out, L = 1 + (sigma^2 |s(y)|^2 + 2 sigma (s(y) - s(x))'z)
    / d with y = x + sigma z: as sigma falls, s(y) - s(x) is of order sigma, so L / sigma^2 keeps a gradient of fixed
    standard deviation where DSM's grows as 1 / sigma. Thesis, App. B.2; Eq. B.2 prints twice the control variate, which
    cancels nothing. Halved, beside a DSM with its factor 1/2, it is the formula here.

    >>> import unnorm as un
    >>> DSMVR(un.noises.Gaussian(0.001)).noise.scale
    0.001
    """

    comparable: ClassVar[bool] = True
    noise: AbstractGaussianNoise

    def at(self, score: AbstractScore, t: Scalar, x: Array, z: Array) -> Scalar:
        clean, sigma = self.noise.alpha(t) * x, self.noise.sigma(t)
        before, after = score(t, clean), score(t, clean + sigma * z)
        return jnp.mean((sigma * after) ** 2 + 2 * sigma * (after - before) * z) + 1
