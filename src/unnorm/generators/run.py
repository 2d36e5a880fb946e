"""One loop that walks points from noise to data, level by level, in one compiled program."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, Key, PRNGKeyArray

from unnorm.arguments import named, require_count
from unnorm.compiling import compiled
from unnorm.devices import parts_of, share, shares, side_by_side
from unnorm.errors import InputError, require
from unnorm.generators.base import WALKERS, AbstractTransition, added, check_temperature
from unnorm.generators.finish import AbstractFinish, PosteriorMean
from unnorm.noises.base import Scalar
from unnorm.scores import AbstractLevelledScore, Given

T = TypeVar("T")


@dataclass(frozen=True)
class Generated:
    """Points along a first axis; how many of them were lost, and what the transitions counted on the way, by name."""

    points: np.ndarray
    lost: int
    counts: dict[str, float]

    @property
    def clipped(self) -> int:
        """How many posterior variances were raised to the floor."""
        return int(self.counts.get("clipped", 0))

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


@compiled
def _walk(
    score: AbstractLevelledScore,
    transition: AbstractTransition,
    finish: AbstractFinish,
    levels: Float[Array, " k"],
    every: Array,
    conditions: Any,
    key: PRNGKeyArray,
    first: Int[Array | np.ndarray, ""],
    size: int,
) -> tuple[Array, dict[str, Scalar]]:
    """`size` of the points from number `first` on; a point's random numbers are those of its number."""
    keys = jax.random.split(key, len(levels))

    def own(key: PRNGKeyArray) -> Key[Array, " n"]:
        return share(jax.random.split(key, len(every)), first, size)

    given = share(conditions, first, size)

    def told(condition: Any) -> AbstractLevelledScore:
        return score if condition is None else Given(score, condition)

    def each(function: Callable[..., T]) -> Callable[..., T]:
        return jax.vmap(function, axis_name=WALKERS)

    def level(states, inputs):
        t, s, key = inputs
        move = each(lambda state, c, k: transition.step(told(c), t, s, state, key=k))
        states, info = move(states, given, own(key))
        return states, jax.tree.map(jnp.sum, dict(info))

    states = each(lambda x, c: transition.init(told(c), levels[0], x))(share(every, first, size), given)
    states, counts = jax.lax.scan(level, states, (levels[:-1], levels[1:], keys[1:]))
    end = each(lambda state, c, k: finish(told(c), levels[-1], transition.position(state), key=k))
    xs, info = end(states, given, own(keys[0]))
    return xs, dict(added(jax.tree.map(jnp.sum, counts), jax.tree.map(jnp.sum, dict(info))))


def _shape(shape: Any, score: AbstractLevelledScore) -> tuple[int, ...]:
    """The shape of a point as whole numbers; anything else is refused, and so is another one than the score's."""
    struct = None if score.space is None else score.space.struct()
    known = struct.shape if isinstance(struct, jax.ShapeDtypeStruct) else None
    if shape is None:
        require(known is not None, f"{named(score)} does not know the shape of its points; pass shape=")
        shape = known
    whole = isinstance(shape, tuple | list) and all(isinstance(side, Integral) and int(side) >= 1 for side in shape)
    require(whole, f"the shape of a point is a tuple of whole numbers such as (2,), not {shape!r}")
    found = tuple(int(side) for side in shape)
    require(known in (None, found), f"{named(score)} is made for points of shape {known}, not {found}; leave shape out")
    return found


def _conditions(score: AbstractLevelledScore, condition: Any, n: int) -> Any:
    """The condition of each of n points, where one may be given for all of them."""
    space, who = score.condition, type(score).__name__
    if space is None:
        require(condition is None, f"{who} takes no condition; leave it out")
        return None
    require(
        condition is not None, f"{who} takes a condition on {space}; pass condition=, one for all points or for each"
    )
    found = jax.tree.map(jnp.asarray, condition)
    if space.accepts(found):
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n, *leaf.shape)), found)
    counts = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(found)}
    each = jax.tree.map(lambda leaf: leaf[0] if leaf.ndim and len(leaf) else leaf, found)
    require(
        counts == {n} and space.accepts(each),
        f"a condition of {who} is one point of {space} for all {n} points, or one for each along a first axis",
    )
    return found


def generate(
    score: AbstractLevelledScore,
    transition: AbstractTransition,
    *,
    levels: Float[ArrayLike, " k"],
    n: int,
    shape: tuple[int, ...] | None = None,
    condition: Any = None,
    start: Float[ArrayLike, "n ..."] | None = None,
    finish: AbstractFinish | None = None,
    temperature: float = 1.0,
    key: PRNGKeyArray,
) -> Generated:
    """n points, taken by the transition from `levels[0]` down to `levels[-1]` of the score's noise, then finished.

    They begin as N(0, temperature sigma(levels[0])^2 I) unless `start` says where. A level named again is visited
    again: annealed Langevin over t_1 > ... > t_L is `LangevinCorrector` with levels (t_1, t_1, t_2, ..., t_L). The
    finish is `PosteriorMean` unless said otherwise. `shape` is that of a point, for a score that does not know its
    space. A conditional score takes one condition for all points, or one for each.

    >>> import unnorm as un
    >>> noise = un.noises.VarianceExploding(0.1, 10.0)
    >>> score = un.scores.LevelledFunction(lambda t, x: -x / (1 + noise.variance(t)), noise)  # data N(0, I)
    >>> levels, step = jnp.linspace(1, 0, 10), un.generators.GibbsTransition()
    >>> walk = generate(score, step, levels=levels, n=500, shape=(2,), key=jax.random.key(0))
    >>> walk.points.shape, bool(abs(walk.points.std() - 1) < 0.1), walk.warnings
    ((500, 2), True, ())
    """
    if not isinstance(score, AbstractLevelledScore):
        raise InputError(
            f"a walk between noise levels needs a score that says its noise, and {named(score)} does not; "
            "use scores.LevelledFunction(function, noise) or scores.levelled_score(noise, ...)"
        )
    ts = np.asarray(levels, np.float64)
    require(ts.ndim == 1 and len(ts) >= 2, f"a walk needs at least two noise levels along one axis, not {ts.shape}")
    require(bool(np.all(np.diff(ts) <= 0)), "noise levels must fall, or stay, from the first to the last")
    begun = float(score.noise.alpha(jnp.asarray(ts[0], float)))
    require(
        begun > 0,
        f"nothing is left of a point at level {ts[0]:g}, and no step leads away from there; begin below",
    )
    check_temperature(temperature)
    require_count(n, 1, "the number of points")
    n, shape = int(n), _shape(shape, score)
    begin, key = jax.random.split(key)
    if start is None:
        xs = temperature**0.5 * score.noise.sigma(jnp.asarray(ts[0], float)) * jax.random.normal(begin, (n, *shape))
    else:
        xs = jnp.asarray(start, float)
        require(xs.shape == (n, *shape), f"{n} points of shape {shape} cannot start from an array of {xs.shape}")
    conditions = _conditions(score, condition, n)
    one = jax.tree.map(lambda leaf: leaf[0], conditions)
    slope = eqx.filter_eval_shape(score, jnp.asarray(ts[0], float), xs[0], one).shape
    require(slope == shape, f"a score has the shape of its point, {shape}, but this one returned {slope}")
    last = PosteriorMean() if finish is None else finish
    # Points that look at one another are not shared out among the cores.
    firsts, size = shares(n, 1 if transition.together else parts_of(n))
    times = jnp.asarray(ts, float)
    parts = side_by_side(lambda first: _walk(score, transition, last, times, xs, conditions, key, first, size), firsts)
    points = np.concatenate([np.asarray(part) for part, _ in parts])
    lost = int(np.sum(~np.all(np.isfinite(points.reshape(n, -1)), axis=1)))
    counts = {name: sum(float(found[name]) for _, found in parts) for name in parts[0][1]}
    return Generated(points, lost, counts)
