"""Scores grad log p_t(x): from an energy, or a network of their own."""

from unnorm.scores.base import AbstractScore as AbstractScore
from unnorm.scores.base import EnergyScore as EnergyScore
from unnorm.scores.base import FunctionScore as FunctionScore
from unnorm.scores.base import as_score as as_score
