"""Losses and gradients of an objective over many batches or many keys, each flattened into a row."""

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree


@eqx.filter_jit
def _over_batches(objective, model, state, batches, keys):
    def one(batch, key):
        return ravel_pytree(eqx.filter_grad(lambda m: objective(m, state, batch, key=key)[0])(model))[0]

    return jax.vmap(one)(batches, keys)


def gradients(objective, model, batches, state=None) -> np.ndarray:
    """The gradient of the loss on each batch."""
    keys = jax.random.split(jax.random.key(5), len(batches))
    return np.asarray(_over_batches(objective, model, state, batches, keys))


@eqx.filter_jit
def losses_and_gradients(objective, model, batch, keys):
    """Loss and gradient on one batch with each key."""

    def one(key):
        return eqx.filter_value_and_grad(lambda m: objective(m, None, batch, key=key)[0])(model)

    losses, found = jax.vmap(one)(keys)
    return losses, jax.vmap(lambda g: ravel_pytree(g)[0])(found)
