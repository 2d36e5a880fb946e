"""What a network of all noise levels is shown, and what its answer means.

At level t a point is x = alpha x_0 + sigma z. Whatever the answer F stands for, noise, data or a velocity, the score is
linear in it, and has the form

    s(t, x) = -x / own^2 - (ratio / width) F(x / width, level),

the score of N(0, own^2 I) and what the network adds to it: numbers that depend on the level alone say it all. The same
ones make an energy of a network f with one output, |x|^2 / (2 own^2) + ratio f(x / width, level); its score is that of
F = grad f.
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unnorm.errors import require
from unnorm.noises.base import AbstractGaussianNoise

Scalar = Float[Array, ""]


class Reading(NamedTuple):
    """At one level: the network sees x / width and `level`, and the score is -x / own^2 - (ratio / width) answer."""

    level: Scalar
    width: Scalar
    own: Scalar
    ratio: Scalar


class AbstractPreconditioning(eqx.Module):
    """What a network is shown, and what its answer means."""

    @abstractmethod
    def read(self, noise: AbstractGaussianNoise, t: Scalar) -> Reading:
        """The numbers of one level."""


class AbstractScaledInput(AbstractPreconditioning):
    """One whose network sees points of order one.

    Data are taken to lie about the origin with standard deviation `spread` S; the marginal of Gaussian data then has
    the width w, w^2 = alpha^2 S^2 + sigma^2, and the network sees x / w.
    """

    spread: eqx.AbstractVar[float]

    def __check_init__(self):
        require(self.spread > 0, f"the standard deviation of the data must be positive, not {self.spread}")

    def width(self, noise: AbstractGaussianNoise, t: Scalar) -> Scalar:
        """w, the width of the marginal."""
        return jnp.sqrt((noise.alpha(t) * self.spread) ** 2 + noise.sigma(t) ** 2)


class Scaled(AbstractScaledInput):
    """s = -x / w^2 - (alpha S / (sigma w)) F: answers of order one at every level (Karras et al. 2022, any process).

    The first term is the score of data N(0, S^2 I); the network has only to learn how the data differ from that.

    >>> Scaled(2.0).spread
    2.0
    """

    spread: float = eqx.field(static=True, default=1.0)

    def read(self, noise: AbstractGaussianNoise, t: Scalar) -> Reading:
        alpha, sigma = noise.alpha(t), noise.sigma(t)
        width = jnp.sqrt((alpha * self.spread) ** 2 + sigma**2)
        return Reading(t, width, width, alpha * self.spread / sigma)


class PredictScore(AbstractPreconditioning):
    """s = F(x, level), the network's answer as it is (Song and Ermon 2019)."""

    def read(self, noise: AbstractGaussianNoise, t: Scalar) -> Reading:
        one = jnp.ones_like(t)
        return Reading(t, one, _none(one), -one)


class PredictNoise(AbstractScaledInput):
    """F = E[z | x], so s = -F / sigma (Ho et al. 2020)."""

    spread: float = eqx.field(static=True, default=1.0)

    def read(self, noise: AbstractGaussianNoise, t: Scalar) -> Reading:
        width = self.width(noise, t)
        return Reading(t, width, _none(width), width / noise.sigma(t))


class PredictData(AbstractScaledInput):
    """F = E[x_0 | x], so s = (alpha F - x) / sigma^2."""

    spread: float = eqx.field(static=True, default=1.0)

    def read(self, noise: AbstractGaussianNoise, t: Scalar) -> Reading:
        width, sigma = self.width(noise, t), noise.sigma(t)
        return Reading(t, width, sigma, -width * noise.alpha(t) / sigma**2)


class PredictVelocity(AbstractScaledInput):
    """F = E[alpha z - sigma x_0 | x], so s = -(x + (alpha / sigma) F) / (alpha^2 + sigma^2) (Salimans and Ho 2022)."""

    spread: float = eqx.field(static=True, default=1.0)

    def read(self, noise: AbstractGaussianNoise, t: Scalar) -> Reading:
        width, alpha, sigma = self.width(noise, t), noise.alpha(t), noise.sigma(t)
        square = alpha**2 + sigma**2
        return Reading(t, width, jnp.sqrt(square), width * alpha / (sigma * square))


class PredictFlow(AbstractScaledInput):
    """F = E[alpha' x_0 + sigma' z | x] = dx / dt, the velocity of the probability flow (Lipman et al. 2023).

    s = (alpha' x - alpha F) / (sigma (alpha sigma' - alpha' sigma)); along the straight path alpha = 1 - t, sigma = t
    this is s = -(x + (1 - t) F) / t, and F is the velocity of rectified flow.
    """

    spread: float = eqx.field(static=True, default=1.0)

    def read(self, noise: AbstractGaussianNoise, t: Scalar) -> Reading:
        width = self.width(noise, t)
        alpha, slope = jax.value_and_grad(noise.alpha)(t)
        variance, rate = jax.value_and_grad(noise.variance)(t)
        # By the slope of sigma^2, which is finite where sigma begins at 0.
        turn = 0.5 * alpha * rate - slope * variance
        falls = slope < 0
        own = jnp.where(falls, jnp.sqrt(turn / -jnp.where(falls, slope, -1.0)), jnp.inf)
        return Reading(t, width, own, width * alpha / turn)


class DividedBySigma(AbstractPreconditioning):
    """s = F(x) / sigma with a network that sees x as it is and is not told the level (Song and Ermon 2020).

    Technique 3 of NCSNv2: the size of the score is what it owes to the level, and the network reads the rest off x.
    """

    def read(self, noise: AbstractGaussianNoise, t: Scalar) -> Reading:
        one = jnp.ones_like(t)
        return Reading(jnp.zeros_like(t), one, _none(one), -1 / noise.sigma(t))


def _none(width: Scalar) -> Scalar:
    """No Gaussian of its own: one that is infinitely wide."""
    return jnp.full_like(width, jnp.inf)
