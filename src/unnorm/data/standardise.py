"""Every column to mean 0 and standard deviation 1, and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unnorm.errors import require


@dataclass(frozen=True, eq=False)
class Standardiser:
    """z = (x - mean) / scale, column by column.

    A density learnt on z becomes one on x by the change of variables
    log p_raw(x) = log p_unit(z) - log_volume, with log_volume = sum_j log scale_j.

    >>> standardiser = Standardiser.fit([[0.0], [2.0]])
    >>> standardiser.to_unit([[4.0]])
    array([[3.]])
    """

    mean: np.ndarray
    scale: np.ndarray

    def __post_init__(self) -> None:
        # The dataclass is frozen, so plain assignment is not available here.
        object.__setattr__(self, "mean", np.asarray(self.mean, dtype=np.float64))
        object.__setattr__(self, "scale", np.asarray(self.scale, dtype=np.float64))
        require(
            self.mean.ndim == 1 and self.mean.shape == self.scale.shape,
            f"a standardiser needs one mean and one scale per column, not shapes {self.mean.shape} and "
            f"{self.scale.shape}",
        )
        good = np.isfinite(self.mean) & np.isfinite(self.scale) & (self.scale > 0)
        require(
            bool(good.all()),
            f"column {int(np.argmin(good)) + 1} cannot be standardised: its spread is zero or not finite; "
            "remove the column if it is constant, else measure it in other units",
        )

    @staticmethod
    def fit(values: object) -> "Standardiser":
        """The mean and standard deviation of each column of an n x d array."""
        values = np.asarray(values, dtype=np.float64)
        require(
            values.ndim == 2 and len(values) > 0,
            f"standardising needs rows and columns of numbers, not an array of shape {values.shape}",
        )
        with np.errstate(over="ignore", invalid="ignore"):
            mean, scale = values.mean(axis=0), values.std(axis=0)
        # Rounding can leave a constant column a tiny spread, which would be blown up to one.
        scale = np.where(values.max(axis=0) > values.min(axis=0), scale, 0.0)
        return Standardiser(mean, scale)

    def to_unit(self, values: object) -> np.ndarray:
        """z of x; any leading axes."""
        return (self._checked(values) - self.mean) / self.scale

    def to_raw(self, values: object) -> np.ndarray:
        """x of z; any leading axes."""
        return self._checked(values) * self.scale + self.mean

    @property
    def log_volume(self) -> float:
        """sum_j log scale_j: what to subtract from log p_unit(z) to get log p_raw(x)."""
        return float(np.log(self.scale).sum())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist()}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "Standardiser":
        """The inverse of `to_dict`."""
        return Standardiser(np.asarray(data["mean"], np.float64), np.asarray(data["scale"], np.float64))

    def _checked(self, values: object) -> np.ndarray:
        values = np.asarray(values, dtype=np.float64)
        require(
            values.ndim >= 1 and values.shape[-1] == len(self.mean),
            f"the standardiser knows {len(self.mean)} columns, but this array has shape {values.shape}",
        )
        return values
