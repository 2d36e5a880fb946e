"""What an energy on zeros and ones, or on categories, says of its sites: the law of some given all the others.

An energy of any kind has that law for one site at the price of an energy for every value there. Many models know
better: sites of one colour of a lattice, or one layer of a Boltzmann machine, are independent given the rest, and all
of their laws cost about one energy. What sums and powers of such energies know follows from their parts.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Point, Shifted, Sum, Tempered
from unnorm.errors import InputError
from unnorm.spaces import AbstractArray, AbstractSpace, Binary, Categorical

#: Blocks are written out one after the other in a program; with more than these, sites take turns in a loop.
MOST_BLOCKS = 32
#: Sites whose values are tried together where an energy knows nothing of its sites.
SITES_AT_ONCE = 64


class AbstractSitewise(AbstractEnergy):
    """An energy that knows the law of one site given all others at less than the price of an energy for every value."""

    @abstractmethod
    def site_logits(self, site: int | Int[Array, ""], x: Point) -> Float[Array, " k"]:
        """log p(x_site = c | rest) + const for every value c; sites are numbered along the flattened point."""


class AbstractFactorised(AbstractEnergy):
    """An energy whose sites fall into blocks that are independent given the rest (Geman and Geman 1984).

    p(x_block | rest) = prod_{i in block} softmax(logits_i)(x_i): a sweep of Gibbs sampling costs one call of
    `conditional_logits` for every block.
    """

    @property
    @abstractmethod
    def blocks(self) -> tuple[np.ndarray, ...]:
        """The sites of each block, by their number along the flattened point; every site is in one block."""

    @abstractmethod
    def conditional_logits(self, block: int, x: Point) -> Float[Array, "sites k"]:
        """log p(x_i = c | rest) + const for every site i of the block and every value c."""


class AbstractHidden(AbstractEnergy):
    """exp(-E(x)) = sum_h exp(-E(x, h)): an energy with hidden units that are summed over, and drawn when they help."""

    @abstractmethod
    def alternate(self, x: Point, *, key: PRNGKeyArray) -> Point:
        """x' ~ p(. | h) for h ~ p(. | x): block Gibbs, which leaves p(x) invariant."""

    @abstractmethod
    def equivalents(self) -> tuple[AbstractEnergy, ...]:
        """Energies of other units with the same Z: of the hidden ones alone, of visible and hidden ones together."""


def values_of(space: AbstractSpace) -> int:
    """How many values a site of this space has.

    >>> values_of(Binary((2,))), values_of(Categorical((2,), 3))
    (2, 3)
    """
    if isinstance(space, Categorical):
        return space.categories
    if isinstance(space, Binary):
        return 2
    raise InputError(f"sites have values to choose from on Binary and Categorical spaces, not on {space}")


def array_space(space: AbstractSpace) -> AbstractArray:
    """The space itself, refused unless its points are arrays of zeros and ones or of categories."""
    values_of(space)
    assert isinstance(space, AbstractArray)
    return space


def site_logits(energy: AbstractEnergy, site: int | Int[Array, ""], x: Point) -> Float[Array, " k"]:
    """log p(x_site = c | rest) + const for every value c, of any energy: by its parts where they know it.

    >>> from unnorm.energies import FunctionEnergy
    >>> energy = FunctionEnergy(lambda x: 2.0 * x[0] * x[1], Binary((2,)))
    >>> site_logits(energy, 0, jnp.ones(2)).tolist()
    [-0.0, -2.0]
    """
    if isinstance(energy, AbstractSitewise):
        return energy.site_logits(site, x)
    if isinstance(energy, Tempered):
        return energy.inverse_temperature * site_logits(energy.energy, site, x)
    if isinstance(energy, Shifted):
        return site_logits(energy.energy, site, x)
    if isinstance(energy, Sum):
        first, *others = (site_logits(term, site, x) for term in energy.terms)
        return sum(others, first)
    flat = x.reshape(-1)
    values = jnp.arange(values_of(energy.space), dtype=x.dtype)
    return jax.vmap(lambda value: -energy(flat.at[site].set(value).reshape(x.shape)))(values)


def every_site(energy: AbstractEnergy, x: Point) -> Float[Array, "sites k"]:
    """log p(x_i = c | rest) + const for every site i and every value c, at about the price of one energy if it can be.

    >>> from unnorm.energies import FunctionEnergy
    >>> every_site(FunctionEnergy(lambda x: 2.0 * x[0] * x[1], Binary((2,))), jnp.ones(2)).tolist()
    [[-0.0, -2.0], [-0.0, -2.0]]
    """
    if isinstance(energy, AbstractFactorised) and len(energy.blocks) <= MOST_BLOCKS:
        logits = jnp.concatenate([energy.conditional_logits(block, x) for block in range(len(energy.blocks))])
        return logits[np.argsort(np.concatenate(energy.blocks))]
    if isinstance(energy, AbstractSitewise):
        return jax.vmap(lambda site: energy.site_logits(site, x))(jnp.arange(x.size))
    if isinstance(energy, Tempered):
        return energy.inverse_temperature * every_site(energy.energy, x)
    if isinstance(energy, Shifted):
        return every_site(energy.energy, x)
    if isinstance(energy, Sum):
        first, *others = (every_site(term, x) for term in energy.terms)
        return sum(others, first)
    return _by_energies(energy, x)


def _by_energies(energy: AbstractEnergy, x: Point) -> Float[Array, "sites k"]:
    """The same of any energy, by the energies of all points that differ from this one in one site."""
    k, flat, here = values_of(energy.space), x.reshape(-1), -energy(x)

    def at(site: Int[Array, ""]) -> Float[Array, " k"]:
        value = flat[site].astype(int)
        # The value that the site has is not asked for again.
        others = (value + jnp.arange(1, k)) % k
        of = jax.vmap(lambda c: -energy(flat.at[site].set(c.astype(x.dtype)).reshape(x.shape)))(others)
        return jnp.roll(jnp.append(here, of), value)

    return jax.lax.map(at, jnp.arange(x.size), batch_size=SITES_AT_ONCE)


class Blocks(NamedTuple):
    """Sites that are independent given the rest, block by block, and the law of each block as logits (sites x k)."""

    sites: tuple[np.ndarray, ...]
    logits: Callable[[int, Point], Float[Array, "sites k"]]


def blocks_of(energy: AbstractEnergy) -> Blocks | None:
    """The blocks of an energy that factorises, or whose parts do; None if sites have to take turns.

    Sites that are independent in every term of a sum are so in the sum: its blocks are what the blocks of the terms
    have in common.

    >>> import unnorm as un
    >>> base = un.energies.uniform(Binary((2,)))
    >>> [block.tolist() for block in blocks_of(0.5 * base + base).sites]
    [[0, 1]]
    """
    if isinstance(energy, AbstractFactorised):
        found = Blocks(energy.blocks, energy.conditional_logits)
    elif isinstance(energy, Tempered):
        inner, power = blocks_of(energy.energy), energy.inverse_temperature
        found = inner and Blocks(inner.sites, lambda block, x: power * inner.logits(block, x))
    elif isinstance(energy, Shifted):
        found = blocks_of(energy.energy)
    elif isinstance(energy, Sum):
        found = blocks_of(energy.terms[0])
        for term in energy.terms[1:]:
            other = blocks_of(term)
            found = _common(found, other) if found and other else None
    else:
        found = None
    return found if found and len(found.sites) <= MOST_BLOCKS else None


def _common(one: Blocks, two: Blocks) -> Blocks:
    """The blocks of a sum of two energies."""
    pieces = []
    for i, ours in enumerate(one.sites):
        for j, theirs in enumerate(two.sites):
            sites, here, there = np.intersect1d(ours, theirs, return_indices=True)
            if len(sites):
                pieces.append((i, here, j, there, sites))

    def logits(block: int, x: Point) -> Float[Array, "sites k"]:
        i, here, j, there, _ = pieces[block]
        return one.logits(i, x)[here] + two.logits(j, x)[there]

    return Blocks(tuple(piece[-1] for piece in pieces), logits)


def drawn(logits: Float[Array, "*sites k"], key: PRNGKeyArray) -> Int[Array, "*sites"]:
    """A value for every site, each by its own law softmax(logits)."""
    if logits.shape[-1] == 2:
        return jax.random.bernoulli(key, jax.nn.sigmoid(logits[..., 1] - logits[..., 0])).astype(int)
    return jax.random.categorical(key, logits, axis=-1)


def redrawn(blocks: Blocks, block: int, x: Point, *, key: PRNGKeyArray) -> Point:
    """The point with the sites of one block drawn anew, given all others."""
    values, sites = drawn(blocks.logits(block, x), key).astype(x.dtype), blocks.sites[block]
    flat = x.reshape(-1)
    if 2 * len(sites) == x.size and np.array_equal(sites // 2, np.arange(len(sites))):
        # Of each two sites one, as on a checkerboard: nothing has to be looked up.
        return jnp.where(np.isin(np.arange(x.size), sites), jnp.repeat(values, 2), flat).reshape(x.shape)
    # Every site looks up its own value, old or new: XLA writes to scattered places many times more slowly.
    places = np.arange(x.size)
    places[sites] = x.size + np.arange(len(sites))
    return jnp.concatenate([flat, values])[places].reshape(x.shape)
