"""The affine map with its barrier is the affine map: every derivative, in every mode, agrees with the plain product."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm.networks.linear import affine, product


def scalar(multiply, weight, x):
    """A curved function of W x, so that derivatives of every order are there to be compared."""
    return jnp.sum(jnp.tanh(multiply(weight, jnp.sin(multiply(weight, x)))))


DERIVATIVES = {
    "value": lambda f: f,
    "gradient in the weight": lambda f: jax.grad(f, 0),
    "gradient in the point": lambda f: jax.grad(f, 1),
    "Hessian in the point": lambda f: jax.hessian(f, 1),
    "Hessian in the weight": lambda f: jax.hessian(f, 0),
    "double backpropagation": lambda f: jax.grad(lambda w, x: jnp.sum(jax.grad(f, 1)(w, x) ** 2), 0),
    "third derivative": lambda f: jax.jacfwd(jax.hessian(f, 1), 1),
    "weight gradient of a Hessian product": lambda f: jax.grad(
        lambda w, x: jnp.sum(jax.jvp(lambda u: jax.grad(f, 1)(w, u), (x,), (jnp.cos(x),))[1]), 0
    ),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_those_of_the_plain_product(name):
    derivative = DERIVATIVES[name]
    weights = jax.random.normal(jax.random.key(0), (3, 4, 4))
    xs = jax.random.normal(jax.random.key(1), (3, 4))
    ours = jax.jit(jax.vmap(derivative(lambda w, x: scalar(product, w, x))))(weights, xs)
    plain = jax.jit(jax.vmap(derivative(lambda w, x: scalar(jnp.matmul, w, x))))(weights, xs)
    np.testing.assert_allclose(ours, plain, rtol=2e-4, atol=2e-4)


def test_a_layer_is_what_equinox_computes():
    for bias in (True, False):
        layer = eqx.nn.Linear(3, 2, use_bias=bias, key=jax.random.key(0))
        x = jnp.array([0.3, -1.0, 2.0])
        np.testing.assert_allclose(affine(layer, x), layer(x), rtol=1e-6)
