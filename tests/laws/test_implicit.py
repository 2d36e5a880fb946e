"""Laws of implicit encoders: the entropy's gradient, and the posterior that a linear model must learn.

With z = A eps the entropy is log |det A| and a constant, so that its gradient is A^-T. With a linear Gaussian decoder
the posterior is Gaussian and known, and an encoder trained on the evidence bound must have its mean and covariance. A
Wasserstein autoencoder with a linear decoder ends where cost, prior and entropy balance, which is an equation too.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

from unnorm.energies import LatentPrior
from unnorm.networks import (
    Autoencoder,
    GaussianDecoder,
    GaussianEncoder,
    ImplicitEncoder,
    PointEncoder,
    ScoredAutoencoder,
)
from unnorm.noises import Gaussian as Noise
from unnorm.objectives import ELBO, WAE, AbstractObjective, EnergyDiscrepancy, ImplicitVAE, entropy_surrogate
from unnorm.objectives.implicit import two_rates
from unnorm.training import cosine, fit_repeats

pytestmark = pytest.mark.optimised

RULE = two_rates(lambda step: 0.003 * cosine(step / 1500))
FASTER = two_rates(lambda step: 0.01 * cosine(step / 1500))

MIX = np.array([[1.0, 0.3], [-0.4, 0.7]])


def surrogate_gradients(stopped: bool) -> np.ndarray:
    """The gradient in A of the surrogate with the exact score, on each of 64 batches of 2000 codes."""

    def surrogate(mix, eps):
        zs = eps @ mix.T
        precision = jnp.linalg.inv(mix @ mix.T)
        scores = -zs @ precision
        return entropy_surrogate(scores, zs) if stopped else jnp.mean(jnp.sum(scores * zs, axis=1))

    eps = jax.random.normal(jax.random.key(0), (64, 2000, 2))
    return np.asarray(jax.jit(jax.vmap(jax.grad(surrogate), in_axes=(None, 0)))(jnp.asarray(MIX, float), eps))


def test_the_surrogate_has_the_gradient_of_minus_the_entropy():
    truth = -np.linalg.inv(MIX).T
    assert holds(surrogate_gradients(stopped=True), truth)
    assert breaks(surrogate_gradients(stopped=False), truth)


# ------------------------------------------------------------------------------------------------- a linear decoder

LOADING = np.array([[1.0, 0.5], [0.2, -0.8], [0.6, 0.3]])
SIGMA = 0.8
COVARIANCE = np.linalg.inv(np.eye(2) + LOADING.T @ LOADING / SIGMA**2)
GAIN = COVARIANCE @ LOADING.T / SIGMA**2


class Affine(eqx.Module):
    weight: jax.Array

    def __call__(self, *inputs):
        return self.weight @ jnp.concatenate(inputs)


class Fixed(eqx.Module):
    """The true decoder, without parameters: training leaves it alone."""

    def __call__(self, z):
        return jnp.asarray(LOADING, z.dtype) @ z


class Moments(eqx.Module):
    """A linear mean and constant standard deviations."""

    weight: jax.Array
    log_std: jax.Array

    def __call__(self, x):
        return jnp.concatenate([self.weight @ x, self.log_std])


class Zero(eqx.Module):
    """A score that is always nought: the entropy is then forgotten."""

    def __call__(self, *inputs):
        return jnp.zeros(2)


DECODER = GaussianDecoder(Fixed(), SIGMA)


def rows() -> jax.Array:
    generator = np.random.default_rng(0)
    xs = generator.normal(size=(12, 2000, 2)) @ LOADING.T + SIGMA * generator.normal(size=(12, 2000, 3))
    return jnp.asarray(xs, float)


def posterior(model, objective) -> np.ndarray:
    """Mean map and covariance of the encoder learnt on each of 12 data sets."""
    learnt = fit_repeats(model, objective, rows(), steps=1500, batch=200, optimiser=RULE, key=jax.random.key(1))
    weights = np.asarray(learnt.encoder.network.weight)
    mixing = weights[..., 3:]
    covariances = mixing @ mixing.transpose(0, 2, 1)
    return np.concatenate([weights[..., :3].reshape(12, 6), covariances[:, [0, 0, 1], [0, 1, 1]]], axis=1)


TRUTH = np.concatenate([GAIN.reshape(6), COVARIANCE[[0, 0, 1], [0, 1, 1]]])
ENCODER = ImplicitEncoder(Affine(jnp.concatenate([jnp.zeros((2, 3)), jnp.eye(2)], axis=1)), 2)


def test_an_implicit_encoder_learns_the_posterior():
    score = Affine(jnp.concatenate([jnp.zeros((2, 3)), -jnp.eye(2)], axis=1))
    assert holds(posterior(ScoredAutoencoder(ENCODER, DECODER, score), ImplicitVAE()), TRUTH, bias=0.02)
    assert breaks(posterior(ScoredAutoencoder(ENCODER, DECODER, Zero()), ImplicitVAE()), TRUTH, bias=0.02)


def test_the_bound_with_a_gaussian_encoder_learns_the_best_diagonal():
    """The best factorised Gaussian has the true mean and the inverse of the diagonal of the true precision."""
    model = Autoencoder(GaussianEncoder(Moments(jnp.zeros((2, 3)), jnp.zeros(2))), DECODER)
    learnt = fit_repeats(model, ELBO(), rows(), steps=800, batch=200, rate=0.01, key=jax.random.key(1))
    network = learnt.encoder.network
    found = np.concatenate([np.asarray(network.weight).reshape(12, 6), np.exp(2 * np.asarray(network.log_std))], axis=1)
    variances = 1 / np.diag(np.linalg.inv(COVARIANCE))
    assert holds(found, np.concatenate([GAIN.reshape(6), variances]), bias=0.01)
    assert breaks(found, np.concatenate([GAIN.reshape(6), np.diag(COVARIANCE)]), bias=0.01)


# ------------------------------------------------------------------------------------------------- the aggregate


TURN = np.array([[0.8, -0.6], [0.6, 0.8]])
SCALES = np.array([1.0, 3.0])


class Seeing(eqx.Module):
    """G(z) = D z, which wants codes of another size than the prior has them; without parameters."""

    def __call__(self, z):
        return jnp.asarray((TURN * SCALES) @ TURN.T, z.dtype) @ z


class HalfTheCost(AbstractObjective):
    """A wrong variant: -log p(x | z) at sigma = 1 in the place of |x - G(z)|^2."""

    comparable: ClassVar[bool] = False
    right: WAE

    def init(self, model, data, *, key):
        return self.right.init(model, data, key=key)

    def __call__(self, model, state, batch, *, key):
        loss, (state, info) = self.right(model, state, batch, key=key)
        return loss - 0.5 * info["reconstruction"], (state, info)


def aggregate(objective, score) -> np.ndarray:
    """W of z = W x after training on x ~ N(0, I), on each of 12 data sets."""
    xs = jax.random.normal(jax.random.key(2), (12, 2000, 2))
    # Of covariance I exactly: the answer is that of the population, without the error of a finite table.
    xs = xs - jnp.mean(xs, axis=1, keepdims=True)
    factors = jnp.linalg.cholesky(jnp.einsum("rni,rnj->rij", xs, xs) / xs.shape[1])
    xs = jnp.einsum("rij,rnj->rni", jnp.linalg.inv(factors), xs)
    model = ScoredAutoencoder(PointEncoder(Affine(0.9 * jnp.eye(2))), GaussianDecoder(Seeing()), score)
    learnt = fit_repeats(model, objective, xs, steps=1500, batch=200, optimiser=FASTER, key=jax.random.key(3))
    return np.asarray(learnt.encoder.network.weight, np.float64).reshape(12, 4)


def balanced(weight: float, cost: float = 1.0, entropy: float = 1.0) -> np.ndarray:
    """W with 2 cost D'(D W - I) + weight (W - entropy W'^-1) = 0, solved along each eigenvector of D."""
    curvature = 2 * cost * SCALES**2 + weight
    w = (cost * SCALES + np.sqrt((cost * SCALES) ** 2 + entropy * weight * curvature)) / curvature
    return ((TURN * w) @ TURN.T).ravel()


@pytest.mark.parametrize("weight", [1.0, 10.0])
def test_codes_are_where_cost_prior_and_entropy_balance(weight):
    found = aggregate(WAE(weight), Affine(-jnp.eye(2)))
    assert holds(found, balanced(weight))
    assert breaks(found, balanced(11.0 - weight))


def test_half_the_cost_is_twice_the_weight():
    """Negative control."""
    found = aggregate(HalfTheCost(WAE(1.0)), Affine(-jnp.eye(2)))
    assert breaks(found, balanced(1.0))
    assert holds(found, balanced(2.0))


def test_codes_without_the_entropy_shrink():
    found = aggregate(WAE(1.0), Zero())
    assert breaks(found, balanced(1.0))
    # Nothing is drawn here, so that all data sets end at the same W, to rounding.
    np.testing.assert_allclose(found, np.tile(balanced(1.0, entropy=0.0), (12, 1)), atol=1e-4)


# ------------------------------------------------------------------------------------------------- a learnt prior


class Shift(eqx.Module):
    """tilt(z) = -b.z: the tilted normal is N(b, I)."""

    slope: jax.Array

    def __call__(self, z):
        return -jnp.dot(self.slope, z)[None]


def test_a_tilted_prior_learns_where_the_codes_are():
    """Codes of N(b, I): energy discrepancy with quadratic energies of the right curvature has its optimum at b."""
    centre = np.array([0.7, -0.4])
    codes = jax.random.normal(jax.random.key(4), (12, 2000, 2)) + jnp.asarray(centre, float)
    objective = EnergyDiscrepancy(Noise(0.5), draws=32)
    prior = LatentPrior(Shift(jnp.zeros(2)), 2)
    fits = fit_repeats(prior, objective, codes, steps=600, batch=200, rate=0.02, key=jax.random.key(5))
    assert holds(fits.tilt.slope, centre, bias=0.02)
    assert breaks(fits.tilt.slope, 0.8 * centre, bias=0.02)
