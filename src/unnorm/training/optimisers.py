"""How weights move: in a direction that the loop scales by its rate and schedule, or by an optax optimiser of its own.

A direction is an optax transformation without a rate: `adam()`, or `muon()` for networks of convolutions.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from unnorm.compiling import compiled
from unnorm.errors import require
from unnorm.objectives.checks import require_kind

Schedule = Callable[[Float[Array, ""]], Float[Array, ""]]


def cosine(done: Float[Array, ""]) -> Float[Array, ""]:
    """The learning rate's factor after a share `done` of the steps: up over 2%, then down along a cosine to 0."""
    return jnp.minimum(1.0, (done + 1e-4) / 0.02) * 0.5 * (1 + jnp.cos(jnp.pi * jnp.clip(done, 0, 1)))


def constant(done: Float[Array, ""]) -> Float[Array, ""]:
    """The same learning rate throughout."""
    return jnp.ones_like(done)


@lru_cache
def adam() -> optax.GradientTransformation:
    """Adam without its rate, which the loop applies. Cached, so that two runs share one compiled program."""
    return optax.scale_by_adam()


#: A kernel of rows, columns, inputs and outputs as a matrix: what is summed over, and what comes out.
_AS_MATRIX = MuonDimensionNumbers((0, 1, 2), 3)


def _is_kernel(weight: Any) -> bool:
    return weight.ndim == 4


@lru_cache
def muon(ratio: float = 20 / 3, decay: float = 0.95) -> optax.GradientTransformation:
    """Muon (Jordan et al. 2024) for kernels of convolutions, and Adam for all other weights; without a rate.

    The mean gradient M of a kernel, laid out as a matrix of (rows x columns x inputs) by outputs, is replaced by nearly
    U V' of its M = U S V': every direction that the layer can learn moves alike, large gradients or small. Steps of
    kernels are `ratio` times the rate of the others: at a rate of 0.003, 0.02.

    >>> kernel = jax.random.normal(jax.random.key(0), (3, 3, 2, 4))
    >>> update, _ = muon().update(kernel, muon().init(kernel))
    >>> values = jnp.linalg.svd(update.reshape(18, 4), compute_uv=False) / (20 / 3)
    >>> bool((values > 0.6).all() and (values < 1.3).all())
    True
    """
    require(ratio > 0, f"kernels move a positive number of times as far as other weights, not {ratio}")
    turned = scale_by_muon(beta=decay, weight_dimension_numbers=_as_matrices)
    return optax.partition({"kernel": optax.chain(turned, optax.scale(ratio)), "other": optax.scale_by_adam()}, _kinds)


def _kinds(weights: Any) -> Any:
    return jax.tree.map(lambda weight: "kernel" if _is_kernel(weight) else "other", weights)


def _as_matrices(weights: Any) -> Any:
    """The layout of every kernel; what is masked has none."""
    return jax.tree.map(lambda weight: _AS_MATRIX, weights)


def rates(
    rate: float | None,
    schedule: Schedule | None,
    optimiser: optax.GradientTransformation | None,
    usual: float,
    direction: optax.GradientTransformation | None = None,
) -> tuple[float | None, Schedule | None]:
    """Rate and schedule of the loop, its usual ones where none are given; none beside another optimiser."""
    require(
        direction is None or optimiser is None,
        "weights move by an optimiser with its own rate, or in a direction at the loop's; give one of the two",
    )
    if optimiser is None:
        rate = usual if rate is None else rate
        require(0 < rate < math.inf, f"the learning rate must be positive and finite, not {rate}")
        return rate, cosine if schedule is None else schedule
    require(
        rate is None and schedule is None,
        "an optimiser has a learning rate of its own, so fit takes no rate or schedule beside it; give them to the "
        "optimiser, as in optax.adam(1e-3)",
    )
    return None, None


def require_descent(optimiser: optax.GradientTransformation, weights: Any) -> None:
    """Refuse what is no optimiser, and what moves weights up the gradient, as a chain without a learning rate does.

    >>> require_descent(optax.adam(1e-3), jnp.zeros(2))
    """
    require_kind(
        optimiser,
        optax.GradientTransformation,
        "weights are moved by an optax optimiser such as optax.adam(1e-3), not by {}",
    )
    require(
        not float(_slope(optimiser, weights)) > 0,
        "this optimiser moves weights up the gradient: either it has no learning rate (chain it with "
        "optax.scale_by_learning_rate(1e-3)), or it hands some of the gradient on as it is, as optax.masked does (use "
        "optax.multi_transform)",
    )


@compiled
def _slope(optimiser: optax.GradientTransformation, weights: Any) -> Float[Array, ""]:
    """How much the first update moves up at most: the largest sum over one array of weights, begun at zero."""
    zeros, ones = jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.ones_like, weights)

    def plane(weights: Any) -> Float[Array, ""]:
        return sum((jnp.sum(leaf) for leaf in jax.tree.leaves(weights)), jnp.zeros(()))

    updates, _ = stepped(optimiser, ones, optimiser.init(zeros), zeros, plane(zeros), plane)
    return jnp.max(jnp.stack([jnp.sum(leaf) for leaf in jax.tree.leaves(updates)]))


def stepped(
    optimiser: optax.GradientTransformation,
    gradient: Any,
    memory: Any,
    weights: Any,
    loss: Float[Array, ""],
    loss_of: Callable[[Any], Float[Array, ""]],
) -> tuple[Any, Any]:
    """The updates of any optimiser and its next state; those that look at the loss or search a line are given it."""
    whole = optax.with_extra_args_support(optimiser)
    return whole.update(gradient, memory, weights, value=loss, grad=gradient, value_fn=loss_of)
