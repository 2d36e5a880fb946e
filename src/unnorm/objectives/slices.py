"""Slicing directions: random v that stand in for all coordinates at once.

Sliced objectives look at a vector field along random directions only. A law of directions is good when E[v v'] is
positive definite; when it is the identity, v'Hv is Hutchinson's unbiased estimate of tr H and the quadratic term can be
taken exactly (`objectives.SSMVR`). All laws here are symmetric in sign and in the coordinates, so E[v v'] = c I and the
fourth moments are two numbers; the asymptotic covariance of an estimator needs no more of them than that.
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.errors import require
from unnorm.objectives.checks import require_kind

Point = Float[Array, "..."]


class Fourth(NamedTuple):
    """`mixed` = E[v_i^2 v_j^2] for i != j, `pure` = E[v_i^4]; all other fourth moments are products of these or 0."""

    mixed: float
    pure: float


class AbstractSlices(eqx.Module):
    """A law of directions v of the shape of a point."""

    @abstractmethod
    def __call__(self, x: Point, *, key: PRNGKeyArray) -> Point:
        """One direction of the shape of x."""

    @property
    @abstractmethod
    def white(self) -> bool:
        """Whether E[v v'] is the identity in every dimension."""

    @abstractmethod
    def second(self, dimension: int) -> float:
        """c of E[v v'] = c I."""

    @abstractmethod
    def fourth(self, dimension: int) -> Fourth:
        """The fourth moments."""


def require_directions(slices: AbstractSlices, draws: int, *, white: bool = False) -> None:
    """Refuse what is no law of directions, or (if `white`) one without E[v v'] = I, or not a number of draws."""
    require_kind(slices, AbstractSlices, "directions follow a law such as objectives.GaussianSlices(), not {}")
    require(
        not white or slices.white,
        f"slices must have E[v v'] = I, and {slices} is not such; use RademacherSlices()",
    )
    require_count(draws, 1, "directions per point")


class GaussianSlices(AbstractSlices):
    """v ~ N(0, I).

    >>> GaussianSlices().fourth(10)
    Fourth(mixed=1.0, pure=3.0)
    """

    def __call__(self, x: Point, *, key: PRNGKeyArray) -> Point:
        return jax.random.normal(key, x.shape, x.dtype)

    @property
    def white(self) -> bool:
        return True

    def second(self, dimension: int) -> float:
        return 1.0

    def fourth(self, dimension: int) -> Fourth:
        return Fourth(1.0, 3.0)


class RademacherSlices(AbstractSlices):
    """v uniform on {-1, 1}^D: of all white laws with independent coordinates the one of least fourth moment.

    >>> RademacherSlices().fourth(10)
    Fourth(mixed=1.0, pure=1.0)
    """

    def __call__(self, x: Point, *, key: PRNGKeyArray) -> Point:
        return jax.random.rademacher(key, x.shape, x.dtype)

    @property
    def white(self) -> bool:
        return True

    def second(self, dimension: int) -> float:
        return 1.0

    def fourth(self, dimension: int) -> Fourth:
        return Fourth(1.0, 1.0)


class SphereSlices(AbstractSlices):
    """v uniform on a sphere; E[v v'] = (radius^2 / D) I, which at the default radius, sqrt(D), is the identity.

    A radius of one's own is never white: no single number is sqrt(D) in every dimension.

    >>> SphereSlices().white, SphereSlices(radius=1.0).white
    (True, False)
    """

    radius: float | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        require(self.radius is None or self.radius > 0, f"the radius of a sphere must be positive, not {self.radius}")

    def __call__(self, x: Point, *, key: PRNGKeyArray) -> Point:
        z = jax.random.normal(key, x.shape, x.dtype)
        return (x.size**0.5 if self.radius is None else self.radius) * z / jnp.linalg.norm(z.reshape(-1))

    @property
    def white(self) -> bool:
        return self.radius is None

    def second(self, dimension: int) -> float:
        return 1.0 if self.radius is None else self.radius**2 / dimension

    def fourth(self, dimension: int) -> Fourth:
        mixed = self.second(dimension) ** 2 * dimension / (dimension + 2)
        return Fourth(mixed, 3 * mixed)
