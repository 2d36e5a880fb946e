"""How data is corrupted: a kernel q(y | x) with a level t."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

Point = Shaped[Array, "..."]
Scalar = Float[Array, ""]
#: The level of a noise: a number, traced or not.
Level = Scalar | float
#: Where training over the levels begins if there is no noise at level 0: the score of the data themselves need not
#: exist, and scores in units of sigma are divided by 0 there. The value is that of Song et al. 2021, App. C.
LEAST_LEVEL = 1e-5


class AbstractNoise(eqx.Module):
    """A corruption kernel on one point; t is its level (kernels with a single level ignore it)."""

    @property
    @abstractmethod
    def makes_real_numbers(self) -> bool:
        """Whether its draws are real numbers whatever the points were: objectives refuse it on discrete spaces."""

    @abstractmethod
    def sample(self, t: Level, x: Point, *, key: PRNGKeyArray) -> Point:
        """y ~ q_t(. | x)."""

    @abstractmethod
    def log_prob(self, t: Level, y: Point, x: Point) -> Scalar:
        """log q_t(y | x)."""

    @abstractmethod
    def propose(self, t: Level, x: Point, *, key: PRNGKeyArray) -> tuple[Point, Scalar]:
        """y, and log q(y | x) - log q(x | y) of the kernel that made it.

        Contrastive objectives need only this ratio, which may exist where the densities do not (a jump to another
        data point) and which, for a kernel chosen at random, is that of the chosen one.
        """

    def propose_each(
        self, t: Level, xs: Shaped[Array, "n ..."], *, key: PRNGKeyArray
    ) -> tuple[Shaped[Array, "n ..."], Float[Array, " n"]]:
        """A proposal for each of n exchangeable points, with its log ratio: the boundary where `propose` is vmapped.

        A noise that can do better for many points than for each alone says how.
        """
        return jax.vmap(lambda x, k: self.propose(t, x, key=k))(xs, jax.random.split(key, len(xs)))


class AbstractKernel(AbstractNoise):
    """A noise whose density is known in both directions, so that the ratio follows from it."""

    def propose(self, t: Level, x: Point, *, key: PRNGKeyArray) -> tuple[Point, Scalar]:
        y = self.sample(t, x, key=key)
        return y, self.log_prob(t, y, x) - self.log_prob(t, x, y)


class AbstractGaussianNoise(AbstractKernel):
    """q_t(y | x) = N(y; alpha(t) x, sigma(t)^2 I).

    Its forward process dX = f(t) X dt + g(t) dB has f = alpha'/alpha and g^2 = (sigma^2)' - 2 f sigma^2 (Song et al.
    2021, App. B; Karras et al. 2022), so a process is defined by alpha and sigma^2 alone. The variance rather than
    sigma, because a process that starts at sigma = 0 has an infinite slope of sigma there, and a finite one of sigma^2.
    """

    @property
    def makes_real_numbers(self) -> bool:
        return True

    @abstractmethod
    def alpha(self, t: Level) -> Scalar:
        """What is left of the signal at level t."""

    @abstractmethod
    def variance(self, t: Level) -> Scalar:
        """sigma(t)^2."""

    def sigma(self, t: Level) -> Scalar:
        """The standard deviation of the noise at level t."""
        return jnp.sqrt(self.variance(t))

    def least_level(self) -> Scalar:
        """The least level at which there is noise: 0, or `LEAST_LEVEL` for a process that starts at sigma = 0."""
        return jnp.where(self.variance(jnp.zeros(())) > 0, 0.0, LEAST_LEVEL)

    def sample(self, t: Level, x: Point, *, key: PRNGKeyArray) -> Point:
        return self.alpha(t) * x + self.sigma(t) * jax.random.normal(key, x.shape, x.dtype)

    def log_prob(self, t: Level, y: Point, x: Point) -> Scalar:
        return isotropic_log_prob(y - self.alpha(t) * x, self.sigma(t))

    def propose_each(
        self, t: Level, xs: Shaped[Array, "n ..."], *, key: PRNGKeyArray
    ) -> tuple[Shaped[Array, "n ..."], Float[Array, " n"]]:
        # All noise by one draw: a key for each point would be a second pass of the generator.
        ys = self.sample(t, xs, key=key)
        return ys, jax.vmap(lambda y, x: self.log_prob(t, y, x) - self.log_prob(t, x, y))(ys, xs)

    def drift(self, t: Level) -> Scalar:
        """f(t) of the forward process."""
        alpha, rate = jax.value_and_grad(self.alpha)(jnp.asarray(t, float))
        return rate / alpha

    def diffusion(self, t: Level) -> Scalar:
        """g(t) of the forward process."""
        variance, rate = jax.value_and_grad(self.variance)(jnp.asarray(t, float))
        return jnp.sqrt(rate - 2 * self.drift(t) * variance)


def same_noise(one: AbstractGaussianNoise, other: AbstractGaussianNoise) -> bool:
    """Whether two noises are of one class with equal fields; inside compiled code arrays count as equal.

    >>> from unnorm.noises import Gaussian
    >>> same_noise(Gaussian(0.5), Gaussian(0.5)), same_noise(Gaussian(0.5), Gaussian(0.4))
    (True, False)
    """
    (mine, made), (theirs, other_made) = jax.tree.flatten(one), jax.tree.flatten(other)
    if made != other_made:
        return False
    pairs = zip(mine, theirs, strict=True)
    return all(any(isinstance(leaf, Tracer) for leaf in pair) or np.array_equal(*pair) for pair in pairs)


def isotropic_log_prob(offset: Point, sigma: Scalar | float) -> Scalar:
    """log N(offset; 0, sigma^2 I)."""
    sigma = jnp.asarray(sigma, offset.dtype)
    return -0.5 * jnp.sum((offset / sigma) ** 2) - offset.size * (jnp.log(sigma) + 0.5 * jnp.log(2 * jnp.pi))
