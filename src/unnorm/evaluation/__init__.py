"""How good is it, and how sure are we."""

from unnorm.evaluation.ais import ais as ais
from unnorm.evaluation.importance import defensive as defensive
from unnorm.evaluation.importance import expectation as expectation
from unnorm.evaluation.importance import expectations as expectations
from unnorm.evaluation.importance import importance as importance
from unnorm.evaluation.latent import evidence as evidence
from unnorm.evaluation.latent import mean_evidence as mean_evidence
from unnorm.evaluation.likelihood import energies as energies
from unnorm.evaluation.likelihood import log_likelihood as log_likelihood
from unnorm.evaluation.partition import log_partition as log_partition
from unnorm.evaluation.two_sample import median_bandwidth as median_bandwidth
from unnorm.evaluation.two_sample import mmd as mmd
from unnorm.samplers.diagnostics import summarise as summarise
