"""Draws from one fixed target."""

from unnorm.samplers.base import AbstractAdaptiveSampler as AbstractAdaptiveSampler
from unnorm.samplers.base import AbstractGradientSampler as AbstractGradientSampler
from unnorm.samplers.base import AbstractSampler as AbstractSampler
from unnorm.samplers.base import Info as Info
from unnorm.samplers.denoising_gibbs import AbstractCovariance as AbstractCovariance
from unnorm.samplers.denoising_gibbs import DenoiserScore as DenoiserScore
from unnorm.samplers.denoising_gibbs import DenoisingGibbs as DenoisingGibbs
from unnorm.samplers.denoising_gibbs import DiagonalCovariance as DiagonalCovariance
from unnorm.samplers.denoising_gibbs import FullCovariance as FullCovariance
from unnorm.samplers.denoising_gibbs import IsotropicCovariance as IsotropicCovariance
from unnorm.samplers.denoising_gibbs import LearnedCovariance as LearnedCovariance
from unnorm.samplers.denoising_gibbs import hessian_diagonal as hessian_diagonal
from unnorm.samplers.denoising_gibbs import isotropic_covariance as isotropic_covariance
from unnorm.samplers.denoising_gibbs import isotropic_variance as isotropic_variance
from unnorm.samplers.denoising_gibbs import learned_posterior as learned_posterior
from unnorm.samplers.gibbs import Gibbs as Gibbs
from unnorm.samplers.hamiltonian import HMC as HMC
from unnorm.samplers.hamiltonian import MALA as MALA
from unnorm.samplers.hamiltonian import NUTS as NUTS
from unnorm.samplers.langevin import Langevin as Langevin
from unnorm.samplers.ozaki import Ozaki as Ozaki
from unnorm.samplers.run import Trace as Trace
from unnorm.samplers.run import sample as sample
from unnorm.samplers.tempering import ParallelTempering as ParallelTempering
