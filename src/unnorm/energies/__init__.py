"""What a model is: an energy E(x), with p(x) = exp(-E(x)) / Z."""

from unnorm.energies.base import AbstractEnergy as AbstractEnergy
from unnorm.energies.base import AbstractNormalised as AbstractNormalised
from unnorm.energies.base import FunctionEnergy as FunctionEnergy
from unnorm.energies.base import Given as Given
from unnorm.energies.base import Shifted as Shifted
from unnorm.energies.base import Sum as Sum
from unnorm.energies.base import Tempered as Tempered
from unnorm.energies.em import best_committee as best_committee
from unnorm.energies.em import best_mixture as best_mixture
from unnorm.energies.em import committee as committee
from unnorm.energies.em import fit_gaussian as fit_gaussian
from unnorm.energies.em import fit_mixture as fit_mixture
from unnorm.energies.em import random_mixture as random_mixture
from unnorm.energies.flow import NICE as NICE
from unnorm.energies.gaussian import Gaussian as Gaussian
from unnorm.energies.gaussian import gaussian as gaussian
from unnorm.energies.gaussian import standard_gaussian as standard_gaussian
from unnorm.energies.kernel import DKEF as DKEF
from unnorm.energies.latent import LatentPosterior as LatentPosterior
from unnorm.energies.latent import LatentPrior as LatentPrior
from unnorm.energies.latent import latent_prior as latent_prior
from unnorm.energies.mixture import GaussianMixture as GaussianMixture
from unnorm.energies.mixture import gaussian_mixture as gaussian_mixture
from unnorm.energies.neural import MLPEnergy as MLPEnergy
from unnorm.energies.neural import NeuralEnergy as NeuralEnergy
from unnorm.energies.neural import ResNetEnergy as ResNetEnergy
