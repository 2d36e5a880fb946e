"""At which levels of a process a loss over all of them is looked at.

A loss is an integral over levels, L = Int w(t) l(t) dt on [least, 1]. How its levels are drawn changes its variance and
not its value: drawn with density p, each is worth w(t) / p(t). Discrete levels (Song and Ermon 2019; Ho et al. 2020)
and continuous ones are two ways to draw.
"""

from abc import abstractmethod
from math import inf

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import require
from unnorm.noises.base import AbstractGaussianNoise, Scalar

Times = Float[Array, " n"]


class AbstractTimes(eqx.Module):
    """A law of levels."""

    @abstractmethod
    def draw(self, noise: AbstractGaussianNoise, least: Scalar, n: int, *, key: PRNGKeyArray) -> tuple[Times, Times]:
        """n levels, and what each is worth: the density of levels uniform on [least, 1] over that of its draw."""


class UniformTimes(AbstractTimes):
    """Every level alike.

    >>> from unnorm.noises import VariancePreserving
    >>> ts, worth = UniformTimes().draw(VariancePreserving(), jnp.asarray(1e-5), 3, key=jax.random.key(0))
    >>> worth.tolist()
    [1.0, 1.0, 1.0]
    """

    def draw(self, noise: AbstractGaussianNoise, least: Scalar, n: int, *, key: PRNGKeyArray) -> tuple[Times, Times]:
        return least + (1 - least) * jax.random.uniform(key, (n,), least.dtype), jnp.ones(n, least.dtype)


class LikelihoodTimes(AbstractTimes):
    """Levels uniform in log(sigma^2 / alpha^2): the density g^2 / sigma^2 / Z that likelihood weighting asks for.

    For g^2 / sigma^2 = d/dt log(sigma^2 / alpha^2) under every process, and Z is its rise from `least` to 1 (Song,
    Durkan, Murray and Ermon 2021, who give no closed form of it).
    Where nothing is left of the point at t = 1 that is infinite; `last` is the end then.

    >>> from unnorm.noises import VariancePreserving
    >>> round(float(likelihood_mass(VariancePreserving(), 1e-3)), 3)
    19.165
    """

    last: float = eqx.field(static=True, default=1.0)

    def draw(self, noise: AbstractGaussianNoise, least: Scalar, n: int, *, key: PRNGKeyArray) -> tuple[Times, Times]:
        least = jnp.asarray(least)
        first, end = noise.log_ratio(least), noise.log_ratio(jnp.asarray(self.last, least.dtype))
        ratios = first + (end - first) * jax.random.uniform(key, (n,), least.dtype)
        ts = jnp.clip(jax.vmap(noise.level_at)(ratios), least, self.last)
        rates = jax.vmap(lambda t: noise.diffusion(t) ** 2 / noise.variance(t))(ts)
        mass = 2 * (first - end)
        return ts, mass / ((1 - least) * rates)


class LogNormalTimes(AbstractTimes):
    """log(sigma / alpha) ~ N(mean, deviation^2), within the process's levels (Karras et al. 2022, Table 1).

    Each draw counts as one, as it does there: the weights of the levels are those of the draws, and not uniform ones.
    """

    mean: float = eqx.field(static=True, default=-1.2)
    deviation: float = eqx.field(static=True, default=1.2)

    def __check_init__(self):
        require(0 < self.deviation < inf, f"the deviation of log sigma is positive, not {self.deviation}")

    def draw(self, noise: AbstractGaussianNoise, least: Scalar, n: int, *, key: PRNGKeyArray) -> tuple[Times, Times]:
        ratios = -(self.mean + self.deviation * jax.random.normal(key, (n,), least.dtype))
        ts = jax.vmap(noise.level_at)(ratios)
        return jnp.maximum(ts, least), jnp.ones(n, least.dtype)


class DiscreteTimes(AbstractTimes):
    """One of these levels, each as likely as the next: the L levels of NCSN, the chain of DDPM.

    >>> from unnorm.noises import VarianceExploding
    >>> ten = DiscreteTimes(tuple(i / 9 for i in range(10)))
    >>> ts, _ = ten.draw(VarianceExploding(), jnp.zeros(()), 100, key=jax.random.key(0))
    >>> len(set(ts.tolist()))
    10
    """

    levels: tuple[float, ...] = eqx.field(static=True)

    def __check_init__(self):
        require(len(self.levels) >= 1, "discrete levels are one or more numbers in [0, 1]")
        require(all(0 <= t <= 1 for t in self.levels), f"levels lie in [0, 1], not from {min(self.levels)} up")

    def draw(self, noise: AbstractGaussianNoise, least: Scalar, n: int, *, key: PRNGKeyArray) -> tuple[Times, Times]:
        ts = jnp.asarray(self.levels, least.dtype)[jax.random.randint(key, (n,), 0, len(self.levels))]
        return jnp.maximum(ts, least), jnp.ones(n, least.dtype)


def likelihood_mass(noise: AbstractGaussianNoise, least: float | Scalar, last: float | Scalar = 1.0) -> Scalar:
    """Z, the integral of g^2 / sigma^2 from `least` to `last`: the rise of log(sigma^2 / alpha^2)."""
    return 2 * (noise.log_ratio(jnp.asarray(least, float)) - noise.log_ratio(jnp.asarray(last, float)))
