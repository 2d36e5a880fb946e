"""The trace of a network's Hessian in one backward pass: approximately, or without bias.

Both methods carry something besides the gradient from the output of a network back to its input, layer by layer.
Approximate backpropagation carries a diagonal second derivative as if the Hessian of each layer's output were diagonal,
which it is for the last hidden layer only. Curvature propagation carries one random complex vector S with
E[Re(S S')] equal to the Hessian. Here they are written for a `NeuralEnergy` on an `MLP`, whose quadratic term and scale
are exact in both.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies import NeuralEnergy
from unnorm.errors import InputError, require
from unnorm.networks import MLP
from unnorm.networks.linear import affine, product
from unnorm.objectives.base import AbstractObjective, Info, Scalar

Vector = Float[Array, " d"]


def _perceptron(model: Any, method: str) -> MLP:
    if not (isinstance(model, NeuralEnergy) and isinstance(model.network, MLP)):
        raise InputError(f"{method} is written for a NeuralEnergy on an MLP; use SSMVR for any other model")
    return model.network


def _slopes(network: MLP, x: Vector) -> list[tuple[Array, Array]]:
    """f'(u) and f''(u) of every hidden layer at x, from the first to the last."""

    def slope(u):
        return jax.jvp(network.activation, (u,), (jnp.ones_like(u),))[1]

    found = []
    for layer in network.layers[:-1]:
        u = affine(layer, x)
        found.append(jax.jvp(slope, (u,), (jnp.ones_like(u),)))
        x = network.activation(u)
    return found


def _backward(weight: Float[Array, "outputs inputs"], g: Float[Array, " outputs"]) -> Float[Array, " inputs"]:
    return product(weight.T, g)


def approximate_curvature(network: MLP, x: Vector) -> tuple[Vector, Vector]:
    """The gradient of a network of one output, and the diagonal of its Hessian by approximate backpropagation.

    Backwards: y = f(u) turns (g, h) into (g f', g f'' + h f'^2), and y = W u into (W'g, (W^2)'h), W^2 by entries.
    """
    weight = network.layers[-1].weight
    g, h = weight[0], jnp.zeros_like(weight[0])
    for layer, (slope, bend) in zip(reversed(network.layers[:-1]), reversed(_slopes(network, x)), strict=True):
        g, h = g * slope, g * bend + h * slope**2
        g, h = _backward(layer.weight, g), _backward(layer.weight**2, h)
    return g, h


def sampled_curvature(network: MLP, x: Vector, *, floor: float, key: PRNGKeyArray) -> tuple[Vector, Vector]:
    """The gradient of a network of one output, and an unbiased draw of its Hessian's diagonal.

    Backwards: y = f(u) turns S into f'S + sqrt(g f'') v with v Rademacher, y = W u turns it into W'S. The square root
    is real or imaginary with the sign of g f''; both parts get `floor` under the root, where the slope of a square root
    is finite, and since Re(S^2) is a difference of squares the floor cancels in the mean.
    """
    weight = network.layers[-1].weight
    g, real, imaginary = weight[0], jnp.zeros_like(weight[0]), jnp.zeros_like(weight[0])
    keys = jax.random.split(key, len(network.layers) - 1)
    steps = zip(reversed(network.layers[:-1]), reversed(_slopes(network, x)), keys, strict=True)
    for layer, (slope, bend), k in steps:
        m = g * bend
        v = jax.random.rademacher(k, m.shape, m.dtype)
        real = slope * real + jnp.sqrt(jnp.maximum(m, 0) + floor) * v
        imaginary = slope * imaginary + jnp.sqrt(jnp.maximum(-m, 0) + floor) * v
        g, real, imaginary = (_backward(layer.weight, part) for part in (g * slope, real, imaginary))
    return g, real**2 - imaginary**2


def _loss(model: NeuralEnergy, curvature: Callable[[Vector, Array], tuple[Vector, Vector]], batch: Array, key: Array):
    """mean 1/2 |s|^2 + tr, where E = (c |x|^2 / 2 + network) / scale^2 and s = -grad E."""
    confinement = jnp.exp(model.log_confinement)

    def one(x, key):
        x = x.reshape(-1)
        g, h = curvature(x, key)
        s = -(confinement * x + g) / model.scale**2
        trace = -(confinement * x.size + jnp.sum(h)) / model.scale**2
        return 0.5 * jnp.sum(s**2), trace

    squares, traces = jax.vmap(one)(batch, jax.random.split(key, len(batch)))
    trace = jnp.mean(traces)
    return jnp.mean(squares) + trace, (None, {"trace": trace})


class ApproximateBP(AbstractObjective):
    """Score matching with the trace from approximate backpropagation: exact with one hidden layer, biased beyond.

    L = E[ 1/2 |s|^2 + tr ], tr from `approximate_curvature`. Kept to compare with: its minimum is not the data's score.
    Kingma and LeCun 2010; Song 2022, section 3.3.

    >>> import jax, unnorm as un
    >>> energy = un.energies.MLPEnergy(un.spaces.Real((2,)), width=8, depth=1, key=jax.random.key(0))
    >>> points = jax.random.normal(jax.random.key(1), (5, 2))
    >>> approximate, _ = ApproximateBP()(energy, None, points, key=jax.random.key(2))
    >>> exact, _ = un.objectives.SM()(energy, None, points, key=jax.random.key(2))
    >>> bool(jnp.allclose(approximate, exact, rtol=1e-5))
    True
    """

    comparable: ClassVar[bool] = True

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model of another make is refused here."""
        _perceptron(model, "ApproximateBP")
        return None

    def __call__(
        self, model: NeuralEnergy, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        network = _perceptron(model, "ApproximateBP")
        return _loss(model, lambda x, _: approximate_curvature(network, x), batch, key)


class CurvaturePropagation(AbstractObjective):
    """Score matching with an unbiased trace from one backward pass of a random complex vector.

    L = E[ 1/2 |s|^2 + tr ], tr from `sampled_curvature` with one draw per point. Martens, Sutskever and Swersky 2012;
    Song 2022, section 3.3. `floor` trades the spread of the loss against the spread of its gradient, never the mean.

    >>> CurvaturePropagation().floor
    0.0001
    """

    comparable: ClassVar[bool] = True
    floor: float = eqx.field(static=True, default=1e-4)

    def __check_init__(self):
        require(self.floor > 0, f"the floor under the square roots must be positive, not {self.floor}")

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model of another make is refused here."""
        _perceptron(model, "CurvaturePropagation")
        return None

    def __call__(
        self, model: NeuralEnergy, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        network = _perceptron(model, "CurvaturePropagation")
        return _loss(model, lambda x, k: sampled_curvature(network, x, floor=self.floor, key=k), batch, key)
