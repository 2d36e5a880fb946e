"""Learning the posterior of the clean point given the noisy one, by Kullback-Leibler divergence."""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.noises import AbstractGaussianNoise
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_gaussian, require_kind, require_sigma
from unnorm.scores.denoiser import GaussianDenoiser


class DenoisingKL(AbstractObjective):
    """L = -E_x E_q(x~|x) log N(x; mean(x~), diag std(x~)^2) / d: the noise posterior's KL up to a constant.

    At its minimum the mean is the posterior mean and std^2 the posterior variance of each coordinate, averaged over
    the same x~ (Zhang et al. 2023, Eq. 13). The noise is taken at level t = 0 (`noises.Gaussian` has a single level).

    >>> import unnorm as un
    >>> float(DenoisingKL(un.noises.Gaussian(0.25)).noise.scale)
    0.25
    """

    comparable: ClassVar[bool] = True
    noise: AbstractGaussianNoise

    def __check_init__(self):
        require_gaussian(self.noise, "DenoisingKL")
        require_sigma(self.noise, 0.0, "DenoisingKL")

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model of another make is refused here."""
        require_kind(
            model,
            GaussianDenoiser,
            "DenoisingKL trains a scores.GaussianDenoiser, not {}; DSM trains scores and energies",
        )
        return None

    def __call__(
        self, model: GaussianDenoiser, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        def surprise(x, key):
            mean, log_std = model(self.noise.sample(jnp.zeros(()), x, key=key))
            white = (x - mean) * jnp.exp(-log_std)
            return jnp.mean(0.5 * white**2 + log_std) + 0.5 * math.log(2 * math.pi), jnp.mean((x - mean) ** 2)

        surprises, errors = jax.vmap(surprise)(batch, jax.random.split(key, len(batch)))
        return jnp.mean(surprises), (None, {"squared_error": jnp.mean(errors)})
