"""Boltzmann machines with hidden units: one layer of them (restricted), or several (deep)."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count, require_positive
from unnorm.energies.base import AbstractEnergy, Point, Scalar
from unnorm.energies.factorised import AbstractFactorised, AbstractHidden
from unnorm.errors import InputError, require
from unnorm.spaces import AbstractArray, AbstractSpace, Binary, Real


def _coins(log_odds: Float[Array, "..."], key: PRNGKeyArray) -> Float[Array, "..."]:
    return jax.random.bernoulli(key, jax.nn.sigmoid(log_odds)).astype(log_odds.dtype)


def _require_shapes(weights: Array, visible: Array, hidden: Array, size: int) -> None:
    require(
        weights.ndim == 2 and weights.shape[0] == size and visible.shape == (size,),
        f"{size} visible units have a bias each and a row of weights each, not biases of shape {visible.shape} and "
        f"weights of shape {weights.shape}",
    )
    require(
        hidden.shape == weights.shape[1:],
        f"{weights.shape[1]} hidden units have a bias each, not biases of shape {hidden.shape}",
    )


class RBM(AbstractHidden):
    """p(x, z) ∝ exp(x'Wz + b'x + c'z), zeros and ones both; E(x) = -b'x - sum_j softplus(c_j + x'W_j) (seed 003).

    The restricted Boltzmann machine: visible units x are points, flattened, and hidden units z are summed over
    (Smolensky 1986; Hinton 2002). Gibbs sampling draws z_j ~ sigmoid(c_j + x'W_j), then x_i ~ sigmoid(b_i + W_i z).

    >>> model = RBM(Binary((2,)), jnp.zeros((2, 3)), jnp.zeros(2), jnp.zeros(3))
    >>> round(float(model(jnp.ones(2))), 4)
    -2.0794
    """

    weights: Float[Array, "visible hidden"]
    visible: Float[Array, " visible"]
    hidden: Float[Array, " hidden"]
    space: AbstractArray = eqx.field(static=True)

    def __init__(self, space: AbstractSpace, weights: Any, visible: Any, hidden: Any):
        if not isinstance(space, Binary):
            raise InputError(f"an RBM has zeros and ones as points, and {space} has others; see GaussianRBM")
        self.space = space
        self.weights, self.visible, self.hidden = (jnp.asarray(part, float) for part in (weights, visible, hidden))
        _require_shapes(self.weights, self.visible, self.hidden, space.size)

    def _input(self, x: Point) -> Float[Array, " hidden"]:
        return self.hidden + x.reshape(-1).astype(float) @ self.weights

    def __call__(self, x: Point) -> Scalar:
        return -(x.reshape(-1) @ self.visible + jnp.sum(jax.nn.softplus(self._input(x))))

    def alternate(self, x: Point, *, key: PRNGKeyArray) -> Point:
        up, down = jax.random.split(key)
        z = _coins(self._input(x), up)
        return _coins(self.visible + self.weights @ z, down).astype(x.dtype).reshape(x.shape)

    def turned(self) -> "RBM":
        """The hidden units as visible ones: an RBM with the same Z."""
        return RBM(Binary(self.hidden.shape), self.weights.T, self.hidden, self.visible)

    def joint(self) -> "DeepBoltzmann":
        """Visible and hidden units together, in this order."""
        return DeepBoltzmann((self.weights,), (self.visible, self.hidden))

    def equivalents(self) -> tuple[AbstractEnergy, ...]:
        return self.turned(), self.joint()


def rbm(space: AbstractSpace, hidden: int, *, scale: float = 0.01, key: PRNGKeyArray) -> RBM:
    """A restricted Boltzmann machine with random weights N(0, scale^2) and no biases, to be learnt.

    >>> rbm(Binary((4,)), 3, key=jax.random.key(0)).weights.shape
    (4, 3)
    """
    require_count(hidden, 1, "hidden units")
    require_positive(scale, "the scale of the weights")
    weights = scale * jax.random.normal(key, (space.size, hidden))
    return RBM(space, weights, jnp.zeros(space.size), jnp.zeros(hidden))


class GaussianRBM(AbstractHidden):
    """p(x, z) ∝ exp(-sum_i (x_i - b_i)^2 / (2 s_i^2) + sum_ij x_i W_ij z_j / s_i^2 + c'z), x real, z zeros and ones.

    x | z ~ N(b + W z, diag s^2), z_j | x ~ sigmoid(c_j + sum_i x_i W_ij / s_i^2) (Hinton and Salakhutdinov 2006; Cho,
    Ilin and Raiko 2011): a mixture of 2^hidden Gaussians with one covariance. `log_scale` holds log s.

    >>> model = GaussianRBM(Real((1,)), jnp.zeros((1, 1)), jnp.zeros(1), jnp.zeros(1), jnp.zeros(1))
    >>> round(float(model(jnp.ones(1))), 4)
    -0.1931
    """

    weights: Float[Array, "visible hidden"]
    visible: Float[Array, " visible"]
    hidden: Float[Array, " hidden"]
    log_scale: Float[Array, " visible"]
    space: AbstractArray = eqx.field(static=True)

    def __init__(self, space: AbstractSpace, weights: Any, visible: Any, hidden: Any, log_scale: Any):
        if not isinstance(space, Real):
            raise InputError(f"a Gaussian RBM has real numbers as points, and {space} has others; see RBM")
        self.space = space
        parts = (jnp.asarray(part, float) for part in (weights, visible, hidden, log_scale))
        self.weights, self.visible, self.hidden, self.log_scale = parts
        _require_shapes(self.weights, self.visible, self.hidden, space.size)
        found = self.log_scale.shape
        require(found == (space.size,), f"a Gaussian RBM has {space.size} scales, one for every unit, not {found}")

    def _input(self, x: Point) -> Float[Array, " hidden"]:
        return self.hidden + (x.reshape(-1) * jnp.exp(-2 * self.log_scale)) @ self.weights

    def __call__(self, x: Point) -> Scalar:
        offset = (x.reshape(-1) - self.visible) * jnp.exp(-self.log_scale)
        return 0.5 * jnp.sum(offset**2) - jnp.sum(jax.nn.softplus(self._input(x)))

    def alternate(self, x: Point, *, key: PRNGKeyArray) -> Point:
        up, down = jax.random.split(key)
        mean = self.visible + self.weights @ _coins(self._input(x), up)
        noise = jax.random.normal(down, mean.shape, mean.dtype)
        return (mean + jnp.exp(self.log_scale) * noise).astype(x.dtype).reshape(x.shape)

    def equivalents(self) -> tuple[AbstractEnergy, ...]:
        return (_HiddenOfGaussian(self),)


class _HiddenOfGaussian(AbstractEnergy):
    """The hidden units of a Gaussian RBM alone: x is integrated out."""

    of: GaussianRBM
    space: AbstractArray = eqx.field(static=True)

    def __init__(self, of: GaussianRBM):
        self.of, self.space = of, Binary(of.hidden.shape)

    def __call__(self, x: Point) -> Scalar:
        of, z = self.of, x.astype(float)
        mean = of.visible + of.weights @ z
        gained = 0.5 * jnp.sum((mean**2 - of.visible**2) * jnp.exp(-2 * of.log_scale))
        volume = jnp.sum(of.log_scale) + 0.5 * mean.size * math.log(2 * math.pi)
        return -(of.hidden @ z + gained + volume)


class DeepBoltzmann(AbstractFactorised):
    """E(x_0, .., x_L) = -sum_l b_l'x_l - sum_l x_l'W_l x_{l+1}: layers of zeros and ones, each tied to the next.

    A point is all layers in a row, the visible one first. Even layers are independent given the odd ones and the other
    way round, so that a sweep of Gibbs sampling has two blocks (Salakhutdinov and Hinton 2009; seed 003).

    >>> model = DeepBoltzmann((jnp.ones((2, 3)), jnp.ones((3, 1))), (jnp.zeros(2), jnp.zeros(3), jnp.zeros(1)))
    >>> float(model(jnp.ones(6))), [block.tolist() for block in model.blocks]
    (-9.0, [[0, 1, 5], [2, 3, 4]])
    """

    weights: tuple[Float[Array, "below above"], ...]
    biases: tuple[Float[Array, " units"], ...]
    space: AbstractArray = eqx.field(static=True)

    def __init__(self, weights: Sequence[Any], biases: Sequence[Any]):
        self.weights = tuple(jnp.asarray(part, float) for part in weights)
        self.biases = tuple(jnp.asarray(part, float) for part in biases)
        sizes = [len(bias) for bias in self.biases]
        expected, found = list(pairwise(sizes)), [weight.shape for weight in self.weights]
        require(
            len(sizes) >= 2 and expected == found,
            f"layers of {sizes} units are tied by weights of shapes {expected}, not {found}",
        )
        self.space = Binary((sum(sizes),))

    @property
    def visible(self) -> int:
        """How many of the units, the first ones, are visible."""
        return len(self.biases[0])

    def layers(self, x: Point) -> tuple[Array, ...]:
        """The layers of a point."""
        ends = np.cumsum([len(bias) for bias in self.biases])[:-1]
        return tuple(jnp.split(x.astype(float), ends))

    def __call__(self, x: Point) -> Scalar:
        layers = self.layers(x)
        own = sum(bias @ layer for bias, layer in zip(self.biases, layers, strict=True))
        between = sum(
            below @ weight @ above for below, weight, above in zip(layers, self.weights, layers[1:], strict=False)
        )
        return -(jnp.asarray(own) + between)

    def inputs(self, layer: int, layers: Sequence[Array]) -> Float[Array, " units"]:
        """The log-odds of the units of one layer, given those beside it."""
        total = self.biases[layer]
        if layer > 0:
            total = total + layers[layer - 1] @ self.weights[layer - 1]
        if layer < len(self.weights):
            total = total + self.weights[layer] @ layers[layer + 1]
        return total

    @property
    def blocks(self) -> tuple[np.ndarray, ...]:
        ends = np.cumsum([0, *(len(bias) for bias in self.biases)])
        numbers = [np.arange(start, end) for start, end in pairwise(ends)]
        return np.concatenate(numbers[0::2]), np.concatenate(numbers[1::2])

    def conditional_logits(self, block: int, x: Point) -> Float[Array, "sites 2"]:
        layers = self.layers(x)
        odds = jnp.concatenate([self.inputs(layer, layers) for layer in range(block, len(layers), 2)])
        return jnp.stack([jnp.zeros_like(odds), odds], axis=-1)

    def folded(self) -> RBM:
        """The odd layers alone, as visible units of an RBM whose hidden ones are the even layers: it has the same Z.

        Layers of one parity are independent given those of the other, so that half of the units are always summed over.

        >>> machine = DeepBoltzmann((jnp.ones((2, 3)), jnp.ones((3, 1))), (jnp.zeros(2), jnp.zeros(3), jnp.zeros(1)))
        >>> machine.folded().weights.shape
        (3, 3)
        """
        rows = []
        for odd in range(1, len(self.biases), 2):
            beside = {odd - 1: self.weights[odd - 1].T}
            if odd < len(self.weights):
                beside[odd + 1] = self.weights[odd]
            empty = [
                jnp.zeros((len(self.biases[odd]), len(self.biases[even]))) for even in range(0, len(self.biases), 2)
            ]
            rows.append(jnp.concatenate([beside.get(2 * k, none) for k, none in enumerate(empty)], axis=1))
        visible, hidden = jnp.concatenate(self.biases[1::2]), jnp.concatenate(self.biases[0::2])
        return RBM(Binary((len(visible),)), jnp.concatenate(rows), visible, hidden)

    def odd(self, x: Point) -> Float[Array, " odd"]:
        """The odd layers of a point: a point of `folded`."""
        return jnp.concatenate(self.layers(x)[1::2])

    def above(self, x: Float[Array, " visible"]) -> "DeepBoltzmann":
        """The hidden layers given the visible one, sum_h exp(-E(x, h)) = exp(b_0'x) Z of these; at least two."""
        require(
            len(self.biases) >= 3,
            "a machine with one hidden layer has hidden units that are independent given the visible ones; use RBM",
        )
        given = self.biases[1] + x.astype(float) @ self.weights[0]
        return DeepBoltzmann(self.weights[1:], (given, *self.biases[2:]))


def deep_boltzmann(sizes: Sequence[int], *, scale: float = 0.01, key: PRNGKeyArray) -> DeepBoltzmann:
    """A deep Boltzmann machine of so many units a layer, the visible one first, with random weights N(0, scale^2).

    >>> deep_boltzmann((4, 3, 2), key=jax.random.key(0)).space
    Binary(shape=(9,))
    """
    for size in sizes:
        require_count(size, 1, "the units of a layer")
    require_positive(scale, "the scale of the weights")
    pairs = list(pairwise(sizes))
    keys = jax.random.split(key, max(1, len(pairs)))
    weights = [scale * jax.random.normal(k, pair) for k, pair in zip(keys, pairs, strict=False)]
    return DeepBoltzmann(weights, [jnp.zeros(size) for size in sizes])
