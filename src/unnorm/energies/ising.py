"""Ising and Potts models: neighbours that like to be equal."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unnorm.energies.base import Point, Scalar
from unnorm.energies.factorised import AbstractFactorised, AbstractSitewise
from unnorm.energies.site_graph import SiteGraph
from unnorm.energies.sites import picked
from unnorm.errors import require
from unnorm.spaces import AbstractArray, Binary, Categorical


def critical_coupling(categories: int = 2) -> float:
    """The coupling at which the square lattice of a Potts model without fields orders: log(1 + sqrt k).

    >>> round(critical_coupling(), 4)
    0.8814
    """
    return math.log(1 + math.sqrt(categories))


def _coupling(sites: SiteGraph, coupling: Any) -> Float[Array, "..."]:
    found, m = jnp.asarray(coupling, float), len(sites.edges)
    require(
        found.shape in ((), (m,)),
        f"a coupling is one number or one for each of {m} edges, not an array of shape {found.shape}",
    )
    return found


def _around(sites: SiteGraph, coupling: Float[Array, "..."], which: Any) -> tuple[Array, Array]:
    """The neighbours of some sites, and the couplings to them; 0 to those that only fill up the table."""
    neighbours, edges = sites.neighbours
    if coupling.ndim == 0:
        return jnp.asarray(neighbours)[which], coupling
    return jnp.asarray(neighbours)[which], jnp.append(coupling, 0.0)[jnp.asarray(edges)[which]]


class Ising(AbstractFactorised, AbstractSitewise):
    """E(y) = -(sum_i alpha_i y_i + sum_{i~j} beta_ij 1[y_i = y_j]), y_i in {0, 1} (seed 002).

    `field` alpha is one number or one for every site, `coupling` beta one number or one for every edge. With spins
    s = 2 y - 1 it is the textbook's model of field alpha / 2 and coupling beta / 2, but for a constant. A colour of
    the graph is a block: P(y_i = 1 | rest) = sigmoid(alpha_i + sum_{j~i} beta_ij (2 y_j - 1)).

    >>> from unnorm.energies.site_graph import lattice
    >>> model = Ising(lattice((2, 2)), 0.5, 1.0)
    >>> float(model(jnp.ones((2, 2)))), len(model.blocks)
    (-6.0, 2)
    """

    field: Float[Array, "..."]
    coupling: Float[Array, "..."]
    sites: SiteGraph = eqx.field(static=True)
    space: AbstractArray = eqx.field(static=True)

    def __init__(self, sites: SiteGraph, field: Any = 0.0, coupling: Any = 0.0):
        self.sites, self.space = sites, Binary(sites.shape)
        self.coupling = _coupling(sites, coupling)
        self.field = jnp.asarray(field, float)
        require(
            self.field.shape in ((), sites.shape),
            f"a field is one number or one for every site, of shape {sites.shape}, not {self.field.shape}",
        )

    def statistics(self, x: Point) -> Float[Array, "2"]:
        """sum y_i and the number of equal neighbours: what one field and one coupling multiply."""
        return jnp.stack([jnp.sum(x).astype(float), jnp.sum(self._equal(x))])

    def _equal(self, x: Point) -> Float[Array, " edges"]:
        flat = x.reshape(-1).astype(float)
        a, b = flat[self.sites.edges[:, 0]], flat[self.sites.edges[:, 1]]
        return a * b + (1 - a) * (1 - b)

    def __call__(self, x: Point) -> Scalar:
        return -(jnp.sum(self.field * x) + jnp.sum(self.coupling * self._equal(x)))

    @property
    def blocks(self) -> tuple[np.ndarray, ...]:
        return self.sites.colours

    def _log_odds(self, which: Any, x: Point) -> Float[Array, "..."]:
        spins = jnp.append(2 * x.reshape(-1).astype(float) - 1, 0.0)
        neighbours, coupling = _around(self.sites, self.coupling, which)
        field = jnp.broadcast_to(self.field, self.sites.shape).reshape(-1)[which]
        # A neighbour at a time: one look-up of all would be laid out in memory before it is summed.
        each = [spins[neighbours[..., k]] for k in range(neighbours.shape[-1])]
        if coupling.ndim == 0:
            return field + coupling * sum(each)
        return field + sum(coupling[..., k] * spin for k, spin in enumerate(each))

    def conditional_logits(self, block: int, x: Point) -> Float[Array, "sites 2"]:
        odds = self._log_odds(self.blocks[block], x)
        return jnp.stack([jnp.zeros_like(odds), odds], axis=-1)

    def site_logits(self, site: int | Int[Array, ""], x: Point) -> Float[Array, "2"]:
        odds = self._log_odds(site, x)
        return jnp.stack([jnp.zeros_like(odds), odds])


class Potts(AbstractFactorised, AbstractSitewise):
    """E(y) = -(sum_i alpha_i(y_i) + sum_{i~j} beta_ij 1[y_i = y_j]), y_i in {0, .., k - 1}.

    `field` alpha has k entries, for all sites alike, or k for every site (along its last axis); `coupling` beta is one
    number or one for every edge. Only differences of fields at a site matter. With two categories and a field (0, a)
    it is `Ising` with the field a.

    >>> from unnorm.energies.site_graph import lattice
    >>> float(Potts(lattice((2, 2)), 3, coupling=1.0)(jnp.zeros((2, 2), int)))
    -4.0
    """

    field: Float[Array, "... k"]
    coupling: Float[Array, "..."]
    sites: SiteGraph = eqx.field(static=True)
    space: AbstractArray = eqx.field(static=True)

    def __init__(self, sites: SiteGraph, categories: int, field: Any = None, coupling: Any = 0.0):
        self.sites, self.space = sites, Categorical(sites.shape, categories)
        self.coupling = _coupling(sites, coupling)
        self.field = jnp.zeros(categories) if field is None else jnp.asarray(field, float)
        require(
            self.field.shape in ((categories,), (*sites.shape, categories)),
            f"a field has {categories} entries, or {categories} for every site, not an array of {self.field.shape}",
        )

    def _fields(self) -> Float[Array, "sites k"]:
        k = self.field.shape[-1]
        return jnp.broadcast_to(self.field, (*self.sites.shape, k)).reshape(-1, k)

    def __call__(self, x: Point) -> Scalar:
        flat = x.reshape(-1)
        equal = flat[self.sites.edges[:, 0]] == flat[self.sites.edges[:, 1]]
        fields = picked(self._fields(), flat)
        return -(jnp.sum(fields) + jnp.sum(self.coupling * equal))

    @property
    def blocks(self) -> tuple[np.ndarray, ...]:
        return self.sites.colours

    def _logits(self, which: Any, x: Point) -> Float[Array, "... k"]:
        k = self.field.shape[-1]
        # A site that only fills up the table has no category.
        ones = jax.nn.one_hot(jnp.append(x.reshape(-1), k), k)
        neighbours, coupling = _around(self.sites, self.coupling, which)
        return self._fields()[which] + jnp.sum(coupling[..., None] * ones[neighbours], axis=-2)

    def conditional_logits(self, block: int, x: Point) -> Float[Array, "sites k"]:
        return self._logits(self.blocks[block], x)

    def site_logits(self, site: int | Int[Array, ""], x: Point) -> Float[Array, " k"]:
        return self._logits(site, x)
