"""Wells at every noise level: an energy over the levels that is a mixture's own, noised exactly."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.networks.wells import Wells
from unnorm.noises import AbstractGaussianNoise
from unnorm.parts import AbstractPartlyFixed, held
from unnorm.scores.levelled import LevelledEnergy
from unnorm.scores.preconditioning import AbstractPreconditioning, Reading
from unnorm.spaces import Real

Scalar = Float[Array, ""]


class Plain(AbstractPreconditioning):
    """The network sees x and the level as they are, and its answer is the energy (or minus the score) itself.

    >>> from unnorm.noises import VariancePreserving
    >>> float(Plain().read(VariancePreserving(), jnp.asarray(0.5)).ratio)
    1.0
    """

    def read(self, noise: AbstractGaussianNoise, t: Scalar) -> Reading:
        one = jnp.ones_like(t)
        return Reading(t, one, jnp.full_like(t, jnp.inf), one)


class NoisedWells(AbstractPartlyFixed):
    """w(x, t) = -log sum_k exp(h_k - |x - alpha c_k|^2 / (2 v_k)) v_k^(-d/2),  v_k = alpha^2 r_k^2 + sigma^2.

    The soft minimum of `networks.Wells`, each well moved and widened by the noise of the level: were the data a mixture
    of round Gaussians, this would be its energy at every level at once, and so what is learnt at high noise, where
    modes are in reach of each other, holds at low noise too.
    """

    wells: Wells
    noise: AbstractGaussianNoise

    def fixed_parts(self) -> tuple[Any, ...]:
        return (self.noise,)

    def __call__(self, x: Float[Array, "..."], level: Scalar, condition: Any = None) -> Float[Array, " 1"]:
        noise, flat = held(self.noise), x.reshape(-1)
        alpha = noise.alpha(level)
        widths = alpha**2 * jnp.exp(2 * self.wells.log_radii) + noise.variance(level)
        squares = jnp.sum((flat[None] - alpha * self.wells.centres) ** 2, axis=1)
        depths = self.wells.depths - 0.5 * flat.size * jnp.log(widths)
        return -jax.nn.logsumexp(depths - 0.5 * squares / widths)[None]


def wells_energy(
    noise: AbstractGaussianNoise, rows: Float[Array, "n d"], *, units: int, radius: float, key: PRNGKeyArray
) -> LevelledEnergy:
    """A levelled energy of wells that begin at rows of the data.

    >>> from unnorm.noises import VarianceExploding
    >>> rows = jax.random.normal(jax.random.key(0), (30, 2))
    >>> model = wells_energy(VarianceExploding(0.1, 5.0), rows, units=8, radius=0.5, key=jax.random.key(1))
    >>> model(0.5, rows[0]).shape
    (2,)
    """
    network = NoisedWells(Wells(rows, units=units, radius=radius, key=key), noise)
    return LevelledEnergy(network=network, noise=noise, space=Real(rows.shape[1:]), preconditioning=Plain())
