"""The energies that a command can name."""

from collections.abc import Mapping
from typing import Literal

import jax.numpy as jnp
from pydantic import Field

from unnorm import energies
from unnorm.catalogue.entry import Context, Entry, Options


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
    return energies.tilt(_fitted(o, c), width=o.width, depth=o.depth, key=c.key)


def _fitted(o: TiltedOptions, c: Context) -> energies.AbstractNormalised:
    if c.saved is not None:
        return _frame(c.saved, ".reference")
    train, valid = c.rows("a reference")
    return energies.best_reference(train, valid, key=c.key) if o.reference == "blend" else energies.fit_gaussian(train)


def _frame(saved: Mapping[str, tuple[int, ...]], place: str) -> energies.AbstractNormalised:
    """A density of the kind and shapes that were saved at a place, for the arrays to be put into."""
    parts = len({name.split("]")[0] for name in saved if name.startswith(f"{place}.parts[")})
    if parts:
        return energies.Blend(tuple(_frame(saved, f"{place}.parts[{i}]") for i in range(parts)), jnp.zeros(parts))
    if f"{place}.centres" in saved:
        n, d = saved[f"{place}.centres"]
        return energies.KDE(jnp.zeros((n, d)), 1.0, shape=jnp.eye(d) if f"{place}.shape" in saved else None)
    if f"{place}.logits" in saved:
        k, d = saved[f"{place}.components.mean"]
        return energies.GaussianMixture(jnp.zeros(k), jnp.zeros((k, d)), jnp.zeros((k, d, d)))
    return energies.standard_gaussian(saved[f"{place}.mean"][0])


MODELS: tuple[Entry[energies.AbstractEnergy], ...] = (
    Entry(
        "tilted",
        "blend of fitted mixtures and kernel densities, tilted by a network",
        TiltedOptions,
        _tilted,
    ),
    Entry("mlp", "multilayer perceptron energy", MLPOptions, _mlp),
    Entry("resnet", "residual network energy", ResNetOptions, _resnet),
    Entry("gaussian", "one Gaussian", Options, lambda o, c: energies.standard_gaussian(c.space.size)),
    Entry("mixture", "Gaussian mixture with free weights, means and covariances", MixtureOptions, _mixture),
)
