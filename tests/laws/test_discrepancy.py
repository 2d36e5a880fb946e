"""Laws of energy discrepancy, on Gaussians, where every integral is a formula.

Model U = lambda (x - mean)^2 / 2, data N(m, s^2), noise of variance t. With c = 1 + lambda t,
U_q(y) = log(c) / 2 + lambda (y - mean)^2 / (2 c), so
ED = lambda (s^2 + d^2) / 2 - log(c) / 2 - lambda (s^2 + t + d^2) / (2 c),  d = m - mean.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from jaxtyping import Array

from unnorm.energies import AbstractEnergy
from unnorm.errors import InputError
from unnorm.noises import Gaussian, OrnsteinUhlenbeck
from unnorm.objectives import EnergyDiscrepancy, Perturbation
from unnorm.objectives.discrepancy import stabilised_log_mean_exp
from unnorm.spaces import Real

pytestmark = pytest.mark.optimised

M, S = 0.7, 1.2
TRUTH = (M, -2 * math.log(S))
OTHER = (0.2, -0.8)
DRAWS = 64


class Normal(AbstractEnergy):
    """exp(a) (x - mean)^2 / 2."""

    theta: Array
    space: Real = eqx.field(static=True, default=Real((1,)))

    def __call__(self, x):
        return 0.5 * jnp.exp(self.theta[1]) * (x[0] - self.theta[0]) ** 2


def discrepancy(theta, t):
    """The closed form."""
    precision = jnp.exp(theta[1])
    spread = S**2 + (M - theta[0]) ** 2
    c = 1 + precision * t
    return 0.5 * precision * spread - 0.5 * jnp.log(c) - 0.5 * precision * (spread + t) / c


def expansion(theta, t):
    """The coefficient of 1/M in the bias: -E_y[ Var(exp(-U(x'))) / E(exp(-U(x')))^2 ] / 2."""
    precision = jnp.exp(theta[1])
    one, two = 1 + precision * t, 1 + 2 * precision * t
    rate = precision / one - precision / two
    inside = 1 - 2 * rate * (S**2 + t)
    mean = jnp.exp(rate * (M - theta[0]) ** 2 / inside) / jnp.sqrt(inside)
    return -0.5 * (one / jnp.sqrt(two) * mean - 1)


@eqx.filter_jit
def _estimates(objective, theta, keys, rows):
    def one(key):
        data, noise = jax.random.split(key)
        batch = M + S * jax.random.normal(data, (rows, 1))
        return jax.value_and_grad(lambda theta: objective(Normal(theta), None, batch, key=noise)[0])(theta)

    return jax.lax.map(one, keys)


def estimates(objective, theta, repeats: int = 48, rows: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Losses and gradients on independent batches."""
    keys = jax.random.split(jax.random.key(0), repeats)
    return tuple(np.asarray(a) for a in _estimates(objective, jnp.asarray(theta), keys, rows))


def slope(function, theta) -> np.ndarray:
    return np.asarray(jax.grad(function)(jnp.asarray(theta)))


def bounds(t: float, draws: int = DRAWS) -> tuple[float, float]:
    """Twice the 1/M term of the bias, of the loss and of its gradient: room for the terms of higher order."""
    whole = abs(float(expansion(jnp.asarray(OTHER), t)))
    return 2 * whole / draws, 2 * float(np.abs(slope(lambda p: expansion(p, t), OTHER)).max()) / draws


# ------------------------------------------------------------------------------------------------- its value


def test_it_is_the_formula_when_draws_are_many():
    t = 0.5
    losses, gradients = estimates(EnergyDiscrepancy(Gaussian(math.sqrt(t)), DRAWS, stabiliser=0.0), OTHER)
    bias, gradient_bias = bounds(t)
    assert holds(losses, float(discrepancy(jnp.asarray(OTHER), t)), bias)
    assert holds(gradients, slope(lambda p: discrepancy(p, t), OTHER), gradient_bias)

    # Negative control: U(y) in place of U_q(y), the slide's slip, is another function.
    def slip(theta):
        return -0.5 * jnp.exp(theta[1]) * t

    assert breaks(losses, float(slip(jnp.asarray(OTHER))), bias)
    assert breaks(gradients, slope(slip, OTHER), gradient_bias)


def test_its_bias_falls_as_one_over_the_draws():
    """At the truth the gradient is that of coefficient / M: it vanishes as M grows, at that rate."""
    t = 0.5
    coefficient = slope(lambda p: expansion(p, t), TRUTH)
    second = np.abs(coefficient).max()
    for draws in (8, 64):
        _, gradients = estimates(EnergyDiscrepancy(Gaussian(math.sqrt(t)), draws, stabiliser=0.0), TRUTH, rows=4000)
        # The next term is of order 1/M^2, of the size of the first coefficient.
        assert holds(gradients, coefficient / draws, bias=2 * second / draws**2)
        if draws == 8:
            assert breaks(gradients, 0.0)
            # Negative control: a bias of order 1/sqrt(M).
            assert breaks(gradients, coefficient / math.sqrt(draws), bias=2 * second / draws**2)
        else:
            assert np.abs(gradients.mean(0)).max() < 1.5 * second / draws


def test_the_stabiliser_is_of_the_order_of_the_bias():
    """w/M inside the logarithm vanishes with M; w alone does not."""
    t, draws = 0.5, DRAWS
    exact = float(discrepancy(jnp.asarray(OTHER), t))
    losses, _ = estimates(EnergyDiscrepancy(Gaussian(math.sqrt(t)), draws, stabiliser=1.0), OTHER)
    plain, _ = estimates(EnergyDiscrepancy(Gaussian(math.sqrt(t)), draws, stabiliser=0.0), OTHER)
    # log(1 + r) <= r: what it adds is at most w/M times the mean of exp(U_q(y) - U(x)), here below 3.
    assert np.all(losses > plain) and np.all(losses < plain + 3 / draws)
    assert holds(losses, exact, bias=3 / draws)

    # Negative control: w in place of w/M is a stabiliser of w M.
    wrong, _ = estimates(EnergyDiscrepancy(Gaussian(math.sqrt(t)), draws, stabiliser=float(draws)), OTHER)
    assert breaks(wrong, exact, bias=3 / draws)
    # The logarithm itself, and rows of any size.
    gaps = np.array([[1000.0, 0.0], [-1000.0, -1001.0], [0.3, -0.2]])
    found = stabilised_log_mean_exp(jnp.asarray(gaps), 2.0)
    expected = np.logaddexp(np.logaddexp(gaps[:, 0], gaps[:, 1]), math.log(2.0)) - math.log(2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------- its limits


def test_small_noise_is_score_matching():
    """ED/t -> E[U'^2 / 2 - U''] = lambda^2 (s^2 + d^2) / 2 - lambda, to first order in t."""

    def score_matching(theta):
        precision = jnp.exp(theta[1])
        return 0.5 * precision**2 * (S**2 + (M - theta[0]) ** 2) - precision

    limit = slope(score_matching, OTHER)
    gaps = []
    for t in (0.2, 0.02):
        gaps.append(np.abs(slope(lambda p, t=t: discrepancy(p, t) / t, OTHER) - limit).max())
    assert 6 < gaps[0] / gaps[1] < 14
    t = 0.02
    _, gradients = estimates(EnergyDiscrepancy(Gaussian(math.sqrt(t)), 16, stabiliser=0.0), OTHER, rows=4000)
    assert holds(gradients / t, limit, bias=2 * gaps[1])
    # Negative control: the likelihood's gradient.
    likelihood = slope(lambda p: 0.5 * jnp.exp(p[1]) * (S**2 + (M - p[0]) ** 2) - 0.5 * p[1], OTHER)
    assert breaks(gradients / t, likelihood, bias=2 * gaps[1])


def test_large_noise_is_maximum_likelihood():
    """ED(U) - ED(U*) is below KL(p_data || p_U) by at most W2^2 / (2 t)."""
    mean, precision = OTHER[0], math.exp(OTHER[1])
    spread = S**2 + (M - mean) ** 2
    divergence = 0.5 * (precision * spread - 1 - math.log(precision * S**2))
    wasserstein = (M - mean) ** 2 + (S - precision**-0.5) ** 2

    def excess(t: float) -> float:
        return float(discrepancy(jnp.asarray(OTHER), t) - discrepancy(jnp.asarray(TRUTH), t))

    for t in (1.0, 10.0, 100.0):
        assert 0 < divergence - excess(t) <= wasserstein / (2 * t)
    t = 10.0
    objective = EnergyDiscrepancy(Gaussian(math.sqrt(t)), 256, stabiliser=0.0)
    # The same keys for both, so that their difference has little variance.
    found = estimates(objective, OTHER)[0] - estimates(objective, TRUTH)[0]
    assert holds(found, divergence, bias=wasserstein / (2 * t))
    # Negative control: small noise is not there yet.
    assert breaks(np.full(8, excess(0.1)) + 1e-9 * np.arange(8), divergence, bias=wasserstein / (2 * t))


# ------------------------------------------------------------------------------------------------- its kernels


def test_ornstein_uhlenbeck_is_gaussian_noise_of_another_variance():
    """alpha = e^-s and sigma^2 = 1 - e^-2s give t = sigma^2 / alpha^2 = e^2s - 1."""
    time = 0.25
    t = math.expm1(2 * time)
    losses, gradients = estimates(EnergyDiscrepancy(OrnsteinUhlenbeck(time), DRAWS, stabiliser=0.0), OTHER)
    bias, gradient_bias = bounds(t)
    assert holds(losses, float(discrepancy(jnp.asarray(OTHER), t)), bias)
    assert holds(gradients, slope(lambda p: discrepancy(p, t), OTHER), gradient_bias)

    # Negative control: the process run on from y, instead of back to what y may have come from.
    noise = OrnsteinUhlenbeck(time)
    onward = Perturbation(lambda x, k: noise.sample(1.0, x, key=k), lambda y, k: noise.sample(1.0, y, key=k))
    losses, _ = estimates(EnergyDiscrepancy(onward, DRAWS, stabiliser=0.0), OTHER)
    assert breaks(losses, float(discrepancy(jnp.asarray(OTHER), t)), bias)


def test_a_pair_of_functions_is_the_kernel_it_describes():
    scale = math.sqrt(0.5)

    def shifted(x, key):
        return x + 3.0 + scale * jax.random.normal(key, x.shape)

    def back(y, key):
        return y - 3.0 + scale * jax.random.normal(key, y.shape)

    losses, _ = estimates(EnergyDiscrepancy(Perturbation(shifted, back), DRAWS, stabiliser=0.0), OTHER)
    assert holds(losses, float(discrepancy(jnp.asarray(OTHER), 0.5)), bounds(0.5)[0])
    forgot, _ = estimates(EnergyDiscrepancy(Perturbation(shifted, lambda y, k: back(y, k) + 0.6), DRAWS, 0.0), OTHER)
    assert breaks(forgot, float(discrepancy(jnp.asarray(OTHER), 0.5)), bounds(0.5)[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: EnergyDiscrepancy(Gaussian(0.5), draws=0),
        lambda: EnergyDiscrepancy(Gaussian(0.5), stabiliser=-1.0),
    ],
)
def test_bad_options_are_refused(make):
    with pytest.raises(InputError):
        make()
