"""Tempered sequential Monte Carlo as a sampler: populations that walk from a base to the target.

Where a chain would have to cross from mode to mode, a population need not: it begins everywhere the base is, and is
thinned and multiplied on the way. Levels, steps and masses come from the particles themselves, so that one run is
enough; for that log Z is unbiased only as the population grows. `evaluation.smc`, which chooses them by a run that is
thrown away, is the one for log Z.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.smc.ess import log_ess
from blackjax.smc.resampling import systematic
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unnorm.arguments import whole_number
from unnorm.compiling import compiled
from unnorm.devices import require_divisible, split_over_devices
from unnorm.energies.base import AbstractEnergy, AbstractNormalised
from unnorm.errors import require
from unnorm.estimate import Estimate, log_mean_exp_estimate
from unnorm.samplers.base import AbstractSampler
from unnorm.samplers.moves import AbstractMoves, Knowledge, moved, moves_on, points_of, require_moves

#: The most levels of a run.
LONGEST = 400
#: The acceptance that the moves are tuned to.
ACCEPTANCE = 0.8
#: Bisections of an increment.
BISECTIONS = 50
#: Draws of an island that descend from fewer draws of the base than this are as good as one draw.
FEWEST_FAMILIES = 8.0
#: Below this the moves hardly move anything.
LEAST_ACCEPTANCE = 0.2


def increment(slopes: Float[Array, " n"], rest: Array, share: float | Array) -> Array:
    """The largest step, up to `rest`, under which exp(step slopes) leaves this share of the weights effective."""
    wanted = jnp.log(share * len(slopes))

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        enough = log_ess(middle * slopes) >= wanted
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, high = jax.lax.fori_loop(0, BISECTIONS, halve, (jnp.zeros_like(rest), rest))
    # Particles beyond a wall of the target die at any step: then the smallest one.
    found = jnp.where(low > 0, low, high)
    return jnp.where(log_ess(rest * slopes) >= wanted, rest, found)


def next_level(b: Array, slopes: Float[Array, " n"], level: Array, share: float | Array) -> tuple[Array, Array]:
    """The level after b that leaves this share effective, and the step to it; the last of `LONGEST` goes to the end."""
    step = jnp.where(level == LONGEST - 1, 1 - b, increment(slopes, 1 - b, share))
    return jnp.where(step >= 1 - b, 1.0, b + step), step


def unfinished(b: Array, level: Array | int) -> Array:
    """Whether the target is not reached yet, nor the longest path walked."""
    return (b < 1) & (level < LONGEST)


def tuned_moves(
    energy: AbstractEnergy, xs: Any, moves: AbstractMoves, known: Knowledge, count: int, key: PRNGKeyArray
) -> tuple[Any, Knowledge, Array]:
    """Moves of all particles, tuned after each by the acceptance of all; and the mean acceptance."""

    def move(carry, key):
        xs, known = carry
        xs, acceptance = moved(energy, moves.sampler(known), xs, 1, key)
        return (xs, moves.learn(known, acceptance)), acceptance

    (xs, known), acceptance = jax.lax.scan(move, (xs, known), jax.random.split(key, count))
    return xs, known, jnp.mean(acceptance)


@compiled
def _walk(base, target, counts: tuple[int, int], share: Array, moves: AbstractMoves, count: int, key: PRNGKeyArray):
    """Particles (islands x particles x point), log Z and ancestors of the islands, and what happened at every level."""
    islands, particles = counts
    start, key = jax.random.split(key)
    first = split_over_devices(points_of(target.space, base.samples(islands * particles, key=start)))

    def climb(state):
        xs, b, level, known, log_z, ancestors, (betas, sizes, acceptances) = state
        draw, walk = jax.random.split(jax.random.fold_in(key, level))
        slopes = jax.vmap(base)(xs) - jax.vmap(target)(xs)
        b, step = next_level(b, slopes, level, share)
        log_weights = (step * slopes).reshape(islands, particles)
        log_z = log_z + jax.scipy.special.logsumexp(log_weights, axis=1) - math.log(particles)
        chosen = jax.vmap(lambda k, w: systematic(k, w, particles))(
            jax.random.split(draw, islands), jax.nn.softmax(log_weights, axis=1)
        )
        ancestors = jnp.take_along_axis(ancestors, chosen, axis=1)
        places = (chosen + particles * jnp.arange(islands)[:, None]).reshape(-1)
        xs = jax.tree.map(lambda leaf: leaf[places], xs)
        energy = (1 - b) * base + b * target
        xs, known, accepted = tuned_moves(energy, xs, moves, moves.look(known, xs), count, walk)
        tables = (
            betas.at[level + 1].set(b),
            sizes.at[level].set(jnp.exp(jax.vmap(log_ess)(log_weights))),
            acceptances.at[level].set(accepted),
        )
        return xs, b, level + 1, known, log_z, ancestors, tables

    tables = (jnp.zeros(LONGEST + 1), jnp.zeros((LONGEST, islands)), jnp.zeros(LONGEST))
    ancestors = jnp.broadcast_to(jnp.arange(particles), counts)
    state = (first, jnp.zeros(()), 0, moves.begin(first), jnp.zeros(islands), ancestors, tables)
    xs, _, levels, _, log_z, ancestors, tables = jax.lax.while_loop(lambda s: unfinished(s[1], s[2]), climb, state)
    return jax.tree.map(lambda leaf: leaf.reshape(*counts, *leaf.shape[1:]), xs), log_z, ancestors, levels, tables


@dataclass(frozen=True, eq=False)
class Particles:
    """Islands of particles, equal weights within one, exp(log_weights) between them; and how the levels went.

    `betas` are the levels from 0 to 1, `effective` the effective sizes of every island on the way to each (levels x
    islands), `acceptance` that of the moves there, `families` from how many draws of the base an island descends.
    """

    draws: Float[np.ndarray, "islands particles ..."]
    log_weights: Float[np.ndarray, " islands"]
    betas: Float[np.ndarray, " levels"]
    effective: Float[np.ndarray, "levels-1 islands"]
    acceptance: Float[np.ndarray, " levels-1"]
    families: Int[np.ndarray, " islands"]

    @property
    def weights(self) -> Float[np.ndarray, " islands"]:
        """The weight of every island, 1 on average."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return weights / weights.mean()

    @property
    def log_z(self) -> Estimate:
        """log Z of the target, its error from the spread of the islands; `evaluation.smc` has no bias."""
        return log_mean_exp_estimate(self.log_weights, "SMC with levels of its own")

    def mean(self, function: Callable[[np.ndarray], np.ndarray]) -> Estimate:
        """E f(x) under the target, f a function of points along a leading axis; the error is from the islands' spread.

        The ratio of two means over islands, sum w m / sum w, with its delta-method error.
        """
        values = np.stack([np.mean(np.asarray(function(island), np.float64), axis=0) for island in self.draws])
        require(values.ndim == 1, f"the function gives numbers of shape {values.shape[1:]} for a point; one is needed")
        weights = self.weights
        value = float(np.mean(weights * values))
        stderr = float(np.std(weights * (values - value), ddof=1) / math.sqrt(len(values)))
        return Estimate(value, stderr, "SMC", {"islands": float(len(values))}, self.warnings)

    def resampled(self, n: int, *, seed: int = 0) -> Float[np.ndarray, "n ..."]:
        """n draws, islands chosen by weight; those of one island are not independent."""
        generator = np.random.default_rng(seed)
        probabilities = self.weights / self.weights.sum()
        # Systematic: each island as often as its weight says, to within one.
        places = (np.arange(n) + generator.random()) / n
        which = np.minimum(np.searchsorted(np.cumsum(probabilities), places), len(probabilities) - 1)
        which = generator.permutation(which)
        return self.draws[which, generator.integers(self.draws.shape[1], size=n)]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with this run, in sentences; empty if nothing was seen."""
        found, weights = [], self.weights
        agreeing = float(weights.sum() ** 2 / np.sum(weights**2))
        if not agreeing >= len(weights) / 2:
            found.append(
                f"The {len(weights)} islands disagree (as good as {agreeing:.1f} that agree): errors are too small; "
                "use more particles, more moves or a base closer to the target."
            )
        families = float(np.mean(self.families))
        if families < FEWEST_FAMILIES:
            found.append(
                f"The particles of an island descend from only {families:.1f} draws of the base; use more particles or "
                "a base closer to the target."
            )
        if np.min(self.acceptance) < LEAST_ACCEPTANCE:
            level = int(np.argmin(self.acceptance))
            found.append(
                f"Only {self.acceptance[level]:.0%} of the moves at level {level + 1} were accepted: particles stay "
                "where they were copied to; use more moves or a smoother target."
            )
        if len(self.betas) - 1 >= LONGEST:
            found.append(f"The path needs more than {LONGEST} levels; use a base closer to the target.")
        return tuple(found)


class TemperedSMC(eqx.Module):
    """Populations through exp(-(1 - b) E_base - b E), b from 0 to 1: weighted, resampled, moved at every level.

    The next b is the one that leaves `share` of all particles effective (Del Moral, Doucet and Jasra 2006, 2012). The
    islands see each other only through the levels and the tuning of the moves, so that their spread gives errors. The
    base must cover all modes of the target: a mode with no draw of the base near it is lost. Particles are moved by
    `sampler`; without one by HMC, which they tune, on real numbers, and by Gibbs on zeros and ones and categories.

    >>> import unnorm as un
    >>> modes = un.energies.gaussian_mixture([0.8, 0.2], [[-4.0], [4.0]], 0.6)
    >>> smc = TemperedSMC(un.energies.standard_gaussian(1, scale=5.0))
    >>> smc(modes, key=jax.random.key(0)).mean(lambda x: x[:, 0] < 0).covers(0.8, 0.999)
    True
    """

    base: AbstractNormalised
    islands: int = eqx.field(static=True, default=32, converter=lambda n: whole_number(n, "islands of SMC"))
    particles: int = eqx.field(static=True, default=256, converter=lambda n: whole_number(n, "particles of SMC"))
    share: float = eqx.field(static=True, default=0.5)
    moves: int = eqx.field(static=True, default=3, converter=lambda n: whole_number(n, "moves of SMC"))
    leapfrogs: int = eqx.field(static=True, default=5, converter=lambda n: whole_number(n, "leapfrogs of SMC"))
    sampler: AbstractSampler | None = None

    def __check_init__(self):
        require(
            self.islands >= 8 and self.particles >= 16,
            f"SMC needs at least 8 islands (for the error) of 16 particles, not {self.islands} of {self.particles}",
        )
        require(0 < self.share < 1, f"the share of effective particles must lie between 0 and 1, not {self.share}")
        require(self.moves >= 1, f"SMC needs at least 1 move for each level, not {self.moves}")
        require(self.leapfrogs >= 1, f"SMC needs at least one leapfrog step, not {self.leapfrogs}")

    def __call__(self, target: AbstractEnergy, *, key: PRNGKeyArray) -> Particles:
        """The population at the target."""
        moves = moves_on(target.space, self.sampler, "SMC", leapfrogs=self.leapfrogs, acceptance=ACCEPTANCE)
        require_moves(target, moves)
        require(target.space == self.base.space, f"the base is on {self.base.space} and the target on {target.space}")
        shape: Any = jax.eval_shape(target, target.space.struct()).shape
        require(shape == (), f"an energy returns one number per point, but this one returned shape {shape}")
        require_divisible(self.islands, "islands")
        counts = (self.islands, self.particles)
        draws, log_z, ancestors, count, tables = _walk(
            self.base, target, counts, jnp.asarray(self.share), moves, self.moves, key
        )
        log_weights, levels = np.asarray(log_z, np.float64), int(count)
        require(
            bool(np.all(np.isfinite(log_weights))),
            "the energy is not finite at all draws of the base in an island; use a base that lies inside the target",
        )
        betas, effective, acceptance = (np.asarray(table, np.float64) for table in tables)
        families = np.array([len(np.unique(row)) for row in np.asarray(ancestors)])
        return Particles(
            jax.tree.map(np.asarray, draws),
            log_weights,
            betas[: levels + 1],
            effective[:levels],
            acceptance[:levels],
            families,
        )
