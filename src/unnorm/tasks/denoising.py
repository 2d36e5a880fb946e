"""What is known of the clean point given the noisy one.

With x~ = x + sigma z and s1 = grad log q~, s2 = Hessian of log q~, the scores of the noisy density (Song 2022, 4.5),

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

from unnorm.arguments import require_positive
from unnorm.compiling import compiled
from unnorm.energies.base import AbstractEnergy
from unnorm.errors import InputError, require
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.tables import table_of
from unnorm.scores import AbstractScore, AbstractSecondOrder, DenoisingPosterior, EnergyScore, FromScore, as_score
from unnorm.small_matrices import orthonormal, symmetric_eigen
from unnorm.spaces import Real


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
        parts = (self.mean, self.variances, self.eigenvalues)
        rows = [np.isfinite(part.reshape(len(part), -1)).all(axis=1) for part in parts]
        bad = int(np.sum(~np.all(rows, axis=0)))
        rough, negative = int(np.sum(self.residuals > 0.01)), int(np.sum(self.variances < 0))
        if bad:
            found.append(f"{bad} of {len(self.mean)} points have no posterior that is finite: mend the model's score.")
        if rough:
            found.append(f"{rough} of {self.residuals.size} eigenvectors have not converged: use more iterations.")
        if negative:
            found.append(f"{negative} of {self.variances.size} variances are negative: no noisy density has this s2.")
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
        return orthonormal(apply(basis))

    start = orthonormal(jax.random.normal(key, (size, block), noisy.dtype))
    basis = jax.lax.fori_loop(0, iterations, sharpen, start)
    image = apply(basis)
    small = basis.T @ image
    values, rotation = symmetric_eigen((small + small.T) / 2)
    values, rotation = values[::-1][:count], rotation[:, ::-1][:, :count]
    vectors = basis @ rotation
    residuals = jnp.linalg.norm(image @ rotation - vectors * values[None], axis=0) / posterior.sigma**2
    return values, vectors.T.reshape(count, *noisy.shape), residuals


@compiled
def _denoise(posterior: DenoisingPosterior, noisy: Array, count: int, iterations: int, key: PRNGKeyArray):
    def one(y, key):
        found = leading_directions(posterior, y, count=count, iterations=iterations, key=key)
        return posterior.mean(y), posterior.variances(y), *found

    # One point after another: a product of an image network is large enough on its own.
    return jax.lax.map(lambda pair: one(*pair), (noisy, jax.random.split(key, len(noisy))))


def _energy_behind(score: AbstractScore) -> AbstractEnergy | None:
    """The energy a score is the gradient of, if it is that of one."""
    while isinstance(score, FromScore):
        score = score.score
    return score.energy if isinstance(score, EnergyScore) else None


def _check_points(score: AbstractSecondOrder, point: Array) -> None:
    """Refuse points that are not of the model's shape: an energy says what that is, a network only by failing."""
    energy, given = _energy_behind(score), point.shape
    if energy is not None and isinstance(energy.space, Real):
        wanted = energy.space.shape
        require(given == wanted, f"the model takes points of shape {wanted}, and the noisy ones have shape {given}")
    try:
        found: Any = jax.eval_shape(score, jnp.zeros(()), point)
    except TypeError as error:
        raise InputError(f"the model does not take noisy points of shape {given}") from error
    require(found.shape == given, f"the model's score at a point of shape {given} has shape {found.shape}")


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
    points = jnp.asarray(table_of(noisy, "the noisy points"), float)
    require(
        points.ndim >= 2 and points.size > 0,
        f"noisy points are the rows of one array, at least one, not an array of shape {points.shape}",
    )
    bad = int(jnp.sum(~jnp.all(jnp.isfinite(points.reshape(len(points), -1)), axis=1)))
    require(bad == 0, f"{bad} of {len(points)} noisy points are not finite; remove them")
    size = points[0].size
    directions, iterations = whole_numbers(directions=directions, iterations=iterations)
    require(1 <= directions <= size, f"{size} coordinates have 1 to {size} directions, not {directions}")
    require(iterations >= 1, f"at least one iteration is needed, not {iterations}")
    require_positive(sigma, "the noise sigma")
    second = model if isinstance(model, AbstractSecondOrder) else FromScore(as_score(model))
    _check_points(second, points[0])
    parts = _denoise(DenoisingPosterior(second, sigma), points, directions, iterations, key)
    return Denoised(*(np.asarray(part) for part in parts))
