"""What people do with a model."""

from unnorm.tasks.clean import CleanDensity as CleanDensity
from unnorm.tasks.clean import clean_density as clean_density
from unnorm.tasks.denoising import Denoised as Denoised
from unnorm.tasks.denoising import denoise as denoise
from unnorm.tasks.score_flow import ScoreFlow as ScoreFlow
from unnorm.tasks.score_flow import likelihood_objective as likelihood_objective
from unnorm.tasks.score_flow import score_flow as score_flow
