"""The objectives that a command can name."""

from typing import Literal

from pydantic import Field

from unnorm import noises, objectives, samplers
from unnorm.catalogue.diffusion import LEVELS
from unnorm.catalogue.entry import (
    Context,
    Entry,
    Options,
    chosen,
    on_reals,
    on_reals_and_sites,
    on_sites,
    on_vectors_and_sites,
)
from unnorm.catalogue.site_objectives import SITES, site_walk
from unnorm.energies import AbstractHidden, NeuralEnergy, Tilted
from unnorm.errors import require
from unnorm.networks import MLP
from unnorm.objectives.slices import AbstractSlices, GaussianSlices, RademacherSlices, SphereSlices


class LocalOptions(Options):
    local: float | None = Field(default=None, gt=0)
    draws: int = Field(default=1, ge=1)


class GlobalOptions(Options):
    bandwidth: float | None = Field(default=None, ge=0)
    draws: int = Field(default=1, ge=1)


class JumpsOptions(Options):
    local: tuple[float, ...] | None = None
    bandwidth: float | None = Field(default=None, ge=0)
    share: float = Field(default=0.5, gt=0, lt=1)
    wide: float = Field(default=0.1, ge=0, lt=1)
    draws: int = Field(default=1, ge=1)


class BlendOptions(Options):
    local: float | None = Field(default=None, gt=0)
    bandwidth: float | None = Field(default=None, gt=0)
    share: float = Field(default=0.5, gt=0, lt=1)
    draws: int = Field(default=1, ge=1)


class DSMOptions(Options):
    noise: float | None = Field(default=None, gt=0)


class PCDOptions(Options):
    step_size: float | None = Field(default=None, gt=0)
    chains: int = Field(default=256, ge=1)
    moves: int = Field(default=10, ge=1)
    restart: float = Field(default=0.05, ge=0, le=1)


class RatioOptions(Options):
    ratio: float = Field(default=1.0, gt=0)


class NCEOptions(RatioOptions):
    noise: Literal["gaussian", "unit", "span", "kde", "mixture"] = "gaussian"
    bandwidth: float | None = Field(default=None, gt=0)
    components: int = Field(default=8, ge=1)


class CDOptions(Options):
    step_size: float | None = Field(default=None, gt=0)
    moves: int = Field(default=10, ge=1)


class ShortRunOptions(Options):
    step_size: float | None = Field(default=None, gt=0)
    moves: int = Field(default=50, ge=1)
    chains: int = Field(default=256, ge=1)


class GeyerOptions(Options):
    step_size: float | None = Field(default=None, gt=0)
    chains: int = Field(default=512, ge=2)
    moves: int = Field(default=50, ge=1)
    every: int = Field(default=20, ge=1)


class SlicedOptions(Options):
    slices: Literal["rademacher", "gaussian", "sphere"] = "rademacher"
    draws: int = Field(default=1, ge=1)


class FiniteOptions(SlicedOptions):
    step: float | None = Field(default=None, gt=0)


class EDOptions(Options):
    noise: float | None = Field(default=None, gt=0)
    draws: int = Field(default=4, ge=1)
    stabiliser: float = Field(default=1.0, ge=0)


def _cnce(o: JumpsOptions, c: Context) -> objectives.CNCE:
    local = o.local or (0.5 * c.scales.step, c.scales.step, 2 * c.scales.step)
    bandwidth = chosen(o.bandwidth, c.scales.bandwidth)
    # A row's own kernel is no property of the density. At bandwidth 0 there is none to leave out.
    noise = noises.Jumps(local=local, bandwidth=bandwidth, share=o.share, wide=o.wide, leave_one_out=bandwidth > 0)
    return objectives.CNCE(noise, draws=o.draws)


def _cnce_local(o: LocalOptions, c: Context) -> objectives.CNCE:
    return objectives.CNCE(noises.Gaussian(chosen(o.local, c.scales.step)), draws=o.draws)


def _cnce_global(o: GlobalOptions, c: Context) -> objectives.CNCE:
    bandwidth = chosen(o.bandwidth, c.scales.bandwidth)
    return objectives.CNCE(noises.GlobalJumps(bandwidth, leave_one_out=bandwidth > 0), draws=o.draws)


def _cnce_blend(o: BlendOptions, c: Context) -> objectives.CNCE:
    local, bandwidth = chosen(o.local, c.scales.step), chosen(o.bandwidth, c.scales.bandwidth)
    noise = noises.BlendedJumps(local=local, bandwidth=bandwidth, share=o.share, leave_one_out=True)
    return objectives.CNCE(noise, draws=o.draws)


def _dsm(o: DSMOptions, c: Context) -> objectives.DSM:
    # A fifth of the length adds 4% to a variance: the noise that is learnt along with the data stays small.
    return objectives.DSM(noises.Gaussian(chosen(o.noise, 0.2 * c.scales.length)))


def _pcd(o: PCDOptions, c: Context) -> objectives.PCD:
    return objectives.PCD(_walk(o.step_size, c), chains=o.chains, moves=o.moves, restart=o.restart)


def _walk(step_size: float | None, c: Context) -> samplers.AbstractSampler:
    """The moves of chains in training: Langevin steps on real numbers, sites redrawn on bits and categories.

    A machine with hidden units draws these and then the visible ones, whatever it is on.
    """
    if on_sites(c.space):
        require(step_size is None, "chains on bits redraw sites and have no step size; leave step_size out")
        return site_walk(c)
    if step_size is None and any(issubclass(made, AbstractHidden) for made in c.makes):
        return samplers.Gibbs()
    return samplers.Langevin(chosen(step_size, 0.1 * c.scales.length**2))


def _reference(o: NCEOptions, c: Context) -> noises.AbstractReferenceFromData:
    if o.noise == "gaussian":
        return noises.MomentGaussian()
    if o.noise == "unit":
        return noises.UnitGaussian()
    if o.noise == "span":
        return noises.SpanGaussian()
    if o.noise == "kde":
        return noises.FittedKDE(chosen(o.bandwidth, c.scales.bandwidth))
    return noises.FittedMixture(o.components)


def _slices(o: SlicedOptions) -> AbstractSlices:
    return {"rademacher": RademacherSlices, "gaussian": GaussianSlices, "sphere": SphereSlices}[o.slices]()


def _ed(o: EDOptions, c: Context) -> objectives.EnergyDiscrepancy:
    # Between the limits: at the length the data vary over, a draw reaches across a mode, and not across the data.
    return objectives.EnergyDiscrepancy(
        noises.Gaussian(chosen(o.noise, c.scales.length)), draws=o.draws, stabiliser=o.stabiliser
    )


def _dsm_vr(o: DSMOptions, c: Context) -> objectives.DSMVR:
    return objectives.DSMVR(noises.Gaussian(chosen(o.noise, 0.2 * c.scales.length)))


def _fd_ssm(o: FiniteOptions, c: Context) -> objectives.FDSSM:
    return objectives.FDSSM(chosen(o.step, 0.1 * c.scales.length), _slices(o), o.draws)


#: On each space the first that works there and learns the model is the default.
OBJECTIVES: tuple[Entry[objectives.AbstractObjective], ...] = (
    Entry("tilt", "NCE of a tilted model against its own reference", RatioOptions,
          lambda o, c: objectives.TiltNCE(o.ratio), learns=(Tilted,),
          works=on_vectors_and_sites),
    LEVELS,
    Entry("cnce", "conditional NCE with local moves and jumps between modes (mix)", JumpsOptions, _cnce),
    Entry("cnce-local", "conditional NCE with local moves only", LocalOptions, _cnce_local),
    Entry("cnce-global", "conditional NCE with jumps only", GlobalOptions, _cnce_global),
    Entry("cnce-blend", "conditional NCE with both as one kernel", BlendOptions, _cnce_blend),
    Entry("nce", "noise-contrastive estimation, log Z learnt", NCEOptions,
          lambda o, c: objectives.NCE(_reference(o, c), o.ratio)),
    Entry("ed", "energy discrepancy with Gaussian perturbations", EDOptions, _ed),
    Entry("dsm", "denoising score matching at one small noise level", DSMOptions, _dsm, works=on_reals),
    Entry("dsm-vr", "the same with its variance reduced", DSMOptions, _dsm_vr, works=on_reals),
    Entry("sm", "score matching with the exact trace", Options, lambda o, c: objectives.SM()),
    Entry("ssm", "sliced score matching", SlicedOptions, lambda o, c: objectives.SSM(_slices(o), o.draws)),
    Entry("ssm-vr", "sliced score matching, variance reduced", SlicedOptions,
          lambda o, c: objectives.SSMVR(_slices(o), o.draws)),
    Entry("fd-ssm", "sliced score matching by finite differences", FiniteOptions, _fd_ssm),
    Entry("approx-bp", "score matching, diagonal curvature backpropagated (biased)", Options,
          lambda o, c: objectives.ApproximateBP(), learns=(NeuralEnergy, MLP)),
    Entry("cp", "score matching by curvature propagation", Options,
          lambda o, c: objectives.CurvaturePropagation(), learns=(NeuralEnergy, MLP)),
    Entry("pcd", "persistent contrastive divergence with Langevin chains, Gibbs on bits and categories", PCDOptions,
          _pcd, works=on_reals_and_sites),
    Entry("cd", "contrastive divergence, chains from the batch", CDOptions,
          lambda o, c: objectives.CD(_walk(o.step_size, c), o.moves), works=on_reals_and_sites),
    Entry("short-run", "chains from noise, a fixed number of moves", ShortRunOptions,
          lambda o, c: objectives.ShortRun(_walk(o.step_size, c), o.moves, o.chains)),
    Entry("geyer", "MCMC maximum likelihood with re-anchoring", GeyerOptions,
          lambda o, c: objectives.Geyer(_walk(o.step_size, c), o.chains, o.moves, o.every)),
    *SITES,
)  # fmt: skip
#: Objectives for models that are built in Python: name, summary.
PYTHON_OBJECTIVES = (
    ("MLE", "maximum likelihood of a normalised model"),
    ("DiffusionSM", "score matching weighted by a positive-definite Sigma(x)"),
    ("DenoisingKL", "mean and spread of the clean point given the noisy one"),
    ("D2SM", "second-order denoising score matching, low rank plus diagonal"),
    ("D2SMVR", "the same, antithetic, variance reduced"),
    ("DiagonalD2SM", "second-order scores, diagonal"),
    ("DiagonalD2SMVR", "the same, variance reduced"),
    ("JointSecondOrder", "first- and second-order scores together"),
    ("KernelFamily", "deep kernel exponential family with closed-form coefficients"),
    ("ELBO", "evidence lower bound of an autoencoder"),
    ("ImplicitVAE", "implicit encoder, entropy by sliced score estimation"),
    ("WAE", "Wasserstein autoencoder, entropy by sliced score estimation"),
    ("WeightedSum", "0.5 * a + b of any objectives"),
    ("AtLevel", "any objective of an energy, at one level of a levelled energy (regularised diffusion)"),
    ("KernelVAE", "implicit encoder, entropy by a Stein or spectral kernel score"),
    ("KernelWAE", "Wasserstein autoencoder, entropy by a kernel score"),
    ("FlowApproximateBP", "score matching of NICE, diagonal curvature backpropagated (biased)"),
    ("FlowCurvaturePropagation", "score matching of NICE by curvature propagation"),
)
