"""Energy discrepancy: raise the energy of what is found around a noisy copy of the data, with no Markov chain.

ED_q(p, U) = E_p[U(x)] - E_p E_q(y|x)[U_q(y)] with the contrastive potential U_q(y) = -log of the integral of
exp(-U(x')) q(y | x') over x'. It is convex in U and least at U = -log p, whatever the kernel q, if noise loses
information everywhere. Under Gaussian noise of variance t, ED/t becomes score matching as t falls to 0, and the
Kullback-Leibler divergence as t grows: ED(U) - ED(-log p) differs from it by at most W2^2 / (2 t).

To estimate U_q one draws x' with density proportional to q(y | x') in x' *backwards* from y: the integral is then
c(y) E[exp(-U(x'))], and c(y), the integral of q(y | x') over x', does not depend on U, so it drops out. For
y = alpha x + sigma xi that backward law is N(y / alpha, (sigma / alpha)^2 I), so x' = x + (sigma / alpha)(xi + zeta):
the Ornstein-Uhlenbeck process over time s, alpha = e^-s and sigma^2 = 1 - e^-2s, is Gaussian noise of variance
t = e^2s - 1. (Running the same process forward from y would be another, wrong, law.) Schroeder et al. 2023.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from unnorm.arguments import require_count, require_weight
from unnorm.energies import AbstractEnergy
from unnorm.errors import require
from unnorm.noises import AbstractGaussianNoise, AbstractSymmetricNoise
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_energy, require_gaussian, require_kind, require_real, require_sigma
from unnorm.spaces import AbstractSpace, Binary, Categorical

Point = Shaped[Array, "..."]


class AbstractPerturbation(eqx.Module):
    """A kernel q(y | x) and the way back from y."""

    @abstractmethod
    def check(self, space: AbstractSpace) -> None:
        """Refuse, in one sentence, a space whose points it does not perturb."""

    @abstractmethod
    def forward(self, x: Point, *, key: PRNGKeyArray) -> Point:
        """y ~ q(. | x)."""

    @abstractmethod
    def backward(self, y: Point, *, key: PRNGKeyArray) -> Point:
        """x' with density q(y | x') / c(y) in x'."""


class GaussianPerturbation(AbstractPerturbation):
    """Any Gaussian noise at one level: y = alpha x + sigma xi, and back x' = (y + sigma zeta) / alpha.

    `noises.Gaussian(sqrt(t))` is the seed's Gaussian kernel; `noises.OrnsteinUhlenbeck(time)` at level 1 its
    Ornstein-Uhlenbeck one.

    >>> import jax, jax.numpy as jnp, unnorm as un
    >>> ornstein = GaussianPerturbation(un.noises.OrnsteinUhlenbeck(0.5))
    >>> ornstein.backward(jnp.zeros(2), key=jax.random.key(0)).shape
    (2,)
    """

    noise: AbstractGaussianNoise
    level: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        require_gaussian(self.noise, "a Gaussian perturbation")
        require_sigma(self.noise, self.level, "a Gaussian perturbation")

    def check(self, space: AbstractSpace) -> None:
        require_real(space, "EnergyDiscrepancy with Gaussian noise", "makes points of real numbers")

    def forward(self, x: Point, *, key: PRNGKeyArray) -> Point:
        return self.noise.sample(jnp.asarray(self.level), x, key=key)

    def backward(self, y: Point, *, key: PRNGKeyArray) -> Point:
        level = jnp.asarray(self.level)
        noise = self.noise.sigma(level) * jax.random.normal(key, y.shape, y.dtype)
        return (y + noise) / self.noise.alpha(level)


class Perturbation(AbstractPerturbation):
    """A pair of functions of a point and a key: there, y ~ q(. | x), and back, x' with density q(y | x') / c(y)."""

    there: Callable[[Point, PRNGKeyArray], Point]
    back: Callable[[Point, PRNGKeyArray], Point]

    def check(self, space: AbstractSpace) -> None:
        """Nothing is known of the two functions."""

    def forward(self, x: Point, *, key: PRNGKeyArray) -> Point:
        return self.there(x, key)

    def backward(self, y: Point, *, key: PRNGKeyArray) -> Point:
        return self.back(y, key)


class SymmetricPerturbation(AbstractPerturbation):
    """A noise with q(y | x) = q(x | y), there and back: x' is the noisy copy with noise once more.

    `noises.Flips(e)` is the seed's Bernoulli kernel, x' = x xor mask xor mask', `noises.OneSite()` its neighbourhood on
    the grid, where y and x' differ in one site.
    """

    noise: AbstractSymmetricNoise

    def check(self, space: AbstractSpace) -> None:
        self.noise.check(space)

    def forward(self, x: Point, *, key: PRNGKeyArray) -> Point:
        return self.noise.sample(jnp.zeros(()), x, key=key)

    def backward(self, y: Point, *, key: PRNGKeyArray) -> Point:
        return self.noise.sample(jnp.zeros(()), y, key=key)


class Pooling(AbstractPerturbation):
    """y is what is left when windows of sites are pooled (how many of each value), x' uniform among what pools to y.

    So x' is x with the values of every window in a random order: a map that loses information and adds no noise
    (seed 002). `window` holds the side of a window in each direction of the points, which it must divide.

    >>> Pooling((2, 2)).backward(jnp.eye(4), key=jax.random.key(0)).sum(axis=(0, 1)).item()
    4.0
    """

    window: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self):
        for side in self.window:
            require_count(side, 1, "the sides of a window")

    def check(self, space: AbstractSpace) -> None:
        shape = space.shape if isinstance(space, Binary | Categorical) else ()
        fits = len(shape) == len(self.window) and all(n % w == 0 for n, w in zip(shape, self.window, strict=True))
        require(fits, f"windows of {self.window} do not tile points of {space}; choose sides that divide its shape")

    def forward(self, x: Point, *, key: PRNGKeyArray) -> Point:
        return x

    def backward(self, y: Point, *, key: PRNGKeyArray) -> Point:
        counts = [n // w for n, w in zip(y.shape, self.window, strict=True)]
        split = y.reshape([part for pair in zip(counts, self.window, strict=True) for part in pair])
        # Where the windows are first, then what is in them.
        axes = (*range(0, split.ndim, 2), *range(1, split.ndim, 2))
        rows = split.transpose(axes).reshape(math.prod(counts), -1)
        mixed = jax.random.permutation(key, rows, axis=1, independent=True)
        return mixed.reshape(*counts, *self.window).transpose(tuple(np.argsort(axes))).reshape(y.shape)


def _as_perturbation(given: Any) -> AbstractPerturbation:
    if isinstance(given, AbstractGaussianNoise):
        return GaussianPerturbation(given)
    if isinstance(given, AbstractSymmetricNoise):
        return SymmetricPerturbation(given)
    require_kind(
        given,
        AbstractPerturbation,
        "energy discrepancy needs noise such as noises.Gaussian(0.5) or noises.Flips(0.1), or an "
        "objectives.Perturbation with a way back, and {} is neither",
    )
    return given


class EnergyDiscrepancy(AbstractObjective):
    """L = mean_i log( w/M + (1/M) sum_j exp(U(x_i) - U(x'_ij)) ), M = `draws`, w = `stabiliser`.

    x'_ij are M ways back from one noisy copy y_i of x_i. The mean of M exponentials inside the logarithm makes a bias
    of order 1/M; w/M, of the same order, bounds each term from below and with it the gradient's variance: without it
    (w = 0) a network can drive U(x') - U(x) without end. At w = 1 there is no bias: the loss is that of telling x_i
    from its M ways back, -log of its share of exp(-U), and given y_i and all of them the data point is each of them
    with probability proportional to its density. Noise too narrow does not see across gaps, noise too wide needs many
    draws.

    >>> import unnorm as un
    >>> EnergyDiscrepancy(un.noises.Gaussian(0.5), draws=16).draws
    16
    """

    comparable: ClassVar[bool] = True
    perturbation: AbstractPerturbation = eqx.field(converter=_as_perturbation)
    draws: int = eqx.field(static=True, default=4)
    stabiliser: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        require_count(self.draws, 1, "draws per point")
        require_weight(self.stabiliser, "the stabiliser")

    def init(self, model: AbstractEnergy, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps."""
        require_energy(model, "EnergyDiscrepancy")
        self.perturbation.check(model.space)
        return None

    def __call__(
        self, model: AbstractEnergy, state: None, batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        b = len(batch)

        def around(x, key):
            there, back = jax.random.split(key)
            y = self.perturbation.forward(x, key=there)
            return jax.vmap(lambda k: self.perturbation.backward(y, key=k))(jax.random.split(back, self.draws))

        others = jax.vmap(around)(batch, jax.random.split(key, b))
        # One pass over all points together: one large matrix product instead of M + 1.
        points = jnp.concatenate([batch, others.reshape(b * self.draws, *batch.shape[1:]).astype(batch.dtype)])
        energies = jax.vmap(model)(jax.lax.stop_gradient(points))
        gaps = energies[:b, None] - energies[b:].reshape(b, self.draws)
        loss = jnp.mean(stabilised_log_mean_exp(gaps, self.stabiliser))
        return loss, (None, {"gap": jnp.mean(gaps)})


def stabilised_log_mean_exp(gaps: Float[Array, "b m"], stabiliser: float) -> Float[Array, " b"]:
    """log( w/M + (1/M) sum_j exp(gap_j) ) of each row, by log-sum-exp."""
    m = gaps.shape[1]
    if stabiliser > 0:
        gaps = jnp.concatenate([gaps, jnp.full((len(gaps), 1), jnp.log(stabiliser), gaps.dtype)], axis=1)
    return jax.nn.logsumexp(gaps, axis=1) - jnp.log(m)
