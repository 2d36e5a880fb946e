"""The affine map of a layer, with a weight gradient that the processor likes."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float


@jax.custom_jvp
def product(weight: Float[Array, "outputs inputs"], x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
    """weight @ x, differentiable to any order in both arguments.

    >>> jax.grad(lambda w: product(w, jnp.array([1.0, 2.0]))[0])(jnp.ones((1, 2))).tolist()
    [[1.0, 2.0]]
    """
    return weight @ x


@partial(product.defjvp, symbolic_zeros=True)
def _product_jvp(primals, tangents):
    """d(W x) = W dx + dW x, the ordinary rule but for the barrier.

    Over a batch the gradient of W is a product of two arrays that both run along the batch first, which XLA's fast
    kernels for processors do not take. Behind the barrier the first of them is transposed before the product, and not
    within it: a training step becomes a fifth faster. The barrier computes nothing, and only gradients of W pass it.
    """
    (weight, x), (weight_dot, x_dot) = primals, tangents
    terms = []
    if not isinstance(x_dot, SymbolicZero):
        terms.append(product(weight, x_dot))
    if not isinstance(weight_dot, SymbolicZero):
        terms.append(jax.lax.optimization_barrier(weight_dot @ x))
    return product(weight, x), sum(terms[1:], terms[0])


def affine(layer: eqx.nn.Linear, *inputs: Float[Array, " _"]) -> Float[Array, " outputs"]:
    """What the layer computes: W x + b (b may be missing), of several inputs as if laid end to end.

    Each is multiplied by its own columns of W, so that one which a batch has in common is multiplied once.

    >>> affine(eqx.nn.Linear(3, 2, key=jax.random.key(0)), jnp.zeros(3)).shape
    (2,)
    """
    ends = np.cumsum([x.size for x in inputs])[:-1]
    columns = jnp.split(layer.weight, ends, axis=1) if len(inputs) > 1 else [layer.weight]
    first, *others = (product(weight, x) for weight, x in zip(columns, inputs, strict=True))
    y = sum(others, first)
    return y if layer.bias is None else y + layer.bias
