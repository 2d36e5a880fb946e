"""A term whose coefficients are given and not learnt."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unnorm.graphs.network import Network
from unnorm.graphs.terms.base import AbstractTerm


@dataclass(frozen=True)
class Offset(AbstractTerm):
    """A term with fixed coefficients: one for all its statistics, or one for each; minus infinity forbids.

    >>> from unnorm.graphs.terms import Edges
    >>> Offset(Edges(), (-2.0,)).coefficients
    (-2.0,)
    """

    term: AbstractTerm
    coefficients: tuple[float, ...]
    word: ClassVar[str] = "offset"
    directed: ClassVar[bool | None] = None

    @property
    def independent(self) -> bool:
        return self.term.independent

    def names(self, network: Network) -> tuple[str, ...]:
        return tuple(f"offset({name})" for name in self.term.names(network))

    def values(self, network: Network) -> np.ndarray:
        return self.term.values(network)

    def change(self, network: Network) -> Callable[..., None]:
        return self.term.change(network)

    def statistic(self, y: np.ndarray, network: Network) -> np.ndarray:
        return self.term.statistic(y, network)

    def empty(self, network: Network) -> np.ndarray:
        return self.term.empty(network)
