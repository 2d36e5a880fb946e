"""Slopes and curvatures of a function along given directions, in one forward sweep.

For a function E of a point and directions v_1 ... v_k, what score matching needs is each v_i'grad E and the sum of the
v_i' (hess E) v_i. Differentiating the gradient once more carries 2 k tangents: k through the function and k through its
gradient. Going forward only, an intermediate h(x) needs its value, its k slopes, and ONE sum of its second derivatives:

    sum_i d2 f(h)[v_i, v_i] = sum_i f''(h)[dh_i, dh_i] + f'(h)[sum_i d2 h_i],

because the last term is linear. For the whole trace that is half the work (the forward Laplacian: Li et al. 2023;
collapsed Taylor mode: Dangel et al. 2025).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, Literal
from jaxtyping import Array, Float


class _Moving(NamedTuple):
    """A number on its way: its value, its slope along each direction, and the sum of its second derivatives."""

    value: Array
    slopes: Float[Array, "k ..."]
    curvature: Array


def slopes_and_curvature(
    function: Callable[[Array], Array], x: Float[Array, "..."], directions: Float[Array, "k ..."]
) -> tuple[Float[Array, " k"], Float[Array, ""]]:
    """v_i'grad f(x) for every direction, and sum_i v_i' (hess f(x)) v_i.

    >>> slopes, curvature = slopes_and_curvature(lambda x: x[0] ** 2 * x[1], jnp.array([1.0, 3.0]), jnp.eye(2))
    >>> slopes.tolist(), float(curvature)
    ([6.0, 1.0], 6.0)
    """
    program = jax.make_jaxpr(function)(x)
    (found,) = _walk(program.jaxpr, program.consts, [_Moving(x, directions, jnp.zeros_like(x))])
    if not isinstance(found, _Moving):
        return jnp.zeros(len(directions), x.dtype), jnp.zeros((), x.dtype)
    return found.slopes, found.curvature


def _walk(program: Jaxpr, constants: Any, inputs: list[Any]) -> list[Any]:
    """Evaluate a program on inputs of which some move."""
    known: dict[Any, Any] = dict(zip(program.constvars, constants, strict=True))
    known.update(zip(program.invars, inputs, strict=True))

    def read(place: Any) -> Any:
        return place.val if isinstance(place, Literal) else known[place]

    for equation in program.eqns:
        values = [read(place) for place in equation.invars]
        known.update(zip(equation.outvars, _step(equation, values), strict=True))
    return [read(place) for place in program.outvars]


def _step(equation: Any, inputs: list[Any]) -> list[Any]:
    """One operation of a program."""
    if not any(isinstance(a, _Moving) for a in inputs):
        return _apply(equation, inputs)
    inner = equation.params.get("jaxpr")
    if equation.primitive.name in ("jit", "pjit"):
        return _walk(inner.jaxpr, inner.consts, inputs)
    still = _apply(equation, [a.value if isinstance(a, _Moving) else a for a in inputs])
    # Comparisons and indices do not move, whatever they are made of.
    smooth = [jnp.issubdtype(out.dtype, jnp.inexact) for out in still]
    if not any(smooth):
        return still
    moving = [i for i, a in enumerate(inputs) if isinstance(a, _Moving)]

    def operation(*parts: Array) -> list[Array]:
        merged = list(inputs)
        for i, part in zip(moving, parts, strict=True):
            merged[i] = part
        return [out for out, keep in zip(_apply(equation, merged), smooth, strict=True) if keep]

    at = tuple(inputs[i].value for i in moving)

    def along(tangents: tuple[Array, ...]) -> tuple[list[Array], list[Array]]:
        def first(*parts: Array) -> list[Array]:
            return jax.jvp(operation, parts, tangents)[1]

        return jax.jvp(first, at, tangents)

    slopes, seconds = jax.vmap(along)(tuple(inputs[i].slopes for i in moving))
    _, carried = jax.jvp(operation, at, tuple(inputs[i].curvature for i in moving))
    parts = iter(zip(slopes, seconds, carried, strict=True))

    def result(out: Array, keep: bool) -> Any:
        if not keep:
            return out
        slope, second, linear = next(parts)
        return _Moving(out, slope, jnp.sum(second, 0) + linear)

    return [result(out, keep) for out, keep in zip(still, smooth, strict=True)]


def _apply(equation: Any, values: list[Any]) -> list[Any]:
    """An operation as it stands in the program."""
    found = equation.primitive.bind(*values, **equation.primitive.get_bind_params(equation.params))
    return list(found) if equation.primitive.multiple_results else [found]
