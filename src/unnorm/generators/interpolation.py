"""Points in between: of codes along an arc, and of walks by mixing their noise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.errors import require
from unnorm.generators.base import AbstractWhiteStep, white
from unnorm.generators.finish import AbstractFinish, PosteriorMean
from unnorm.noises.base import Point
from unnorm.scores import AbstractLevelledScore, Given


def slerp(one: Point, other: Point, share: Float[ArrayLike, ""]) -> Point:
    """sin((1 - share) w) / sin w one + sin(share w) / sin w other, w the angle between them (Shoemake 1985).

    Gaussian noise of many dimensions lies about a sphere, and so does what lies on the arc; a straight line leaves it.

    >>> [round(float(part), 4) for part in slerp(jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]), 0.5)]
    [0.7071, 0.7071]
    """
    cosine = jnp.vdot(one, other) / (jnp.linalg.norm(one) * jnp.linalg.norm(other))
    angle = jnp.arccos(jnp.clip(cosine, -1.0, 1.0))
    # Along one ray the arc is a straight line.
    bent = jnp.sin(angle) > 1e-4
    safe = jnp.where(bent, angle, 1.0)
    share = jnp.asarray(share, one.dtype)
    first = jnp.where(bent, jnp.sin((1 - share) * safe) / jnp.sin(safe), 1 - share)
    return first * one + jnp.where(bent, jnp.sin(share * safe) / jnp.sin(safe), share) * other


@compiled
def _mixed(
    score: AbstractLevelledScore,
    step: AbstractWhiteStep,
    finish: AbstractFinish,
    levels: Array,
    angles: Array,
    start: Array,
    keys: tuple[Array, Array],
) -> Array:
    def one(angle: Array) -> Array:
        def level(x: Point, inputs: Any):
            t, s, *pair = inputs

            def move(x: Point, pair: Any):
                mean, spread = step.parts(score, t, s, x)
                first, second = (white(x, step.temperature, key=key) for key in pair)
                return mean + spread * (jnp.cos(angle) * first + jnp.sin(angle) * second), None

            return jax.lax.scan(move, x, tuple(jax.random.split(key, step.steps) for key in pair))[0], None

        draws = tuple(jax.random.split(key, len(levels)) for key in keys)
        x, _ = jax.lax.scan(level, start, (levels[:-1], levels[1:], *(each[1:] for each in draws)))
        return finish(score, levels[-1], x, key=draws[0][0])[0]

    return jax.vmap(one)(angles)


def mixed_walks(
    score: AbstractLevelledScore,
    step: AbstractWhiteStep,
    *,
    levels: Float[ArrayLike, " k"],
    n: int,
    shape: tuple[int, ...],
    condition: Any = None,
    finish: AbstractFinish | None = None,
    key: PRNGKeyArray,
) -> np.ndarray:
    """n + 2 points from one walk to another, by the noise of every step: cos(a) z + sin(a) z', a from 0 to pi / 2.

    Both walks begin at one point, and each z is mixed with that of the other walk at the same step, so every point
    between is as good a draw as the two at the ends (Song and Ermon 2020, App. B; Song 2022, Eq. B.28).

    >>> import unnorm as un
    >>> noise = un.noises.VarianceExploding(0.1, 10.0)
    >>> score = un.scores.LevelledFunction(lambda t, x: -x / (1 + noise.variance(t)), noise)  # data N(0, I)
    >>> step, levels = un.generators.ReverseDiffusion(), jnp.linspace(1, 0, 20)
    >>> mixed_walks(score, step, levels=levels, n=3, shape=(2,), key=jax.random.key(0)).shape
    (5, 2)
    """
    ts = np.asarray(levels, np.float64)
    require(ts.ndim == 1 and len(ts) >= 2 and bool(np.all(np.diff(ts) <= 0)), "noise levels fall, and are two or more")
    require(n >= 0, f"the points between are none or more, not {n}")
    told = score if condition is None else Given(score, condition)
    begin, first, second = jax.random.split(key, 3)
    top = jnp.asarray(ts[0], float)
    start = step.temperature**0.5 * score.noise.sigma(top) * jax.random.normal(begin, shape)
    angles = jnp.linspace(0, jnp.pi / 2, n + 2)
    chosen: AbstractFinish = PosteriorMean() if finish is None else finish
    return np.asarray(_mixed(told, step, chosen, jnp.asarray(ts, float), angles, start, (first, second)))
