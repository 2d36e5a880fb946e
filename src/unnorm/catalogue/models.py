"""The energies that a command can name."""

from typing import Literal

from pydantic import Field

from unnorm import energies
from unnorm.catalogue.entry import Context, Entry, Options
from unnorm.energies.tilted import best_reference


class MLPOptions(Options):
    width: int = Field(default=128, ge=1)
    depth: int = Field(default=3, ge=1)
    scale: float | None = Field(default=None, gt=0)


class ResNetOptions(Options):
    width: int = Field(default=128, ge=1)
    blocks: int = Field(default=4, ge=1)
    scale: float | None = Field(default=None, gt=0)


class TiltedOptions(Options):
    reference: Literal["committee", "gaussian"] = "committee"
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
    return energies.tilt(_fitted(o, c), width=o.width, depth=o.depth, key=c.key)


def _fitted(o: TiltedOptions, c: Context) -> energies.AbstractNormalised:
    if c.saved is not None:
        components = c.saved.get(".reference.logits")
        if components is None:
            return energies.standard_gaussian(c.space.size)
        return energies.random_mixture(c.space.size, components[0], key=c.key)
    train, valid = c.rows("a reference")
    return best_reference(train, valid, key=c.key) if o.reference == "committee" else energies.fit_gaussian(train)


MODELS: tuple[Entry[energies.AbstractEnergy], ...] = (
    Entry("tilted", "fitted reference (Gaussians chosen by validation) tilted by a network", TiltedOptions, _tilted),
    Entry("mlp", "multilayer perceptron energy", MLPOptions, _mlp),
    Entry("resnet", "residual network energy", ResNetOptions, _resnet),
    Entry("gaussian", "one Gaussian", Options, lambda o, c: energies.standard_gaussian(c.space.size)),
    Entry("mixture", "Gaussian mixture with free weights, means and covariances", MixtureOptions, _mixture),
)
