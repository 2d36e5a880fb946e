"""One loop that walks points from noise to data, level by level, in one compiled program."""

from abc import abstractmethod
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, Key, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.compiling import compiled
from unnorm.devices import parts_of, share, shares, side_by_side
from unnorm.errors import require
from unnorm.generators.base import AbstractTransition, Then
from unnorm.generators.gibbs import GibbsTransition
from unnorm.noises.base import AbstractGaussianNoise, Level, Point, Scalar
from unnorm.samplers.denoising_gibbs import AbstractCovariance, FullCovariance, take_away
from unnorm.scores import AbstractScore


class AbstractFinish(eqx.Module):
    """What is done about the noise that is left at the last level."""

    @abstractmethod
    def __call__(
        self, score: AbstractScore, noise: AbstractGaussianNoise, t: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Scalar]:
        """The point to hand over, and how many variances had to be raised to the floor."""


class Stay(AbstractFinish):
    """Nothing: the points keep the noise of the last level."""

    def __call__(
        self, score: AbstractScore, noise: AbstractGaussianNoise, t: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Scalar]:
        return x, jnp.zeros(())


class PosteriorMean(AbstractFinish):
    """E[x_0 | x_t] = (x_t + sigma^2 s) / alpha, as in Zhang et al. 2023, Algs 1, 2: a little sharper than the data."""

    def __call__(
        self, score: AbstractScore, noise: AbstractGaussianNoise, t: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Scalar]:
        return (x + noise.variance(t) * score(t, x)) / noise.alpha(t), jnp.zeros(())


class PosteriorDraw(AbstractFinish):
    """x_0 ~ N(E[x_0 | x_t], Cov[x_0 | x_t]): as spread as the data, exact where they are Gaussian.

    >>> PosteriorDraw().covariance.floor
    1e-06
    """

    covariance: AbstractCovariance = FullCovariance()

    def __call__(
        self, score: AbstractScore, noise: AbstractGaussianNoise, t: Level, x: Point, *, key: PRNGKeyArray
    ) -> tuple[Point, Scalar]:
        x, clipped = take_away(lambda y: score(t, y), self.covariance, noise.variance(t), x, key=key)
        return x / noise.alpha(t), clipped


@dataclass(frozen=True)
class Generated:
    """Points along a first axis; how many of them were lost, and how many variances were raised on the way."""

    points: np.ndarray
    lost: int
    clipped: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with these points, in sentences; empty if nothing was seen."""
        found = []
        if self.lost:
            found.append(f"{self.lost} of {len(self.points)} points are not finite: use more levels or smaller steps.")
        if self.clipped:
            found.append(
                f"{self.clipped} posterior variances were below the floor and were raised to it: there the score is "
                "not that of a density with this noise."
            )
        return tuple(found)


def _counted(transition: AbstractTransition, score, noise, t, s, x, key) -> tuple[Point, Scalar]:
    """One transition with the count of raised variances, wherever Gibbs is among its parts."""
    if isinstance(transition, GibbsTransition):
        return transition.counted(score, noise, t, s, x, key=key)
    if isinstance(transition, Then):
        one, two = jax.random.split(key)
        x, first = _counted(transition.first, score, noise, t, s, x, one)
        x, second = _counted(transition.second, score, noise, t, s, x, two)
        return x, first + second
    return transition(score, noise, t, s, x, key=key), jnp.zeros(())


@compiled
def _walk(
    score: AbstractScore,
    noise: AbstractGaussianNoise,
    transition: AbstractTransition,
    finish: AbstractFinish,
    levels: Float[Array, " k"],
    every: Array,
    key: PRNGKeyArray,
    first: Int[Array | np.ndarray, ""],
    size: int,
) -> tuple[Array, Scalar]:
    """`size` of the points from number `first` on; a point's random numbers are those of its number."""
    keys = jax.random.split(key, len(levels))

    def own(key: PRNGKeyArray) -> Key[Array, " n"]:
        return share(jax.random.split(key, len(every)), first, size)

    def level(carry, inputs):
        xs, total = carry
        t, s, key = inputs
        move = jax.vmap(lambda x, k: _counted(transition, score, noise, t, s, x, k))
        xs, clipped = move(xs, own(key))
        return (xs, total + jnp.sum(clipped)), None

    begin = share(every, first, size), jnp.zeros(())
    (xs, total), _ = jax.lax.scan(level, begin, (levels[:-1], levels[1:], keys[1:]))
    end = jax.vmap(lambda x, k: finish(score, noise, levels[-1], x, key=k))
    xs, clipped = end(xs, own(keys[0]))
    return xs, total + jnp.sum(clipped)


def _shape(shape: Any) -> tuple[int, ...]:
    """The shape of a point as whole numbers; anything else is refused."""
    whole = isinstance(shape, tuple | list) and all(isinstance(side, Integral) and int(side) >= 1 for side in shape)
    require(whole, f"the shape of a point is a tuple of whole numbers such as (2,), not {shape!r}")
    return tuple(int(side) for side in shape)


def generate(
    score: AbstractScore,
    noise: AbstractGaussianNoise,
    transition: AbstractTransition,
    *,
    levels: Float[ArrayLike, " k"],
    n: int,
    shape: tuple[int, ...],
    start: Float[ArrayLike, "n ..."] | None = None,
    finish: AbstractFinish | None = None,
    key: PRNGKeyArray,
) -> Generated:
    """n points of this shape, taken by the transition from `levels[0]` down to `levels[-1]`, then finished.

    They begin as N(0, sigma(levels[0])^2 I) unless `start` says where. A level named twice is visited twice: annealed
    Langevin over t_1 > ... > t_L is `LangevinCorrector` with levels (t_1, t_1, t_2, ..., t_L). The finish is
    `PosteriorMean` unless said otherwise.

    >>> import unnorm as un
    >>> noise = un.noises.VarianceExploding(0.1, 10.0)
    >>> score = un.scores.FunctionScore(lambda t, x: -x / (1 + noise.variance(t)))  # data N(0, I)
    >>> levels = jnp.linspace(1, 0, 10)
    >>> walk = generate(score, noise, GibbsTransition(), levels=levels, n=500, shape=(2,), key=jax.random.key(0))
    >>> walk.points.shape, bool(abs(walk.points.std() - 1) < 0.1), walk.warnings
    ((500, 2), True, ())
    """
    ts = np.asarray(levels, np.float64)
    require(ts.ndim == 1 and len(ts) >= 2, f"a walk needs at least two noise levels along one axis, not {ts.shape}")
    require(bool(np.all(np.diff(ts) <= 0)), "noise levels must fall, or stay, from the first to the last")
    require_count(n, 1, "the number of points")
    n, shape = int(n), _shape(shape)
    begin, key = jax.random.split(key)
    if start is None:
        xs = noise.sigma(jnp.asarray(ts[0], float)) * jax.random.normal(begin, (n, *shape))
    else:
        xs = jnp.asarray(start, float)
        require(xs.shape == (n, *shape), f"{n} points of shape {shape} cannot start from an array of {xs.shape}")
    slope = eqx.filter_eval_shape(score, jnp.asarray(ts[0], float), xs[0]).shape
    require(slope == shape, f"a score has the shape of its point, {shape}, but this one returned {slope}")
    last = PosteriorMean() if finish is None else finish
    firsts, size = shares(n, parts_of(n))
    parts = side_by_side(
        lambda first: _walk(score, noise, transition, last, jnp.asarray(ts, float), xs, key, first, size), firsts
    )
    points = np.concatenate([np.asarray(part) for part, _ in parts])
    lost = int(np.sum(~np.all(np.isfinite(points.reshape(n, -1)), axis=1)))
    return Generated(points, lost, sum(int(clipped) for _, clipped in parts))
