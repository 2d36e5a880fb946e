"""Walks from noise to data, one noise level to the next."""

from unnorm.generators.base import AbstractOneStep as AbstractOneStep
from unnorm.generators.base import AbstractTransition as AbstractTransition
from unnorm.generators.base import Then as Then
from unnorm.generators.base import Walker as Walker
from unnorm.generators.finish import AbstractFinish as AbstractFinish
from unnorm.generators.finish import PosteriorDraw as PosteriorDraw
from unnorm.generators.finish import PosteriorMean as PosteriorMean
from unnorm.generators.finish import Stay as Stay
from unnorm.generators.gibbs import GibbsTransition as GibbsTransition
from unnorm.generators.langevin import LangevinCorrector as LangevinCorrector
from unnorm.generators.run import Generated as Generated
from unnorm.generators.run import generate as generate
from unnorm.generators.terms import flow_term as flow_term
from unnorm.generators.terms import reverse_terms as reverse_terms
