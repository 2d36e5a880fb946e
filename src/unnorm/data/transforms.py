"""What is done to a row each time it is met in training: each is a value, a function of one row and a key."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.ndimage import map_coordinates
from jaxtyping import PRNGKeyArray

from unnorm.arguments import named, require_count
from unnorm.errors import InputError, require
from unnorm.spaces import Conditioned


class AbstractTransform(eqx.Module):
    """row -> row, at random. Of a `Conditioned` row most change the point alone."""

    @abstractmethod
    def __call__(self, row: Any, *, key: PRNGKeyArray) -> Any:
        """The row as it is learnt from this time."""


class AbstractPointTransform(AbstractTransform):
    """One that changes the point and leaves a condition beside it alone."""

    @abstractmethod
    def of_point(self, x: Any, *, key: PRNGKeyArray) -> Any:
        """The point as it is learnt from this time."""

    def __call__(self, row: Any, *, key: PRNGKeyArray) -> Any:
        if isinstance(row, Conditioned):
            return Conditioned(self.of_point(row.x, key=key), row.condition)
        return self.of_point(row, key=key)


class InTurn(AbstractTransform):
    """One transform after another.

    >>> import numpy as np
    >>> InTurn((Flip(axis=1), Dequantise(1.0)))(jnp.zeros((2, 2)), key=jax.random.key(0)).shape
    (2, 2)
    """

    parts: tuple[AbstractTransform, ...]

    def __call__(self, row: Any, *, key: PRNGKeyArray) -> Any:
        for part, k in zip(self.parts, jax.random.split(key, len(self.parts)), strict=True):
            row = part(row, key=k)
        return row


class Flip(AbstractPointTransform):
    """The mirror image along an axis of the point, by a coin. For pictures of H x W x C, axis 1 is left and right."""

    axis: int = eqx.field(static=True, default=1)

    def of_point(self, x: Any, *, key: PRNGKeyArray) -> Any:
        require(-x.ndim <= self.axis < x.ndim, f"a point of shape {x.shape} has no axis {self.axis} to be mirrored on")
        return jnp.where(jax.random.bernoulli(key), jnp.flip(x, self.axis), x)


class Shift(AbstractPointTransform):
    """The picture moved by up to `most` places along each of its first two axes; its edge values fill the gap."""

    most: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        require_count(self.most, 1, "the places that a picture is moved by at most")

    def of_point(self, x: Any, *, key: PRNGKeyArray) -> Any:
        require(x.ndim >= 2, f"a picture has two axes at least, and this point has shape {x.shape}")
        edges = [(self.most, self.most)] * 2 + [(0, 0)] * (x.ndim - 2)
        by = jax.random.randint(key, (2,), 0, 2 * self.most + 1)
        corner = [*by, *[0] * (x.ndim - 2)]
        return jax.lax.dynamic_slice(jnp.pad(x, edges, mode="edge"), corner, x.shape)


class Turn(AbstractPointTransform):
    """The picture turned about its middle by an angle uniform on [-most, most] degrees, and zoomed.

    It is made `zoom` times as large or as small at most, with the logarithm of the factor uniform. Values between
    pixels are those of straight lines, and the edge's beyond it; the first two axes are height and width.

    >>> Turn(10.0)(jnp.ones((4, 4, 1)), key=jax.random.key(0)).shape
    (4, 4, 1)
    """

    most: float = eqx.field(static=True, default=10.0)
    zoom: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        require(0 <= self.most <= 180, f"a picture is turned by 0 to 180 degrees at most, not by {self.most}")
        require(1 <= self.zoom < jnp.inf, f"a picture is made larger by a factor of 1 or more at most, not {self.zoom}")

    def of_point(self, x: Any, *, key: PRNGKeyArray) -> Any:
        require(x.ndim >= 2, f"a picture has two axes at least, and this point has shape {x.shape}")
        turn, size = jax.random.split(key)
        angle = jnp.deg2rad(self.most) * jax.random.uniform(turn, (), x.dtype, -1, 1)
        factor = jnp.exp(jnp.log(self.zoom) * jax.random.uniform(size, (), x.dtype, -1, 1))
        sides = [jnp.arange(side, dtype=x.dtype) - (side - 1) / 2 for side in x.shape[:2]]
        cos, sin = jnp.cos(angle) / factor, jnp.sin(angle) / factor
        down, right = jnp.meshgrid(*sides, indexing="ij")
        places = [cos * down - sin * right - sides[0][0], sin * down + cos * right - sides[1][0]]
        layers = x.reshape(*x.shape[:2], -1)
        turned = jax.vmap(lambda layer: map_coordinates(layer, places, 1, "nearest"), -1, -1)(layers)
        return turned.reshape(x.shape)


class Dequantise(AbstractPointTransform):
    """x + step u with u uniform on [-1/2, 1/2) in every coordinate: the density of what was rounded to steps.

    Its log-likelihood bounds from below that of the rounded values, plus log step for each of them (Theis et al. 2016).
    """

    step: float = eqx.field(static=True)

    def __check_init__(self):
        require(self.step > 0, f"the step that values were rounded to is positive, not {self.step}")

    def of_point(self, x: Any, *, key: PRNGKeyArray) -> Any:
        return x + self.step * (jax.random.uniform(key, x.shape, x.dtype) - 0.5)


class DropLabel(AbstractTransform):
    """The label is left out in a share of the rows, for guidance without a classifier (Ho and Salimans 2021).

    "No label" is written as the number one past the last category.

    >>> drop = DropLabel(categories=3, share=1.0)
    >>> int(drop(Conditioned(jnp.zeros(2), jnp.asarray(1)), key=jax.random.key(0)).condition)
    3
    """

    categories: int = eqx.field(static=True)
    share: float = eqx.field(static=True, default=0.1)

    def __check_init__(self):
        require_count(self.categories, 2, "the number of categories")
        require(0 <= self.share <= 1, f"the share of rows without their label is from 0 to 1, not {self.share}")

    def __call__(self, row: Any, *, key: PRNGKeyArray) -> Any:
        if not isinstance(row, Conditioned):
            raise InputError(f"DropLabel leaves out the label beside a point, and a row here is {named(row)}")
        without = jax.random.bernoulli(key, self.share, jnp.shape(row.condition))
        return Conditioned(row.x, jnp.where(without, self.categories, row.condition))
