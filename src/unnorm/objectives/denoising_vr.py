"""Denoising score matching whose gradient does not explode at small noise."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from unnorm.noises import AbstractGaussianNoise
from unnorm.objectives.base import Scalar
from unnorm.objectives.denoising import AbstractDenoising, Slope


class DSMVR(AbstractDenoising):
    """L = w E[ |s(y)|^2 / 2 + (s(y) - s(x))'z / sigma ],  y = x + sigma z,  w = sigma(t)^2 / min(1, sigma(1))^2.

    x is short for alpha(t) x, the point before the noise, and s for s(t, .). From |s(y) + z / sigma|^2 / 2, which is
    `DSM`, are taken s(x)'z / sigma, whose mean is zero, and |z|^2 / (2 sigma^2), in which there is no s: the mean
    gradient is that of DSM times w d / (2 sigma^2). As sigma falls, s(y) - s(x) is of order sigma, so the gradient
    keeps its standard deviation where DSM's grows as 1 / sigma, and the loss becomes that of `SM`. Song 2022, App. B.2;
    Eq. B.2 prints twice the control variate, which cancels nothing. Halved, beside a DSM with its factor 1/2, it is the
    formula here.

    The constant d / (2 sigma^2) is left out rather than added back, because next to it a loss of order one has no
    digits. The weight w makes levels count among themselves as in DSM; a single level below 1 has w = 1, so that
    neither the loss nor its gradient vanishes with sigma (Adam does not see gradients below 1e-8). s(y) - s(x) has a
    rounding error: in float32, on N(3, I), that of (s(y) - s(x)) z / sigma is 1e-7 / sigma for a coordinate of s = 3 (a
    Gaussian or a network), so 1% of the contrast at sigma = 1e-5. Its mean is zero: a fit at 1e-5 ends within 1e-3 of
    that of `SM`.

    >>> import unnorm as un
    >>> float(DSMVR(un.noises.Gaussian(2**-10)).noise.scale)
    0.0009765625
    """

    comparable: ClassVar[bool] = True
    noise: AbstractGaussianNoise | None = None

    def at(self, noise: AbstractGaussianNoise, slope: Slope, t: Scalar, x: Array, z: Array) -> Scalar:
        clean, sigma = noise.alpha(t) * x, noise.sigma(t)
        before, after = slope(t, clean), slope(t, clean + sigma * z)
        # sigma^2 times the bracket and never 1 / sigma alone, which a level of no noise would make infinite.
        bracket = jnp.sum(0.5 * (sigma * after) ** 2 + sigma * (after - before) * z)
        return bracket / jnp.minimum(1.0, noise.sigma(jnp.ones_like(t))) ** 2
