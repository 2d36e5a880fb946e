"""What experiments with noise levels share: digits of 8 x 8, a perceptron's score of them, exact scores, distances."""

from functools import lru_cache
from importlib.resources import files
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.stats import norm

from unnorm.energies.base import Point
from unnorm.estimate import Estimate
from unnorm.evaluation import frechet
from unnorm.noises import AbstractGaussianNoise
from unnorm.noises.base import Level
from unnorm.objectives import DSM
from unnorm.scores import LevelledFunction, LevelledScore, levelled_score
from unnorm.spaces import Real
from unnorm.training import fit

PIXELS = 64
#: Held-out digits: every tenth.
HELD = 10
#: The mixture of Song 2022, Fig. 5.2, along the line through its modes.
WEIGHTS, CENTRES, WIDTH = np.array([0.2, 0.8]), np.array([-5.0, 5.0]) * 2**0.5, 1.0


@lru_cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """The digits as points in [-1, 1]^64, those to learn from and those held out."""
    with np.load(str(files("unnorm.data") / "digits.npz")) as found:
        values = found["x"].reshape(-1, PIXELS).astype(np.float32) / 8 - 1
    held = np.arange(len(values)) % HELD == 0
    return values[~held], values[held]


def digit_score(noise: AbstractGaussianNoise, *, width: int, steps: int, seed: int) -> LevelledScore:
    """A perceptron's score at all levels of this noise, learnt from the digits."""
    begin, run = jax.random.split(jax.random.key(seed))
    train, held = digits()
    model = levelled_score(noise, PIXELS, spread=float(np.sqrt(np.mean(train**2))), width=width, key=begin)
    return fit(
        model, DSM(), train, valid=held, steps=steps, batch=128, rate=2e-3, average=0.995, evaluations=10, key=run,
        progress=False,
    ).model  # fmt: skip


class MixtureSlope(eqx.Module):
    """The exact score of the mixture with any noise."""

    noise: AbstractGaussianNoise

    def __call__(self, t: Level, x: Point) -> Point:
        alpha = self.noise.alpha(t)
        variance = (alpha * WIDTH) ** 2 + self.noise.variance(t)
        offsets = alpha * jnp.asarray(CENTRES, x.dtype) - x[0]
        shares = jax.nn.softmax(jnp.log(jnp.asarray(WEIGHTS, x.dtype)) - offsets**2 / (2 * variance))
        return (jnp.sum(shares * offsets) / variance)[None]


def mixture_score(noise: AbstractGaussianNoise) -> LevelledFunction:
    """That slope as a score."""
    return LevelledFunction(MixtureSlope(noise), noise, Real((1,)))


@lru_cache
def _quantiles(n: int) -> np.ndarray:
    grid = np.linspace(-16.0, 16.0, 200_001)
    below = sum(w * norm.cdf(grid, c, WIDTH) for w, c in zip(WEIGHTS, CENTRES, strict=True))
    return np.interp((np.arange(n) + 0.5) / n, below, grid)


def distance_to_mixture(points: Any, *, seed: int, resamples: int = 30) -> Estimate:
    """Wasserstein's distance W1 of draws to the mixture, by sorted values; the error by bootstrap."""
    xs = np.asarray(points, np.float64).reshape(-1)
    if not np.isfinite(xs).all():
        return Estimate(float("inf"), 0.0, "W1; draws that are not finite")
    generator, ideal = np.random.default_rng(seed), _quantiles(len(xs))

    def apart(values: np.ndarray) -> float:
        return float(np.mean(np.abs(np.sort(values) - ideal)))

    again = [apart(generator.choice(xs, len(xs))) for _ in range(resamples)]
    return Estimate(apart(xs), float(np.std(again, ddof=1)), "W1 to the mixture")


def distance_to_digits(points: Any, *, seed: int) -> Estimate:
    """Frechet distance of draws to the digits that were learnt from, in pixels."""
    draws = np.asarray(points).reshape(-1, PIXELS)
    if not np.isfinite(draws).all():
        return Estimate(float("inf"), 0.0, "Frechet distance; draws that are not finite")
    return frechet(draws, digits()[0], resamples=20, key=jax.random.key(seed))


def floor_of_mixture(n: int, *, seed: int) -> Estimate:
    """The same distance of independent draws."""
    generator = np.random.default_rng(seed)
    draws = CENTRES[generator.choice(2, n, p=WEIGHTS)] + WIDTH * generator.normal(size=n)
    return distance_to_mixture(draws, seed=seed)


def keys_of(seed: int, *parts: int) -> Array:
    """A key for this place of a table."""
    key = jax.random.key(seed)
    for part in parts:
        key = jax.random.fold_in(key, part)
    return key
