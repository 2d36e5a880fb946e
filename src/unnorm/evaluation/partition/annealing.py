"""The path from a base to a target that annealing walks: its levels, the moves at each, the pilots that choose both.

At level b the energy is (1 - b) E_base + b E_target, so that d log Z_b / db = E_b[E_base - E_target]. Annealed
importance sampling, its reverse and thermodynamic integration all walk the same levels, by any sampler.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.energies.base import Scalar
from unnorm.errors import require
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.partition.pairs import require_pair
from unnorm.samplers.base import AbstractSampler
from unnorm.samplers.moves import AbstractMoves, moved, moves_on, points_of, require_moves

#: Chains of a pilot run.
PILOT = 64
#: The acceptance a pilot run steers to.
ACCEPTANCE = 0.85


class Path(NamedTuple):
    """The levels, from 0 to 1, and a sampler for each but the first (their arrays have a leading axis)."""

    betas: Float[Array, " levels+1"]
    samplers: Any

    def parted(self, level: int) -> tuple["Path", "Path"]:
        """The path up to this level, and the path from it on."""
        below = jax.tree.map(lambda leaf: leaf[:level], self.samplers)
        above = jax.tree.map(lambda leaf: leaf[level:], self.samplers)
        return Path(self.betas[: level + 1], below), Path(self.betas[level:], above)


def between(base: AbstractEnergy, target: AbstractEnergy, b: Scalar) -> AbstractEnergy:
    """(1 - b) E_base + b E_target: the geometric path."""
    return (1 - b) * base + b * target


def difference(base: AbstractEnergy, target: AbstractEnergy, xs: Array) -> Float[Array, " chains"]:
    """E_base - E_target, the slope of the log-weights along the path."""
    return jax.vmap(base)(xs) - jax.vmap(target)(xs)


def gained(step: Scalar, slopes: Float[Array, " chains"]) -> Float[Array, " chains"]:
    """step (E_base - E_target), what log-weights gain by a step; nothing by none, also beyond a wall of the target."""
    return jnp.where(step == 0, 0, step * slopes)


def starts(base: AbstractNormalised, n: int, key: PRNGKeyArray) -> Array:
    """Draws of the base in the numbers that a walk is made of: a base may have been made in others."""
    return points_of(base.space, base.samples(n, key=key))


@compiled
def _pilot(base, target, betas: Array, moves: int, by: AbstractMoves, key: PRNGKeyArray):
    """A small run that tunes: a sampler for every level, and how far the log-weights spread from one to the next.

    A mass comes from the base's own draws, so that units do not matter; a step follows the acceptance.
    """
    start, key = jax.random.split(key)
    xs = starts(base, PILOT, start)

    def level(carry, inputs):
        xs, known = carry
        b, previous, key = inputs
        sampler = by.sampler(known)
        before = jnp.std(difference(base, target, xs))
        xs, acceptance = moved(between(base, target, b), sampler, xs, moves, key)
        after = jnp.std(difference(base, target, xs))
        return (xs, by.learn(known, acceptance)), (sampler, (b - previous) * jnp.sqrt(before * after))

    inputs = (betas[1:], betas[:-1], jax.random.split(key, len(betas) - 1))
    _, (samplers, spread) = jax.lax.scan(level, (xs, by.begin(xs)), inputs)
    return samplers, spread


def even_levels(betas: Array, spread: Array, count: int) -> Array:
    """So many levels, placed so that the log-weights spread equally from each to the next.

    This is the placing of least variance when moves mix (Gelman and Meng 1998).
    """
    length = np.concatenate([[0.0], np.cumsum(np.asarray(spread, np.float64))])
    if not 0 < length[-1] < np.inf:  # base and target agree, or a wall between them: nothing to go by
        return jnp.interp(jnp.linspace(0, len(betas) - 1, count + 1), jnp.arange(len(betas)), betas)
    even = np.interp(np.linspace(0, length[-1], count + 1), length, np.asarray(betas, np.float64))
    return jnp.asarray(even, betas.dtype)


def annealing_moves(
    target: AbstractEnergy, base: AbstractNormalised, sampler: AbstractSampler | None, leapfrogs: int
) -> AbstractMoves:
    """How points move along the path: by the sampler that is given, or by that of the space; refused if it cannot."""
    require_pair(target, base)
    by = moves_on(target.space, sampler, "annealing", leapfrogs=leapfrogs, acceptance=ACCEPTANCE, small=False)
    require_moves(between(base, target, jnp.asarray(0.5)), by)
    return by


def _counts(levels: int, moves: int, leapfrogs: int) -> tuple[int, ...]:
    counts = whole_numbers(levels=levels, moves=moves, leapfrogs=leapfrogs)
    require(min(counts[:2]) >= 1, f"annealing needs at least 1 level and 1 move, not {levels} and {moves}")
    return counts


def _first_guess(levels: int) -> Array:
    """A base is mostly wider than its target, so that the path changes fastest near the base."""
    return jnp.linspace(0, 1, levels + 1) ** 2


def tuned_path(
    target: AbstractEnergy,
    base: AbstractNormalised,
    *,
    levels: int,
    moves: int,
    leapfrogs: int,
    sampler: AbstractSampler | None = None,
    betas: Float[Array, " levels"] | None = None,
    place: PRNGKeyArray,
    tune: PRNGKeyArray,
) -> Path:
    """Levels placed by one pilot run of 64 chains (or as given), and samplers tuned by another; both are thrown away.

    Without a `sampler`, points move by HMC on real numbers and by Gibbs on zeros and ones and categories.

    >>> import jax, unnorm as un
    >>> target = un.energies.FunctionEnergy(lambda x: 2 * (x**2).sum(), un.spaces.Real((2,)))
    >>> keys = jax.random.split(jax.random.key(0))
    >>> base = un.energies.standard_gaussian(2)
    >>> tuned_path(target, base, levels=5, moves=1, leapfrogs=3, place=keys[0], tune=keys[1]).betas.shape
    (6,)
    """
    require_pair(target, base)
    levels, moves, leapfrogs = _counts(levels, moves, leapfrogs)
    by = annealing_moves(target, base, sampler, leapfrogs)
    given = betas is not None
    if betas is None:
        betas = _first_guess(levels)
        betas = even_levels(betas, _pilot(base, target, betas, moves, by, place)[1], levels)
    betas = jnp.asarray(betas, float)
    require(betas.ndim == 1 and len(betas) >= 2, f"betas must be one row of at least 2 levels, not {betas.shape}")
    require(bool((betas[0] == 0) & (betas[-1] == 1) & jnp.all(jnp.diff(betas) >= 0)), "betas must rise from 0 to 1")
    require(
        not given or bool(betas[1] > 0),
        "only the first of betas may be 0; let the others rise from above 0 to 1",
    )
    return Path(betas, _pilot(base, target, betas, moves, by, tune)[0])


@compiled
def _pilots(base, target_of, inputs: Array, betas: Array, moves: int, by: AbstractMoves, key: PRNGKeyArray):
    """A pilot for each of some targets of a family, and what they say together.

    Log-weights of all spread from a level to the next by the root of their mean variance; steps and masses are
    geometric means.
    """
    keys = jax.random.split(key, len(inputs))
    samplers, spreads = jax.vmap(lambda c, k: _pilot(base, target_of(c), betas, moves, by, k))(inputs, keys)
    together = jax.tree.map(lambda leaf: jnp.exp(jnp.mean(jnp.log(leaf), axis=0)), samplers)
    return together, jnp.sqrt(jnp.mean(spreads**2, axis=0))


def common_path(
    target_of: Callable[[Array], AbstractEnergy],
    inputs: Float[Array, "n ..."],
    base: AbstractNormalised,
    *,
    levels: int,
    moves: int,
    leapfrogs: int,
    place: PRNGKeyArray,
    tune: PRNGKeyArray,
) -> Path:
    """One path for the targets `target_of(c)` of many inputs c, tuned as `tuned_path` on these few of them.

    Any path leaves a walk unbiased; one that does not fit a target makes its error larger, and the error says so.

    >>> import jax, jax.numpy as jnp, unnorm as un
    >>> def target_of(c):
    ...     return un.energies.FunctionEnergy(lambda x: c * (x**2).sum(), un.spaces.Real((2,)))
    >>> place, tune = jax.random.split(jax.random.key(0))
    >>> base, scales = un.energies.standard_gaussian(2), jnp.array([1.0, 2.0])
    >>> common_path(target_of, scales, base, levels=5, moves=1, leapfrogs=3, place=place, tune=tune).betas.shape
    (6,)
    """
    levels, moves, leapfrogs = _counts(levels, moves, leapfrogs)
    by = annealing_moves(target_of(inputs[0]), base, None, leapfrogs)
    betas = _first_guess(levels)
    betas = even_levels(betas, _pilots(base, target_of, inputs, betas, moves, by, place)[1], levels)
    return Path(betas, _pilots(base, target_of, inputs, betas, moves, by, tune)[0])
