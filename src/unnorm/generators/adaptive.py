"""The probability flow by a method that chooses its own steps; both ways: codes of points, and the points of codes."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_positive
from unnorm.compiling import compiled
from unnorm.errors import InputError, require
from unnorm.generators.base import AbstractOneStep, Info
from unnorm.noises.base import Level, Point, Scalar
from unnorm.scores import AbstractLevelledScore, Given

#: Steps after which a flow is given up.
MOST = 4096
#: Points whose flow is solved side by side.
BLOCK = 256


def flowed(
    score: AbstractLevelledScore, t: Level, s: Level, x: Point, tolerance: float | Scalar
) -> tuple[Point, Scalar]:
    """The point at level s of the flow that goes through x at level t, up or down, and how often the score was asked.

    By the pair of orders 5 and 4 of Dormand and Prince (1980), with this relative and absolute tolerance of each step.
    Where it takes more than 4096 steps the point is lost: it is not a number.
    """
    import diffrax  # Half a second, which most of the library does without.

    def slope(t: Any, y: Point, _: Any) -> Point:
        return score.noise.flow(t, y, score(t, y))

    field = diffrax.ODETerm(slope)
    solution = diffrax.diffeqsolve(
        field, diffrax.Dopri5(), jnp.asarray(t, x.dtype), jnp.asarray(s, x.dtype), None, x,
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance), max_steps=MOST, throw=False,
        adjoint=diffrax.ForwardMode(),
    )  # fmt: skip
    assert solution.ys is not None
    sound = solution.result == diffrax.RESULTS.successful
    # Six evaluations a step; the seventh is the first of the next one.
    asked = 6.0 * solution.stats["num_steps"] + 1
    return jnp.where(sound, solution.ys[0], jnp.nan), jnp.asarray(asked, x.dtype)


class AdaptiveFlow(AbstractOneStep):
    """From t to s along the probability flow, in steps that keep to a tolerance (Song et al. 2021, App. D.4).

    Two levels are enough: `generate(score, AdaptiveFlow(), levels=[1.0, 1e-3], ...)`. How often the score was asked, by
    all points together, is `counts["evaluations"]`.

    >>> import unnorm as un
    >>> noise = un.noises.VarianceExploding(0.1, 10.0)
    >>> score = un.scores.LevelledFunction(lambda t, x: -x / (1 + noise.variance(t)), noise)  # data N(0, I)
    >>> walk = un.generators.generate(
    ...     score, AdaptiveFlow(1e-3), levels=[1.0, 0.0], n=100, shape=(2,), key=jax.random.key(0)
    ... )
    >>> walk.counts["evaluations"] / 100 < 200
    True
    """

    tolerance: float = eqx.field(static=True, default=1e-5)

    def __check_init__(self):
        require_positive(self.tolerance, "the tolerance of a flow")

    def move(
        self, score: AbstractLevelledScore, t: Level, s: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Info]:
        there, asked = flowed(score, t, s, x, self.tolerance)
        return there, {"evaluations": asked}


class Flowed(NamedTuple):
    """Where the flow leads each point, and how often the score was asked on each one's way."""

    points: np.ndarray
    evaluations: np.ndarray


@compiled
def _ends(
    score: AbstractLevelledScore, t: Array, s: Array, block: tuple[Float[Array, "n ..."], Any], tolerance: Array
) -> tuple[Array, Array]:
    def one(x: Point, condition: Any) -> tuple[Point, Scalar]:
        return flowed(score if condition is None else Given(score, condition), t, s, x, tolerance)

    return jax.vmap(one)(*block)


def _least(score: AbstractLevelledScore, least: float | None) -> float | Array:
    if not isinstance(score, AbstractLevelledScore):
        raise InputError(f"the flow runs over the levels of a noise, and a {type(score).__name__} has none")
    return score.noise.least_level() if least is None else least


def _follow(
    score: AbstractLevelledScore, points: Any, conditions: Any, t: float | Array, s: float | Array, tolerance: float
) -> Flowed:
    require_positive(tolerance, "the tolerance of a flow")
    points = jnp.asarray(points, float)
    require(points.ndim >= 2 and len(points) >= 1, "points to be followed along the flow lie along a first axis")
    found, asked = [], []
    for begin in range(0, len(points), BLOCK):
        block = jax.tree.map(lambda a: a[begin : begin + BLOCK], (points, conditions))  # noqa: B023
        ends, count = _ends(score, jnp.asarray(t, float), jnp.asarray(s, float), block, jnp.asarray(tolerance, float))
        found.append(np.asarray(ends))
        asked.append(np.asarray(count))
    ends = np.concatenate(found)
    lost = int(np.sum(~np.isfinite(ends).reshape(len(ends), -1).all(axis=1)))
    require(
        lost == 0,
        f"the flow of {lost} of {len(ends)} points could not be solved to a tolerance of {tolerance:g}; the score is "
        "not finite somewhere on their paths, or give a larger tolerance",
    )
    return Flowed(ends, np.concatenate(asked))


def encode(
    score: AbstractLevelledScore,
    points: Any,
    *,
    conditions: Any = None,
    tolerance: float = 1e-5,
    least: float | None = None,
    last: float = 1.0,
) -> Flowed:
    """The code of each point: where the flow takes it at the level `last`, about N(0, sigma(last)^2 I) all together.

    `decode` is the way back. The code belongs to the data and the noise, not to a network: two scores that are both
    right give the same (Song et al. 2021, App. D.5). It begins at the noise's least level unless `least` says another.

    >>> import unnorm as un
    >>> noise = un.noises.VariancePreserving()
    >>> score = un.scores.LevelledFunction(lambda t, x: -x, noise)  # data N(0, I)
    >>> bool(abs(encode(score, jnp.ones((1, 2))).points - 1).max() < 1e-4)
    True
    """
    return _follow(score, points, conditions, _least(score, least), last, tolerance)


def decode(
    score: AbstractLevelledScore,
    codes: Any,
    *,
    conditions: Any = None,
    tolerance: float = 1e-5,
    least: float | None = None,
    last: float = 1.0,
) -> Flowed:
    """The point of each code, without any chance: the way back from `encode`, with the same arguments."""
    return _follow(score, codes, conditions, last, _least(score, least), tolerance)
