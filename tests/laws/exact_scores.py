"""Scores that are known at every level of any Gaussian noise: those of Gaussians and of mixtures on which it acts."""

import jax
import jax.numpy as jnp
import numpy as np

from unnorm.noises import AbstractGaussianNoise
from unnorm.scores import LevelledFunction
from unnorm.spaces import Real


def gaussian_score(noise: AbstractGaussianNoise, mean, covariance) -> LevelledFunction:
    """Data N(m, C): the score of N(alpha m, alpha^2 C + sigma^2 I)."""
    mean = np.asarray(mean, float)
    values, vectors = (jnp.asarray(part, float) for part in np.linalg.eigh(np.asarray(covariance, float)))

    def score(t, x):
        along = vectors.T @ (x - noise.alpha(t) * jnp.asarray(mean, x.dtype))
        return -vectors @ (along / (noise.alpha(t) ** 2 * values + noise.variance(t)))

    return LevelledFunction(score, noise, Real((len(mean),)))


def mixture_score(noise: AbstractGaussianNoise, weights, centres, scale: float) -> LevelledFunction:
    """Data sum_k w_k N(c_k, scale^2 I): means alpha c_k, variance alpha^2 scale^2 + sigma^2."""
    centres = np.asarray(centres, float)

    def score(t, x):
        alpha = noise.alpha(t)
        variance = (alpha * scale) ** 2 + noise.variance(t)
        offsets = alpha * jnp.asarray(centres, x.dtype) - x
        logits = jnp.log(jnp.asarray(weights, x.dtype)) - jnp.sum(offsets**2, axis=1) / (2 * variance)
        return jax.nn.softmax(logits) @ offsets / variance

    return LevelledFunction(score, noise, Real((centres.shape[1],)))
