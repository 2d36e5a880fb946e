"""The energies that a command can name."""

from typing import Any, Literal

from pydantic import Field

from unnorm import energies
from unnorm.catalogue.diffusion import DIFFUSION
from unnorm.catalogue.entry import (
    Context,
    Entry,
    Options,
    on_reals_and_sites,
    on_sites,
    on_vectors_and_sites,
)
from unnorm.catalogue.sites import SITES
from unnorm.energies.reference import Chosen, OneGaussian
from unnorm.errors import require
from unnorm.networks import MLP, ResNet
from unnorm.spaces import Categorical, Real


class MLPOptions(Options):
    width: int = Field(default=128, ge=1)
    depth: int = Field(default=3, ge=1)
    scale: float | None = Field(default=None, gt=0)


class ResNetOptions(Options):
    width: int = Field(default=128, ge=1)
    blocks: int = Field(default=4, ge=1)
    scale: float | None = Field(default=None, gt=0)


class TiltedOptions(Options):
    reference: Literal["blend", "gaussian", "products"] | None = None
    width: int = Field(default=128, ge=1)
    depth: int = Field(default=3, ge=1)


class MixtureOptions(Options):
    components: int = Field(default=8, ge=1)


def _scale(given: float | None, c: Context) -> float:
    """What an energy's network is divided by: a length of real numbers, and 1 where there are none."""
    return given or (c.scales.length if isinstance(c.space, Real) else 1.0)


def _mlp(o: MLPOptions, c: Context) -> energies.AbstractEnergy:
    if isinstance(c.space, Categorical):
        return energies.mlp_on_sites(c.space, width=o.width, depth=o.depth, key=c.key)
    network = MLP(c.space.size, 1, width=o.width, depth=o.depth, key=c.key)
    return energies.NeuralEnergy(c.space, network, scale=_scale(o.scale, c))


def _resnet(o: ResNetOptions, c: Context) -> energies.AbstractEnergy:
    network = ResNet(c.space.size, 1, width=o.width, blocks=o.blocks, key=c.key)
    return energies.NeuralEnergy(c.space, network, scale=_scale(o.scale, c))


def _mixture(o: MixtureOptions, c: Context) -> energies.AbstractEnergy:
    return energies.random_mixture(c.space.size, o.components, key=c.key)


def _tilted(o: TiltedOptions, c: Context) -> energies.AbstractEnergy:
    reference = _reference(o, c, False).density if c.reference is None else c.reference
    assert isinstance(reference, energies.AbstractNormalised)
    return energies.tilt(reference, width=o.width, depth=o.depth, key=c.key)


def _reference(o: TiltedOptions, c: Context, progress: bool) -> Chosen:
    train, valid = c.rows("a reference")
    sites = on_sites(c.space)
    name = o.reference or ("products" if sites else "blend")
    require(
        sites == (name == "products"),
        f"a {name} is no reference on {c.space}; leave model.reference out to have the one that suits",
    )
    if sites:
        return energies.choose_products(c.space, train, valid, key=c.key, progress=progress)
    if name == "blend":
        return energies.choose_reference(train, valid, key=c.key, progress=progress)
    recipe = energies.Recipe((OneGaussian(),), (1.0,))
    return Chosen(recipe.fit(train, key=c.key), recipe)


#: On each space the first that works there is the default. A model of a new kind of data goes before those it betters:
#: a tilted mixture of products before `mlp` on bits and categories, a diffusion before it on pictures.
MODELS: tuple[Entry[Any], ...] = (
    Entry(
        "tilted",
        "a fitted density tilted by a network: of mixtures and kernels, on bits and categories a mixture of products",
        TiltedOptions,
        _tilted,
        makes=(energies.Tilted, MLP),
        reference=_reference,
        works=on_vectors_and_sites,
    ),
    DIFFUSION,
    *SITES,
    Entry("mlp", "multilayer perceptron energy", MLPOptions, _mlp, makes=(energies.NeuralEnergy, MLP),
          works=on_reals_and_sites),
    Entry("resnet", "residual network energy", ResNetOptions, _resnet, makes=(energies.NeuralEnergy, ResNet),
          works=lambda space: on_reals_and_sites(space) and not isinstance(space, Categorical)),
    Entry(
        "gaussian",
        "one Gaussian",
        Options,
        lambda o, c: energies.standard_gaussian(c.space.size),
        makes=(energies.GaussianDensity,),
    ),
    Entry(
        "mixture",
        "Gaussian mixture with free weights, means and covariances",
        MixtureOptions,
        _mixture,
        makes=(energies.GaussianMixture,),
    ),
)  # fmt: skip
