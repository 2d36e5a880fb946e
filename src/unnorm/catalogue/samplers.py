"""The samplers that a command can name."""

from pydantic import Field

from unnorm import samplers
from unnorm.catalogue.entry import Context, Entry, Options, chosen, on_reals, on_sites, on_vectors_and_sites
from unnorm.energies import Tilted, best_mixture
from unnorm.evaluation import defensive


class StepOptions(Options):
    step_size: float = Field(default=0.1, gt=0)


class HMCOptions(StepOptions):
    leapfrogs: int = Field(default=10, ge=1)


class NUTSOptions(StepOptions):
    max_doublings: int = Field(default=8, ge=1, le=12)


class LangevinOptions(Options):
    step_size: float | None = Field(default=None, gt=0)


class TemperingOptions(Options):
    replicas: int = Field(default=8, ge=2)
    hottest: float = Field(default=0.02, gt=0, lt=1)
    leapfrogs: int = Field(default=10, ge=1)


def _tempering(o: TemperingOptions, c: Context) -> samplers.AbstractSampler:
    return samplers.ParallelTempering(o.replicas, o.hottest, leapfrogs=o.leapfrogs)


def _langevin(o: LangevinOptions, c: Context) -> samplers.AbstractSampler:
    return samplers.Langevin(chosen(o.step_size, 0.05 * c.scales.length**2))


class SMCOptions(Options):
    islands: int = Field(default=32, ge=8)
    particles: int = Field(default=256, ge=16)
    share: float = Field(default=0.5, gt=0, lt=1)
    moves: int = Field(default=3, ge=1)
    leapfrogs: int = Field(default=5, ge=1)


def _smc(o: SMCOptions, c: Context) -> samplers.TemperedSMC:
    """From a mixture fitted to the rows, widened: it covers what the model was fitted to."""
    train, valid = c.rows("the base of smc")
    return samplers.TemperedSMC(defensive(best_mixture(train, valid, key=c.key)[0], train), **o.model_dump())


class GibbsOptions(Options):
    sites: int | None = Field(default=None, ge=1)


class IndependentOptions(Options):
    proposals: int = Field(default=16, ge=2)


#: On each space the first that works there and draws from the model is the default.
SAMPLERS: tuple[Entry[samplers.AbstractSampler | samplers.TemperedSMC | samplers.ImportanceResampling], ...] = (
    Entry("independent", "independent draws: proposed by a model's reference, kept by weight", IndependentOptions,
          lambda o, c: samplers.ImportanceResampling(proposals=o.proposals), learns=(Tilted,),
          works=on_vectors_and_sites),
    Entry("nuts", "no-U-turn sampler with warm-up", NUTSOptions, lambda o, c: samplers.NUTS(**o.model_dump()),
          works=on_reals),
    Entry("hmc", "Hamiltonian Monte Carlo with warm-up", HMCOptions, lambda o, c: samplers.HMC(**o.model_dump()),
          works=on_reals),
    Entry("mala", "Metropolis-adjusted Langevin with warm-up", StepOptions, lambda o, c: samplers.MALA(o.step_size),
          works=on_reals),
    Entry("tempering", "parallel tempering: crosses between far modes", TemperingOptions, _tempering),
    Entry("smc", "tempered sequential Monte Carlo from a mixture fitted to the rows", SMCOptions, _smc),
    Entry("langevin", "unadjusted Langevin", LangevinOptions, _langevin, works=on_reals),
    Entry("gibbs", "heat-bath Gibbs for zeros and ones and categories, a whole sweep per step", GibbsOptions,
          lambda o, c: samplers.Gibbs(o.sites), works=on_sites),
    Entry("gwg", "Gibbs with gradients: the site to change is chosen by what it would gain", Options,
          lambda o, c: samplers.GibbsWithGradients(), works=on_sites),
)  # fmt: skip
