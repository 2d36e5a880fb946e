"""How a model learns: losses whose chains, anchors and noises live in a state."""

from unnorm.objectives.base import AbstractObjective as AbstractObjective
from unnorm.objectives.base import Info as Info
from unnorm.objectives.contrastive import CNCE as CNCE
from unnorm.objectives.denoising import DSM as DSM
from unnorm.objectives.likelihood import PCD as PCD
