"""How the points of a population are moved at every level between a base and a target, and what is tuned on the way.

Annealing and sequential Monte Carlo take any sampler. Hamiltonian moves are tuned by the population itself: the mass by
its spread, the step by the acceptance. Gibbs sampling has nothing to tune, and a sampler that is given runs as it is.
"""

import math
from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Scalar
from unnorm.errors import InputError
from unnorm.samplers.base import AbstractSampler
from unnorm.samplers.gibbs import Gibbs
from unnorm.samplers.hamiltonian import HMC
from unnorm.spaces import AbstractSpace, Binary, Categorical

#: What moves know of the population: a tree of arrays, of one shape all along the path.
Knowledge = Any


class AbstractMoves(eqx.Module):
    """A sampler for every level of a path, tuned by what was seen at the levels before."""

    @abstractmethod
    def begin(self, xs: Any) -> Knowledge:
        """What is known from draws of the base."""

    @abstractmethod
    def look(self, known: Knowledge, xs: Any) -> Knowledge:
        """What is known once the population of a level is seen."""

    @abstractmethod
    def learn(self, known: Knowledge, acceptance: Scalar) -> Knowledge:
        """What is known after a move of this mean acceptance."""

    @abstractmethod
    def sampler(self, known: Knowledge) -> AbstractSampler:
        """The sampler to move by."""


class Hamiltonian(NamedTuple):
    """The log of the step, the inverse mass, and that of the base where a population has no spread."""

    log_step: Scalar
    mass: Float[Array, " d"]
    width: Float[Array, " d"]


class HamiltonianMoves(AbstractMoves):
    """HMC with the population's spread as inverse mass, its step steered to an acceptance.

    The first step is d^(-1/4), or 1 where `small` is off.
    """

    leapfrogs: int = eqx.field(static=True, default=5)
    acceptance: float = eqx.field(static=True, default=0.8)
    small: bool = eqx.field(static=True, default=True)

    def begin(self, xs: Float[Array, "n ..."]) -> Hamiltonian:
        width = _spread(xs)
        step = -0.25 * math.log(width.size) if self.small else 0.0
        return Hamiltonian(jnp.asarray(step, float), width, width)

    def look(self, known: Hamiltonian, xs: Float[Array, "n ..."]) -> Hamiltonian:
        spread = _spread(xs)
        return known._replace(mass=jnp.where(spread > 0, spread, known.width))

    def learn(self, known: Hamiltonian, acceptance: Scalar) -> Hamiltonian:
        return known._replace(log_step=known.log_step + acceptance - self.acceptance)

    def sampler(self, known: Hamiltonian) -> HMC:
        return HMC(jnp.exp(known.log_step), known.mass, self.leapfrogs)


class GivenMoves(AbstractMoves):
    """A sampler as it is, at every level."""

    given: AbstractSampler

    def begin(self, xs: Any) -> Knowledge:
        return eqx.filter(self.given, eqx.is_array)

    def look(self, known: Knowledge, xs: Any) -> Knowledge:
        return known

    def learn(self, known: Knowledge, acceptance: Scalar) -> Knowledge:
        return known

    def sampler(self, known: Knowledge) -> AbstractSampler:
        return eqx.combine(known, self.given)


def _spread(xs: Float[Array, "n ..."]) -> Float[Array, " d"]:
    return jnp.var(xs.reshape(len(xs), -1), axis=0)


def moves_on(
    space: AbstractSpace,
    sampler: AbstractSampler | None,
    who: str,
    *,
    leapfrogs: int = 5,
    acceptance: float = 0.8,
    small: bool = True,
) -> AbstractMoves:
    """Moves by the sampler given; without one by HMC on real numbers, by Gibbs on Binary and Categorical spaces.

    >>> moves_on(Binary((2,)), None, "SMC").given
    Gibbs()
    """
    if isinstance(sampler, AbstractSampler):
        return GivenMoves(sampler)
    if sampler is not None:
        raise InputError(f"{who} moves points by a sampler such as samplers.Gibbs(), not a {type(sampler).__name__}")
    if space.continuous:
        return HamiltonianMoves(leapfrogs, acceptance, small)
    if isinstance(space, Binary | Categorical):
        return GivenMoves(Gibbs())
    raise InputError(f"{who} has no moves of its own on {space}; pass sampler=")


def require_moves(target: AbstractEnergy, moves: AbstractMoves) -> None:
    """Refuse, in one sentence, a target that the moves cannot walk."""
    if isinstance(moves, GivenMoves):
        moves.given.check(target)


def count_of(xs: Any) -> int:
    """How many points there are, whatever a point is."""
    return len(jax.tree.leaves(xs)[0])


def moved(
    energy: AbstractEnergy, sampler: AbstractSampler, xs: Any, moves: int, key: PRNGKeyArray
) -> tuple[Any, Scalar]:
    """So many moves of every point of a population; the new points and the mean acceptance."""

    def one(x, key):
        def step(state, key):
            state, info = sampler.step(energy, state, key=key)
            return state, info.acceptance

        state, acceptance = jax.lax.scan(step, sampler.init(energy, x), jax.random.split(key, moves))
        return sampler.position(state), jnp.mean(acceptance)

    xs, acceptance = jax.vmap(one)(xs, jax.random.split(key, count_of(xs)))
    return xs, jnp.mean(acceptance)


def points_of(space: AbstractSpace, xs: Any) -> Any:
    """The points in the numbers that those of the space are made of: a base may have been made in others."""
    return jax.tree.map(lambda leaf, struct: jnp.asarray(leaf, struct.dtype), xs, space.struct())
