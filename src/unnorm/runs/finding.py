"""What a finding is, and what draws are: the two that all others are kinds of."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from unnorm.spaces import AbstractSpace

Arrays = Mapping[str, np.ndarray]

#: Draws that are compared with held-out rows.
THINNED = 2000


class AbstractFinding(ABC):
    """Something found out. Its `fields` are what JSON documents say of it, and with its arrays all that it is."""

    #: What it is called among the findings.
    name: ClassVar[str]

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Plain data, each under a name of its own."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """What is too large for plain data."""

    @property
    @abstractmethod
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with it, in sentences."""

    @classmethod
    @abstractmethod
    def restored(cls, fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "AbstractFinding":
        """The inverse of `fields` and `arrays`."""


class AbstractPlainFinding(AbstractFinding):
    """One that is plain data, with nothing to warn of beyond its numbers."""

    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()


class AbstractDraws(AbstractFinding):
    """Draws of the model, and how far to trust them."""

    @property
    @abstractmethod
    def sampled(self) -> Any:
        """The draws as the sampler left them."""

    @property
    @abstractmethod
    def points(self) -> Any:
        """All draws along one axis."""

    @abstractmethod
    def thinned(self) -> Any:
        """At most `THINNED` of them, as little dependent on each other as can be had."""
