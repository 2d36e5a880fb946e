"""Swendsen and Wang's clusters: whole regions of an Ising or Potts model change at once."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unnorm.energies import AbstractEnergy, IndependentSites, Ising, Potts, Shifted, SiteGraph, Sum, Tempered
from unnorm.energies.base import Point
from unnorm.errors import InputError, require
from unnorm.samplers.base import AbstractSampler, Info, Target, require_energy


class Spins(NamedTuple):
    """sum_i fields_i(y_i) + sum_edges coupling 1[y_i = y_j]; no graph where there are no couplings."""

    fields: Float[Array, "sites k"]
    coupling: Float[Array, " edges"] | None
    sites: SiteGraph | None


def spins_of(energy: AbstractEnergy) -> Spins | None:
    """The fields and couplings of an Ising or Potts model, also at another temperature or with a product of sites.

    None if the energy is nothing of the kind.
    """
    if isinstance(energy, Ising):
        ones = jnp.broadcast_to(energy.field, energy.sites.shape).reshape(-1)
        fields = jnp.stack([jnp.zeros_like(ones), ones], axis=-1)
        return Spins(fields, jnp.broadcast_to(energy.coupling, len(energy.sites.edges)), energy.sites)
    if isinstance(energy, Potts):
        k = energy.field.shape[-1]
        fields = jnp.broadcast_to(energy.field, (*energy.sites.shape, k)).reshape(-1, k)
        return Spins(fields, jnp.broadcast_to(energy.coupling, len(energy.sites.edges)), energy.sites)
    if isinstance(energy, IndependentSites):
        return Spins(energy.logits.reshape(-1, energy.logits.shape[-1]), None, None)
    if isinstance(energy, Shifted):
        return spins_of(energy.energy)
    if isinstance(energy, Tempered):
        found, b = spins_of(energy.energy), energy.inverse_temperature
        return found and Spins(b * found.fields, None if found.coupling is None else b * found.coupling, found.sites)
    if isinstance(energy, Sum):
        found = spins_of(energy.terms[0])
        for term in energy.terms[1:]:
            found = _together(found, spins_of(term))
        return found
    return None


def _together(one: Spins | None, two: Spins | None) -> Spins | None:
    if one is None or two is None or (one.sites and two.sites and one.sites != two.sites):
        return None
    couplings = [part.coupling for part in (one, two) if part.coupling is not None]
    coupling = sum(couplings[1:], couplings[0]) if couplings else None
    return Spins(one.fields + two.fields, coupling, one.sites or two.sites)


def clusters(bonds: Array, edges: Any, count: int) -> Int[Array, " sites"]:
    """The least number of a site in the cluster of every site, where bonded edges tie sites together.

    >>> import numpy as np
    >>> clusters(jnp.array([True, False]), np.array([[1, 2], [0, 1]]), 3).tolist()
    [0, 1, 1]
    """
    a, b = edges[:, 0], edges[:, 1]

    def spread(carry):
        labels, _ = carry
        least = jnp.where(bonds, jnp.minimum(labels[a], labels[b]), count)
        new = labels.at[a].min(least).at[b].min(least)
        # Labels of labels: what a site has heard of reaches the site that it is labelled by.
        new = new.at[labels].min(new)
        new = new[new]
        return new, jnp.any(new != labels)

    labels, _ = jax.lax.while_loop(lambda carry: carry[1], spread, (jnp.arange(count), jnp.asarray(True)))
    return labels


class SwendsenWang(AbstractSampler):
    """Neighbours that are equal are bonded with probability 1 - exp(-beta); every cluster takes a value of its own.

    c for a cluster has probability softmax_c(sum over its sites of alpha_i(c)), the fields (Swendsen and Wang 1987). At
    a critical point clusters are as large as the lattice, and the chain mixes where single sites freeze. For `Ising`
    and `Potts` models with couplings that are not negative, also with a base beside them as annealing has it.

    >>> import unnorm as un
    >>> spins = un.energies.Ising(un.energies.lattice((4, 4)), 0.0, un.energies.critical_coupling())
    >>> un.sample(spins, SwendsenWang(), chains=4, steps=10, key=jax.random.key(0)).draws.shape
    (4, 10, 4, 4)
    """

    def check(self, target: Target) -> None:
        found = spins_of(require_energy(target, "SwendsenWang"))
        if found is None:
            raise InputError(
                f"SwendsenWang bonds the sites of an Ising or Potts model, not of {type(target).__name__}; "
                "use samplers.Gibbs there"
            )
        if found.coupling is not None and not isinstance(found.coupling, Tracer):
            require(
                bool(jnp.all(found.coupling >= 0)),
                "SwendsenWang bonds neighbours that like to be equal, and some couplings are negative; use "
                "samplers.Gibbs there",
            )

    def init(self, target: AbstractEnergy, x: Point) -> Array:
        return x

    def step(self, target: AbstractEnergy, state: Array, *, key: PRNGKeyArray) -> tuple[Array, Info]:
        found = spins_of(target)
        assert found is not None
        bond, colour = jax.random.split(key)
        flat = state.reshape(-1)
        labels = jnp.arange(flat.size)
        if found.sites is not None and found.coupling is not None and len(found.sites.edges):
            edges = found.sites.edges
            equal = flat[edges[:, 0]] == flat[edges[:, 1]]
            tossed = jax.random.uniform(bond, (len(edges),)) < -jnp.expm1(-found.coupling)
            labels = clusters(equal & tossed, edges, flat.size)
        totals = jnp.zeros_like(found.fields).at[labels].add(found.fields)
        values = jax.random.categorical(colour, totals, axis=-1)
        moved = values[labels].astype(state.dtype).reshape(state.shape)
        return moved, Info(jnp.ones(()), jnp.asarray(False))

    def position(self, state: Array) -> Array:
        return state
