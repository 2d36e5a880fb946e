"""Classifiers of points with noise: p_t(label | x), one network for all levels."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.networks.levelled import levelled_network, silent_mlp
from unnorm.noises import AbstractGaussianNoise
from unnorm.noises.base import Level, Point
from unnorm.parts import AbstractPartlyFixed, held
from unnorm.spaces import AbstractOnRows, Categorical, Real, WithCondition


class LevelledClassifier(AbstractOnRows, AbstractPartlyFixed):
    """Logits of p_t(label | x) by a network(x / w, t, None), w^2 = alpha^2 spread^2 + sigma^2.

    Learnt by `objectives.NoisyLabels`; `scores.Classified` guides a score by it (Song et al. 2021, App. I; Dhariwal and
    Nichol 2021).

    >>> import jax, unnorm as un
    >>> noise = un.noises.VariancePreserving()
    >>> model = levelled_classifier(noise, 2, 3, width=8, depth=1, key=jax.random.key(0))
    >>> model(0.5, jnp.zeros(2)).tolist()
    [0.0, 0.0, 0.0]
    """

    network: Callable[[Point, Array, Any], Array]
    noise: AbstractGaussianNoise
    space: Real = eqx.field(static=True)
    labels: int = eqx.field(static=True)
    spread: float = eqx.field(static=True, default=1.0)

    def rows_space(self) -> WithCondition:
        return WithCondition(self.space, Categorical((), self.labels))

    def fixed_parts(self) -> tuple[Any, ...]:
        return (self.noise,)

    def __call__(self, t: Level, x: Point) -> Float[Array, " k"]:
        noise, level = held(self.noise), jnp.asarray(t, x.dtype)
        width = jnp.sqrt((noise.alpha(level) * self.spread) ** 2 + noise.variance(level))
        return self.network(x / width, level, None)


def levelled_classifier(
    noise: AbstractGaussianNoise,
    dimension: int,
    labels: int,
    *,
    spread: float = 1.0,
    width: int = 128,
    depth: int = 3,
    octaves: int = 3,
    key: PRNGKeyArray,
) -> LevelledClassifier:
    """A classifier of vectors with noise whose network begins at zero: at first all labels are alike."""
    network = levelled_network(dimension, labels, width=width, depth=depth, octaves=octaves, make=silent_mlp, key=key)
    return LevelledClassifier(network, noise, Real((dimension,)), labels, spread)
