"""Slopes and curvatures going forward, against the Hessian that they never form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm import energies
from unnorm.networks import Wells
from unnorm.scores import slopes_and_curvature
from unnorm.spaces import Real

D = 5
ROWS = jax.random.normal(jax.random.key(0), (40, D))
SPACE = Real((D,))


def looping(x):
    """A loop, a branch, an index and a comparison: what a user's energy may hold."""
    y = jax.lax.fori_loop(0, 3, lambda i, h: jnp.sin(h) + 0.1 * h[::-1] * h[i], x)
    y = jax.lax.cond(x[0] > 0, lambda h: jnp.exp(0.3 * h), lambda h: h**3, y)
    z = jnp.where(y > 0.2, y**2, jnp.tanh(y))
    return jnp.sum(z * z[jnp.argmax(jax.lax.stop_gradient(y))]) + jnp.linalg.norm(jnp.sort(x)[:2] + 2.0)


FUNCTIONS = {
    "mlp": energies.MLPEnergy(SPACE, width=16, depth=3, key=jax.random.key(1)),
    "resnet": energies.ResNetEnergy(SPACE, width=16, blocks=2, key=jax.random.key(2)),
    "wells": energies.NeuralEnergy(SPACE, Wells(ROWS, units=8, radius=1.0, key=jax.random.key(3)), confinement=0.1),
    "mixture": energies.gaussian_mixture([0.3, 0.7], np.eye(2, D).tolist(), 0.7),
    "kernels": energies.KDE(ROWS, 0.6, block=16),
    "tilted": energies.tilt(energies.KDE(ROWS, 0.6), width=8, depth=2, key=jax.random.key(4)),
    "user": looping,
}


def against_hessian(function, x, vs):
    """Both numbers from the Hessian, in double precision where it matters little which."""
    gradient, hessian = jax.grad(function)(x), jax.hessian(function)(x)
    return vs @ gradient, jnp.einsum("ki,ij,kj->", vs, hessian, vs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_curvature_is_that_of_the_hessian(name):
    function = FUNCTIONS[name]
    vs = jax.random.normal(jax.random.key(5), (3, D))
    points = jax.random.normal(jax.random.key(6), (6, D))
    with jax.enable_x64(True):
        function = jax.tree.map(lambda a: a.astype(jnp.float64) if eqx.is_inexact_array(a) else a, function)
        vs, points = vs.astype(jnp.float64), points.astype(jnp.float64)
        found = jax.jit(jax.vmap(lambda x: slopes_and_curvature(function, x, vs)))(points)
        expected = jax.jit(jax.vmap(lambda x: against_hessian(function, x, vs)))(points)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_its_weights_have_the_right_gradient():
    """Score matching differentiates the curvature once more, in the weights."""
    with jax.enable_x64(True):
        model = jax.tree.map(
            lambda a: a.astype(jnp.float64) if eqx.is_inexact_array(a) else a,
            FUNCTIONS["resnet"],
        )
        weights, rest = eqx.partition(model, eqx.is_inexact_array)
        x = jnp.linspace(-1.0, 1.0, D)

        def trace(weights, how):
            slopes, curved = how(eqx.combine(weights, rest), x, jnp.eye(D))
            return curved + 0.5 * jnp.sum(slopes**2)

        ours = jax.grad(trace)(weights, slopes_and_curvature)
        theirs = jax.grad(trace)(weights, against_hessian)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_directions_summed_too_early_are_rejected():
    """Negative control: slopes may not be added up before they are squared, though their sums are linear too."""
    x, vs = jnp.ones(D) * 0.3, jnp.eye(D)
    together = slopes_and_curvature(looping, x, jnp.sum(vs, 0, keepdims=True))[1]
    expected = against_hessian(looping, x, vs)[1]
    assert abs(float(together - expected)) > 1e-2


def test_a_constant_has_neither_slope_nor_curvature():
    slopes, curved = slopes_and_curvature(lambda x: jnp.zeros(()) + 2.0, jnp.ones(D), jnp.eye(D))
    assert not np.any(slopes)
    assert float(curved) == 0.0
