"""Scores pushed towards a condition: by a classifier, or by the difference that the condition makes."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unnorm.energies.base import Point, Scalar
from unnorm.errors import InputError
from unnorm.noises import AbstractGaussianNoise
from unnorm.noises.base import Level
from unnorm.scores.base import AbstractLevelledScore, LevelScore
from unnorm.spaces import AbstractSpace, Categorical


class ClassifierFree(AbstractLevelledScore):
    """s(t, x, none) + weight (s(t, x, label) - s(t, x, none)), for a score learnt with labels left out now and then.

    Weight 1 is the score of p_t(x | label), 0 that of p_t(x). Above 1 it is that of p_t(x) p_t(label | x)^weight, which
    is no noised density: draws are more typical of the label and less varied (Ho and Salimans 2021, whose w is weight
    - 1).

    >>> import unnorm as un
    >>> from unnorm.spaces import Real
    >>> score = un.scores.LevelledFunction(
    ...     lambda t, x, label: jnp.where(label == 3, 0.0, label) - x,
    ...     un.noises.Gaussian(1.0),
    ...     Real((1,)),
    ...     Categorical((), 3),
    ... )
    >>> ClassifierFree(score, 2.0)(0.5, jnp.zeros(1), jnp.asarray(2)).tolist()
    [4.0]
    """

    score: AbstractLevelledScore
    weight: Scalar = eqx.field(converter=lambda w: jnp.asarray(w, float))

    def __check_init__(self):
        if not isinstance(self.score.condition, Categorical):
            raise InputError(
                "guidance without a classifier needs a score that is told a label, and this one is told "
                f"{self.score.condition}; fit it with labels, some of them left out (data.DropLabel)"
            )

    @property
    def noise(self) -> AbstractGaussianNoise:
        return self.score.noise

    @property
    def space(self) -> AbstractSpace | None:
        return self.score.space

    @property
    def condition(self) -> AbstractSpace | None:
        return self.score.condition

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        assert isinstance(self.score.condition, Categorical)
        label = jnp.asarray(condition)
        without = self.score(t, x, jnp.full_like(label, self.score.condition.categories))
        return without + jax.lax.stop_gradient(self.weight) * (self.score(t, x, label) - without)

    def at(self, t: Level, condition: Any = None) -> LevelScore:
        """The score of one level, under one label."""
        return LevelScore(score=self, level=t, space=self.space, settled=condition)


class Classified(AbstractLevelledScore):
    """s(t, x) + weight grad_x log p_t(label | x) with a classifier of noisy points (Dhariwal and Nichol 2021).

    `classifier(t, x)` gives logits over the labels; at weight 1 and with the exact classifier of p_t this is the exact
    score of p_t(x | label).
    """

    score: AbstractLevelledScore
    classifier: Callable[[Level, Point], Float[Array, " k"]]
    labels: int = eqx.field(static=True)
    weight: Scalar = eqx.field(converter=lambda w: jnp.asarray(w, float), default=1.0)

    def __check_init__(self):
        if self.score.condition is not None:
            raise InputError("a classifier guides a score without a condition, and this one has one of its own")

    @property
    def noise(self) -> AbstractGaussianNoise:
        return self.score.noise

    @property
    def space(self) -> AbstractSpace | None:
        return self.score.space

    @property
    def condition(self) -> AbstractSpace | None:
        return Categorical((), self.labels)

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        def log_prob(x):
            return jax.nn.log_softmax(self.classifier(t, x))[jnp.asarray(condition)]

        return self.score(t, x) + jax.lax.stop_gradient(self.weight) * jax.grad(log_prob)(x)

    def at(self, t: Level, condition: Any = None) -> LevelScore:
        """The score of one level, under one label."""
        return LevelScore(score=self, level=t, space=self.space, settled=condition)
