"""Single chains of denoising Gibbs, and the MMD^2 of each to one training set."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.evaluation import mmd
from unnorm.experiments.gibbs_models import (
    DATA,
    ROWS,
    SIGMA,
    Training,
    data_of,
    noisy_energy,
    train_denoiser,
    train_energy,
)
from unnorm.generators import GibbsTransition, PosteriorDraw, generate
from unnorm.noises import VarianceExploding
from unnorm.objectives import DSM
from unnorm.samplers import AbstractSampler, DenoisingGibbs, FullCovariance, isotropic_covariance, learned_posterior
from unnorm.scores import levelled_score
from unnorm.training import fit

#: The widths b of exp(-d^2 / b), as multiples of the mean squared distance of two points.
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)


@compiled
def walk(sampler: AbstractSampler, target: Any, start: Array, steps: int, key: PRNGKeyArray) -> tuple[Array, Array]:
    """chains x steps x point, and the number of variances raised to the floor."""

    def move(states, key):
        keys = jax.random.split(key, len(start))
        states, info = jax.vmap(lambda x, k: sampler.step(target, x, key=k))(states, keys)
        return states, (states, jnp.sum(jnp.asarray(info.clipped)))

    _, (draws, clipped) = jax.lax.scan(move, start, jax.random.split(key, steps))
    return jnp.swapaxes(draws, 0, 1), jnp.sum(clipped)


def mean_square(points: Array) -> float:
    """The mean squared distance of two different points."""
    return 2 * float(jnp.sum(jnp.var(points, axis=0, ddof=1)))


def bandwidths(points: Array) -> tuple[float, ...]:
    """The kernel's for `evaluation.mmd`, whose convention is exp(-d^2 / (2 h^2))."""
    return tuple((width * mean_square(points) / 2) ** 0.5 for width in WIDTHS)


@compiled
def _mean_kernel(a: Array, b: Array, square: Array) -> Array:
    """The mean of the sum of five kernels over all pairs; each width is twice the last, its kernel the square."""

    def row(x):
        kernel = jnp.exp(-jnp.sum((b - x) ** 2, axis=1) / (WIDTHS[-1] * square))
        total = kernel
        for _ in WIDTHS[:-1]:
            kernel = kernel**2
            total = total + kernel
        return jnp.mean(total)

    return jnp.mean(jax.lax.map(row, a, batch_size=500))


def _within(a: Array, square: Array) -> float:
    """The mean over pairs of different points: the kernel of a point with itself is the number of widths."""
    n = len(a)
    return (float(_mean_kernel(a, a, square)) * n - len(WIDTHS)) / (n - 1)


def discrepancies(chains: Array, reference: Array) -> list[float]:
    """`evaluation.mmd` of each chain to one reference, whose own part is found once."""
    square = jnp.asarray(mean_square(reference))
    own = _within(reference, square)
    return [_within(chain, square) + own - 2 * float(_mean_kernel(chain, reference, square)) for chain in chains]


LEARNED, ISOTROPIC, FULL = "learned diagonal", "isotropic", "full"


EXACT, LEVELS, FLOOR = "full, exact score", "many levels", "two samples of the data"


NOISE = VarianceExploding(0.03, 4.0)


TIMES = np.linspace(1, 0, 33)


@dataclass(frozen=True)
class Size:
    """Seeds, single chains of each model, points of a chain compared, steps of training of the many levels."""

    seeds: int
    chains: int
    compared: int
    steps: int


def judge_chains(sampler: AbstractSampler, target: Any, data: Array, size: Size, key: PRNGKeyArray) -> dict[str, Any]:
    """MMD^2 of each of several single chains."""
    begin, run = jax.random.split(key)
    start = 0.1**0.5 * jax.random.normal(begin, (size.chains, 2))
    draws, clipped = walk(sampler, target, start, ROWS, run)
    return {
        "values": discrepancies(draws[:, :: ROWS // size.compared], data),
        "clipped": float(clipped) / draws.size,
        "points": np.round(np.asarray(draws)[0, ::10], 3).tolist(),
    }


def keys_of(name: str, seed: int) -> PRNGKeyArray:
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), DATA.index(name)), 8)


def judge_analytic(name: str, seed: int, size: Size, training: Training) -> dict[str, Any]:
    """Isotropic and full covariance of one energy."""
    keys = keys_of(name, seed)
    data = data_of(name, ROWS, keys[0])
    energy = train_energy(data, training, keys[1])
    isotropic = isotropic_covariance(energy, SIGMA, data, key=keys[2])
    return {
        ISOTROPIC: judge_chains(DenoisingGibbs(SIGMA, isotropic), energy, data, size, keys[3]),
        FULL: judge_chains(DenoisingGibbs(SIGMA, FullCovariance()), energy, data, size, keys[3]),
    }


def judge_learned(name: str, seed: int, size: Size, training: Training) -> dict[str, Any]:
    keys = keys_of(name, seed)
    data = data_of(name, ROWS, keys[0])
    target, covariance = learned_posterior(train_denoiser(data, training, keys[4]), SIGMA)
    return {LEARNED: judge_chains(DenoisingGibbs(SIGMA, covariance), target, data, size, keys[3])}


def judge_exact(name: str, seed: int, size: Size) -> dict[str, Any]:
    """What the sampler does with nothing left to learn, from the same random numbers."""
    keys = keys_of(name, seed)
    return {EXACT: judge_chains(DenoisingGibbs(SIGMA), noisy_energy(name), data_of(name, ROWS, keys[0]), size, keys[3])}


def judge_levels(name: str, seed: int, size: Size) -> dict[str, Any]:
    """Gibbs between the levels of a levelled score, and fresh rows for comparison."""
    keys = keys_of(name, seed)
    data = data_of(name, ROWS, keys[0])
    spread = float(jnp.sqrt(jnp.mean(jnp.var(data, axis=0))))
    begin, run, out = jax.random.split(keys[5], 3)
    model = levelled_score(NOISE, 2, spread=spread, width=128, depth=3, key=begin)
    score = fit(model, DSM(NOISE), data, steps=size.steps, batch=256, rate=3e-3, key=run, progress=False).model
    found = generate(score, GibbsTransition(), levels=TIMES, n=ROWS, finish=PosteriorDraw(), key=out)
    reference = np.asarray(data)
    fresh = np.asarray(data_of(name, ROWS, keys[6]))
    kernels = bandwidths(data)
    floor = mmd(fresh, reference, bandwidths=kernels)
    return {
        LEVELS: {
            "values": [mmd(found.points, reference, bandwidths=kernels).value],
            "clipped": found.clipped / (found.points.size * len(TIMES)),
            "points": np.round(found.points[::10], 3).tolist(),
        },
        FLOOR: {
            "values": [floor.value],
            "null": floor.diagnostics["null_stderr"],
            "points": np.round(fresh[::10], 3).tolist(),
        },
    }
