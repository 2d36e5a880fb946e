"""Traces of the Hessians of all kernels of a DKEF in one backward pass: approximately, or without bias.

The rules are those of `objectives.propagation`, carried through exp, the squared distance and the feature networks.
Backwards, y = f(u) turns a diagonal second derivative h into g f'' + h f'^2 and a random S into f'S + sqrt(g f'') v;
y = W u turns them into (W^2)'h and W'S; branches that meet are added. The short cut of the features is such a branch,
and adding the h of two branches is one more approximation; adding S is not.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from unnorm.energies.kernel import DKEF, SkipFeatures
from unnorm.objectives.base import Scalar

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


class _Carried(NamedTuple):
    """What curvature propagation carries back: the gradient, and S = real + i imaginary."""

    gradient: Float[Array, "*l n"]
    real: Float[Array, "*l n"]
    imaginary: Float[Array, "*l n"]

    def linear(self, matrix: Float[Array, "n m"]) -> "_Carried":
        return _Carried(*(part @ matrix for part in self))

    def bent(self, slope: Array, m: Array, floor: float, key: PRNGKeyArray) -> "_Carried":
        """Through y = f(u): S becomes f'S + sqrt(m) v with m = g f''."""
        v = jax.random.rademacher(key, m.shape, m.dtype)
        up, down = jnp.sqrt(jnp.maximum(m, 0) + floor), jnp.sqrt(jnp.maximum(-m, 0) + floor)
        return _Carried(self.gradient * slope, slope * self.real + up * v, slope * self.imaginary + down * v)


def _to_features(
    weight: Float[Array, "l 1"], outward: Float[Array, "l f"], precision: Array, floor: float, keys: Key[Array, "2"]
) -> _Carried:
    """From the kernels to their features, anchor by anchor: exp has m = weight, the square -weight / s^2 a feature."""
    start = _Carried(weight, jnp.zeros_like(weight), jnp.zeros_like(weight)).bent(jnp.ones(()), weight, floor, keys[0])
    return start.bent(outward, jnp.broadcast_to(-precision * weight, outward.shape), floor, keys[1])


def _to_input(
    phi: SkipFeatures, slopes: list[Array], bends: list[Array], at: _Carried, floor: float, keys: Key[Array, " layers"]
) -> tuple[Array, Array]:
    """S at the input: through the layers of the features, and along their short cut."""
    real_skip, imaginary_skip = at.real @ phi.skip, at.imaginary @ phi.skip
    for matrix, slope, bend, k in zip(phi.weights[:0:-1], slopes[::-1], bends[::-1], keys, strict=True):
        at = at.linear(matrix)
        at = at.bent(slope, at.gradient * bend, floor, k)
    return at.real @ phi.weights[0] + real_skip, at.imaginary @ phi.weights[0] + imaginary_skip


def _weight(here: Array, there: Array, precision: Array, share: Array) -> tuple[Array, Array]:
    """Each anchor's kernel, and the slope of its exponent in the features."""
    squares = jnp.sum((here - there) ** 2, axis=-1)
    return share * jnp.exp(-0.5 * precision * squares)[:, None], -(here - there) * precision


def sampled_traces(model: DKEF, floor: float) -> Curvature:
    """x -> an unbiased draw of tr grad^2 k(x, z_l) for every l by curvature propagation, each kernel on its own.

    `floor` is added under both square roots, real and imaginary, and cancels in the mean.
    """
    there, precision, shares = model.anchor_features(), jnp.exp(-2 * model.log_lengths), jax.nn.softmax(model.logits)

    def one_kernel(phi: SkipFeatures, there: Array, precision: Array, share: Array, x: Array, key: PRNGKeyArray):
        keys = jax.random.split(key, len(phi.weights) + 1)
        slopes, bends, here = _forward(phi, x)
        weight, outward = _weight(here, there, precision, share)
        at = _to_features(weight, outward, precision, floor, keys[:2])
        real, imaginary = _to_input(phi, slopes, bends, at, floor, keys[2:])
        return jnp.sum(real**2 - imaginary**2, axis=-1)

    def traces(x: Array, key: PRNGKeyArray) -> Array:
        kernels = jax.vmap(one_kernel, in_axes=(0, 0, 0, 0, None, 0))
        keys = jax.random.split(key, len(shares))
        return jnp.sum(kernels(model.features, there, precision, shares, x, keys), axis=0)

    return traces


def sampled_trace(model: DKEF, alpha: Float[Array, " l"], floor: float) -> Callable[[Array, PRNGKeyArray], Scalar]:
    """x -> an unbiased draw of tr grad^2 alpha'k(x) by curvature propagation from the one output alpha'k.

    What comes from the anchors is added where it meets, at the features, and that of the kernels at x, before anything
    is squared. Products of different anchors' draws have mean zero and a large variance: this is the method of the
    source, and far noisier than `sampled_traces` weighted with alpha, which squares each kernel's draw on its own.
    """
    there, precision, shares = model.anchor_features(), jnp.exp(-2 * model.log_lengths), jax.nn.softmax(model.logits)

    def one_kernel(phi: SkipFeatures, there: Array, precision: Array, share: Array, x: Array, key: PRNGKeyArray):
        keys = jax.random.split(key, len(phi.weights) + 1)
        slopes, bends, here = _forward(phi, x)
        weight, outward = _weight(here, there, precision, share)
        at = _to_features(alpha[:, None] * weight, outward, precision, floor, keys[:2])
        met = _Carried(*(jnp.sum(part, axis=0) for part in at))
        return _to_input(phi, slopes, bends, met, floor, keys[2:])

    def trace(x: Array, key: PRNGKeyArray) -> Scalar:
        kernels = jax.vmap(one_kernel, in_axes=(0, 0, 0, 0, None, 0))
        real, imaginary = kernels(model.features, there, precision, shares, x, jax.random.split(key, len(shares)))
        return jnp.sum(jnp.sum(real, axis=0) ** 2 - jnp.sum(imaginary, axis=0) ** 2)

    return trace
