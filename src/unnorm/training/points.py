"""The points a model is trained on: numbers, of the shape and the kind that the model is made for."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unnorm.energies import AbstractEnergy
from unnorm.errors import InputError, require
from unnorm.networks.autoencoder import Autoencoder, ScoredAutoencoder
from unnorm.scores import AbstractScore, ConditionalEnergy
from unnorm.scores.denoiser import GaussianDenoiser
from unnorm.spaces import AbstractSpace, Mixed


def _space_of(model: Any) -> AbstractSpace | None:
    """Where the model's points live, if it says so: scores and autoencoders do not."""
    return model.space if isinstance(model, AbstractEnergy | ConditionalEnergy) else None


def require_shape(model: eqx.Module, shape: tuple[int, ...], what: str) -> None:
    """Refuse points of another shape than the model's: broadcasting would take one number for all of them."""
    space = _space_of(model)
    if space is None or isinstance(space, Mixed):
        return
    expected: Any = space
    require(
        tuple(shape) == tuple(expected.shape),
        f"a point of the {what} data has shape {tuple(shape)}, and {type(model).__name__} is made for {space}; "
        "give data and model the same shape",
    )


def _numbers(data: Any, what: str) -> Array:
    try:
        array = data if isinstance(data, jax.Array) else np.asarray(data)
    except ValueError as error:
        raise InputError(f"{what} data are rows of unequal length; give n points of one shape") from error
    kinds = (jnp.floating, jnp.integer, jnp.bool_)
    require(
        any(jnp.issubdtype(array.dtype, kind) for kind in kinds),
        f"{what} data must be real numbers, not of type {array.dtype}; turn words into numbers first",
    )
    return jnp.asarray(array)


def checked_points(model: eqx.Module, data: Any, what: str) -> Array:
    """The data as an array of finite numbers that fits the model.

    Whole numbers become real ones where the model's points are real: noise cast to whole numbers would be another
    noise, and they have no gradients. On discrete spaces they stay.

    >>> import unnorm as un
    >>> checked_points(un.energies.standard_gaussian(2), [[1, 2], [3, 4]], "training").dtype
    dtype('float32')
    """
    array = _numbers(data, what)
    require(array.ndim >= 2 and len(array) >= 1, f"{what} data are n points along the first axis, not {array.shape}")
    bad = int(jnp.sum(~jnp.isfinite(array)))
    require(bad == 0, f"{what} data hold {bad} values that are not finite; remove or impute them")
    require_shape(model, array.shape[1:], what)
    space = _space_of(model)
    known = isinstance(model, AbstractScore | Autoencoder | ScoredAutoencoder | GaussianDenoiser)
    real = known if space is None else space.continuous
    return array.astype(float) if real and not jnp.issubdtype(array.dtype, jnp.floating) else array
