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


def test_several_inputs_are_one_laid_end_to_end():
    """In value and gradient; in another order they are not. What a batch has in common is multiplied once."""
    layer = eqx.nn.Linear(7, 3, key=jax.random.key(0))
    common, own = jax.random.normal(jax.random.key(1), (2,)), jax.random.normal(jax.random.key(2), (4, 5))

    def several(layer, order):
        return jax.vmap(lambda x: affine(layer, *order(common, x)))(own)

    def joined(layer):
        return jax.vmap(lambda x: layer(jnp.concatenate([common, x])))(own)

    def slope(f):
        return eqx.filter_grad(lambda layer: jnp.sum(jnp.sin(f(layer))))(layer).weight

    def right(layer):
        return several(layer, lambda a, b: (a, b))

    def swapped(layer):
        return several(layer, lambda a, b: (b, a))

    np.testing.assert_allclose(right(layer), joined(layer), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slope(right), slope(joined), rtol=1e-5, atol=1e-6)
    assert np.abs(swapped(layer) - joined(layer)).max() > 0.1
    products = [
        equation.outvars[0].aval.size
        for equation in jax.make_jaxpr(right)(layer).jaxpr.eqns
        if "dot_general" in str(equation)
    ]
    assert sorted(products) == [3, 12]
