"""Traces of the Hessians of all kernels of a DKEF in one backward pass: approximately, or without bias.

The rules are those of `objectives.propagation`, carried through exp, the squared distance and the feature networks.
Backwards, y = f(u) turns a diagonal second derivative h into g f'' + h f'^2 and a random S into f'S + sqrt(g f'') v;
y = W u turns them into (W^2)'h and W'S; branches that meet are added. The short cut of the features is such a branch,
and adding the h of two branches is one more approximation; adding S is not.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.kernel import DKEF, SkipFeatures

Curvature = Callable[[Float[Array, " d"], PRNGKeyArray], Float[Array, " l"]]


def _forward(phi: SkipFeatures, x: Array) -> tuple[list[Array], list[Array], Array]:
    """f' and f'' of the softplus units of each hidden layer at x, and the features."""
    slopes, bends, h = [], [], x
    for weight, bias in zip(phi.weights[:-1], phi.biases[:-1], strict=True):
        u = weight @ h + bias
        slope = jax.nn.sigmoid(u)
        slopes.append(slope)
        bends.append(slope * (1 - slope))
        h = jax.nn.softplus(u)
    return slopes, bends, phi.weights[-1] @ h + phi.biases[-1] + phi.skip @ x


def approximate_traces(model: DKEF) -> Curvature:
    """x -> tr grad^2 k(x, z_l) for every l by approximate backpropagation (biased)."""
    there, precision, shares = model.anchor_features(), jnp.exp(-2 * model.log_lengths), jax.nn.softmax(model.logits)

    def one_kernel(phi: SkipFeatures, there: Array, precision: Array, share: Array, x: Array) -> Array:
        slopes, bends, here = _forward(phi, x)
        outward = -(here - there) * precision  # f' of -(phi - z)^2 / (2 s^2), feature by feature
        weight = share * jnp.exp(-0.5 * precision * jnp.sum((here - there) ** 2, axis=-1))[:, None]
        g, h = weight * outward, weight * (outward**2 - precision)
        total = h @ jnp.sum(phi.skip**2, axis=1)
        for matrix, slope, bend in zip(phi.weights[:0:-1], slopes[::-1], bends[::-1], strict=True):
            g, h = g @ matrix, h @ matrix**2
            g, h = g * slope, g * bend + h * slope**2
        return total + h @ jnp.sum(phi.weights[0] ** 2, axis=1)

    def traces(x: Array, key: PRNGKeyArray) -> Array:
        kernels = jax.vmap(one_kernel, in_axes=(0, 0, 0, 0, None))
        return jnp.sum(kernels(model.features, there, precision, shares, x), axis=0)

    return traces


def sampled_traces(model: DKEF, floor: float) -> Curvature:
    """x -> an unbiased draw of tr grad^2 k(x, z_l) for every l by curvature propagation.

    `floor` is added under both square roots, real and imaginary, and cancels in the mean.
    """
    there, precision, shares = model.anchor_features(), jnp.exp(-2 * model.log_lengths), jax.nn.softmax(model.logits)

    def noisy(m: Array, slope: Array, real: Array, imaginary: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        v = jax.random.rademacher(key, m.shape, m.dtype)
        up, down = jnp.sqrt(jnp.maximum(m, 0) + floor), jnp.sqrt(jnp.maximum(-m, 0) + floor)
        return slope * real + up * v, slope * imaginary + down * v

    def one_kernel(phi: SkipFeatures, there: Array, precision: Array, share: Array, x: Array, key: PRNGKeyArray):
        keys = jax.random.split(key, len(phi.weights) + 1)
        slopes, bends, here = _forward(phi, x)
        outward = -(here - there) * precision
        weight = share * jnp.exp(-0.5 * precision * jnp.sum((here - there) ** 2, axis=-1))[:, None]
        nothing = jnp.zeros_like(weight)
        # exp: g f'' = weight, above zero. Then the squared distance: g f'' = -weight / s^2 for each feature.
        real, imaginary = noisy(weight, nothing, nothing, nothing, keys[0])
        g = weight * outward
        bend_of_square = jnp.broadcast_to(-precision * weight, g.shape)
        real, imaginary = noisy(bend_of_square, outward, real, imaginary, keys[1])
        real_skip, imaginary_skip = real @ phi.skip, imaginary @ phi.skip
        layers = zip(phi.weights[:0:-1], slopes[::-1], bends[::-1], keys[2:], strict=True)
        for matrix, slope, bend, k in layers:
            g, real, imaginary = g @ matrix, real @ matrix, imaginary @ matrix
            real, imaginary = noisy(g * bend, slope, real, imaginary, k)
            g = g * slope
        real, imaginary = real @ phi.weights[0] + real_skip, imaginary @ phi.weights[0] + imaginary_skip
        return jnp.sum(real**2 - imaginary**2, axis=-1)

    def traces(x: Array, key: PRNGKeyArray) -> Array:
        kernels = jax.vmap(one_kernel, in_axes=(0, 0, 0, 0, None, 0))
        keys = jax.random.split(key, len(shares))
        return jnp.sum(kernels(model.features, there, precision, shares, x, keys), axis=0)

    return traces
