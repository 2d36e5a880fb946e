"""Draws from one fixed target."""

from unnorm.samplers.base import AbstractAdaptiveSampler as AbstractAdaptiveSampler
from unnorm.samplers.base import AbstractGradientSampler as AbstractGradientSampler
from unnorm.samplers.base import AbstractSampler as AbstractSampler
from unnorm.samplers.base import Info as Info
from unnorm.samplers.gibbs import Gibbs as Gibbs
from unnorm.samplers.hamiltonian import HMC as HMC
from unnorm.samplers.hamiltonian import MALA as MALA
from unnorm.samplers.hamiltonian import NUTS as NUTS
from unnorm.samplers.langevin import Langevin as Langevin
from unnorm.samplers.run import Trace as Trace
from unnorm.samplers.run import sample as sample
