"""What the tables of score matching losses share: the exact loss row by row, and the heuristic noise of denoising."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unnorm.energies import AbstractEnergy
from unnorm.objectives.score_matching import score_field, value_and_divergence


@eqx.filter_jit
def sm_losses(model: AbstractEnergy, rows: jax.Array) -> jax.Array:
    """tr grad s + |s|^2 / 2 of each row, exactly."""

    def one(x):
        s, divergence = value_and_divergence(score_field(model), x)
        return divergence + 0.5 * jnp.sum(s**2)

    return jax.lax.map(one, rows, batch_size=50)


def parzen_scale(train: np.ndarray, held_out: np.ndarray) -> float:
    """The width of a Gaussian kernel density on `train` under which `held_out` is most likely, by golden section."""
    squares = np.sum(held_out**2, 1)[:, None] + np.sum(train**2, 1) - 2 * held_out.astype(np.float64) @ train.T
    squares = jnp.asarray(np.maximum(squares, 0))

    @jax.jit
    def loss(log_scale):
        logs = -0.5 * squares * jnp.exp(-2 * log_scale) - train.shape[1] * log_scale
        return -jnp.mean(jax.nn.logsumexp(logs, axis=1))

    low, high, ratio = math.log(1e-2), math.log(10.0), (math.sqrt(5) - 1) / 2
    for _ in range(30):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, b) if float(loss(a)) < float(loss(b)) else (a, high)
    return math.exp((low + high) / 2)
