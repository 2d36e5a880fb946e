"""How much the estimators of score matching scatter (Song 2022, Theorem 3.3).

With l = log f and a_ij = grad_theta [ d_i d_j l + 1/2 d_i l d_j l ] at the true theta, the covariance of
sqrt(N) (theta_hat - theta) tends to B^-1 A B^-1: B is the Hessian of the expected loss, A the second moment of one
point's gradient. That gradient is sum_i a_ii for exact score matching and mean_j v_j'a v_j for the sliced kind, so A
needs the fourth moments of the slices v:

    A_SM  = E[tr a tr a'],
    A_SSM = (1 - 1/M) c^2 A_SM + (1/M) E[ m (tr a tr a' + 2 sum_ij a_ij a_ij') + (p - 3 m) sum_i a_ii a_ii' ],

with E[v v'] = c I, m = E[v_i^2 v_j^2], p = E[v_i^4] (Rademacher: 1, 1, 1; Gaussian: 1, 1, 3). Where the quadratic term
is taken exactly (SSM-VR), only h_ij = grad_theta d_i d_j l is sliced.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from unnorm.energies import AbstractEnergy
from unnorm.errors import InputError, require
from unnorm.evaluation.efficiency.identified import require_identified
from unnorm.objectives.slices import AbstractSlices

LogDensity = Callable[[Array, Array], Array]
Matrix = Float[Array, "p p"]
#: Points whose derivatives are held at once.
BATCH = 128


class _OfEnergy(eqx.Module):
    skeleton: AbstractEnergy
    unravel: Callable[[Array], Any] = eqx.field(static=True)

    def __call__(self, theta: Array, x: Array) -> Array:
        return -eqx.combine(self.unravel(theta), self.skeleton)(x)


def log_density_of(model: AbstractEnergy) -> tuple[LogDensity, Float[Array, " p"]]:
    """log f(theta, x) of an energy, and its present theta: its floating-point arrays, flattened one after another.

    >>> import unnorm as un
    >>> log_f, theta = log_density_of(un.energies.standard_gaussian(2))
    >>> theta.shape
    (6,)
    """
    weights, skeleton = eqx.partition(model, eqx.is_inexact_array)
    theta, unravel = ravel_pytree(weights)
    return _OfEnergy(skeleton, unravel), theta


def _pieces(log_f: LogDensity, theta: Array, x: Array) -> tuple[Array, Array]:
    """h_ij = grad_theta d_i d_j l and q_ij = grad_theta (d_i l d_j l) / 2 at one point, each d x d x p."""
    shape = x.shape

    def parts(theta):
        def slope(flat):
            return jax.grad(lambda y: log_f(theta, y.reshape(shape)))(flat)

        flat = x.reshape(-1)
        s = slope(flat)
        return jax.jacfwd(slope)(flat), 0.5 * jnp.outer(s, s)

    return jax.jacfwd(parts)(theta)


def _mean(each: Callable[[Array], Any], points: Array) -> Any:
    """The mean over points of a tree of arrays, a batch of points at a time (the last batch may be a part)."""
    whole = len(points) - len(points) % BATCH
    total = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(each, points[0]))

    def add(total, rows):
        return jax.tree.map(lambda t, a: t + jnp.sum(a, 0), total, jax.vmap(each)(rows)), None

    if whole:
        total, _ = jax.lax.scan(add, total, points[:whole].reshape(-1, BATCH, *points.shape[1:]))
    if whole < len(points):
        total, _ = add(total, points[whole:])
    return jax.tree.map(lambda t: t / len(points), total)


class Products(eqx.Module):
    """E over points of the products of a d x d x p array a with itself that slices of any law are made of."""

    traces: Matrix
    squares: Matrix
    diagonals: Matrix

    def sliced(self, slices: AbstractSlices, dimension: int) -> Matrix:
        """E[(v'a v)(v'a v)'] over v and points."""
        mixed, pure = slices.fourth(dimension)
        return mixed * (self.traces + 2 * self.squares) + (pure - 3 * mixed) * self.diagonals


def _products(a: Array) -> Products:
    trace, diagonal = jnp.trace(a), jnp.diagonal(a).T
    flat = a.reshape(-1, a.shape[-1])
    return Products(jnp.outer(trace, trace), flat.T @ flat, diagonal.T @ diagonal)


class ScoreMatchingEfficiency(eqx.Module):
    """The asymptotic covariances of score matching and its sliced forms, from one pass over draws of the truth.

    Made by `score_matching_efficiency`.
    """

    curvature: Matrix
    whole: Products
    hessian: Products
    dimension: int = eqx.field(static=True)

    def sm(self) -> Matrix:
        """Of `objectives.SM`."""
        return self._sandwich(self.whole.traces)

    def ssm(self, slices: AbstractSlices, draws: int = 1) -> Matrix:
        """Of `objectives.SSM` with these slices and draws per point."""
        require(draws >= 1, f"sliced score matching has at least one slice per point, not {draws}")
        second = slices.second(self.dimension)
        middle = (1 - 1 / draws) * second**2 * self.whole.traces + self.whole.sliced(slices, self.dimension) / draws
        return self._sandwich(middle) / second**2

    def ssm_vr(self, slices: AbstractSlices, draws: int = 1) -> Matrix:
        """Of `objectives.SSMVR` with these slices and draws per point."""
        require(draws >= 1, f"sliced score matching has at least one slice per point, not {draws}")
        require(slices.white, f"SSM-VR needs directions with E[v v'] = I, and {slices} is not such; use ssm")
        spread = self.hessian.sliced(slices, self.dimension) - self.hessian.traces
        return self._sandwich(self.whole.traces + spread / draws)

    def _sandwich(self, middle: Matrix) -> Matrix:
        return _sandwich(self.curvature, middle)


def _sandwich(curvature: Matrix, middle: Matrix) -> Matrix:
    curvature = 0.5 * (curvature + curvature.T)
    require_identified(curvature)
    left = np.linalg.solve(curvature, middle)
    return jnp.asarray(np.linalg.solve(curvature, left.T))


def _resolve(model: AbstractEnergy | LogDensity, theta: Any) -> tuple[LogDensity, Array]:
    if isinstance(model, AbstractEnergy):
        require(theta is None, "an energy carries its own parameters; pass theta only with log_f(theta, x)")
        return log_density_of(model)
    if theta is None:
        raise InputError("log_f(theta, x) needs the true theta beside it")
    return model, jnp.atleast_1d(jnp.asarray(theta, float))


def score_matching_efficiency(
    model: AbstractEnergy | LogDensity, points: Float[Array, "n ..."], theta: Any = None
) -> ScoreMatchingEfficiency:
    """The efficiency of score matching at the truth, by Monte Carlo over points drawn from it.

    `model` is an energy whose arrays are the parameters, or log_f(theta, x) beside the true `theta`. The error of the
    result falls as 1 / sqrt(n) of the points.

    >>> import jax, unnorm as un
    >>> points = jax.random.normal(jax.random.key(0), (2000, 1))
    >>> efficiency = score_matching_efficiency(lambda theta, x: -0.5 * theta[0] * x[0] ** 2, points, 1.0)
    >>> bool(abs(efficiency.sm()[0, 0] - 2.0) < 0.3)
    True
    """
    curvature, whole, hessian = _moments(*_resolve(model, theta), points)
    return ScoreMatchingEfficiency(curvature, whole, hessian, points[0].size)


@eqx.filter_jit
def _moments(log_f: LogDensity, theta: Array, points: Array) -> tuple[Matrix, Products, Products]:
    def each(x):
        h, q = _pieces(log_f, theta, x)
        curvature = jax.jacfwd(lambda t: jnp.trace(_whole(log_f, t, x)))(theta)
        return curvature, _products(h + q), _products(h)

    return _mean(each, points)


def _whole(log_f: LogDensity, theta: Array, x: Array) -> Array:
    """a_ij = h_ij + q_ij at one point."""
    h, q = _pieces(log_f, theta, x)
    return h + q


def sliced_covariance(
    model: AbstractEnergy | LogDensity,
    points: Float[Array, "n ..."],
    second: Float[Array, "d d"],
    fourth: Float[Array, "d d d d"],
    *,
    draws: int = 1,
    theta: Any = None,
) -> Matrix:
    """The covariance for SSM with slices of any law, from `second` = E[v_i v_j] and `fourth` = E[v_i v_j v_k v_l].

    A = E sum_ijkl [ (1 - 1/M) second_ij second_kl + (1/M) fourth_ijkl ] a_ij a_kl'. For slices of this library
    `ScoreMatchingEfficiency.ssm` gives the same without the d^4 numbers.
    """
    d = points[0].size
    require(
        jnp.shape(second) == (d,) * 2 and jnp.shape(fourth) == (d,) * 4,
        f"slices of {d} numbers have {d}^2 second and {d}^4 fourth moments, not {jnp.shape(second)} and "
        f"{jnp.shape(fourth)}",
    )
    return _sandwich(*_general_moments(*_resolve(model, theta), points, second, fourth, draws))


@eqx.filter_jit
def _general_moments(log_f, theta, points, second, fourth, draws) -> tuple[Matrix, Matrix]:
    weights = (1 - 1 / draws) * jnp.einsum("ij,kl->ijkl", second, second) + fourth / draws

    def each(x):
        a = _whole(log_f, theta, x)
        curvature = jax.jacfwd(lambda t: jnp.einsum("ij,ijp->p", second, _whole(log_f, t, x)))(theta)
        return curvature, jnp.einsum("ijkl,ijp,klq->pq", weights, a, a)

    return _mean(each, points)
