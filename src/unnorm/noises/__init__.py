"""How data is corrupted: kernels q(y | x) with a level t."""

from unnorm.noises.base import AbstractGaussianNoise as AbstractGaussianNoise
from unnorm.noises.base import AbstractKernel as AbstractKernel
from unnorm.noises.base import AbstractNoise as AbstractNoise
from unnorm.noises.gaussian import Gaussian as Gaussian
from unnorm.noises.gaussian import OrnsteinUhlenbeck as OrnsteinUhlenbeck
from unnorm.noises.gaussian import VarianceExploding as VarianceExploding
from unnorm.noises.gaussian import VariancePreserving as VariancePreserving
from unnorm.noises.jumps import AbstractNoiseFromData as AbstractNoiseFromData
from unnorm.noises.jumps import Blend as Blend
from unnorm.noises.jumps import BlendedJumps as BlendedJumps
from unnorm.noises.jumps import Choice as Choice
from unnorm.noises.jumps import GlobalJumps as GlobalJumps
from unnorm.noises.jumps import Jumps as Jumps
from unnorm.noises.jumps import propose as propose
from unnorm.noises.kde import KDE as KDE
from unnorm.noises.kde import DataJump as DataJump
from unnorm.noises.kde import Independent as Independent
from unnorm.noises.scales import Scales as Scales
from unnorm.noises.scales import scales_of as scales_of
