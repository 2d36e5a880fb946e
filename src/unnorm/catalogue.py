"""The one table of names: what the command line calls things, and what saved runs are rebuilt from.

Inside the library nothing is looked up by a string. Here each name is tied to its options (validated by pydantic, so a
misspelt or impossible one is a sentence) and to a function that builds the thing from them.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from jaxtyping import PRNGKeyArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unnorm import energies, noises, objectives, samplers
from unnorm.data import PROBLEMS
from unnorm.errors import InputError
from unnorm.noises import Scales
from unnorm.spaces import Real

Built = TypeVar("Built")


class Options(BaseModel):
    """Options of one entry; a field left out takes its default, `None` means `chosen from the data`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Context:
    """What a builder may look at besides its options."""

    space: Real
    scales: Scales
    key: PRNGKeyArray


@dataclass(frozen=True)
class Entry(Generic[Built]):
    """A name, what it is, and how to build it."""

    name: str
    summary: str
    options: type[Options]
    build: Callable[[Any, Context], Built]


class MLPOptions(Options):
    width: int = Field(default=128, ge=1)
    depth: int = Field(default=3, ge=1)
    scale: float | None = Field(default=None, gt=0)


class ResNetOptions(Options):
    width: int = Field(default=128, ge=1)
    blocks: int = Field(default=4, ge=1)
    scale: float | None = Field(default=None, gt=0)


class MixtureOptions(Options):
    components: int = Field(default=8, ge=1)


def _mlp(o: MLPOptions, c: Context) -> energies.AbstractEnergy:
    scale = o.scale or c.scales.length
    return energies.MLPEnergy(c.space, width=o.width, depth=o.depth, scale=scale, key=c.key)


def _resnet(o: ResNetOptions, c: Context) -> energies.AbstractEnergy:
    scale = o.scale or c.scales.length
    return energies.ResNetEnergy(c.space, width=o.width, blocks=o.blocks, scale=scale, key=c.key)


def _mixture(o: MixtureOptions, c: Context) -> energies.AbstractEnergy:
    return energies.random_mixture(c.space.size, o.components, key=c.key)


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


def _chosen(value: float | None, default: float) -> float:
    return default if value is None else value


def _cnce(o: JumpsOptions, c: Context) -> objectives.CNCE:
    local = o.local or (0.5 * c.scales.step, c.scales.step, 2 * c.scales.step)
    bandwidth = _chosen(o.bandwidth, c.scales.bandwidth)
    noise = noises.Jumps(local=local, bandwidth=bandwidth, share=o.share, wide=o.wide)
    return objectives.CNCE(noise, draws=o.draws)


def _cnce_local(o: LocalOptions, c: Context) -> objectives.CNCE:
    return objectives.CNCE(noises.Gaussian(_chosen(o.local, c.scales.step)), draws=o.draws)


def _cnce_global(o: GlobalOptions, c: Context) -> objectives.CNCE:
    return objectives.CNCE(noises.GlobalJumps(_chosen(o.bandwidth, c.scales.bandwidth)), draws=o.draws)


def _cnce_blend(o: BlendOptions, c: Context) -> objectives.CNCE:
    local, bandwidth = _chosen(o.local, c.scales.step), _chosen(o.bandwidth, c.scales.bandwidth)
    return objectives.CNCE(noises.BlendedJumps(local=local, bandwidth=bandwidth, share=o.share), draws=o.draws)


def _dsm(o: DSMOptions, c: Context) -> objectives.DSM:
    # A fifth of the length adds 4% to a variance: the noise that is learnt along with the data stays small.
    return objectives.DSM(noises.Gaussian(_chosen(o.noise, 0.2 * c.scales.length)))


def _pcd(o: PCDOptions, c: Context) -> objectives.PCD:
    step = _chosen(o.step_size, 0.1 * c.scales.length**2)
    return objectives.PCD(samplers.Langevin(step), chains=o.chains, moves=o.moves, restart=o.restart)


class StepOptions(Options):
    step_size: float = Field(default=0.1, gt=0)


class HMCOptions(StepOptions):
    leapfrogs: int = Field(default=10, ge=1)


class NUTSOptions(StepOptions):
    max_doublings: int = Field(default=8, ge=1, le=12)


class LangevinOptions(Options):
    step_size: float | None = Field(default=None, gt=0)


def _langevin(o: LangevinOptions, c: Context) -> samplers.AbstractSampler:
    return samplers.Langevin(_chosen(o.step_size, 0.05 * c.scales.length**2))


MODELS: tuple[Entry[energies.AbstractEnergy], ...] = (
    Entry("mlp", "multilayer perceptron energy", MLPOptions, _mlp),
    Entry("resnet", "residual network energy", ResNetOptions, _resnet),
    Entry("gaussian", "one Gaussian", Options, lambda o, c: energies.standard_gaussian(c.space.size)),
    Entry("mixture", "Gaussian mixture with free weights, means and covariances", MixtureOptions, _mixture),
)
OBJECTIVES: tuple[Entry[objectives.AbstractObjective], ...] = (
    Entry("cnce", "conditional NCE with local moves and jumps between modes (mix)", JumpsOptions, _cnce),
    Entry("cnce-local", "conditional NCE with local moves only", LocalOptions, _cnce_local),
    Entry("cnce-global", "conditional NCE with jumps only", GlobalOptions, _cnce_global),
    Entry("cnce-blend", "conditional NCE with both as one kernel", BlendOptions, _cnce_blend),
    Entry("dsm", "denoising score matching at one small noise level", DSMOptions, _dsm),
    Entry("pcd", "persistent contrastive divergence with Langevin chains", PCDOptions, _pcd),
)
SAMPLERS: tuple[Entry[samplers.AbstractSampler], ...] = (
    Entry("nuts", "no-U-turn sampler with warm-up", NUTSOptions, lambda o, c: samplers.NUTS(**o.model_dump())),
    Entry("hmc", "Hamiltonian Monte Carlo with warm-up", HMCOptions, lambda o, c: samplers.HMC(**o.model_dump())),
    Entry("mala", "Metropolis-adjusted Langevin with warm-up", StepOptions, lambda o, c: samplers.MALA(o.step_size)),
    Entry("langevin", "unadjusted Langevin", LangevinOptions, _langevin),
)
#: What can be named in a listing but is not built from the command line: name, summary.
NOISES = (
    ("Gaussian", "y = x + scale z"),
    ("VarianceExploding", "geometric levels, Song and Ermon 2019"),
    ("VariancePreserving", "alpha^2 + sigma^2 = 1, Song et al. 2021"),
    ("OrnsteinUhlenbeck", "dX = -X dt + sqrt(2) dB"),
    ("KDE", "kernel density estimate of the data"),
    ("DataJump", "another data point"),
    ("Independent", "draws of any normalised density"),
    ("Jumps", "local moves and global jumps, chosen per point"),
    ("BlendedJumps", "the same as one kernel"),
)
GENERATORS = (
    ("LangevinCorrector", "Langevin at each level: annealed Langevin"),
    ("Then", "one transition after another"),
)
EXPERIMENTS = (
    ("demo", "two modes, unequal weights: which objective finds them?"),
    ("cnce-table1", "seed 000, Table 1: NCE and CNCE on the 20-D mixture of 40 components"),
    ("cnce-figure1", "seed 000, Figure 1: local jumps miss the weights, mixed jumps find them"),
    ("blindness", "which objectives see mixture weights, by distance of the modes"),
    ("ed-density", "seed 002: energy discrepancy on 2-D densities, and its limits"),
    ("ssm-variance", "thesis Thm 3.3: variance of sliced score matching"),
    ("dkef-uci", "thesis Figs 3.1, B.1: deep kernel exponential families on three tables"),
    ("tables", "our default against what people use today, on three tables"),
    ("ssm-scaling", "thesis Fig. 3.2: time per step against dimension"),
    ("nice-mnist", "thesis Table 3.1: score matching losses on a flow"),
    ("implicit-vae", "thesis Table 3.2: implicit encoders"),
    ("hosm-table", "thesis Tables 4.1, 4.2: second-order scores"),
)


def listing() -> dict[str, list[tuple[str, str]]]:
    """Everything with a name, by kind."""
    return {
        "objectives": [(e.name, e.summary) for e in OBJECTIVES],
        "models": [(e.name, e.summary) for e in MODELS],
        "samplers": [(e.name, e.summary) for e in SAMPLERS],
        "generators": list(GENERATORS),
        "noises": list(NOISES),
        "data": [(name, (make.__doc__ or "").strip().splitlines()[0]) for name, make in PROBLEMS.items()],
        "experiments": list(EXPERIMENTS),
    }


def find(entries: tuple[Entry[Built], ...], name: str, what: str) -> Entry[Built]:
    """The entry of this name, or a sentence with the nearest one."""
    for entry in entries:
        if entry.name == name:
            return entry
    names = [entry.name for entry in entries]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InputError(f"there is no {what} called {name!r}; {hint}The choices are {', '.join(names)}.")


def read_options(entry: Entry[Any], given: dict[str, Any]) -> Options:
    """The entry's options from what was given, or a sentence about the first thing wrong with it."""
    try:
        return entry.options.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = ", ".join(entry.options.model_fields) or "none"
            raise InputError(f"{entry.name} has no option {where!r}; its options are: {known}") from None
        raise InputError(f"option {where!r} of {entry.name} is {first['input']!r}: {first['msg'].lower()}") from None
