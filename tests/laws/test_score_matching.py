"""Laws of score matching: its many forms have one minimum, and their gradients one mean.

For the model N(mean, scale^2 I) everything is in closed form: the loss on data N(m0, s0^2 I) is
J = -d r + r^2 (d s0^2 + |mean - m0|^2) / 2 with r = scale^-2. The diffusion form is judged on densities whose edge
plain score matching gets wrong.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from unnorm.energies import AbstractEnergy, FunctionEnergy, MLPEnergy
from unnorm.errors import InputError
from unnorm.noises import AbstractGaussianNoise
from unnorm.noises import Gaussian as Noise
from unnorm.objectives import (
    DSM,
    DSMVR,
    FDSSM,
    SM,
    SSM,
    SSMVR,
    DiffusionSM,
    GaussianSlices,
    SphereSlices,
)
from unnorm.objectives.score_matching import score_field, value_and_divergence
from unnorm.scores import AbstractPlainScore, FunctionScore
from unnorm.spaces import Real

MEAN, SCALE, D = jnp.array([1.0, -0.5, 0.3]), 0.8, 3


class Isotropic(AbstractEnergy):
    """N(mean, scale^2 I) without its constant."""

    mean: Float[Array, " d"]
    log_scale: Float[Array, ""]
    space: Real = eqx.field(static=True, default=Real((D,)))

    def __call__(self, x):
        return 0.5 * jnp.sum((x - self.mean) ** 2) * jnp.exp(-2 * self.log_scale)


class IsotropicScore(AbstractPlainScore):
    """The same as a score of its own."""

    mean: Float[Array, " d"]
    log_scale: Float[Array, ""]

    def __call__(self, t, x, condition=None):
        return (self.mean - x) * jnp.exp(-2 * self.log_scale)


def start(kind=Isotropic):
    return kind(MEAN + 0.1, jnp.asarray(math.log(SCALE) + 0.1))


# ------------------------------------------------------------------------------------------------- wrong variants


def without_the_half(model, state, batch, *, key):
    scores, traces = jax.vmap(lambda x: value_and_divergence(score_field(model), x))(batch)
    return jnp.mean(traces) + jnp.mean(jnp.sum(scores**2, 1)), (None, {})


def trace_over_dimension(model, state, batch, *, key):
    scores, traces = jax.vmap(lambda x: value_and_divergence(score_field(model), x))(batch)
    return jnp.mean(traces) / D + 0.5 * jnp.mean(jnp.sum(scores**2, 1)), (None, {})


def exact_square_of_unit_slices(model, state, batch, *, key):
    """The variance reduction with slices it must not be used with."""
    unit = SSM(SphereSlices(radius=1.0))
    scores = jax.vmap(score_field(model))(batch)
    _, (_, info) = unit(model, state, batch, key=key)
    return info["trace"] + 0.5 * jnp.mean(jnp.sum(scores**2, 1)), (None, {})


class PrintedDSMVR(eqx.Module):
    """Eq. B.2 as printed: twice the control variate."""

    noise: AbstractGaussianNoise

    def __call__(self, model, state, batch, *, key):
        plain, _ = DSM(self.noise)(model, state, batch, key=key)
        reduced, _ = DSMVR(self.noise)(model, state, batch, key=key)
        return 2 * (2 * self.noise.scale**2 / D * reduced) - plain, (None, {})


# ------------------------------------------------------------------------------------------------- minima


@eqx.filter_jit
def newton(objective, model, data, keys, steps=8):
    """The minimum on each data set, flattened."""
    theta, unravel = ravel_pytree(eqx.filter(model, eqx.is_inexact_array))
    static = eqx.filter(model, eqx.is_inexact_array, inverse=True)

    def one(points, key):
        def loss(theta):
            return objective(eqx.combine(unravel(theta), static), None, points, key=key)[0]

        def step(theta, _):
            return theta - jnp.linalg.solve(jax.hessian(loss)(theta), jax.grad(loss)(theta)), None

        return jax.lax.scan(step, theta, None, length=steps)[0]

    return jax.vmap(one)(data, keys)


def fitted(objective, kind=Isotropic, repeats=32, n=500) -> np.ndarray:
    data = MEAN + SCALE * jax.random.normal(jax.random.key(0), (repeats, n, D))
    found = np.asarray(newton(objective, start(kind), data, jax.random.split(jax.random.key(1), repeats)), np.float64)
    return np.concatenate([found[:, :D], np.exp(2 * found[:, D:])], axis=1)


def truth(variance: float = SCALE**2) -> np.ndarray:
    return np.append(MEAN, variance)


def slanted(x):
    """A positive-definite b that is no multiple of the identity and changes with x."""
    return jnp.diag(1 + 0.5 * jax.nn.sigmoid(x)) + 0.2 * jnp.ones((D, D))


THOROUGH = pytest.mark.thorough
CASES = [
    pytest.param(SM(), Isotropic, id="sm", marks=THOROUGH),
    pytest.param(SM(chunk=2), IsotropicScore, id="sm chunked, a score", marks=THOROUGH),
    pytest.param(SSM(), Isotropic, id="ssm", marks=THOROUGH),
    pytest.param(SSM(GaussianSlices(), draws=3), IsotropicScore, id="ssm gaussian, a score", marks=THOROUGH),
    pytest.param(SSM(SphereSlices(radius=1.0)), Isotropic, id="ssm unit sphere", marks=THOROUGH),
    pytest.param(SSMVR(GaussianSlices()), Isotropic, id="ssm-vr gaussian", marks=THOROUGH),
    pytest.param(SSMVR(SphereSlices(), draws=2), IsotropicScore, id="ssm-vr sphere", marks=THOROUGH),
    pytest.param(FDSSM(0.3, SphereSlices(), draws=2), Isotropic, id="finite difference"),
    pytest.param(DiffusionSM(lambda x: 1 + 0.5 * jnp.tanh(x)), Isotropic, id="diffusion diagonal", marks=THOROUGH),
    pytest.param(DiffusionSM(slanted), IsotropicScore, id="diffusion matrix", marks=THOROUGH),
]


@pytest.mark.parametrize(("objective", "kind"), CASES)
def test_the_minimum_is_the_gaussian(objective, kind):
    found = fitted(objective, kind)
    assert holds(found, truth())
    # The law can see: the variance is known to better than 10 %.
    assert breaks(found, truth(1.1 * SCALE**2))


def test_exact_score_matching_has_the_closed_form():
    """The sample mean, and the mean square about it per coordinate."""
    data = np.asarray(MEAN + SCALE * jax.random.normal(jax.random.key(0), (32, 500, D)), np.float64)
    means = data.mean(1)
    expected = np.column_stack([means, ((data - means[:, None]) ** 2).mean((1, 2))])
    np.testing.assert_allclose(fitted(SM()), expected, rtol=2e-5, atol=2e-5)


@THOROUGH
@pytest.mark.parametrize(
    ("wrong", "variance"), [(without_the_half, 2 * SCALE**2), (trace_over_dimension, D * SCALE**2)]
)
def test_wrong_forms_have_another_minimum(wrong, variance):
    """Negative controls, each with the minimum it must have."""
    found = fitted(wrong)
    assert breaks(found, truth())
    assert holds(found, truth(variance))


def test_variance_reduction_needs_white_slices():
    with pytest.raises(InputError, match="E\\[v v'\\] = I"):
        SSMVR(SphereSlices(radius=1.0))


@THOROUGH
def test_denoising_recovers_the_noisy_gaussian():
    found = fitted(DSMVR(Noise(0.4)))
    assert holds(found, truth(SCALE**2 + 0.16))
    assert breaks(found, truth())


# ------------------------------------------------------------------------------------------------- gradients


@eqx.filter_jit
def _gradients(objective, model, batches, keys):
    def one(batch, key):
        return ravel_pytree(eqx.filter_grad(lambda m: objective(m, None, batch, key=key)[0])(model))[0]

    return jax.vmap(one)(batches, keys)


def gradients(objective, model, batches) -> np.ndarray:
    keys = jax.random.split(jax.random.key(3), len(batches))
    return np.asarray(_gradients(objective, model, batches, keys), np.float64)


def gaussian_batches(count: int = 1000, n: int = 16):
    return MEAN + SCALE * jax.random.normal(jax.random.key(2), (count, n, D))


def closed_gradient(noise: float = 0.0) -> np.ndarray:
    """grad J of `start()` on data N(MEAN, SCALE^2 + noise^2)."""
    offset, log_scale = np.full(D, 0.1), math.log(SCALE) + 0.1
    r = math.exp(-2 * log_scale)
    spread = D * (SCALE**2 + noise**2) + offset @ offset
    return np.append(r**2 * offset, 2 * r * D - 2 * r**2 * spread)


@pytest.mark.parametrize(
    ("objective", "factor"),
    [
        pytest.param(SM(), 1.0, id="sm"),
        pytest.param(SSM(), 1.0, id="ssm", marks=THOROUGH),
        pytest.param(SSM(GaussianSlices(), draws=2), 1.0, id="ssm gaussian"),
        pytest.param(SSM(SphereSlices(radius=1.0)), 1 / D, id="ssm unit sphere", marks=THOROUGH),
        pytest.param(SSMVR(), 1.0, id="ssm-vr"),
        pytest.param(SSMVR(SphereSlices()), 1.0, id="ssm-vr sphere", marks=THOROUGH),
        pytest.param(FDSSM(0.2), 1.0, id="finite difference"),
        pytest.param(DiffusionSM(lambda x: 2 * jnp.eye(D)), 4.0, id="diffusion"),
    ],
)
def test_the_mean_gradient_is_that_of_exact_score_matching(objective, factor):
    assert holds(gradients(objective, start(), gaussian_batches()), factor * closed_gradient())


def test_wrong_forms_have_another_gradient():
    for wrong in (without_the_half, trace_over_dimension, exact_square_of_unit_slices):
        assert breaks(gradients(wrong, start(), gaussian_batches()), closed_gradient())


@eqx.filter_jit
def losses(objective, model, batch, keys):
    return jax.vmap(lambda k: objective(model, None, batch, key=k)[0])(keys)


@pytest.fixture(scope="module")
def network():
    return MLPEnergy(Real((5,)), width=12, depth=1, key=jax.random.key(4))


@pytest.fixture(scope="module")
def points():
    return 1.5 * jax.random.normal(jax.random.key(5), (8, 5))


def test_sliced_losses_average_to_the_exact_one_on_a_network(network, points):
    """On a fixed batch, over slices; the exact trace is that of the whole Hessian, whatever the chunk."""

    @eqx.filter_jit
    def reference(model):
        return jax.vmap(jax.grad(model))(points), jax.vmap(jax.hessian(model))(points)

    scores, hessians = (np.asarray(part, np.float64) for part in reference(network))
    expected = np.mean(0.5 * np.sum(scores**2, 1) - np.trace(hessians, 0, 1, 2))
    keys = jax.random.split(jax.random.key(6), 2000)
    np.testing.assert_allclose(losses(SM(chunk=2), network, points, keys[:1]), expected, rtol=1e-5)
    for objective in (SSM(GaussianSlices(), draws=2), SSMVR()):
        found = losses(objective, network, points, keys)
        assert holds(found, expected)
        # The trace without its last coordinate is not within reach of the error.
        assert breaks(found, expected + np.mean(hessians[:, -1, -1]))


@THOROUGH
def test_the_gradient_through_chunks_is_the_same(network, points):
    whole, chunked = (gradients(SM(chunk), network, points[None]) for chunk in (5, 2))
    np.testing.assert_allclose(chunked, whole, rtol=1e-4, atol=1e-6)


def test_a_score_need_not_be_a_gradient():
    """A linear score of a skew matrix: the trace is the matrix's, and points may have any shape."""
    matrix = jax.random.normal(jax.random.key(7), (6, 6))
    score = FunctionScore(lambda t, x: (matrix @ x.reshape(-1)).reshape(x.shape))
    batch = jax.random.normal(jax.random.key(8), (4, 2, 3))
    expected = np.trace(matrix) + 0.5 * np.mean(
        np.sum((np.asarray(batch).reshape(4, 6) @ np.asarray(matrix).T) ** 2, 1)
    )
    np.testing.assert_allclose(SM(chunk=4)(score, None, batch, key=jax.random.key(0))[0], expected, rtol=1e-5)
    with pytest.raises(InputError, match="differences of an energy"):
        FDSSM().init(score, batch, key=jax.random.key(0))


# ------------------------------------------------------------------------------------------------- small noise


def test_variance_reduced_denoising_has_the_mean_gradient_of_denoising():
    sigma = 0.4
    expected = closed_gradient(sigma)
    batches = gaussian_batches()
    for objective in (DSM(Noise(sigma)), PrintedDSMVR(Noise(sigma))):
        assert holds(gradients(objective, start(), batches), expected * 2 * sigma**2 / D)
    assert holds(gradients(DSMVR(Noise(sigma)), start(), batches), expected)
    assert breaks(gradients(DSMVR(Noise(sigma)), start(), batches), closed_gradient())


def test_the_spread_of_its_gradient_is_flat_in_the_noise():
    batches = gaussian_batches()

    def spread(make, sigma):
        """Standard deviation of the gradient of the loss."""
        return gradients(make(Noise(sigma)), start(), batches).std(0).max()

    reduced = [spread(DSMVR, sigma) for sigma in (0.1, 0.01, 0.001, 0.0001)]
    assert max(reduced) < 1.3 * min(reduced)
    # Negative controls: plain denoising, and the control variate as printed, over sigma^2 grow as 1 / sigma.
    for make in (DSM, PrintedDSMVR):
        assert 80 < (spread(make, 0.001) / 0.001**2) / (spread(make, 0.1) / 0.1**2) < 120


# ------------------------------------------------------------------------------------------------- edges


class Gamma(AbstractEnergy):
    """f(x) = x^(shape - 1) exp(-rate x) on the half-line."""

    shape: Float[Array, ""]
    rate: Float[Array, ""]
    space: Real = eqx.field(static=True, default=Real((1,)))

    def __call__(self, x):
        return jnp.sum(self.rate * x - (self.shape - 1) * jnp.log(x))


def forgetful(model, state, batch, *, key):
    """Diffusion score matching that takes Sigma out of the divergence."""

    def one(x):
        s, trace = value_and_divergence(score_field(model), x)
        return 0.5 * jnp.sum((x * s) ** 2) + jnp.sum(x**2) * trace

    return jnp.mean(jax.vmap(one)(batch)), (None, {})


def test_diffusion_score_matching_recovers_a_density_with_an_edge():
    """Gamma(1, rate 2) does not vanish at 0, where plain score matching leaves out the boundary term."""
    data = jax.random.gamma(jax.random.key(9), 1.0, (32, 2000, 1)) / 2
    keys = jax.random.split(jax.random.key(10), 32)
    model = Gamma(jnp.asarray(1.5), jnp.asarray(1.5))
    found = np.asarray(newton(DiffusionSM(lambda x: x), model, data, keys, 2))
    assert holds(found, [1.0, 2.0])
    # The loss is quadratic in the natural parameters, so the estimator is a ratio of moments.
    first, second = np.asarray(data).mean((1, 2)), (np.asarray(data) ** 2).mean((1, 2))
    rate = first / (second - first**2)
    np.testing.assert_allclose(found, np.column_stack([rate * first, rate]), rtol=2e-3)
    # Negative controls. With the shape known to be 1, plain score matching learns rate 0.
    flat = FunctionEnergy(Rate(jnp.asarray(1.5)), Real((1,)))
    assert np.allclose(newton(SM(), flat, data, keys, 2), 0.0, atol=1e-5)
    assert breaks(newton(forgetful, model, data, keys, 2), [1.0, 2.0])


class Rate(eqx.Module):
    rate: Float[Array, ""]

    def __call__(self, x):
        return jnp.sum(self.rate * x)


@THOROUGH
def test_diffusion_takes_a_diagonal_or_a_matrix():
    model, batch = start(), gaussian_batches(1)[0]
    diagonal, matrix = DiffusionSM(lambda x: 1 + x**2), DiffusionSM(lambda x: jnp.diag(1 + x**2))
    key = jax.random.split(jax.random.key(0), 1)
    a, b = (losses(o, model, batch, key)[0] for o in (diagonal, matrix))
    np.testing.assert_allclose(a, b, rtol=1e-5)
    # Negative control: another b is another loss.
    c = losses(DiffusionSM(lambda x: 1 + 0.5 * x**2), model, batch, key)[0]
    assert abs(float(a - c)) > 0.01
    with pytest.raises(InputError, match="3 x 3"):
        DiffusionSM(lambda x: jnp.ones(2))(model, None, batch, key=jax.random.key(0))
