"""Laws of efficiency: thousands of estimates scatter as the asymptotic covariances say.

A Gaussian with unknown mean and log-scale, where the Fisher information is diag(1, 2). Estimates are exact minimisers
(Newton's method on a fixed set of noise points), thousands of them in one compiled call.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from jaxtyping import Array

from unnorm.energies import AbstractNormalised, Shifted, standard_gaussian
from unnorm.errors import InputError
from unnorm.evaluation.efficiency import cnce_covariance, likelihood_covariance, nce_covariance
from unnorm.noises import Gaussian as Local
from unnorm.noises import Independent
from unnorm.spaces import Real

pytestmark = pytest.mark.optimised

FITS, ROWS = 2400, 500


class Normal(AbstractNormalised):
    """N(mean, exp(log_scale)^2) on the line."""

    mean: Array = eqx.field(default_factory=lambda: jnp.zeros(()))
    log_scale: Array = eqx.field(default_factory=lambda: jnp.zeros(()))
    space: Real = eqx.field(static=True, default=Real((1,)))

    def __call__(self, x):
        return 0.5 * ((x[0] - self.mean) * jnp.exp(-self.log_scale)) ** 2 + self.log_scale + 0.5 * math.log(2 * math.pi)

    def sample(self, *, key):
        return self.mean + jnp.exp(self.log_scale) * jax.random.normal(key, (1,))


def energy(theta: Array, xs: Array) -> Array:
    """As `Normal`, at many points at once; a third parameter, where there is one, is the constant's."""
    shift = theta[2] if len(theta) == 3 else 0.0
    return 0.5 * ((xs - theta[0]) * jnp.exp(-theta[1])) ** 2 + theta[1] + 0.5 * math.log(2 * math.pi) + shift


def newton(loss, size: int) -> Array:
    """The minimum of a loss next to the truth."""

    def step(theta, _):
        return theta - jnp.linalg.solve(jax.hessian(loss)(theta), jax.grad(loss)(theta)), None

    return jax.lax.scan(step, jnp.zeros(size), length=6)[0]


def scatter(estimates) -> np.ndarray:
    """N (theta_hat - mean)(theta_hat - mean)' of each estimate."""
    offsets = np.asarray(estimates, np.float64)
    offsets = offsets - offsets.mean(0)
    return ROWS * FITS / (FITS - 1) * offsets[:, :, None] * offsets[:, None, :]


def judged(estimates, covariance):
    """Estimates against the formula: its own Monte Carlo error, and a finite-N term of a few percent of 1/N."""
    bias = 4.5 * covariance.stderr.max() + 8 / ROWS * np.abs(covariance.value).max()
    return scatter(estimates), covariance.value, float(bias)


@pytest.fixture(scope="module")
def truth_draws() -> Array:
    return Normal().samples(32_000, key=jax.random.key(0))


def test_the_fisher_information_of_a_gaussian(truth_draws):
    found = likelihood_covariance(Normal(), truth_draws)
    assert np.all(np.abs(found.value - np.diag([1.0, 0.5])) < 4.5 * found.stderr + 1e-6)
    assert found.stderr.max() < 0.02
    # Negative control: the information in place of its inverse.
    assert np.any(np.abs(found.value - np.diag([1.0, 2.0])) > 4.5 * found.stderr + 1e-6)


@pytest.mark.parametrize("width", [0.5, pytest.param(1.5, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("draws", [1, 4])
def test_cnce_estimates_scatter_as_theorem_1_says(width, draws, truth_draws):
    @jax.jit
    @jax.vmap
    def estimate(key):
        data, noise = jax.random.split(key)
        xs = jax.random.normal(data, (ROWS,))
        ys = xs[:, None] + width * jax.random.normal(noise, (ROWS, draws))
        return newton(lambda theta: jnp.mean(jax.nn.softplus(energy(theta, xs)[:, None] - energy(theta, ys))), 2)

    estimates = estimate(jax.random.split(jax.random.key(1), FITS))
    formula = cnce_covariance(Normal(), Local(width), truth_draws, draws=draws, key=jax.random.key(2))
    assert holds(*judged(estimates, formula))
    # Negative control: K = 4 draws taken for 4 N independent ones, or K = 1 read as K = 4.
    other = cnce_covariance(Normal(), Local(width), truth_draws, draws=5 - draws, key=jax.random.key(2))
    assert breaks(*judged(estimates, other))


def test_oracle_noise_costs_a_factor_two(truth_draws):
    """Corollary 2: exactly 2 times the Cramer-Rao bound at K = 1, and 1 + 1/K in general."""
    bound = np.diag([1.0, 0.5])
    for draws in (1, 4):
        found = cnce_covariance(Normal(), Independent(Normal()), truth_draws, draws=draws, key=jax.random.key(3))
        gap = np.abs(found.value - (1 + 1 / draws) * bound)
        assert np.all(gap < 4.5 * found.stderr + 1e-6)
        assert found.stderr.max() < 0.04
        # Negative control: the bound itself.
        assert np.any(np.abs(found.value - bound) > 4.5 * found.stderr)


@pytest.mark.parametrize("ratio", [1, 4])
def test_nce_estimates_scatter_as_their_formula_says(ratio, truth_draws):
    noise = standard_gaussian(1, 1.5)

    @jax.jit
    @jax.vmap
    def estimate(key):
        data, fake = jax.random.split(key)
        xs = jax.random.normal(data, (ROWS,))
        ys = 1.5 * jax.random.normal(fake, (ROWS * ratio,))

        def log_odds(theta, points):
            log_q = -0.5 * (points / 1.5) ** 2 - math.log(1.5) - 0.5 * math.log(2 * math.pi)
            return -energy(theta, points) - log_q - math.log(ratio)

        return newton(
            lambda theta: (
                jnp.mean(jax.nn.softplus(-log_odds(theta, xs))) + ratio * jnp.mean(jax.nn.softplus(log_odds(theta, ys)))
            ),
            3,
        )

    estimates = estimate(jax.random.split(jax.random.key(4), FITS))
    formula = nce_covariance(Shifted(Normal()), noise, truth_draws, ratio=float(ratio))
    assert holds(*judged(estimates, formula))
    # Negative control: the ratio taken the other way round.
    other = nce_covariance(Shifted(Normal()), noise, truth_draws, ratio=4.0 / ratio)
    assert breaks(*judged(estimates, other))


def test_nce_tends_to_the_bound_with_more_noise(truth_draws):
    noise = standard_gaussian(1, 1.5)
    found = nce_covariance(Shifted(Normal()), noise, truth_draws, ratio=1000.0)
    bound = likelihood_covariance(Normal(), truth_draws)
    assert np.all(np.abs(found.value[:2, :2] - bound.value) < 0.02)
    few = nce_covariance(Shifted(Normal()), noise, truth_draws, ratio=1.0)
    assert np.all(np.diag(few.value)[:2] > 1.2 * np.diag(bound.value))


def test_bad_requests_are_refused(truth_draws):
    for make in (
        lambda: likelihood_covariance(Normal(), truth_draws[:10]),
        lambda: cnce_covariance(Normal(), Local(1.0), truth_draws, draws=0, key=jax.random.key(0)),
        lambda: cnce_covariance(Normal(), Local(1.0), truth_draws, inner=1, key=jax.random.key(0)),
        lambda: nce_covariance(Normal(), standard_gaussian(1), truth_draws, ratio=0.0),
    ):
        with pytest.raises(InputError):
            make()


def test_a_parameter_that_the_data_do_not_tell_is_named_not_inverted(truth_draws):
    """A constant is seen by NCE alone; an entry that plays no part is seen by nobody."""
    key = jax.random.key(0)
    for make in (
        lambda: likelihood_covariance(Shifted(Normal()), truth_draws),
        lambda: cnce_covariance(Shifted(Normal()), Local(1.0), truth_draws, key=key),
        lambda: nce_covariance(standard_gaussian(2), standard_gaussian(2, 1.5), jnp.zeros((64, 2))),
    ):
        with pytest.raises(InputError, match="do not determine every parameter"):
            make()
    with pytest.raises(InputError, match="not finite"):
        likelihood_covariance(Normal(), jnp.full((64, 1), jnp.nan))
    with pytest.raises(InputError, match="a kernel of noises"):
        cnce_covariance(Normal(), standard_gaussian(1), truth_draws, key=key)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="a normalised density"):
        nce_covariance(Shifted(Normal()), Local(1.0), truth_draws)  # pyright: ignore[reportArgumentType]
