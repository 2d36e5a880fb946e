"""A noise level that is an array."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unnorm.noises import AbstractGaussianNoise


class Level(AbstractGaussianNoise):
    """One level of noise as an array, so that all levels share a program."""

    scale: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def alpha(self, t):
        return jnp.ones_like(t)

    def variance(self, t):
        return self.scale**2
