"""What kind of thing x is, and what that alone decides.

A space says what one point looks like, which rows are points of it, and where chains on it may begin; whoever needs to
know asks the space and no list of classes. Spaces are plain frozen values: two spaces with the same fields are the same
space, so they ride as static data through compiled programs.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import PRNGKeyArray


@dataclass(frozen=True)
class AbstractSpace(ABC):
    """The kind of thing one point x is."""

    continuous: ClassVar[bool]

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers make up one point."""

    @abstractmethod
    def struct(self) -> Any:
        """What `start` draws one of: shapes and types of a point, as a PyTree of `jax.ShapeDtypeStruct`."""

    @abstractmethod
    def cast(self, rows: Any, what: str) -> Any:
        """The rows (points along a leading axis) as arrays of points, refused in one sentence if they are none.

        `what` names the rows in that sentence: "training".
        """

    @abstractmethod
    def start(self, n: int, key: PRNGKeyArray) -> Any:
        """n points to start chains from, along a leading axis."""

    @abstractmethod
    def accepts(self, point: Any) -> bool:
        """Whether this point, or its struct, is made like a point of this space; values are not looked at."""


class AbstractOnRows(eqx.Module):
    """A model that says what the rows are that it is trained on."""

    @abstractmethod
    def rows_space(self) -> AbstractSpace | None:
        """The space whose points the rows are; None: real numbers, of a shape that the model does not know."""


class AbstractOnRealRows(AbstractOnRows):
    """A model on rows of real numbers that does not know their shape."""

    def rows_space(self) -> None:
        return None
