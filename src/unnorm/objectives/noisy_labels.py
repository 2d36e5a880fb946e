"""How a classifier of points with noise is learnt."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unnorm.arguments import named
from unnorm.errors import InputError
from unnorm.noises.times import AbstractTimes, UniformTimes
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.parts import held
from unnorm.scores import LevelledClassifier


class NoisyLabels(AbstractObjective):
    """L = -E_t E_{(x, label)} E_z log p_t(label | alpha(t) x + sigma(t) z): cross entropy over the levels.

    At its minimum p_t is the posterior of the label given the noisy point, whatever the law of the levels. Rows are
    `spaces.Conditioned(x, label)`.

    >>> NoisyLabels().comparable
    True
    """

    comparable: ClassVar[bool] = True
    times: AbstractTimes = UniformTimes()

    def init(self, model: Any, data: Any, *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; what is no classifier of points with noise is refused here."""
        if not isinstance(model, LevelledClassifier):
            raise InputError(f"NoisyLabels teaches a scores.LevelledClassifier, not {named(model)}")
        return None

    def __call__(
        self, model: LevelledClassifier, state: None, batch: Any, *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        noise, xs = held(model.noise), batch.x
        levels, draw = jax.random.split(key)
        ts, worth = self.times.draw(noise, noise.least_level().astype(xs.dtype), len(xs), key=levels)
        zs = jax.random.normal(draw, xs.shape, xs.dtype)

        def one(t, worth, x, z, label):
            logits = model(t, noise.alpha(t) * x + noise.sigma(t) * z)
            return -worth * jax.nn.log_softmax(logits)[label], jnp.argmax(logits) == label

        losses, right = jax.vmap(one)(ts, worth, xs, zs, batch.condition)
        return jnp.mean(losses), (None, {"accuracy": jnp.mean(right)})
