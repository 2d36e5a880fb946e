"""What people do with a model."""

from unnorm.tasks.clean import CleanDensity as CleanDensity
from unnorm.tasks.clean import clean_density as clean_density
from unnorm.tasks.denoising import Denoised as Denoised
from unnorm.tasks.denoising import denoise as denoise
from unnorm.tasks.graph_cut import graph_cut as graph_cut
from unnorm.tasks.restoration import Marginals as Marginals
from unnorm.tasks.restoration import Restored as Restored
from unnorm.tasks.restoration import anneal as anneal
from unnorm.tasks.restoration import cooling as cooling
from unnorm.tasks.restoration import flipped_posterior as flipped_posterior
from unnorm.tasks.restoration import icm as icm
from unnorm.tasks.restoration import marginal_modes as marginal_modes
from unnorm.tasks.score_flow import ScoreFlow as ScoreFlow
from unnorm.tasks.score_flow import likelihood_objective as likelihood_objective
from unnorm.tasks.score_flow import score_flow as score_flow
