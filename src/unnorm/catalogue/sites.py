"""The energies of zeros and ones and of categories that a command can name: networks of pairs, machines, lattices."""

from typing import Literal

import jax.numpy as jnp
import numpy as np
from pydantic import Field

from unnorm import energies
from unnorm.catalogue.entry import Context, Entry, Options, on_sites, on_vectors
from unnorm.energies.reference import Chosen
from unnorm.errors import InputError, require
from unnorm.spaces import AbstractSpace, Binary, Categorical


class MachineOptions(Options):
    hidden: int = Field(default=64, ge=1)


class MarkovOptions(Options):
    penalty: Literal["l1", "l2"] = "l1"


class IsingOptions(Options):
    lattice: str | None = None
    periodic: bool = False
    shared: bool = False


def on_bits(space: AbstractSpace) -> bool:
    """Arrays of zeros and ones."""
    return isinstance(space, Binary)


def _rbm(o: MachineOptions, c: Context) -> energies.AbstractEnergy:
    """The visible biases begin at the log-odds of the columns, as Hinton 2012 recommends."""
    machine = energies.rbm(c.space, o.hidden, key=c.key)
    if c.train is None:
        return machine
    alone = energies.fit_sites(c.space, c.train).logits.reshape(-1, 2)
    return energies.RBM(c.space, machine.weights, alone[:, 1] - alone[:, 0], machine.hidden)


def _gaussian_rbm(o: MachineOptions, c: Context) -> energies.AbstractEnergy:
    """Rows of a table have mean 0 and standard deviation 1, and so has the machine it begins at."""
    weights = energies.rbm(Binary((c.space.size,)), o.hidden, key=c.key).weights
    none = jnp.zeros(c.space.size)
    return energies.GaussianRBM(c.space, weights, none, jnp.zeros(o.hidden), none)


def _pairs(o: MarkovOptions, c: Context, progress: bool) -> Chosen:
    train, valid = c.rows("a Markov network")
    return energies.choose_pairs(c.space, train, valid, penalty=o.penalty)


def _markov(o: MarkovOptions, c: Context) -> energies.AbstractEnergy:
    return _pairs(o, c, False).density if c.reference is None else c.reference


def _sides(text: str | None, space: AbstractSpace) -> tuple[int, ...]:
    """`"4x5"` to (4, 5), refused unless the columns of the rows fill such a lattice."""
    if text is None:
        raise InputError(
            "an Ising model needs to know which columns are neighbours: give --lattice HxW, or use --model markov, "
            "which finds out which columns go together"
        )
    sides = tuple(int(side) for side in text.lower().split("x") if side.strip().isdigit())
    require(
        len(sides) == text.lower().count("x") + 1 and min(sides) >= 1,
        f"a lattice is given by its sides, as in --lattice 4x5, not {text!r}",
    )
    require(
        int(np.prod(sides)) == space.size,
        f"a lattice of {text} has {int(np.prod(sides))} sites, and a row has {space.size} columns; "
        "give sides whose product is that, or use --model markov",
    )
    return sides


def _check_lattice(o: IsingOptions, space: AbstractSpace) -> None:
    _sides(o.lattice, space)


def _ising(o: IsingOptions, c: Context) -> energies.AbstractEnergy:
    """A field for every site and a coupling for every edge, all 0 at first; or one of each, if they are shared."""
    assert isinstance(c.space, Binary | Categorical)
    edges = energies.lattice(_sides(o.lattice, c.space), periodic=o.periodic).edges
    sites, coupling = energies.SiteGraph(c.space.shape, edges), 0.0 if o.shared else jnp.zeros(len(edges))
    if isinstance(c.space, Categorical):
        k = c.space.categories
        return energies.Potts(sites, k, jnp.zeros(k if o.shared else (*c.space.shape, k)), coupling)
    return energies.Ising(sites, 0.0 if o.shared else jnp.zeros(c.space.shape), coupling)


#: How models of few parameters are best trained: in larger steps.
FEW = {"rate": 1e-2}
SITES: tuple[Entry[energies.AbstractEnergy], ...] = (
    Entry("rbm", "restricted Boltzmann machine, --hidden units", MachineOptions, _rbm, makes=(energies.RBM,),
          works=on_bits, training=lambda space: FEW, objective="pcd"),
    Entry("gaussian-rbm", "restricted Boltzmann machine of real numbers, --hidden units", MachineOptions,
          _gaussian_rbm, makes=(energies.GaussianRBM,), works=on_vectors, training=lambda space: FEW, objective="pcd"),
    Entry("markov", "pairwise Markov network; which pairs are tied is chosen by held-out rows", MarkovOptions, _markov,
          makes=(energies.MarkovNetwork,), reference=_pairs, works=on_sites,
          training=lambda space: {"rate": 1e-3, "steps": 1000}, objective="pseudo-likelihood"),
    Entry("ising", "Ising model (Potts, on categories) on a --lattice", IsingOptions, _ising,
          makes=(energies.AbstractFactorised,), works=on_sites, training=lambda space: FEW,
          objective="pseudo-likelihood", check=_check_lattice),
)  # fmt: skip
