"""Slope and curvature of whatever a walk without correction follows: an energy, or a score at one level."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Point
from unnorm.samplers.base import Target
from unnorm.samplers.denoising_gibbs import hessian_diagonal
from unnorm.scores import LevelSecondOrder


def slope(target: Target, x: Point) -> tuple[Bool[Array, ""], Point]:
    """Whether the target is finite at x, and the score there.

    >>> import unnorm as un
    >>> finite, score = slope(un.energies.standard_gaussian(2), jnp.ones(2))
    >>> bool(finite), score.tolist()
    (True, [-1.0, -1.0])
    """
    if isinstance(target, AbstractEnergy):
        # The energy comes free with its gradient.
        energy, gradient = jax.value_and_grad(target)(x)
        return jnp.isfinite(energy), -gradient
    score = target(jnp.zeros(()), x)
    return jnp.all(jnp.isfinite(score)), score


def slope_and_diagonal(
    target: Target, x: Point, *, probes: int | None, key: PRNGKeyArray
) -> tuple[Bool[Array, ""], Point, Point]:
    """Whether the target is finite at x, the score, and the diagonal of its derivative.

    A second-order score brings its own; otherwise `probes` of fair signs estimate it, or D forward derivatives give it.

    >>> import unnorm as un
    >>> target = un.energies.standard_gaussian(2, scale=0.5)
    >>> slope_and_diagonal(target, jnp.ones(2), probes=None, key=jax.random.key(0))[2].tolist()
    [-4.0, -4.0]
    """
    if isinstance(target, LevelSecondOrder):
        return *slope(target, x), target.diagonal(x)
    if probes is not None:
        return *slope(target, x), hessian_diagonal(lambda y: slope(target, y)[1], x, probes=probes, key=key)
    score, derivative, finite = jax.linearize(lambda y: slope(target, y)[::-1], x, has_aux=True)
    basis = jnp.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
    return finite, score, jnp.sum(jax.vmap(lambda v: v * derivative(v))(basis), axis=0)
