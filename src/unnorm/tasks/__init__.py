"""What people do with a model."""

from unnorm.tasks.clean import CleanDensity as CleanDensity
from unnorm.tasks.clean import clean_density as clean_density
from unnorm.tasks.denoising import Denoised as Denoised
from unnorm.tasks.denoising import denoise as denoise
