"""Walks from noise to data, one noise level to the next."""

from unnorm.generators.base import AbstractOneStep as AbstractOneStep
from unnorm.generators.base import AbstractTransition as AbstractTransition
from unnorm.generators.base import Then as Then
from unnorm.generators.base import Walker as Walker
from unnorm.generators.corrector import SignalToNoise as SignalToNoise
from unnorm.generators.ddim import DDIM as DDIM
from unnorm.generators.dpm_solver import DPMSolver as DPMSolver
from unnorm.generators.euler import EulerMaruyama as EulerMaruyama
from unnorm.generators.exponential import ExponentialIntegrator as ExponentialIntegrator
from unnorm.generators.finish import AbstractFinish as AbstractFinish
from unnorm.generators.finish import PosteriorDraw as PosteriorDraw
from unnorm.generators.finish import PosteriorMean as PosteriorMean
from unnorm.generators.finish import Stay as Stay
from unnorm.generators.flow import FlowEuler as FlowEuler
from unnorm.generators.flow import Heun as Heun
from unnorm.generators.general import ReverseProcess as ReverseProcess
from unnorm.generators.gibbs import GibbsTransition as GibbsTransition
from unnorm.generators.langevin import LangevinCorrector as LangevinCorrector
from unnorm.generators.reverse import Ancestral as Ancestral
from unnorm.generators.reverse import ReverseDiffusion as ReverseDiffusion
from unnorm.generators.reverse import ReverseFlow as ReverseFlow
from unnorm.generators.run import Generated as Generated
from unnorm.generators.run import generate as generate
from unnorm.generators.terms import flow_term as flow_term
from unnorm.generators.terms import reverse_terms as reverse_terms
from unnorm.generators.unipc import UniPC as UniPC
