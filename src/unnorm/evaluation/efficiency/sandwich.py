"""Parameters with right errors: the minimum of a loss over rows, and how far it would move on other rows.

Of a likelihood the inverse of the curvature is the covariance of the parameters. Of other losses it is not:
pseudo-likelihood meets every row once for each of its sites as if they were as many rows, and its curvature promises
errors that are too small. The sandwich H^-1 J H^-1 / n, with H the mean curvature and J the mean square of the rows'
own gradients, is right for any smooth loss (Godambe 1960; Huber 1967).
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from unnorm.compiling import compiled
from unnorm.energies import AbstractEnergy
from unnorm.errors import require
from unnorm.objectives import AbstractObjective
from unnorm.parts import trainable

Model = TypeVar("Model", bound=AbstractEnergy)

#: More parameters than this have a matrix of curvatures that is too large.
MOST = 2000
#: Steps of Newton's method at the most, and the step in standard errors below which it stops.
STEPS, SMALL = 50, 1e-3


@dataclass(frozen=True, eq=False)
class Minimum(Generic[Model]):
    """The model at the minimum; its parameters in a row, with their standard errors.

    `naive` are the errors that the curvature alone would give: right for a likelihood, and for nothing else.
    """

    model: Model
    values: Float[np.ndarray, " p"]
    stderr: Float[np.ndarray, " p"]
    naive: Float[np.ndarray, " p"]
    covariance: Float[np.ndarray, "p p"]


def _loss(flat: Array, rest: Any, objective: AbstractObjective, state: Any, row: Array, key: Array) -> Array:
    weights, skeleton = rest
    # The way back from one row is made anew: a function would be another argument every time, and compile anew.
    return objective(eqx.combine(ravel_pytree(weights)[1](flat), skeleton), state, row[None], key=key)[0]


@compiled
def _slopes(flat: Array, rest: Any, objective: AbstractObjective, state: Any, rows: Array, keys: Array):
    """The loss, and the gradient of every row."""
    each = jax.vmap(jax.value_and_grad(_loss), in_axes=(None, None, None, None, 0, 0))
    losses, slopes = each(flat, rest, objective, state, rows, keys)
    return jnp.mean(losses), slopes


@compiled
def _curvature(flat: Array, rest: Any, objective: AbstractObjective, state: Any, rows: Array, keys: Array):
    def mean(flat):
        return jnp.mean(jax.vmap(lambda x, k: _loss(flat, rest, objective, state, x, k))(rows, keys))

    return jax.hessian(mean)(flat)


def minimised(
    model: Model, objective: AbstractObjective, rows: Shaped[Array, "n ..."], *, key: PRNGKeyArray
) -> Minimum[Model]:
    """The minimum of a loss that is a mean over rows, by Newton's method from `model`, and its errors.

    Noise that the loss draws is held fixed, each row with its own. A loss with chains is no such mean and is refused.

    >>> import unnorm as un
    >>> rows = jnp.array([[0.0], [1.0], [1.0], [1.0]])
    >>> network = un.energies.markov_network(un.spaces.Binary((1,)), un.energies.SiteGraph((1,), np.zeros((0, 2))))
    >>> found = minimised(network, un.objectives.PseudoLikelihood(), rows, key=jax.random.key(0))
    >>> found.values.shape
    (2,)
    """
    require(
        objective.comparable,
        f"{type(objective).__name__} contrasts rows with chains and is no mean over rows; train it by unnorm.fit",
    )
    weights, skeleton = eqx.partition(model, trainable(model))
    flat, back = ravel_pytree(weights)
    require(
        len(flat) <= MOST, f"errors need a matrix of {len(flat)} x {len(flat)}; at most {MOST} parameters are taken"
    )
    rows = jnp.asarray(rows)
    start, noise = jax.random.split(key)
    state, keys = objective.init(model, rows, key=start), jax.random.split(noise, len(rows))
    arguments = ((weights, skeleton), objective, state, rows, keys)
    value, slopes = _slopes(flat, *arguments)
    for _ in range(STEPS):
        covariance, move = _step(np.asarray(_curvature(flat, *arguments), np.float64), np.asarray(slopes, np.float64))
        share = 2.0
        while True:
            share *= 0.5
            ahead = flat - share * jnp.asarray(move, flat.dtype)
            there, beside = _slopes(ahead, *arguments)
            if share < 1e-3 or float(there) <= float(value) + 1e-6 * abs(float(value)):
                break
        flat, value, slopes = ahead, there, beside
        scale = np.sqrt(np.maximum(np.diag(covariance), 1e-30))
        if float(np.max(np.abs(share * move) / scale)) < SMALL:
            break
    curvature = np.asarray(_curvature(flat, *arguments), np.float64)
    covariance, _ = _step(curvature, np.asarray(slopes, np.float64))
    naive = np.sqrt(np.maximum(np.diag(np.linalg.pinv(curvature, hermitian=True)) / len(rows), 0.0))
    learnt = eqx.combine(back(flat), skeleton)
    return Minimum(learnt, np.asarray(flat, np.float64), np.sqrt(np.diag(covariance)), naive, covariance)


def _step(curvature: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sandwich, and the step of Newton's method; directions in which the loss is flat are left alone.

    Where the loss curves downwards its slope is followed down, not up to the ridge.
    """
    values, vectors = np.linalg.eigh(curvature)
    kept = np.abs(values) > 1e-7 * np.abs(values).max()
    inverse = (vectors[:, kept] / np.abs(values[kept])) @ vectors[:, kept].T
    return inverse @ (slopes.T @ slopes / len(slopes)) @ inverse / len(slopes), inverse @ slopes.mean(axis=0)
