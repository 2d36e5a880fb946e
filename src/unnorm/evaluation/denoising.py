"""What is known of the clean point given the noisy one, and whether there is a clean density at all.

With x~ = x + sigma z and s1 = grad log q~, s2 = Hessian of log q~, the scores of the noisy density (thesis 4.5),

    E[x | x~] = x~ + sigma^2 s1,   Cov[x | x~] = sigma^2 I + sigma^4 s2,

so that a denoised image comes with the variance of every pixel, and with the directions in which it could have been
another one: the leading eigenvectors of the covariance, found from its products with vectors alone.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.energies.base import AbstractEnergy
from unnorm.errors import require
from unnorm.scores import AbstractScore, AbstractSecondOrder, DenoisingPosterior, FromScore, as_score


@dataclass(frozen=True)
class Denoised:
    """The posterior of denoising at each of n noisy points.

    `mean` and `variances` have the points' shape. `eigenvalues` (n x k, falling) and `eigenvectors` (n x k x point) are
    the leading ones of the covariance; `residuals` |C v - lambda v| / sigma^2 say how far they have converged.
    """

    mean: np.ndarray
    variances: np.ndarray
    eigenvalues: np.ndarray
    eigenvectors: np.ndarray
    residuals: np.ndarray

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong, in sentences; empty if nothing was seen."""
        found = []
        rough, negative = int(np.sum(self.residuals > 0.01)), int(np.sum(self.variances < 0))
        if rough:
            found.append(f"{rough} of {self.residuals.size} eigenvectors have not converged: use more iterations.")
        if negative:
            found.append(f"{negative} of {self.variances.size} variances are negative: this s2 is of no noisy density.")
        return tuple(found)


def leading_directions(
    posterior: DenoisingPosterior, noisy: Float[Array, "..."], *, count: int, iterations: int, key: PRNGKeyArray
) -> tuple[Float[Array, " k"], Float[Array, "k ..."], Float[Array, " k"]]:
    """Eigenvalues and eigenvectors of Cov[x | x~] from products alone, and the residuals of each over sigma^2.

    Block power iteration on twice as many vectors as asked for, with a Rayleigh-Ritz step at the end: `iterations` x 2k
    products, and no D x D matrix.
    """
    size = noisy.size
    block = min(size, 2 * count)

    def apply(vectors):
        return jax.vmap(lambda v: posterior.apply(noisy, v.reshape(noisy.shape)).reshape(-1), 1, 1)(vectors)

    def sharpen(_, basis):
        return jnp.linalg.qr(apply(basis))[0]

    start = jnp.linalg.qr(jax.random.normal(key, (size, block), noisy.dtype))[0]
    basis = jax.lax.fori_loop(0, iterations, sharpen, start)
    image = apply(basis)
    small = basis.T @ image
    values, rotation = jnp.linalg.eigh((small + small.T) / 2)
    values, rotation = values[::-1][:count], rotation[:, ::-1][:, :count]
    vectors = basis @ rotation
    residuals = jnp.linalg.norm(image @ rotation - vectors * values, axis=0) / posterior.sigma**2
    return values, vectors.T.reshape(count, *noisy.shape), residuals


@compiled
def _denoise(posterior: DenoisingPosterior, noisy: Array, count: int, iterations: int, key: PRNGKeyArray):
    def one(y, key):
        found = leading_directions(posterior, y, count=count, iterations=iterations, key=key)
        return posterior.mean(y), posterior.variances(y), *found

    # One point after another: a product of an image network is large enough on its own.
    return jax.lax.map(lambda pair: one(*pair), (noisy, jax.random.split(key, len(noisy))))


def denoise(
    model: AbstractEnergy | AbstractScore,
    sigma: float,
    noisy: Any,
    *,
    directions: int = 2,
    iterations: int = 50,
    key: PRNGKeyArray,
) -> Denoised:
    """Mean, variances and leading directions of the clean point at each row of `noisy`.

    `model` is that of the density with noise sigma: an energy or a score, differentiated once more, or a second-order
    score, used as it is.

    >>> import unnorm as un
    >>> noisy = un.energies.gaussian([0.0, 0.0], [[2.0, 0.5], [0.5, 2.0]])  # data with covariance [[1, .5], [.5, 1]]
    >>> found = denoise(noisy, 1.0, jnp.ones((1, 2)), directions=1, key=jax.random.key(0))
    >>> bool(np.allclose(found.mean, 0.6)), bool(np.allclose(found.eigenvalues, 0.6))
    (True, True)
    """
    points = jnp.asarray(noisy, float)
    require(points.ndim >= 2, f"noisy points are rows of one array, not an array of shape {points.shape}")
    size = points[0].size
    require(1 <= directions <= size, f"{size} coordinates have 1 to {size} directions, not {directions}")
    require(iterations >= 1, f"at least one iteration is needed, not {iterations}")
    second = model if isinstance(model, AbstractSecondOrder) else FromScore(as_score(model))
    parts = _denoise(DenoisingPosterior(second, sigma), points, directions, iterations, key)
    return Denoised(*(np.asarray(part) for part in parts))


@dataclass(frozen=True)
class CleanDensity:
    """A noisy density with its noise divided out, on a grid; `negative` is the mass where it is below zero."""

    axes: tuple[np.ndarray, ...]
    density: np.ndarray
    negative: float
    #: Frequencies up to this one were kept: beyond, the noise has left nothing that could be told from rounding.
    cutoff: float

    @property
    def exists(self) -> bool:
        """Whether some density, blurred by the noise, is the noisy one: no more than a thousandth below zero."""
        return self.negative < 1e-3


def clean_density(
    energy: AbstractEnergy, sigma: float, low: Any, high: Any, *, points: int = 512, smallest: float = 1e-4
) -> CleanDensity:
    """Whether a model of noisy data has a clean one (seed 001, Thm A.1), on the line or in the plane.

    A density q with q * N(0, sigma^2 I) = q~ exists if and only if F(q~) / F(k) is positive semi-definite, that is
    (Bochner) if its inverse transform q is nowhere negative. The transform of exp(-E) is taken on a periodic grid from
    `low` to `high`, which must hold all of it; frequencies where F(k) is below `smallest` are left out, since dividing
    by it would make noise of rounding. Sharper features of q than that are smoothed, and ring a little.

    >>> import unnorm as un
    >>> blurred, sharp = (un.energies.standard_gaussian(1, scale=s) for s in (1.5, 0.6))
    >>> [clean_density(e, 1.0, [-12.0], [12.0]).exists for e in (blurred, sharp)]
    [True, False]
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    require(low.ndim == 1 and low.shape == high.shape, "low and high are corners: one number for each coordinate")
    require(len(low) in (1, 2), f"the noise is divided out on the line or in the plane, not in {len(low)} dimensions")
    require(bool(np.all(low < high)), "every coordinate needs low below high")
    require(sigma > 0, f"the noise must have a positive sigma, not {sigma}")
    require(0 < smallest < 1, f"the smallest share of the noise's transform lies in (0, 1), not {smallest}")
    axes = tuple(np.linspace(a, b, points, endpoint=False) for a, b in zip(low, high, strict=True))
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    # In double precision, if the caller allows it: rounding is multiplied by 1 / smallest.
    log_f = -np.asarray(_energies(energy, jnp.asarray(grid.reshape(-1, len(low)), float)), np.float64)
    noisy = np.exp(log_f - log_f.max()).reshape(grid.shape[:-1])
    steps = [axis[1] - axis[0] for axis in axes]
    noisy /= noisy.sum() * np.prod(steps)
    rates = np.meshgrid(*(2 * np.pi * np.fft.fftfreq(points, step) for step in steps), indexing="ij")
    noise = np.exp(-0.5 * sigma**2 * sum(rate**2 for rate in rates))
    kept = noise >= smallest
    density = np.fft.ifftn(np.where(kept, np.fft.fftn(noisy) / np.where(kept, noise, 1.0), 0.0)).real
    negative = float(np.maximum(-density, 0).sum() * np.prod(steps))
    return CleanDensity(axes, density, negative, float(np.sqrt(-2 * np.log(smallest)) / sigma))


@compiled
def _energies(energy: AbstractEnergy, xs: Array) -> Array:
    return jax.lax.map(energy, xs, batch_size=4096)
