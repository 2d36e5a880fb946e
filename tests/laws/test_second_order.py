"""Laws of second-order scores: exact posterior moments, exact optima, and a variance that does not grow.

Mixtures of Gaussians have posteriors of denoising in closed form; Gaussian data have the optimum -(S + sigma^2 I)^-1.
The sources print 1/sigma in one place where the reduced loss has 1/sigma^2; it is rejected here.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

from unnorm.energies import gaussian_mixture
from unnorm.errors import InputError
from unnorm.noises import Gaussian as Noise
from unnorm.objectives.second_order import (
    D2SM,
    D2SMVR,
    DiagonalD2SM,
    DiagonalD2SMVR,
    JointSecondOrder,
    frobenius,
)
from unnorm.scores import (
    DenoisingPosterior,
    EnergyScore,
    FreeScore,
    FromScore,
    LowRankSecondOrder,
    diagonal_mlp,
    low_rank_mlp,
    posterior_moment,
)
from unnorm.training import fit_repeats

# ------------------------------------------------------------------------------------------------- Tweedie

WEIGHTS = np.array([0.5, 0.3, 0.2])
MEANS = np.array([[-1.0, 0.0], [1.0, 0.5], [0.5, -1.5]])
COVARIANCES = np.array([[[0.5, 0.2], [0.2, 0.4]], [[0.3, -0.1], [-0.1, 0.6]], [[0.2, 0.0], [0.0, 0.3]]])
SIGMA = 0.7


def symmetric_third(m, c):
    """m m m + the three placings of m beside c."""
    mc = np.einsum("i,jk->ijk", m, c)
    return np.einsum("i,j,k->ijk", m, m, m) + mc + mc.transpose(1, 0, 2) + mc.transpose(1, 2, 0)


def exact_moments(noisy: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """E[x], E[xx'], E[xxx] given x~: each component's posterior is Gaussian, weighed by its responsibility."""
    totals = [np.zeros(2), np.zeros((2, 2)), np.zeros((2, 2, 2))]
    densities = []
    for w, m, c in zip(WEIGHTS, MEANS, COVARIANCES, strict=True):
        noisy_c = c + SIGMA**2 * np.eye(2)
        offset = noisy - m
        densities.append(w * np.exp(-0.5 * offset @ np.linalg.solve(noisy_c, offset)) / np.sqrt(np.linalg.det(noisy_c)))
    for r, m, c in zip(np.array(densities) / sum(densities), MEANS, COVARIANCES, strict=True):
        gain = c @ np.linalg.inv(c + SIGMA**2 * np.eye(2))
        mean, covariance = m + gain @ (noisy - m), c - gain @ c
        totals[0] += r * mean
        totals[1] += r * (np.outer(mean, mean) + covariance)
        totals[2] += r * symmetric_third(mean, covariance)
    return totals[0], totals[1], totals[2]


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def noisy_mixture():
    return gaussian_mixture(WEIGHTS, MEANS, COVARIANCES + SIGMA**2 * np.eye(2))


@pytest.mark.parametrize("point", [(0.3, -0.2), (-1.5, 2.0)])
def test_posterior_moments_of_a_mixture(double, point):
    noisy = jnp.asarray(point, float)
    first, second, third = exact_moments(np.asarray(point))
    score = EnergyScore(noisy_mixture())
    moments = jax.jit(lambda y: [posterior_moment(score, SIGMA, y, order) for order in (1, 2, 3)])(noisy)
    for found, truth in zip(moments, (first, second, third), strict=True):
        np.testing.assert_allclose(found, truth, rtol=0, atol=1e-11)
    posterior = DenoisingPosterior(FromScore(noisy_mixture()), SIGMA)
    covariance = second - np.outer(first, first)
    v = jnp.array([1.0, 2.0])
    of_posterior = jax.jit(
        lambda y: (posterior.mean(y), posterior.covariance(y), posterior.variances(y), posterior.apply(y, v))
    )(noisy)
    for found, truth in zip(of_posterior, (first, covariance, np.diag(covariance), covariance @ v), strict=True):
        np.testing.assert_allclose(found, truth, rtol=0, atol=1e-12)
    # Cumulants beyond the second are sigma^2n s_n: a third moment without s3 is that of a Gaussian posterior, wrong.
    s2, s3 = jax.jit(lambda y: (posterior.score.matrix(y), jax.jacfwd(posterior.score.matrix)(y)))(noisy)
    gaussian_third = symmetric_third(first, covariance)
    np.testing.assert_allclose(gaussian_third + SIGMA**6 * np.asarray(s3), third, rtol=0, atol=1e-11)
    assert np.max(np.abs(gaussian_third - third)) > 1e-4
    # And sigma^2 s2 in place of sigma^4 s2 is no covariance of this posterior.
    wrong = SIGMA**2 * (np.eye(2) + np.asarray(s2))
    assert np.max(np.abs(wrong - covariance)) > 1e-2


def test_draws_of_the_posterior_have_its_moments():
    noisy = jnp.array([0.3, -0.2])
    posterior = DenoisingPosterior(FromScore(noisy_mixture()), SIGMA)
    draw = jax.jit(jax.vmap(lambda k: posterior.sample(noisy, key=k)))
    draws, negative = draw(jax.random.split(jax.random.key(0), 4000))
    first, second, _ = exact_moments(np.asarray(noisy, np.float64))
    products = np.concatenate([draws, np.stack([draws[:, 0] ** 2, draws[:, 0] * draws[:, 1], draws[:, 1] ** 2], 1)], 1)
    truth = np.concatenate([first, second[[0, 0, 1], [0, 1, 1]]])
    assert holds(products, truth) and breaks(products, 1.1 * truth)
    assert float(jnp.sum(negative)) == 0
    # A second-order score below -1/sigma^2 has no covariance: the eigenvalues taken as 0 are counted.
    too_sharp = DenoisingPosterior(FromScore(gaussian_mixture([1.0], [[0.0, 0.0]], 0.5 * SIGMA)), SIGMA)
    draw, negative = too_sharp.sample(noisy, key=jax.random.key(1))
    assert float(negative) == 2 and bool(jnp.allclose(draw, too_sharp.mean(noisy)))


def test_products_and_diagonals_agree_with_the_matrix(double):
    x, v = jax.random.normal(jax.random.key(0), (2, 6))
    for model in (
        low_rank_mlp(6, rank=2, width=8, factor_width=8, key=jax.random.key(1)),
        diagonal_mlp(6, width=8, factor_width=8, key=jax.random.key(2)),
        FromScore(low_rank_mlp(6, rank=1, width=8, key=jax.random.key(3)).score),
    ):
        parts = eqx.filter_jit(lambda model: (model.matrix(x), model.apply(x, v), model.diagonal(x)))
        matrix, product, diagonal = (np.asarray(part) for part in parts(model))
        np.testing.assert_allclose(product, matrix @ v, atol=1e-13)
        np.testing.assert_allclose(diagonal, np.diagonal(matrix), atol=1e-13)
    jacobian = jax.jit(jax.jacrev(lambda y: model(0.0, y)))(x)
    np.testing.assert_allclose(matrix, jacobian, atol=1e-13)
    assert np.max(np.abs(matrix - jacobian.T)) > 1e-3


# ------------------------------------------------------------------------------------------------- no D x D matrix


def test_frobenius_norm_without_the_matrix(double):
    a, u, c = (jax.random.normal(jax.random.key(i), shape) for i, shape in ((0, (40,)), (1, (40, 7)), (2, (7,))))
    dense = jnp.diag(a) + u @ jnp.diag(c) @ u.T
    assert abs(frobenius(a, u, c) / jnp.sum(dense**2) - 1) < 1e-14
    assert abs(frobenius(a, u, jnp.abs(c)) / jnp.sum(dense**2) - 1) > 1e-2


def dense_psi(model, x):
    s1 = model(0.0, x)
    return model.matrix(x) + jnp.outer(s1, s1)


def dense_vr(model, x, z, sigma, power):
    """The antithetic loss on whole matrices; the sources print power 1 in one place and 2 in another."""
    plus, minus, here = (dense_psi(model, y) for y in (x + sigma * z, x - sigma * z, x))
    contrast = (jnp.eye(len(x)) - jnp.outer(z, z)) / sigma**power
    return jnp.sum(plus**2 + minus**2 + 2 * contrast * (plus + minus - 2 * here))


def test_losses_equal_their_dense_forms(double):
    model = low_rank_mlp(5, rank=2, width=8, factor_width=8, key=jax.random.key(0))
    sigma = 0.3

    @jax.jit
    def both(x, z):
        target = (jnp.eye(5) - jnp.outer(z, z)) / sigma**2
        residual = dense_psi(model, x + sigma * z) + target
        dense = [jnp.sum(residual**2), dense_vr(model, x, z, sigma, 2), jnp.sum(jnp.diagonal(residual) ** 2)]
        losses = [loss(Noise(sigma)).second(model, x, z) for loss in (D2SM, D2SMVR, DiagonalD2SM)]
        return jnp.stack(losses), jnp.stack(dense), dense_vr(model, x, z, sigma, 1)

    losses, dense, printed = both(*jax.random.normal(jax.random.key(1), (2, 5)))
    np.testing.assert_allclose(losses, dense, rtol=1e-11)
    assert abs(losses[1] / printed - 1) > 1e-2


@pytest.mark.parametrize("pair", [(D2SM, D2SMVR), (DiagonalD2SM, DiagonalD2SMVR)])
def test_the_first_order_term_is_denoising_score_matching_in_both_forms(double, pair):
    """Plain: |s1(x~) + z/sigma|^2 / 2. Reduced: that less s1(x)'z / sigma, of mean zero, and |z|^2 / (2 sigma^2)."""
    sigma, model = 0.3, low_rank_mlp(3, rank=1, width=8, factor_width=8, key=jax.random.key(0))
    x, zs = jnp.array([0.3, -1.0, 0.5]), jax.random.normal(jax.random.key(1), (50, 3))
    plain, reduced = (jax.vmap(lambda z, k=k: k(Noise(sigma)).both(model, x, z)[1])(zs) for k in pair)
    slopes, here = jax.vmap(lambda z: model(0.0, x + sigma * z))(zs), model(0.0, x)
    np.testing.assert_allclose(plain, 0.5 * jnp.sum((slopes + zs / sigma) ** 2, 1), rtol=1e-10)
    varies = zs @ here / sigma + 0.5 * jnp.sum(zs**2, 1) / sigma**2
    np.testing.assert_allclose(reduced, plain - varies, rtol=1e-9)
    # Negative control: half the contrast, which the reduced form is easily given by mistake.
    contrast = jnp.sum((slopes - here) * zs, 1) / sigma
    assert not np.allclose(reduced - 0.5 * contrast, plain - varies, rtol=1e-3)


def test_a_model_without_factors_is_refused():
    with pytest.raises(InputError, match="LowRankSecondOrder"):
        D2SM(Noise(0.1)).second(FromScore(noisy_mixture()), jnp.zeros(2), jnp.zeros(2))


# ------------------------------------------------------------------------------------------------- reduced variance


def sharp_model(dimension: int = 3):
    """Random networks with weights large enough that psi bends."""
    model = low_rank_mlp(dimension, rank=2, width=16, factor_width=16, key=jax.random.key(0))
    return jax.tree.map(lambda leaf: 2 * leaf if eqx.is_inexact_array(leaf) else leaf, model)


def draws_of(n: int, dimension: int = 3):
    return jax.random.normal(jax.random.key(1), (2, n, dimension))


def test_reduced_losses_are_twice_the_plain_ones_up_to_a_constant(double):
    """Reduced = plain(z) + plain(-z) - 2 |T|^2 - 4 <T, psi(x)>, T = (I - z z') / sigma^2, draw by draw.

    E T = 0 and E|T|^2 = D (D + 1) / sigma^4 (on the diagonal 2 D / sigma^4): so twice the plain loss and a constant.
    With 1 / sigma for 1 / sigma^2 in T the expectation is another.
    """
    sigma, model = 0.4, sharp_model()
    noise, xs, zs = Noise(sigma), *draws_of(50_000)

    def differences(x, z):
        def plain(loss):
            return loss.second(model, x, z) + loss.second(model, x, -z)

        target, psi = (jnp.eye(3) - jnp.outer(z, z)) / sigma**2, dense_psi(model, x)
        on_diagonal = jnp.diagonal(target), jnp.diagonal(psi)
        constants = jnp.stack([jnp.sum(target**2), jnp.sum(on_diagonal[0] ** 2)])
        expected = plain(D2SM(noise)) - 2 * constants[0]
        return {
            "whole": D2SMVR(noise).second(model, x, z) - expected + 4 * jnp.sum(target * psi),
            "printed": dense_vr(model, x, z, sigma, 1) - expected + 4 * sigma * jnp.sum(target * psi),
            "diagonal": DiagonalD2SMVR(noise).second(model, x, z)
            - (plain(DiagonalD2SM(noise)) - 2 * constants[1])
            + 4 * jnp.sum(on_diagonal[0] * on_diagonal[1]),
            "constants": constants,
            "target": target,
        }

    found = {name: np.asarray(value) for name, value in jax.jit(jax.vmap(differences))(xs, zs).items()}
    for name in ("whole", "diagonal"):
        assert np.max(np.abs(found[name])) < 1e-8 * np.max(found["constants"])
    assert holds(found["constants"], np.array([12, 6]) / sigma**4) and holds(found["target"], np.zeros((3, 3)))
    assert breaks(found["printed"], 0.0)


def spread(loss, noise) -> float:
    """The root mean squared spread of one point's gradient."""
    gradient = eqx.filter_grad(lambda model, x, z: loss(noise).second(model, x, z))
    gradients = eqx.filter_jit(eqx.filter_vmap(gradient, in_axes=(None, 0, 0)))(sharp_model(), *draws_of(1000))
    leaves = jax.tree.leaves(eqx.filter(gradients, eqx.is_inexact_array))
    return np.sqrt(sum(float(np.sum(np.var(leaf, axis=0))) for leaf in leaves))


def test_variance_does_not_grow_as_sigma_falls(double):
    """Reduced gradients have a limit as sigma -> 0; plain ones grow as 1 / sigma^2.

    The limit is met up to a term of order sigma, so that a tenfold fall from 0.01 shows the power to a percent.
    """
    for loss, power in ((D2SM, 100), (D2SMVR, 1), (DiagonalD2SM, 100), (DiagonalD2SMVR, 1)):
        growth = spread(loss, Noise(0.001)) / spread(loss, Noise(0.01))
        assert abs(growth / power - 1) < 0.01, (loss.__name__, growth)


# ------------------------------------------------------------------------------------------------- the optimum


class Constant(eqx.Module):
    """A network that does not look."""

    value: jax.Array

    def __call__(self, x):
        return self.value


class Linear(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return self.weight @ x


COVARIANCE = np.array([[1.2, 0.5], [0.5, 0.8]])


def fitted(objective) -> np.ndarray:
    """The matrices of s1 and s2 learnt from each of 16 data sets of 1000 points."""
    points = np.random.default_rng(0).multivariate_normal(np.zeros(2), COVARIANCE, (16, 1000))
    model = LowRankSecondOrder(FreeScore(Linear(-jnp.eye(2))), Constant(-jnp.ones(2)), Constant(0.3 * jnp.ones(2)), 1)
    fits = fit_repeats(
        model, objective, jnp.asarray(points, float), steps=800, batch=100, rate=0.05, key=jax.random.key(1)
    )
    s2 = jax.vmap(lambda a, b: jnp.diag(a) + jnp.outer(b, b))(fits.alpha.value, fits.beta.value)
    return np.stack([np.asarray(fits.score.network.weight), np.asarray(s2)], axis=1)[..., [0, 0, 1], [0, 1, 1]]


@pytest.mark.parametrize("objective", [D2SM(Noise(0.6)), D2SMVR(Noise(0.6)), D2SMVR(Noise(0.05))])
def test_gaussian_data_have_the_inverse_noisy_covariance(objective):
    sigma = objective.noise.scale
    learnt = fitted(JointSecondOrder(objective))
    truth = -np.linalg.inv(COVARIANCE + sigma**2 * np.eye(2))[[0, 0, 1], [0, 1, 1]]
    assert holds(learnt, np.stack([truth, truth]), bias=0.01)
    assert breaks(learnt, np.stack([truth, 1.15 * truth]), bias=0.01)
