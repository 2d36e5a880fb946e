"""A learnt posterior of the clean point given the noisy one."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import InputError
from unnorm.spaces import AbstractOnRealRows


class GaussianDenoiser(AbstractOnRealRows):
    """p(x | x~) = N(mean(x~), diag exp(2 log_std(x~))), both from one network of 2 d outputs.

    The "learned" posterior of Zhang et al. 2023. By Tweedie's formula (mean - x~) / sigma^2 is the noisy score.

    >>> import jax, jax.numpy as jnp, equinox as eqx
    >>> denoiser = GaussianDenoiser(eqx.nn.Linear(2, 4, key=jax.random.key(0)))
    >>> mean, log_std = denoiser(jnp.zeros(2))
    >>> mean.shape, log_std.shape
    ((2,), (2,))
    """

    network: Callable[[Array], Array]

    def __call__(self, noisy: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """The posterior's mean and the logarithm of its standard deviations."""
        found = self.network(noisy.reshape(-1))
        if found.shape != (2 * noisy.size,):
            raise InputError(
                f"a denoiser of {noisy.size} numbers needs a network of {2 * noisy.size} outputs, not {found.shape}"
            )
        mean, log_std = jnp.split(found, 2)
        return mean.reshape(noisy.shape), log_std.reshape(noisy.shape)

    def sample(self, noisy: Float[Array, "..."], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        """A clean point that may have been the noisy one."""
        mean, log_std = self(noisy)
        return mean + jnp.exp(log_std) * jax.random.normal(key, noisy.shape, noisy.dtype)
