"""Laws of autoencoders whose entropy gradient comes from a kernel: the fixed point of training, known in closed form.

A kernel estimate s^ on n codes is biased, so that training does not end at the posterior itself but where the gradients
balance. For z = W x + A eps with the linear Gaussian decoder of covariance S and gain G this is (the derivative in A,
times A')

    S^-1 C + R(C) = 0,   R(C) = E[s^(z) z'] over n draws of N(0, C),   C = A A',   W = G,

and R is a mean over draws that needs no training. R -> -I as n grows, and C -> S. The estimators themselves have laws
of their own.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

from unnorm.errors import InputError
from unnorm.networks import Autoencoder, GaussianDecoder, ImplicitEncoder, PointEncoder
from unnorm.objectives import KernelVAE, KernelWAE
from unnorm.objectives.implicit import spectral, stein
from unnorm.training import fit_repeats

pytestmark = pytest.mark.optimised

LOADING = np.array([[1.0, 0.5], [0.2, -0.8], [0.6, 0.3]])
SIGMA = 0.8
COVARIANCE = np.linalg.inv(np.eye(2) + LOADING.T @ LOADING / SIGMA**2)
GAIN = COVARIANCE @ LOADING.T / SIGMA**2
REPEATS, DRAWS = 12, 20


def forgotten(codes):
    """No entropy: a score that is always nought."""
    return jnp.zeros_like(codes)


def reversed_sign(codes):
    """An entropy that is made small instead of large."""
    return -stein(codes)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _response(estimator, n: int, sets: int, factor: jax.Array) -> jax.Array:
    """E[s^(z) z'] over `sets` sets of n draws of N(0, factor factor')."""

    def one(key):
        zs = jax.random.normal(key, (n, 2)) @ factor.T
        return estimator(zs).T @ zs / n

    return jnp.mean(jax.lax.map(one, jax.random.split(jax.random.key(7), sets), batch_size=100), axis=0)


def fixed_point(estimator) -> np.ndarray:
    """C = -S R(C), by iteration from S."""
    covariance = COVARIANCE
    for _ in range(6):
        response = np.asarray(_response(estimator, DRAWS, 2000, jnp.asarray(np.linalg.cholesky(covariance), float)))
        product = -COVARIANCE @ response
        covariance = (product + product.T) / 2
    return covariance


def entries(covariance: np.ndarray) -> np.ndarray:
    return covariance[..., [0, 0, 1], [0, 1, 1]]


# ------------------------------------------------------------------------------------- one posterior for each x


class Affine(eqx.Module):
    weight: jax.Array

    def __call__(self, *inputs):
        return self.weight @ jnp.concatenate(inputs)


class Fixed(eqx.Module):
    """A linear map without parameters: training leaves it alone."""

    rows: tuple = eqx.field(static=True)

    def __call__(self, z):
        return jnp.asarray(self.rows, z.dtype) @ z


def fixed(matrix) -> Fixed:
    return Fixed(tuple(map(tuple, np.asarray(matrix).tolist())))


def posterior(estimator, steps: int = 600, draws: int = DRAWS, followed: int | None = None) -> np.ndarray:
    """Mean map and covariance of the encoder learnt on each of 12 data sets."""
    generator = np.random.default_rng(0)
    shape = (REPEATS, 4000)
    xs = generator.normal(size=(*shape, 2)) @ LOADING.T + SIGMA * generator.normal(size=(*shape, 3))
    encoder = ImplicitEncoder(Affine(jnp.concatenate([jnp.zeros((2, 3)), jnp.eye(2)], axis=1)), 2)
    learnt = fit_repeats(
        Autoencoder(encoder, GaussianDecoder(fixed(LOADING), SIGMA)), KernelVAE(estimator, draws, followed),
        jnp.asarray(xs, float), steps=steps, batch=16, rate=0.01, key=jax.random.key(1),
    )  # fmt: skip
    trained: Any = learnt.encoder
    weights = np.asarray(trained.network.weight, np.float64)
    mixing = weights[..., 3:]
    return np.concatenate([weights[..., :3].reshape(-1, 6), entries(mixing @ mixing.transpose(0, 2, 1))], axis=1)


@pytest.mark.parametrize("estimator", [stein, pytest.param(spectral, marks=pytest.mark.thorough)])
def test_a_kernel_encoder_learns_the_posterior_that_its_estimate_allows(estimator):
    target = fixed_point(estimator)
    truth = np.concatenate([GAIN.reshape(6), entries(target)])
    found = posterior(estimator)
    assert holds(found, truth)
    # Twenty codes are too few for the true covariance, and the law can tell.
    assert breaks(found, np.concatenate([GAIN.reshape(6), entries(COVARIANCE)]))


def test_a_gradient_through_few_codes_ends_where_that_through_all_does():
    truth = np.concatenate([GAIN.reshape(6), entries(fixed_point(stein))])
    assert holds(posterior(stein, followed=4), truth)
    # Control: no more codes than that for the estimate either.
    assert breaks(posterior(stein, draws=4), truth)


def test_without_the_entropy_the_codes_collapse():
    truth = np.concatenate([GAIN.reshape(6), entries(fixed_point(stein))])
    point = posterior(forgotten)
    assert breaks(point, truth)
    # What is left has its optimum in a point: the mean of the posterior, without a spread.
    assert holds(point, np.concatenate([GAIN.reshape(6), np.zeros(3)]), bias=1e-3)
    assert breaks(posterior(reversed_sign), truth)


@pytest.mark.parametrize("estimator", [stein, spectral])
def test_with_more_codes_the_fixed_point_nears_the_posterior(estimator):
    """At the posterior itself R -> -I: four times the codes leave less than half of the gap, of the right sign only."""
    factor = jnp.asarray(np.linalg.cholesky(COVARIANCE), float)
    few, many = (np.asarray(_response(estimator, n, 500, factor)) for n in (20, 80))
    assert np.abs(many + np.eye(2)).max() < 0.6 * np.abs(few + np.eye(2)).max()
    assert np.abs(many - np.eye(2)).max() > 1.5


# ----------------------------------------------------------------------------------------- the aggregate of all x


def aggregate(estimator, weight: float) -> np.ndarray:
    """W of z = W x after training on x ~ N(0, I) with the decoder G(z) = z, on each of 12 data sets."""
    xs = jax.random.normal(jax.random.key(2), (REPEATS, 4000, 2))
    # Of covariance I exactly: the answer is that of the population, without the error of a finite table.
    xs = xs - jnp.mean(xs, axis=1, keepdims=True)
    factors = jnp.linalg.cholesky(jnp.einsum("rni,rnj->rij", xs, xs) / xs.shape[1])
    xs = jnp.einsum("rij,rnj->rni", jnp.linalg.inv(factors), xs)
    encoder = PointEncoder(Affine(jnp.array([[1.5, 0.3], [-0.4, 0.7]])))
    learnt = fit_repeats(
        Autoencoder(encoder, GaussianDecoder(fixed(np.eye(2)))), KernelWAE(estimator, weight), xs,
        steps=1000, batch=DRAWS, rate=0.01, key=jax.random.key(3),
    )  # fmt: skip
    trained: Any = learnt.encoder
    return np.asarray(trained.network.weight, np.float64).reshape(-1, 4)


def balanced(estimator, weight: float) -> np.ndarray:
    """W = w I with 2 (w - 1) + weight (w - r / w) = 0, where r I = -R(I): a kernel score scales like 1 / z."""
    response = np.asarray(_response(estimator, DRAWS, 2000, jnp.eye(2)))
    r = -np.trace(response) / 2
    w = (1 + np.sqrt(1 + (2 + weight) * weight * r)) / (2 + weight)
    return np.array([w, 0, 0, w])


@pytest.mark.parametrize("estimator", [stein, pytest.param(spectral, marks=pytest.mark.thorough)])
def test_the_aggregate_of_codes_is_where_cost_prior_and_entropy_balance(estimator):
    found = aggregate(estimator, 3.0)
    assert holds(found, balanced(estimator, 3.0))
    assert breaks(found, balanced(estimator, 10.0))


def test_the_aggregate_without_the_entropy_shrinks():
    """Cost and prior alone: 2 (w - 1) + weight w = 0."""
    w = 2 / 5
    found = aggregate(forgotten, 3.0)
    assert holds(found, [w, 0, 0, w], bias=1e-3)
    assert breaks(found, balanced(stein, 3.0))


def test_one_code_is_refused():
    with pytest.raises(InputError, match="codes of a kernel estimate must be a whole number from 2 up"):
        KernelVAE(stein, 1)


@pytest.mark.parametrize(("followed", "words"), [(0, "a whole number from 1 up"), (11, "through 1 to 10 codes, not 11")])
def test_codes_that_are_not_there_cannot_be_followed(followed, words):
    with pytest.raises(InputError, match=words):
        KernelVAE(stein, 10, followed)
