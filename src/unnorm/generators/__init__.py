"""Walks from noise to data, one noise level to the next."""

from unnorm.generators.base import AbstractTransition as AbstractTransition
from unnorm.generators.base import Then as Then
from unnorm.generators.gibbs import GibbsTransition as GibbsTransition
from unnorm.generators.langevin import LangevinCorrector as LangevinCorrector
from unnorm.generators.run import AbstractFinish as AbstractFinish
from unnorm.generators.run import Generated as Generated
from unnorm.generators.run import PosteriorDraw as PosteriorDraw
from unnorm.generators.run import PosteriorMean as PosteriorMean
from unnorm.generators.run import Stay as Stay
from unnorm.generators.run import generate as generate
