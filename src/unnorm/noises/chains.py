"""Chains of a finite number of levels, as points of a process in continuous time that passes through all of them."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unnorm.arguments import positive
from unnorm.errors import require
from unnorm.noises.base import AbstractGaussianNoise, Level, Scalar


def _along(t: Level, values: Float[Array, " n"]) -> Scalar:
    """Straight lines between values at equal distances over [0, 1]."""
    return jnp.interp(jnp.asarray(t, float), jnp.linspace(0, 1, len(values)), values)


class Ladder(AbstractGaussianNoise):
    """y = x + sigma z with sigma from a list of L levels that rise (Song and Ermon 2019): sigma_i at t = i / (L - 1).

    Between two levels log sigma is a straight line, so that a geometric list is `VarianceExploding` and no other.

    >>> ladder = Ladder([0.1, 1.0, 10.0])
    >>> round(float(ladder.sigma(0.25)), 4), ladder.levels.tolist()
    (0.3162, [1.0, 0.5, 0.0])
    """

    sigmas: Float[Array, " levels"] = eqx.field(converter=lambda s: positive(s, "a level of a ladder"))

    def __check_init__(self):
        require(
            self.sigmas.ndim == 1 and len(self.sigmas) >= 2 and bool(np.all(np.diff(np.asarray(self.sigmas)) > 0)),
            "the levels of a ladder are two or more numbers that rise; sort them",
        )

    @property
    def levels(self) -> Float[Array, " levels"]:
        """The t of its levels, from the last to the first, as `generators.generate` takes them."""
        return jnp.linspace(1, 0, len(self.sigmas))

    def alpha(self, t: Level) -> Scalar:
        return jnp.ones_like(jnp.asarray(t, float))

    def variance(self, t: Level) -> Scalar:
        return jnp.exp(2 * _along(t, jnp.log(self.sigmas)))


class Chain(AbstractGaussianNoise):
    """x_i = sqrt(1 - beta_i) x_{i-1} + sqrt(beta_i) z for N rates beta_i in (0, 1) (Ho et al. 2020): x_i at t = i / N.

    alpha(i / N)^2 is the product of 1 - beta_j up to i; between two steps log alpha is a straight line.

    >>> chain = Chain([0.1, 0.2])
    >>> round(float(chain.alpha(1.0) ** 2), 4), round(float(chain.variance(0.5)), 4), chain.levels.tolist()
    (0.72, 0.1, [1.0, 0.5, 0.0])
    """

    betas: Float[Array, " steps"] = eqx.field(converter=lambda b: positive(b, "a rate of a chain"))

    def __check_init__(self):
        require(
            self.betas.ndim == 1 and len(self.betas) >= 1 and bool(np.all(np.asarray(self.betas) < 1)),
            "the rates of a chain are numbers below 1; divide rates per unit of time by the number of steps",
        )

    @property
    def levels(self) -> Float[Array, " levels"]:
        """The t of its steps, from the last to 0, as `generators.generate` takes them."""
        return jnp.linspace(1, 0, len(self.betas) + 1)

    def _log_alpha(self, t: Level) -> Scalar:
        logs = 0.5 * jnp.cumsum(jnp.log1p(-self.betas))
        return _along(t, jnp.concatenate([jnp.zeros(1, logs.dtype), logs]))

    def alpha(self, t: Level) -> Scalar:
        return jnp.exp(self._log_alpha(t))

    def variance(self, t: Level) -> Scalar:
        return -jnp.expm1(2 * self._log_alpha(t))


def linear_chain(steps: int = 1000, low: float = 0.1, high: float = 20.0) -> Chain:
    """The N rates of Ho et al. 2020, beta_i from low / N to high / N in equal steps: `VariancePreserving` as N grows.

    >>> chain = linear_chain(1000)
    >>> round(float(chain.betas[0]), 6), round(float(chain.betas[-1]), 6)
    (0.0001, 0.02)
    """
    require(steps >= 2 and 0 < low <= high < steps, f"{steps} steps are too few for rates of {low} to {high}")
    return Chain(jnp.linspace(low, high, steps) / steps)
