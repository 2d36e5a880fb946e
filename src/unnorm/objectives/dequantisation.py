"""Dequantisation that is learnt for a score that stays as it is (Ho et al. 2019; Song et al. 2021, Sec. 4.3)."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import named, require_count
from unnorm.energies.dequantiser import FlowDequantiser
from unnorm.errors import InputError
from unnorm.noises.times import likelihood_mass
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.parts import held
from unnorm.scores import AbstractLevelledScore


class VariationalDequantisation(AbstractObjective):
    """L = E_v E_q[ B(y) + log q(u | v) ] / D, with B the bound on -log p(y) of a score that is not learnt here.

    y = v + step (u - 1/2). B is that of `evaluation.likelihood_bound` by denoising, correction below the least level
    included: without what y has no part in,

        B(y) = (alpha_1 / sigma_1)^2 |y|^2 / 2 + Z/2 E | sigma s + z |^2 + E | z + sigma_0 s_0 |^2 / 2,

    over `levels` levels spread evenly over log(sigma^2 / alpha^2), the last mean at the least level. Minimising L makes
    the bound on -log P(v) as low as this q allows.

    >>> import unnorm as un
    >>> score = un.scores.LevelledFunction(lambda t, x: -x, un.noises.VariancePreserving())
    >>> VariationalDequantisation(score).levels
    8
    """

    comparable: ClassVar[bool] = True
    score: AbstractLevelledScore
    levels: int = eqx.field(static=True, default=8)

    def __check_init__(self):
        require_count(self.levels, 1, "levels a row")
        if not isinstance(self.score, AbstractLevelledScore):
            raise InputError(f"the bound runs over the levels of a noise, and {named(self.score)} has none")

    def init(self, model: Any, data: Any, *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; what is no dequantiser is refused here."""
        if not isinstance(model, FlowDequantiser):
            raise InputError(f"VariationalDequantisation teaches an energies.FlowDequantiser, not {named(model)}")
        return None

    def __call__(
        self, model: FlowDequantiser, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        score, noise = held(self.score), held(self.score.noise)
        least = noise.least_level().astype(batch.dtype)
        last = jnp.ones((), batch.dtype)
        mass, sigma = likelihood_mass(noise, least, last), noise.sigma(least)
        ends = (noise.alpha(last) / noise.sigma(last)) ** 2

        def one(value, key):
            within, shift, draw, below = jax.random.split(key, 4)
            y, log_q = model(value, key=within)
            shares = (jnp.arange(self.levels) + jax.random.uniform(shift, (), y.dtype)) / self.levels
            zs = jax.random.normal(draw, (self.levels, *y.shape), y.dtype)

            def gap(share, z):
                t = jax.lax.stop_gradient(noise.level_at(noise.log_ratio(least) - 0.5 * mass * share))
                a, b = noise.alpha(t), noise.sigma(t)
                return jnp.sum((b * score(t, a * y + b * z) + z) ** 2)

            z = jax.random.normal(below, y.shape, y.dtype)
            lost = jnp.sum((z + sigma * score(least, noise.alpha(least) * y + sigma * z)) ** 2)
            bound = 0.5 * (ends * jnp.sum(y**2) + mass * jnp.mean(jax.vmap(gap)(shares, zs)) + lost)
            return (bound + log_q) / y.size, log_q / y.size

        losses, logs = jax.vmap(one)(batch, jax.random.split(key, len(batch)))
        return jnp.mean(losses), (None, {"log_q": jnp.mean(logs)})
