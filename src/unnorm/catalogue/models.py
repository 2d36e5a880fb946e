"""The energies that a command can name."""

from typing import Literal

from pydantic import Field

from unnorm import energies
from unnorm.catalogue.entry import Context, Entry, Options
from unnorm.energies.reference import Chosen, OneGaussian
from unnorm.networks import MLP, ResNet


class MLPOptions(Options):
    width: int = Field(default=128, ge=1)
    depth: int = Field(default=3, ge=1)
    scale: float | None = Field(default=None, gt=0)


class ResNetOptions(Options):
    width: int = Field(default=128, ge=1)
    blocks: int = Field(default=4, ge=1)
    scale: float | None = Field(default=None, gt=0)


class TiltedOptions(Options):
    reference: Literal["blend", "gaussian"] = "blend"
    width: int = Field(default=128, ge=1)
    depth: int = Field(default=3, ge=1)


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


def _tilted(o: TiltedOptions, c: Context) -> energies.AbstractEnergy:
    reference = _reference(o, c, False).density if c.reference is None else c.reference
    return energies.tilt(reference, width=o.width, depth=o.depth, key=c.key)


def _reference(o: TiltedOptions, c: Context, progress: bool) -> Chosen:
    train, valid = c.rows("a reference")
    if o.reference == "blend":
        return energies.choose_reference(train, valid, key=c.key, progress=progress)
    recipe = energies.Recipe((OneGaussian(),), (1.0,))
    return Chosen(recipe.fit(train, key=c.key), recipe)


MODELS: tuple[Entry[energies.AbstractEnergy], ...] = (
    Entry(
        "tilted",
        "blend of fitted mixtures and kernel densities, tilted by a network",
        TiltedOptions,
        _tilted,
        makes=(energies.Tilted, MLP),
        reference=_reference,
    ),
    Entry("mlp", "multilayer perceptron energy", MLPOptions, _mlp, makes=(energies.NeuralEnergy, MLP)),
    Entry("resnet", "residual network energy", ResNetOptions, _resnet, makes=(energies.NeuralEnergy, ResNet)),
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
)
