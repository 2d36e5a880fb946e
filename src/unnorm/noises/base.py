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
    2021, App. B; Karras et al. 2022), so a process is defined by alpha and sigma^2 alone, and so are the ways back. The
    variance rather than sigma, because a process that starts at sigma = 0 has an infinite slope of sigma there, and a
    finite one of sigma^2.
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

    def reverse_drift(self, t: Level, x: Point, slope: Point) -> Point:
        """f x - g^2 s, the drift of the reverse process dX = (f X - g^2 s) dt + g dB (Anderson 1982), s = `slope`."""
        return self.drift(t) * x - self.diffusion(t) ** 2 * slope

    def flow(self, t: Level, x: Point, slope: Point) -> Point:
        """f x - g^2 s / 2, the velocity of the probability flow, which has the same marginals (Song et al. 2021)."""
        return self.drift(t) * x - 0.5 * self.diffusion(t) ** 2 * slope

    def between(self, s: Level, t: Level) -> tuple[Scalar, Scalar]:
        """a and v of x_t = a x_s + sqrt(v) z, from level s up to t."""
        kept = self.alpha(t) / self.alpha(s)
        # Between equal levels nothing is added, and rounding may say less than nothing.
        return kept, jnp.maximum(self.variance(t) - kept**2 * self.variance(s), 0)

    def log_ratio(self, t: Level) -> Scalar:
        """log(alpha / sigma), half the logarithm of the ratio of signal to noise."""
        return jnp.log(self.alpha(t)) - 0.5 * jnp.log(self.variance(t))

    def level_at(self, ratio: Scalar) -> Scalar:
        """The level in [0, 1] at which log(alpha / sigma) is this number, by bisection; the nearest one if none is."""

        def halve(_, bounds):
            low, high = bounds
            middle = 0.5 * (low + high)
            noisier = self.log_ratio(middle) < ratio
            return jnp.where(noisier, low, middle), jnp.where(noisier, middle, high)

        ends = jnp.zeros_like(ratio), jnp.ones_like(ratio)
        low, high = jax.lax.fori_loop(0, 8 * ratio.dtype.itemsize, halve, ends)
        return 0.5 * (low + high)

    def prior_sample(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> Point:
        """A draw from N(0, sigma(1)^2 I), which the data with the noise of level 1 are taken to be."""
        return self.sigma(jnp.ones(())) * jax.random.normal(key, shape)

    def prior_log_prob(self, x: Point) -> Scalar:
        """Its log density."""
        return isotropic_log_prob(x, self.sigma(jnp.ones((), x.dtype)))


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
