"""Scores grad log p_t(x): from an energy, or a network of their own."""

from unnorm.scores.base import AbstractScore as AbstractScore
from unnorm.scores.base import EnergyScore as EnergyScore
from unnorm.scores.base import FunctionScore as FunctionScore
from unnorm.scores.base import as_score as as_score
from unnorm.scores.conditional import ConditionalScore as ConditionalScore
from unnorm.scores.conditional import conditional_mlp as conditional_mlp
from unnorm.scores.conditional import widened as widened
from unnorm.scores.curvature import slopes_and_curvature as slopes_and_curvature
from unnorm.scores.denoiser import GaussianDenoiser as GaussianDenoiser
from unnorm.scores.kernel import SpectralScore as SpectralScore
from unnorm.scores.kernel import median_width as median_width
from unnorm.scores.kernel import stein_score as stein_score
from unnorm.scores.second_order import AbstractFactored as AbstractFactored
from unnorm.scores.second_order import AbstractSecondOrder as AbstractSecondOrder
from unnorm.scores.second_order import DenoisingPosterior as DenoisingPosterior
from unnorm.scores.second_order import DiagonalSecondOrder as DiagonalSecondOrder
from unnorm.scores.second_order import FreeScore as FreeScore
from unnorm.scores.second_order import FromScore as FromScore
from unnorm.scores.second_order import LowRankSecondOrder as LowRankSecondOrder
from unnorm.scores.second_order import diagonal_mlp as diagonal_mlp
from unnorm.scores.second_order import low_rank_mlp as low_rank_mlp
from unnorm.scores.second_order import posterior_moment as posterior_moment
