"""What kind of thing x is.

A space says the shape of one point and which moves make sense in it. Spaces are plain frozen values: two spaces
with the same fields are the same space, so they ride as static data through compiled programs.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from unnorm.errors import require


@dataclass(frozen=True)
class AbstractSpace(ABC):
    """The kind of thing one point x is."""

    continuous: ClassVar[bool]

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers make up one point."""


@dataclass(frozen=True)
class _AbstractArray(AbstractSpace):
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        require(
            all(isinstance(n, int) and n > 0 for n in self.shape),
            f"a shape is a tuple of positive whole numbers, not {self.shape}",
        )

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Real(_AbstractArray):
    """Points of R^shape: vectors, images, fields.

    >>> Real((2,)).size
    2
    """

    continuous: ClassVar[bool] = True


@dataclass(frozen=True)
class Binary(_AbstractArray):
    """Arrays of zeros and ones."""

    continuous: ClassVar[bool] = False


@dataclass(frozen=True)
class Categorical(_AbstractArray):
    """Arrays of whole numbers 0 .. categories - 1."""

    categories: int = 2
    continuous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.categories >= 2, f"a categorical space needs at least 2 categories, not {self.categories}")


@dataclass(frozen=True)
class Graph(AbstractSpace):
    """Adjacency matrices of simple graphs on n labelled vertices."""

    n: int
    directed: bool = False
    continuous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self.n >= 2, f"a graph needs at least 2 vertices, not {self.n}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n, self.n)

    @property
    def size(self) -> int:
        pairs = self.n * (self.n - 1)
        return pairs if self.directed else pairs // 2


@dataclass(frozen=True)
class Mixed(AbstractSpace):
    """Several spaces side by side; a point is a tuple with one entry from each."""

    parts: tuple[AbstractSpace, ...]
    continuous: ClassVar[bool] = False

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)
