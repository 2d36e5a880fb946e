"""Denoising Gibbs: draws of the clean density from a model of the noisy one.

A model trained by denoising at noise sigma knows q~(x~), the density of x~ = x + sigma z, and not that of x. The first
two moments of x given x~ are known from it nevertheless (Zhang et al. 2023, Eqs 9 and 11; `scores.posterior`). The
sampler adds noise and takes it away again with the Gaussian of these moments. For Gaussian data that Gaussian is the
posterior and the chain is exact; for others it is an approximation, and the chain settles near the clean density. The
covariances below are what can be afforded in place of the exact one.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import positive
from unnorm.compiling import compiled
from unnorm.energies.base import AbstractEnergy, Point, Scalar
from unnorm.errors import require
from unnorm.estimate import Estimate, mean_estimate
from unnorm.noises.base import Level
from unnorm.samplers.base import AbstractSampler, Info, Target, require_gradients
from unnorm.scores import AbstractPlainScore, GaussianDenoiser, as_score
from unnorm.scores.posterior import posterior_deviate, posterior_mean, slope_of_mean

Score = Callable[[Point], Point]


def hessian_diagonal(score: Score, x: Point, *, probes: int, key: PRNGKeyArray) -> Point:
    """diag(grad s) at x by mean_k v_k * (grad s v_k), v_k of fair signs: unbiased (Bekas, Kokiopoulou, Saad 2007).

    Each probe costs one forward derivative of s, and no D x D matrix is formed. Its error is the sum of the squared
    off-diagonal entries of the row, over `probes`: exact where the matrix is diagonal.

    >>> import jax.numpy as jnp
    >>> hessian_diagonal(lambda x: -x * jnp.arange(3.0), jnp.ones(3), probes=1, key=jax.random.key(0)).tolist()
    [-0.0, -1.0, -2.0]
    """
    _, derivative = jax.linearize(score, x)
    signs = jax.random.rademacher(key, (probes, *x.shape), x.dtype)
    return jnp.mean(jax.vmap(lambda v: v * derivative(v))(signs), axis=0)


class AbstractCovariance(eqx.Module):
    """What stands for Cov[x | x~] = v I + v^2 grad s(x~), v the variance of the noise that is taken away."""

    #: Whether it follows from the score at any noise level, or belongs to the one level it was made for.
    any_level: eqx.AbstractClassVar[bool]

    @abstractmethod
    def deviate(
        self, score: Score, variance: Scalar | float, noisy: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Scalar]:
        """A draw of N(0, covariance at x~), and how many variances had to be raised to the floor."""


def _check_floor(floor: float) -> None:
    require(0 <= floor < 1, f"the floor of a covariance is a share of the noise's variance in [0, 1), not {floor}")


class FullCovariance(AbstractCovariance):
    """v I + v^2 grad s itself, symmetrised: D products with grad s and one eigendecomposition a draw, for small D.

    A learnt score can have eigenvalues that no covariance has. Those below `floor` v are raised to it, and counted.

    >>> FullCovariance().floor
    1e-06
    """

    any_level: ClassVar[bool] = True
    floor: float = eqx.field(static=True, default=1e-6)

    def __check_init__(self):
        _check_floor(self.floor)

    def deviate(
        self, score: Score, variance: Scalar | float, noisy: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Scalar]:
        _, derivative = jax.linearize(score, noisy)
        basis = jnp.eye(noisy.size, dtype=noisy.dtype)
        slopes = jax.vmap(lambda v: derivative(v.reshape(noisy.shape)).reshape(-1))(basis)
        return posterior_deviate(slopes, variance, noisy, floor=self.floor, key=key)


class DiagonalCovariance(AbstractCovariance):
    """The diagonal of v I + v^2 grad s, estimated with `probes` products: for images (Zhang et al. 2023, Eq. 19).

    Variances below `floor` v, from a rough estimate or a learnt score, are raised to it and counted.

    >>> DiagonalCovariance(probes=3).probes
    3
    """

    any_level: ClassVar[bool] = True
    probes: int = eqx.field(static=True, default=10)
    floor: float = eqx.field(static=True, default=1e-6)

    def __check_init__(self):
        _check_floor(self.floor)
        require(self.probes >= 1, f"an estimate of a diagonal needs at least one probe, not {self.probes}")

    def deviate(
        self, score: Score, variance: Scalar | float, noisy: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Scalar]:
        probe, draw = jax.random.split(key)
        shares = 1 + variance * hessian_diagonal(score, noisy, probes=self.probes, key=probe)
        low = shares < self.floor
        scales = jnp.sqrt(variance * jnp.where(low, self.floor, shares))
        return scales * jax.random.normal(draw, noisy.shape, noisy.dtype), jnp.sum(low).astype(float)


class IsotropicCovariance(AbstractCovariance):
    """One variance for all coordinates and all x~ (Bao et al. 2022; Zhang et al. 2023, Eq. 18): `isotropic_covariance`.

    >>> float(IsotropicCovariance(0.25).variance)
    0.25
    """

    any_level: ClassVar[bool] = False
    variance: Float[Array, ""] = eqx.field(converter=lambda v: positive(v, "the variance of a posterior"))

    def deviate(
        self, score: Score, variance: Scalar | float, noisy: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Scalar]:
        white = jax.random.normal(key, noisy.shape, noisy.dtype)
        return jnp.sqrt(self.variance.astype(noisy.dtype)) * white, jnp.zeros(())


class LearnedCovariance(AbstractCovariance):
    """diag(variances(x~)), any callable of a noisy point, such as a network's own output: see `learned_posterior`.

    >>> x, _ = LearnedCovariance(lambda x: 0 * x).deviate(lambda x: -x, 1.0, jnp.ones(2), key=jax.random.key(0))
    >>> x.tolist()
    [0.0, 0.0]
    """

    any_level: ClassVar[bool] = False
    variances: Callable[[Point], Point]

    def deviate(
        self, score: Score, variance: Scalar | float, noisy: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Scalar]:
        white = jax.random.normal(key, noisy.shape, noisy.dtype)
        return jnp.sqrt(self.variances(noisy)) * white, jnp.zeros(())


class DenoiserScore(AbstractPlainScore):
    """s(x~) = (mean(x~) - x~) / sigma^2: the score that a denoiser's mean stands for."""

    denoiser: GaussianDenoiser
    sigma: float = eqx.field(static=True)

    def __check_init__(self):
        require(self.sigma > 0, f"the noise of a denoiser must be positive, not {self.sigma}")

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        return slope_of_mean(x, self.denoiser(x)[0], self.sigma**2)


class _Variances(eqx.Module):
    """exp(2 log_std(x~)) of a denoiser."""

    denoiser: GaussianDenoiser

    def __call__(self, noisy: Point) -> Point:
        return jnp.exp(2 * self.denoiser(noisy)[1])


def learned_posterior(denoiser: GaussianDenoiser, sigma: float) -> tuple[DenoiserScore, LearnedCovariance]:
    """The target and the covariance under which `DenoisingGibbs` draws x ~ N(mean(x~), diag std(x~)^2) of a denoiser.

    The "learned diagonal" of Zhang et al. 2023, trained by `objectives.DenoisingKL` at the same sigma (Bengio et al.
    2013).

    >>> denoiser = GaussianDenoiser(lambda x: jnp.concatenate([x / 2, 0 * x]))
    >>> target, covariance = learned_posterior(denoiser, 1.0)
    >>> target(0.0, jnp.ones(2)).tolist(), covariance.variances(jnp.ones(2)).tolist()
    ([-0.5, -0.5], [1.0, 1.0])
    """
    return DenoiserScore(denoiser, sigma), LearnedCovariance(_Variances(denoiser))


def take_away(
    score: Score, covariance: AbstractCovariance, variance: Scalar | float, noisy: Point, *, key: PRNGKeyArray
) -> tuple[Point, Scalar]:
    """x ~ N(x~ + v s(x~), covariance): noise of variance v taken off one point, and how many variances were raised."""
    offset, clipped = covariance.deviate(score, variance, noisy, key=key)
    return posterior_mean(noisy, score(noisy), variance) + offset, clipped


class DenoisingGibbs(AbstractSampler):
    """x~ = x + sigma z, then x ~ N(x~ + sigma^2 s(x~), covariance at x~): Zhang et al. 2023, Eqs 7 and 12.

    The target is the energy, or the score (at level t = 0), of the density with noise sigma; the chain draws from the
    one without. A small sigma crosses between far modes as rarely as the noise itself does: look at R-hat.

    >>> import unnorm as un
    >>> noisy = un.energies.standard_gaussian(2, scale=2**0.5)  # data N(0, I) with noise of sigma = 1
    >>> un.sample(noisy, DenoisingGibbs(1.0), chains=4, steps=10, key=jax.random.key(0)).draws.shape
    (4, 10, 2)
    """

    sigma: Float[Array, ""] = eqx.field(converter=lambda s: positive(s, "the noise of denoising Gibbs"))
    covariance: AbstractCovariance = FullCovariance()

    def check(self, target: Target) -> None:
        if isinstance(target, AbstractEnergy):
            require_gradients(target.space, "DenoisingGibbs")

    def init(self, target: Target, x: Point) -> Point:
        return x

    def step(self, target: Target, state: Point, *, key: PRNGKeyArray) -> tuple[Point, Info]:
        score, sigma = as_score(target), self.sigma.astype(state.dtype)
        up, down = jax.random.split(key)
        noisy = state + sigma * jax.random.normal(up, state.shape, state.dtype)
        moved, clipped = take_away(lambda y: score(jnp.zeros(()), y), self.covariance, sigma**2, noisy, key=down)
        return moved, Info(jnp.ones(()), ~jnp.all(jnp.isfinite(moved)), clipped)

    def position(self, state: Point) -> Point:
        return state


@compiled
def _isotropic_shares(target: Target, sigma: Scalar, data: Float[Array, "n ..."], key: PRNGKeyArray) -> Array:
    score = as_score(target)

    def share(x, key):
        return 1 - sigma**2 * jnp.mean(score(jnp.zeros(()), x + sigma * jax.random.normal(key, x.shape)) ** 2)

    return jax.lax.map(lambda pair: share(*pair), (data, jax.random.split(key, len(data))), batch_size=1024)


def isotropic_variance(target: Target, sigma: float, data: Any, *, key: PRNGKeyArray) -> Estimate:
    """sigma^2 - (sigma^4 / d) E |s(x~)|^2 over the data with noise: the best single posterior variance (Eq. 18).

    It equals the mean of tr Cov[x | x~] / d, by the Fisher information identity.

    >>> import unnorm as un
    >>> noisy, data = un.energies.standard_gaussian(2, scale=2**0.5), jax.random.normal(jax.random.key(0), (4000, 2))
    >>> isotropic_variance(noisy, 1.0, data, key=jax.random.key(1)).covers(0.5, 0.999)
    True
    """
    shares = _isotropic_shares(target, positive(sigma, "the noise"), jnp.asarray(data, float), key)
    return mean_estimate(sigma**2 * shares, "mean over noised data")


def isotropic_covariance(target: Target, sigma: float, data: Any, *, key: PRNGKeyArray) -> IsotropicCovariance:
    """The covariance that `isotropic_variance` finds.

    >>> import unnorm as un
    >>> noisy, data = un.energies.standard_gaussian(2, scale=2**0.5), jax.random.normal(jax.random.key(0), (4000, 2))
    >>> 0.4 < float(isotropic_covariance(noisy, 1.0, data, key=jax.random.key(1)).variance) < 0.6
    True
    """
    found = isotropic_variance(target, sigma, data, key=key)
    require(
        found.value > 0,
        f"the score is larger than noise of sigma {sigma} allows (posterior variance {found.value:.3g}); "
        "pass the model of these data at this noise",
    )
    return IsotropicCovariance(found.value)
