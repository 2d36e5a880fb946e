"""The objectives of zeros and ones and of categories that a command can name."""

import math

from pydantic import Field

from unnorm import noises, objectives, samplers
from unnorm.catalogue.entry import Context, Entry, Options, on_sites
from unnorm.energies import AbstractFactorised, AbstractHidden, count_points, fit_sites
from unnorm.errors import require
from unnorm.spaces import AbstractSpace, Binary, Categorical

#: More points than this are not summed at every step.
MOST_SUMMED = 2**14


class SitesOptions(Options):
    sites: int | None = Field(default=None, ge=1)


class FlipsOptions(Options):
    rate: float = Field(default=0.1, gt=0, lt=1)
    draws: int = Field(default=16, ge=1)
    stabiliser: float = Field(default=1.0, ge=0)


class GridOptions(Options):
    draws: int = Field(default=16, ge=1)
    stabiliser: float = Field(default=1.0, ge=0)


class PoolOptions(GridOptions):
    window: int = Field(default=2, ge=2)


class ContrastOptions(Options):
    rate: float = Field(default=0.1, gt=0, lt=1)
    draws: int = Field(default=1, ge=1)


class ColumnsOptions(Options):
    ratio: float = Field(default=1.0, gt=0)


class AdaptedOptions(Options):
    moves: int = Field(default=4, ge=1)
    every: int = Field(default=20, ge=1)


def _values(c: Context) -> int:
    return c.space.categories if isinstance(c.space, Categorical) else 2


def site_walk(c: Context) -> samplers.AbstractSampler:
    """Chains on sites: whole sweeps of a model that knows its blocks or has hidden units, else a tenth of the sites."""
    if any(issubclass(made, AbstractHidden | AbstractFactorised) for made in c.makes):
        return samplers.Gibbs()
    return samplers.Gibbs(sites=max(1, c.space.size // 10))


def _some(o: SitesOptions, c: Context) -> int | None:
    """All sites of a model that gives them at the price of one energy, else sixteen chosen at random."""
    if o.sites is not None or any(issubclass(made, AbstractFactorised) for made in c.makes):
        return o.sites
    return 16


def _nce(o: ColumnsOptions, c: Context) -> objectives.NCE:
    train, _ = c.rows("nce-columns")
    return objectives.NCE(fit_sites(c.space, train), ratio=o.ratio)


def _adapted(o: AdaptedOptions, c: Context) -> objectives.AdaptedCNCE:
    return objectives.AdaptedCNCE(samplers.Gibbs(sites=max(1, c.space.size // 10)), moves=o.moves, every=o.every)


def _check_few(o: Options, space: AbstractSpace) -> None:
    require(
        (count_points(space) or math.inf) <= MOST_SUMMED,
        f"likelihood sums all points at every step, and {space} has too many; use pcd or pseudo-likelihood",
    )


def _check_window(o: PoolOptions, space: AbstractSpace) -> None:
    assert isinstance(space, Binary | Categorical)
    objectives.Pooling((o.window,) * len(space.shape)).check(space)


def _pool(o: PoolOptions, c: Context) -> objectives.EnergyDiscrepancy:
    assert isinstance(c.space, Binary | Categorical)
    window = (o.window,) * len(c.space.shape)
    return objectives.EnergyDiscrepancy(objectives.Pooling(window), draws=o.draws, stabiliser=o.stabiliser)


SITES: tuple[Entry[objectives.AbstractObjective], ...] = (
    Entry("pseudo-likelihood", "every site given the others (of some models 16 sites at a time)", SitesOptions,
          lambda o, c: objectives.PseudoLikelihood(_some(o, c)), works=on_sites),
    Entry("ratio-matching", "the same by a squared error, which is bounded", SitesOptions,
          lambda o, c: objectives.RatioMatching(_some(o, c)), works=on_sites),
    Entry("ed-flips", "energy discrepancy, every site flipped at a rate", FlipsOptions,
          lambda o, c: objectives.EnergyDiscrepancy(noises.Flips(o.rate, _values(c)), o.draws, o.stabiliser),
          works=on_sites),
    Entry("ed-grid", "energy discrepancy, one site changed", GridOptions,
          lambda o, c: objectives.EnergyDiscrepancy(noises.OneSite(_values(c)), o.draws, o.stabiliser),
          works=on_sites),
    Entry("ed-pool", "energy discrepancy, the sites of a window shuffled", PoolOptions, _pool, works=on_sites,
          check=_check_window),
    Entry("cnce-flips", "conditional NCE, every site flipped at a rate", ContrastOptions,
          lambda o, c: objectives.CNCE(noises.Flips(o.rate, _values(c)), o.draws), works=on_sites),
    Entry("cnce-adapted", "conditional NCE whose noise is steps of Gibbs under the model as it lately was",
          AdaptedOptions, _adapted, works=on_sites),
    Entry("nce-columns", "NCE against independent columns, log Z learnt", ColumnsOptions, _nce, works=on_sites),
    Entry("likelihood", "maximum likelihood, all points summed (few of them)", Options,
          lambda o, c: objectives.EnumeratedLikelihood(), works=on_sites, check=_check_few),
)  # fmt: skip
