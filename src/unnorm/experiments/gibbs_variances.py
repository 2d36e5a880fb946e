"""What estimates of a denoiser's variances explain, and how far they are from the derivative's diagonal."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm import samplers
from unnorm.compiling import compiled
from unnorm.estimate import Estimate, mean_estimate
from unnorm.experiments.gibbs_digits import (
    SIGMA,
    Digits,
    Size,
    seen_by,
)
from unnorm.scores import FromScore

SHOWN, SHEET = 6, 64


def probes_label(probes: int) -> str:
    return f"diagonal, {probes} probe{'s' * (probes > 1)}"


@compiled
def estimates_of(model: Digits, noisy: Float[Array, "n d"], probes: int, key: PRNGKeyArray) -> Array:
    """sigma^2 + sigma^4 diag J with `probes` vectors of signs, not raised."""
    score = partial(model, jnp.zeros(()))
    pairs = (noisy, jax.random.split(key, len(noisy)))
    found = jax.lax.map(lambda p: samplers.hessian_diagonal(score, p[0], probes=probes, key=p[1]), pairs, batch_size=16)
    return SIGMA**2 + SIGMA**4 * found


@compiled
def slopes_of(model: Digits, noisy: Float[Array, "n d"]) -> Array:
    """J at every point: the only place where it is formed."""
    return jax.lax.map(FromScore(model).matrix, noisy)


def measured_variances(model: Digits, data: dict[str, np.ndarray], size: Size, seed: int) -> dict[str, Any]:
    """What estimates with more and more vectors explain, how far they are from J's diagonal, and maps to look at."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 4), 2 + len(size.counted))
    clean = data["held"][-size.rows :]
    noisy, mean = seen_by(model, jnp.asarray(clean), keys[0])
    squared = (clean - np.asarray(mean, np.float64)) ** 2
    base = np.mean((squared - squared.mean()) ** 2, axis=1)
    slopes = np.asarray(slopes_of(model, noisy[: size.points]), np.float64)
    diagonal = np.diagonal(slopes, axis1=1, axis2=2)
    true = SIGMA**2 + SIGMA**4 * diagonal
    spread = SIGMA**8 * (np.sum(slopes**2, axis=2) - diagonal**2)
    piece: dict[str, Any] = {"counts": {}}
    maps: dict[str, Any] = {}
    for i, probes in enumerate(size.counted):
        found = np.asarray(estimates_of(model, noisy, probes, keys[2 + i]), np.float64)
        scores = np.mean((squared - np.maximum(found, 0)) ** 2, axis=1)
        gap = np.mean((found[: size.points] - true) ** 2, axis=1)
        piece["counts"][str(probes)] = {
            "explained": share_explained(scores, base).to_dict(),
            "missed": share_explained(np.mean(true**2, axis=1) - gap, np.mean(true**2, axis=1)).to_dict(),
            "against theory": mean_estimate(gap * probes / spread.mean(axis=1), "mean over points").to_dict(),
        }
        maps[probes_label(probes)] = found[:SHOWN]
    exactly = np.mean((squared[: size.points] - np.maximum(true, 0)) ** 2, axis=1)
    piece["mean"] = float(true.mean())
    piece["exact"] = share_explained(exactly, base[: size.points]).to_dict()
    piece["asymmetry"] = float(np.linalg.norm(slopes - np.swapaxes(slopes, 1, 2)) / (2 * np.linalg.norm(slopes)))
    piece["negative"] = float(np.mean(true < 0))
    shown = {"noisy": noisy[:SHOWN], "mean": mean[:SHOWN], "squared error": squared[:SHOWN], "exact": true[:SHOWN]}
    piece["maps"] = {name: np.round(np.asarray(of, np.float64), 4).tolist() for name, of in (shown | maps).items()}
    return piece


def share_explained(scores: np.ndarray, base: np.ndarray) -> Estimate:
    """1 - E scores / E base over rows, with the error of a ratio."""
    ratio = scores.mean() / base.mean()
    error = np.std(scores - ratio * base, ddof=1) / (len(base) ** 0.5 * base.mean())
    return Estimate(float(1 - ratio), float(error), f"{len(base)} digits", {"rows": float(len(base))})
