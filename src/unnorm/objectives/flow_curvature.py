"""Propagated curvature for a flow: approximate backpropagation and curvature propagation through NICE's couplings.

`propagation` carries curvature back from the one output of a perceptron. Here log p(x) = -|y|^2 / 2 + sum s with
y = exp(s) * f(x), so that the walk starts at y, with gradient -y and Hessian -I, and goes back through the scales and
the couplings. A coupling adds network(a) to b: what arrives at b goes on to b as it is, and through the network to a,
where it is added. Song 2022 compares both methods on MNIST (Table 3.1). Its released derivatives take
every coupling for one of the same kind, so that what they call s and tr belong to no flow: approximate backpropagation
for one of the first kind, curvature propagation, where one test stands for both kinds, of the second. `taken_for`
repeats that, to compare with the figures printed.
"""

import enum
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies import NICE
from unnorm.errors import InputError, require
from unnorm.networks import MLP
from unnorm.networks.linear import affine, product
from unnorm.objectives.base import AbstractObjective, Info, Scalar

Vector = Float[Array, " d"]
#: The gradient, and what else is carried back with it: vectors of one length, which differs from layer to layer.
Parts = tuple[Array, ...]


class Kind(enum.Enum):
    """Which half a coupling's network reads; it is added to the other."""

    FIRST = enum.auto()
    SECOND = enum.auto()


def _flow(model: Any, method: str) -> NICE:
    if not isinstance(model, NICE):
        raise InputError(f"{method} is written for the flow NICE; use SSMVR for any other model")
    return model


def _passes(flow: NICE, x: Array) -> tuple[list[tuple[MLP, Array, Kind]], Vector]:
    """Each coupling's network, what it reads and which half that is; and f(x) before the scales."""
    flat = x.reshape(-1)
    first, second = flat[::2], flat[1::2]
    found = []
    for i, network in enumerate(flow.networks):
        if i % 2 == 0:
            found.append((network, first, Kind.FIRST))
            second = second + network(first)
        else:
            found.append((network, second, Kind.SECOND))
            first = first + network(second)
    return found, jnp.concatenate([first, second])


def _bends(network: MLP, x: Vector) -> list[tuple[eqx.nn.Linear, Array, Array]]:
    """Every hidden layer with f'(u) and f''(u), from the last to the first."""

    def slope(u):
        return jax.jvp(network.activation, (u,), (jnp.ones_like(u),))[1]

    found = []
    for layer in network.layers[:-1]:
        u = affine(layer, x)
        found.append((layer, *jax.jvp(slope, (u,), (jnp.ones_like(u),))))
        x = network.activation(u)
    return found[::-1]


def _split(parts: Parts, even: int) -> tuple[Parts, Parts]:
    return tuple(p[:even] for p in parts), tuple(p[even:] for p in parts)


def _join(first: Parts, second: Parts) -> Parts:
    return tuple(
        jnp.zeros(a.size + b.size, a.dtype).at[::2].set(a).at[1::2].set(b) for a, b in zip(first, second, strict=True)
    )


def _walk(
    flow: NICE, x: Array, start: Parts, through: Callable[[MLP, Vector, Parts, int], Parts], taken_for: Kind | None
) -> Parts:
    """What starts at f(x), back at x: `through(network, input, parts, i)` takes it from b to a in coupling i."""
    same = taken_for is None or x.size % 2 == 0
    require(same, f"couplings of one kind need two halves of one size, and {x.size} is odd")
    passes, _ = _passes(flow, x)
    first, second = _split(start, (x.size + 1) // 2)
    for i, (network, reads, own) in reversed(list(enumerate(passes))):
        to_first = (taken_for or own) is Kind.FIRST
        carried = through(network, reads, second if to_first else first, i)
        if to_first:
            first = tuple(a + c for a, c in zip(first, carried, strict=True))
        else:
            second = tuple(a + c for a, c in zip(second, carried, strict=True))
    return _join(first, second)


def approximate_flow_curvature(flow: NICE, x: Array, *, taken_for: Kind | None = None) -> tuple[Vector, Vector]:
    """The gradient of log p, and the diagonal of its Hessian as if that of every layer's output were diagonal.

    Backwards: y = W u turns (g, h) into (W'g, (W^2)'h), W^2 by entries, and y = f(u) into (g f', g f'' + h f'^2).
    """
    scale = jnp.exp(flow.log_scale)
    _, unscaled = _passes(flow, x)

    def through(network, reads, parts, _):
        g, h = parts
        last = network.layers[-1].weight
        g, h = product(last.T, g), product((last**2).T, h)
        for layer, slope, bend in _bends(network, reads):
            g, h = g * slope, g * bend + h * slope**2
            g, h = product(layer.weight.T, g), product((layer.weight**2).T, h)
        return g, h

    g, h = _walk(flow, x, (-(scale**2) * unscaled, -(scale**2)), through, taken_for)
    return g, h


def sampled_flow_curvature(
    flow: NICE, x: Array, *, floor: float, taken_for: Kind | None = None, key: PRNGKeyArray
) -> tuple[Vector, Vector]:
    """The gradient of log p, and an unbiased draw of the diagonal of its Hessian.

    It starts with S = i exp(s) v, v Rademacher, for which Re(S S') has the mean -exp(2s), and is carried as in
    `sampled_curvature`: y = W u turns S into W'S, y = f(u) into f'S + sqrt(g f'') v with a new v.
    """
    scale = jnp.exp(flow.log_scale)
    _, unscaled = _passes(flow, x)
    starting, key = jax.random.split(key)

    def through(network, reads, parts, i):
        g, real, imaginary = (product(network.layers[-1].weight.T, part) for part in parts)
        keys = jax.random.split(jax.random.fold_in(key, i), len(network.layers) - 1)
        for (layer, slope, bend), k in zip(_bends(network, reads), keys, strict=True):
            m = g * bend
            v = jax.random.rademacher(k, m.shape, m.dtype)
            real = slope * real + jnp.sqrt(jnp.maximum(m, 0) + floor) * v
            imaginary = slope * imaginary + jnp.sqrt(jnp.maximum(-m, 0) + floor) * v
            g, real, imaginary = (product(layer.weight.T, part) for part in (g * slope, real, imaginary))
        return g, real, imaginary

    v = jax.random.rademacher(starting, scale.shape, scale.dtype)
    g, real, imaginary = _walk(flow, x, (-(scale**2) * unscaled, jnp.zeros_like(v), scale * v), through, taken_for)
    return g, real**2 - imaginary**2


class AbstractFlowCurvature(AbstractObjective):
    """The mean of |s|^2 / 2 + tr over a batch, both from one walk back through the flow.

    With `taken_for` the walk takes every coupling for one of that kind, as the source's released code does: neither s
    nor tr is right then.
    """

    comparable: ClassVar[bool] = True
    taken_for: eqx.AbstractVar[Kind | None]

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model of another make is refused here."""
        _flow(model, type(self).__name__)
        return None

    @abstractmethod
    def curvature(self, flow: NICE, x: Array, key: PRNGKeyArray) -> tuple[Vector, Vector]:
        """The gradient of log p at one point, and what is taken for the diagonal of its Hessian."""

    def __call__(
        self, model: NICE, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        slopes, diagonals = jax.vmap(lambda x, k: self.curvature(model, x, k))(batch, jax.random.split(key, len(batch)))
        trace = jnp.mean(jnp.sum(diagonals, axis=1))
        return 0.5 * jnp.mean(jnp.sum(slopes**2, axis=1)) + trace, (None, {"trace": trace})


class FlowApproximateBP(AbstractFlowCurvature):
    """Score matching of NICE with the trace from approximate backpropagation: biased, kept to compare with.

    L = E[ 1/2 |s|^2 + tr ], tr from `approximate_flow_curvature`. Kingma and LeCun 2010; Song 2022, Table 3.1.

    >>> import jax, unnorm as un
    >>> flow = un.energies.NICE(un.spaces.Real((4,)), width=8, depth=1, key=jax.random.key(0))
    >>> loss, _ = FlowApproximateBP()(flow, None, jnp.ones((3, 4)), key=jax.random.key(1))
    >>> loss.shape
    ()
    """

    taken_for: Kind | None = eqx.field(static=True, default=None)

    def curvature(self, flow: NICE, x: Array, key: PRNGKeyArray) -> tuple[Vector, Vector]:
        return approximate_flow_curvature(flow, x, taken_for=self.taken_for)


class FlowCurvaturePropagation(AbstractFlowCurvature):
    """Score matching of NICE with an unbiased trace from one walk of a random complex vector.

    L = E[ 1/2 |s|^2 + tr ], tr from `sampled_flow_curvature` with one draw per point. Martens, Sutskever and Swersky
    2012; Song 2022, Table 3.1. `floor` is that of `CurvaturePropagation`.

    >>> FlowCurvaturePropagation().floor
    0.0001
    """

    floor: float = eqx.field(static=True, default=1e-4)
    taken_for: Kind | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        require(self.floor > 0, f"the floor under the square roots must be positive, not {self.floor}")

    def curvature(self, flow: NICE, x: Array, key: PRNGKeyArray) -> tuple[Vector, Vector]:
        return sampled_flow_curvature(flow, x, floor=self.floor, taken_for=self.taken_for, key=key)
