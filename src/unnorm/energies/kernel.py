"""Deep kernel exponential families: a log-density that is linear in its last layer of weights.

log p~(x) = sum_l alpha_l k_w(x, z_l) + log q0(x), with a kernel on learnt features. Score matching losses are quadratic
in alpha, so that alpha has a closed form given everything else: see `objectives.KernelFamily`, which learns the rest,
and `objectives.finalise`, which puts the final alpha in. Wenliang, Sutherland, Strathmann and Gretton 2019; Song 2022,
section 3.6.1.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Scalar
from unnorm.errors import require
from unnorm.spaces import Real

#: The lengths the three kernels of a mixture start from.
LENGTHS = (1.0, 3.3, 10.0)

Basis = Callable[[Float[Array, " d"]], Float[Array, " l"]]


class SkipFeatures(eqx.Module):
    """phi(x) = W3 f(W2 f(W1 x + b1) + b2) + b3 + S x with f softplus: features with a short cut from the input.

    Weights and biases start as N(0, 1/width).

    >>> SkipFeatures(2, 30, key=jax.random.key(0))(jnp.zeros(2)).shape
    (30,)
    """

    weights: tuple[Float[Array, "outputs inputs"], ...]
    biases: tuple[Float[Array, " outputs"], ...]
    skip: Float[Array, "width inputs"]

    def __init__(self, inputs: int, width: int = 30, *, key: PRNGKeyArray):
        require(width >= 1, f"features need a positive width, not {width}")
        shapes = [(width, inputs), (width, width), (width, width), (width,), (width,), (width,), (width, inputs)]
        keys = jax.random.split(key, len(shapes))
        arrays = [jax.random.normal(k, shape) / width**0.5 for k, shape in zip(keys, shapes, strict=True)]
        self.weights, self.biases, self.skip = tuple(arrays[:3]), tuple(arrays[3:6]), arrays[6]

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " width"]:
        h = x
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            h = jax.nn.softplus(weight @ h + bias)
        return self.weights[-1] @ h + self.biases[-1] + self.skip @ x


class DKEF(AbstractEnergy):
    """E(x) = |x|^2 / (2 b^2) - sum_l alpha_l k(x, z_l), a deep kernel exponential family.

    k(x, y) = sum_r rho_r exp(-|phi_r(x) - phi_r(y)|^2 / (2 s_r^2)).

    Three kernels with feature networks of their own, mixture weights rho (a softmax) and lengths s_r; `anchors` z_l are
    learnt too and start at rows of the data. The base N(0, b^2 I) makes it normalisable, since the kernels are bounded.
    `log_ridge` is the ridge on alpha in the closed form. alpha is 0 until `objectives.finalise` sets it.

    >>> rows = jax.random.normal(jax.random.key(0), (50, 2))
    >>> float(DKEF(rows, anchors=10, key=jax.random.key(1))(jnp.array([2.0, 0.0])))
    0.5
    """

    features: SkipFeatures
    log_lengths: Float[Array, " kernels"]
    logits: Float[Array, " kernels"]
    anchors: Float[Array, "l d"]
    alpha: Float[Array, " l"]
    log_ridge: Scalar
    base_scale: float = eqx.field(static=True)
    space: Real = eqx.field(static=True)

    def __init__(
        self,
        data: Float[Array, "n d"],
        *,
        anchors: int = 200,
        width: int = 30,
        lengths: tuple[float, ...] = LENGTHS,
        base_scale: float = 2.0,
        ridge: float = 0.01,
        key: PRNGKeyArray,
    ):
        """`anchors` rows of `data`, drawn at random, are the first inducing points."""
        data = jnp.asarray(data, float)
        require(data.ndim == 2, f"a DKEF is built on rows of numbers, not on an array of shape {data.shape}")
        require(1 <= anchors <= len(data), f"{anchors} anchors cannot be drawn from {len(data)} rows")
        require(base_scale > 0 and ridge > 0, "the scale of the base and the ridge must be positive")
        require(len(lengths) >= 1 and min(lengths) > 0, "a DKEF needs at least one length, and positive ones")
        where, weights = jax.random.split(key)
        self.features = jax.vmap(lambda k: SkipFeatures(data.shape[1], width, key=k))(
            jax.random.split(weights, len(lengths))
        )
        self.log_lengths = jnp.log(jnp.asarray(lengths, float))
        self.logits = jnp.zeros(len(lengths))
        self.anchors = data[jax.random.permutation(where, len(data))[:anchors]]
        self.alpha = jnp.zeros(anchors)
        self.log_ridge = jnp.log(jnp.asarray(ridge, float))
        self.base_scale = float(base_scale)
        self.space = Real((data.shape[1],))

    def anchor_features(self) -> Float[Array, "kernels l width"]:
        """phi_r(z_l) of every kernel and anchor."""
        return jax.vmap(lambda phi: jax.vmap(phi)(self.anchors))(self.features)

    def basis(self) -> Basis:
        """x -> (k(x, z_1), ..., k(x, z_L)); what depends on the anchors alone is computed once."""
        there = self.anchor_features()
        scale = 0.5 * jnp.exp(-2 * self.log_lengths)
        shares = jax.nn.softmax(self.logits)
        squares = jnp.sum(there**2, axis=-1)

        def kernels(x: Float[Array, " d"]) -> Float[Array, " l"]:
            here = jax.vmap(lambda phi: phi(x))(self.features)
            # A product of matrices instead of L differences: this is differentiated twice in every direction.
            inner = jnp.einsum("rlf,rf->rl", there, here)
            distances = squares + jnp.sum(here**2, axis=-1)[:, None] - 2 * inner
            return shares @ jnp.exp(-scale[:, None] * distances)

        return kernels

    def base_log_density(self, x: Float[Array, " d"]) -> Scalar:
        """log q0(x) = -|x|^2 / (2 b^2), without its constant."""
        return -0.5 * jnp.sum(x**2) / self.base_scale**2

    def __call__(self, x: Float[Array, " d"]) -> Scalar:
        return -self.alpha @ self.basis()(x) - self.base_log_density(x)
