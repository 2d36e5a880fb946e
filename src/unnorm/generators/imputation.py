"""Points of which a part is known: the rest is walked from noise to data beside the known part, noised as much."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from unnorm.errors import require
from unnorm.generators.base import AbstractTransition, Info, Then, Walker
from unnorm.generators.corrector import SignalToNoise
from unnorm.generators.finish import AbstractFinish, PosteriorMean
from unnorm.generators.reverse import ReverseDiffusion
from unnorm.generators.run import Generated, generate
from unnorm.noises.base import Level, Point
from unnorm.scores import AbstractLevelledScore


class Known(eqx.Module):
    """What is known of a point: its numbers where the mask is true."""

    x: Float[Array, "..."]
    mask: Bool[Array, "..."]

    def into(self, x: Point) -> Point:
        """x, with what is known put in its place.

        >>> Known(jnp.array([5.0, 6.0]), jnp.array([True, False])).into(jnp.zeros(2)).tolist()
        [5.0, 0.0]
        """
        return jnp.where(self.mask, self.x, x)


class Replacing(AbstractTransition):
    """A transition after which the known part is replaced: x <- alpha(s) y + sigma(s) z there (Song et al. 2021, I.2).

    The mask says where. By itself it is biased, since the rest of x was drawn beside another noise of the known part;
    correctors that are replaced too take that away (`impute`).
    """

    inner: AbstractTransition
    known: Known

    @property
    def together(self) -> bool:
        """Whether the transition looks at the other points."""
        return self.inner.together

    def init(self, score: AbstractLevelledScore, t: Level, x: Point) -> Walker:
        return self.inner.init(score, t, x)

    def step(
        self, score: AbstractLevelledScore, t: Level, s: Level, state: Walker, *, key: PRNGKeyArray
    ) -> tuple[Walker, Info]:
        own, fresh = jax.random.split(key)
        state, info = self.inner.step(score, t, s, state, key=own)
        noised = Known(score.noise.sample(s, self.known.x, key=fresh), self.known.mask)
        return Walker(noised.into(state.x), state.memory), info


class Repeated(AbstractTransition):
    """A transition so many times from t to s: for correctors, which stay at level s.

    >>> Repeated(SignalToNoise(0.1), 5).times
    5
    """

    inner: AbstractTransition
    times: int = eqx.field(static=True)

    def __check_init__(self):
        require(self.times >= 1, f"what is repeated is done at least once, not {self.times} times")

    @property
    def together(self) -> bool:
        """Whether the transition looks at the other points."""
        return self.inner.together

    def init(self, score: AbstractLevelledScore, t: Level, x: Point) -> Walker:
        return self.inner.init(score, t, x)

    def step(
        self, score: AbstractLevelledScore, t: Level, s: Level, state: Walker, *, key: PRNGKeyArray
    ) -> tuple[Walker, Info]:
        def once(state: Walker, key: PRNGKeyArray):
            state, info = self.inner.step(score, t, s, state, key=key)
            return state, dict(info)

        state, counts = jax.lax.scan(once, state, jax.random.split(key, self.times))
        return state, jax.tree.map(jnp.sum, counts)


class Restored(AbstractFinish):
    """Another finish, and then what is known as it is."""

    inner: AbstractFinish
    known: Known

    def __call__(self, score: AbstractLevelledScore, t: Level, x: Point, *, key: PRNGKeyArray) -> tuple[Point, Info]:
        x, info = self.inner(score, t, x, key=key)
        return self.known.into(x), info


def impute(
    score: AbstractLevelledScore,
    x: Float[ArrayLike, "..."] | Sequence[Any],
    mask: Bool[ArrayLike, "..."] | Sequence[Any],
    *,
    levels: Float[ArrayLike, " k"],
    n: int,
    predictor: AbstractTransition | None = None,
    corrector: AbstractTransition | None = None,
    corrections: int = 1,
    condition: Any = None,
    finish: AbstractFinish | None = None,
    key: PRNGKeyArray,
) -> Generated:
    """n draws of a point of which the numbers of x are known where the mask is true (Song et al. 2021, App. I.2).

    After every step of the predictor, and after each of so many `corrections` at the level reached, the known part is
    replaced by itself with the noise of that level. The default predictor is `ReverseDiffusion`, the corrector
    `SignalToNoise`. Without corrections the draws are biased: of two numbers that are 0.8 correlated, one known, the
    other has a mean of 0.5 where 0.8 is right. Numbers where the mask is false are not looked at.

    With `LangevinCorrector` alone it is the inpainting of Song and Ermon 2019 (Song 2022, Alg. B.2), but that the noise
    of the known part is fresh for each of its moves.

    >>> import unnorm as un
    >>> noise = un.noises.VarianceExploding(0.01, 10.0)
    >>> score = un.scores.LevelledFunction(lambda t, x: -x / (1 + noise.variance(t)), noise)  # data N(0, I)
    >>> walk = impute(score, [3.0, 0.0], [True, False], levels=jnp.linspace(1, 0, 9), n=4, key=jax.random.key(0))
    >>> walk.points[:, 0].tolist()
    [3.0, 3.0, 3.0, 3.0]
    """
    x, mask = jnp.asarray(x, float), jnp.asarray(mask, bool)
    require(x.shape == mask.shape, f"the mask has the shape of the point, {x.shape}, not {mask.shape}")
    require(corrections >= 0, f"corrections are none or more, not {corrections}")
    known = Known(jnp.where(mask, x, 0), mask)
    require(
        bool(jnp.all(jnp.isfinite(known.x))), "what is known of a point must be finite; set the mask there to false"
    )
    step: AbstractTransition = Replacing(ReverseDiffusion() if predictor is None else predictor, known)
    if corrections:
        again = Replacing(SignalToNoise() if corrector is None else corrector, known)
        step = Then(step, Repeated(again, corrections))
    begin, key = jax.random.split(key)
    top = jnp.asarray(np.asarray(levels, float)[0])
    own, fresh = jax.random.split(begin)
    xs = score.noise.sigma(top) * jax.random.normal(own, (n, *x.shape))
    noised = jax.vmap(lambda k: score.noise.sample(top, known.x, key=k))(jax.random.split(fresh, n))
    last = Restored(PosteriorMean() if finish is None else finish, known)
    return generate(
        score, step, levels=levels, n=n, shape=x.shape, condition=condition, start=jnp.where(mask, noised, xs),
        finish=last, key=key,
    )  # fmt: skip
