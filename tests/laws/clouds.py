"""Points that the laws of the noises share."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

proposals = eqx.filter_jit(lambda noise, t, xs, key: noise.propose_each(t, xs, key=key))


def keys(seed: int) -> jax.Array:
    return jax.random.split(jax.random.key(seed), 20_000)


def centres(n: int, d: int, seed: int = 0) -> jax.Array:
    """Two clusters of unequal size."""
    draws = np.random.default_rng(seed).normal(size=(n, d)) * 0.4
    draws[: n // 3] += 2.0
    return jnp.asarray(draws, jnp.float32)


def points(n: int, d: int, seed: int = 5) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(n, d)), jnp.float32)


def kde_by_hand(y, centres, bandwidth: float) -> np.ndarray:
    y, centres = np.asarray(y, np.float64), np.asarray(centres, np.float64)
    squared = ((y[:, None] - centres[None]) ** 2).sum(-1)
    n, d = centres.shape
    return (
        logsumexp(-squared / (2 * bandwidth**2), axis=1) - math.log(n) - d * math.log(bandwidth * math.sqrt(2 * np.pi))
    )
