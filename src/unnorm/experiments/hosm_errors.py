"""Table 4.1: the error of one way to s2, on the normal and on the mixture of logistics."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from unnorm.experiments.hosm_targets import correlated_pairs, logistic_mixture
from unnorm.noises import Gaussian as Noise
from unnorm.objectives import D2SMVR, DSM, DSMVR, AbstractObjective, DiagonalD2SMVR, JointSecondOrder
from unnorm.scores import (
    AbstractSecondOrder,
    DiagonalSecondOrder,
    FromScore,
    FunctionScore,
    LowRankSecondOrder,
    diagonal_mlp,
    low_rank_mlp,
)
from unnorm.training import fit


@dataclass(frozen=True)
class Size:
    """How large the problems are and how long the training is."""

    dimension: int
    pairs: int
    ranks: tuple[int, ...]
    logistic_dimension: int
    components: int
    sigmas: tuple[float, ...]
    seeds: int
    points: int
    logistic_points: int
    steps: int
    batch: int
    rate: float
    width: int
    factor_width: int


QUICK = Size(20, 7, (3, 6), 20, 5, (0.05,), 3, 25_000, 10_000, 4000, 128, 5e-3, 128, 32)


PAPER = Size(100, 35, (15, 20, 30), 80, 20, (0.01, 0.05, 0.1), 3, 1_000_000, 1_000_000, 20_000, 256, 3e-3, 128, 32)


#: So many rows that, at the quick size, nothing is learnt by heart.
MANY = 400_000


def trained(model: Any, objective: AbstractObjective, data: Array, size: Size, key: PRNGKeyArray) -> Any:
    fitted = fit(model, objective, data, steps=size.steps, batch=size.batch, rate=size.rate, key=key, progress=False)
    return fitted.model


@eqx.filter_jit
def _whole_error(model: AbstractSecondOrder, truth: Array, points: Array) -> Array:
    return jnp.mean(jax.lax.map(lambda x: jnp.sum((model.matrix(x) - truth) ** 2), points))


@eqx.filter_jit
def _diagonal_error(model: AbstractSecondOrder, truth: AbstractSecondOrder, points: Array) -> Array:
    return jnp.mean(jax.lax.map(lambda x: jnp.sum((model.diagonal(x) - truth.diagonal(x)) ** 2), points))


def error_on_normal(method: str | int, sigma: float, size: Size, seed: int, exact_slope: bool = False) -> float:
    """The error of one method (a name, or a rank) on the normal; `exact_slope`: s1 is known and not learnt."""
    data_key, test_key, model_key, fit_key = jax.random.split(jax.random.key(seed), 4)
    covariance = correlated_pairs(size.dimension, size.pairs)
    factor = jnp.asarray(np.linalg.cholesky(covariance), float)
    data = jax.random.normal(data_key, (size.points, size.dimension)) @ factor.T
    rank = method if isinstance(method, int) else 1
    model = low_rank_mlp(size.dimension, rank=rank, width=size.width, factor_width=size.factor_width, key=model_key)
    if isinstance(method, int):
        if exact_slope:
            precision = jnp.asarray(np.linalg.inv(covariance + sigma**2 * np.eye(size.dimension)), float)
            slope = FunctionScore(lambda t, x: -precision @ x)
            model = LowRankSecondOrder(slope, model.alpha, model.beta, rank)
        learnt = trained(model, JointSecondOrder(D2SMVR(Noise(sigma))), data, size, fit_key)
    else:
        objective = DSM(Noise(sigma)) if method == "DSM" else DSMVR(Noise(sigma))
        learnt = FromScore(trained(model.score, objective, data, size, fit_key))
    points = jax.random.normal(test_key, (200, size.dimension)) @ factor.T
    return float(_whole_error(learnt, -jnp.asarray(np.linalg.inv(covariance), float), points))


def error_on_logistics(direct: bool, sigma: float, size: Size, seed: int, exact_slope: bool = False) -> float:
    """The error of the diagonal on the mixture of logistics; `exact_slope`: s1 is known (the clean one)."""
    data_key, test_key, model_key, fit_key = jax.random.split(jax.random.key(1000 + seed), 4)
    mixture = logistic_mixture(size.logistic_dimension, size.components)
    data = mixture.samples(size.logistic_points, key=data_key)
    model = diagonal_mlp(size.logistic_dimension, width=size.width, factor_width=size.factor_width, key=model_key)
    slope = FunctionScore(lambda t, x: jax.grad(mixture.log_prob)(x))
    if direct:
        model = DiagonalSecondOrder(slope, model.alpha) if exact_slope else model
        learnt = trained(model, JointSecondOrder(DiagonalD2SMVR(Noise(sigma))), data, size, fit_key)
    else:
        learnt = FromScore(trained(model.score, DSMVR(Noise(sigma)), data, size, fit_key))
    return float(_diagonal_error(learnt, FromScore(slope), mixture.samples(1000, key=test_key)))


def error_of_constant(size: Size) -> float:
    """What the best diagonal that does not look at x leaves on the mixture."""
    mixture = logistic_mixture(size.logistic_dimension, size.components)
    truth = FromScore(FunctionScore(lambda t, x: jax.grad(mixture.log_prob)(x)))
    found = jax.lax.map(truth.diagonal, mixture.samples(5000, key=jax.random.key(3)))
    return float(jnp.sum(jnp.var(found, axis=0)))
