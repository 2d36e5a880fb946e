"""Walks from noise to data, one noise level to the next."""

from unnorm.generators.base import AbstractTransition as AbstractTransition
from unnorm.generators.base import Then as Then
from unnorm.generators.langevin import LangevinCorrector as LangevinCorrector
