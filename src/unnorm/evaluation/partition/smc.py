"""Tempered sequential Monte Carlo: a population walks from a base to the target and is resampled on the way.

Built on `blackjax.smc.base.step` and its systematic resampling. blackjax's ready-made tempered samplers are not used:
they choose levels from the very particles that estimate Z, which costs the unbiasedness the stated error rests on, and
they move first at inverse temperature 0, where a wall of the target gives 0 times infinity.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import blackjax.smc.base as feynman_kac
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.smc.resampling import systematic
from jaxtyping import Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.devices import require_divisible, split_over_devices
from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.errors import require
from unnorm.estimate import Estimate, log_mean_exp_estimate
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.partition.annealing import Path, annealing_moves, between, difference, starts
from unnorm.evaluation.partition.pairs import require_pair
from unnorm.evaluation.partition.rounding import with_rounding
from unnorm.samplers import AbstractSampler
from unnorm.samplers.moves import AbstractMoves, moved
from unnorm.samplers.smc import FEWEST_FAMILIES, LONGEST, next_level, tuned_moves, unfinished

#: Particles of the pilot run.
SCOUTS = 512
#: Levels come in multiples of this, so that few programs are compiled.
MULTIPLE = 4


@compiled
def _ladder(base, target, share: float, moves: int, by: AbstractMoves, key: PRNGKeyArray):
    """An adaptive run that is thrown away: levels by effective sample size, moves of each tuned by the population."""
    start, key = jax.random.split(key)
    xs = starts(base, SCOUTS, start)

    def level(state):
        xs, b, count, known, (betas, all_known) = state
        resample, walk = jax.random.split(jax.random.fold_in(key, count))
        slopes = difference(base, target, xs)
        b, step = next_level(b, slopes, count, share)
        chosen = systematic(resample, jax.nn.softmax(step * slopes), SCOUTS)
        xs = jax.tree.map(lambda leaf: leaf[chosen], xs)
        xs, known, _ = tuned_moves(between(base, target, b), xs, by, by.look(known, xs), moves, walk)
        all_known = jax.tree.map(lambda table, leaf: table.at[count].set(leaf), all_known, known)
        return xs, b, count + 1, known, (betas.at[count].set(b), all_known)

    known = by.begin(xs)
    all_known = jax.tree.map(lambda leaf: jnp.ones((LONGEST, *jnp.shape(leaf)), leaf.dtype), known)
    first = (xs, jnp.zeros(()), 0, known, (jnp.ones(LONGEST), all_known))
    _, _, count, _, tables = jax.lax.while_loop(lambda s: unfinished(s[1], s[2]), level, first)
    return count, tables


def laddered_path(
    target: AbstractEnergy,
    base: AbstractNormalised,
    *,
    share: float,
    moves: int,
    by: AbstractMoves,
    key: PRNGKeyArray,
) -> Path:
    """Levels such that this share of the particles stays effective from each to the next, found by a pilot run."""
    count, (betas, known) = _ladder(base, target, share, moves, by, key)
    found = int(count)
    levels = -(-found // MULTIPLE) * MULTIPLE
    places = np.linspace(0, found, levels + 1)
    ladder = np.interp(places, np.arange(found + 1), np.concatenate([[0.0], np.asarray(betas, np.float64)[:found]]))
    nearest = np.clip(np.ceil(places[1:]).astype(int) - 1, 0, found - 1)
    at_levels = jax.tree.map(lambda table: table[nearest], known)
    samplers = jax.vmap(by.sampler, axis_size=levels)(at_levels)
    return Path(jnp.asarray(ladder, float), samplers)


@compiled
def _islands(base, target, path: Path, islands: int, particles: int, moves: int, key: PRNGKeyArray):
    """Independent populations: log Z of each, its particles, their energies and ancestors, and the acceptance."""
    betas, samplers = path

    def weigh(step, xs):
        return step * difference(base, target, xs)

    def island(key):
        start, key = jax.random.split(key)
        xs = starts(base, particles, start)
        log_weights = weigh(betas[1], xs)
        log_z = jax.scipy.special.logsumexp(log_weights) - math.log(particles)
        state = feynman_kac.SMCState(xs, jax.nn.softmax(log_weights), ())

        def level(carry, inputs):
            state, log_z, ancestors = carry
            b, step, sampler, key = inputs

            def update(keys, xs, _):
                return moved(between(base, target, b), sampler, xs, moves, keys[0])

            state, info = feynman_kac.step(key, state, update, lambda xs: weigh(step, xs), systematic)
            accepted: Any = info.update_info  # what `update` returned beside the particles
            return (state, log_z + info.log_likelihood_increment, ancestors[info.ancestors]), accepted

        # After the last move no step is left, so that particles end with equal weights.
        steps = jnp.append(jnp.diff(betas)[1:], 0.0)
        inputs = (betas[1:], steps, samplers, jax.random.split(key, len(betas) - 1))
        (state, log_z, ancestors), acceptance = jax.lax.scan(level, (state, log_z, jnp.arange(particles)), inputs)
        return log_z, state.particles, jax.vmap(target)(state.particles), ancestors, jnp.mean(acceptance)

    return jax.vmap(island)(split_over_devices(jax.random.split(key, islands)))


class Population(NamedTuple):
    """log Z, and the particles of every island: equal weights within one, exp(log_weights) between them."""

    log_z: Estimate
    particles: Float[np.ndarray, "islands particles ..."]
    log_weights: Float[np.ndarray, " islands"]

    def draws(self, n: int, *, seed: int = 0) -> Float[np.ndarray, "n ..."]:
        """n particles, islands chosen by their weight; those of one island are not independent."""
        generator = np.random.default_rng(seed)
        weights = np.exp(self.log_weights - self.log_weights.max())
        which = generator.choice(len(weights), size=n, p=weights / weights.sum())
        return self.particles[which, generator.integers(self.particles.shape[1], size=n)]


def tempered_population(
    target: AbstractEnergy,
    base: AbstractNormalised,
    *,
    islands: int = 32,
    particles: int = 256,
    share: float = 0.5,
    moves: int = 3,
    leapfrogs: int = 5,
    sampler: AbstractSampler | None = None,
    path: Path | None = None,
    key: PRNGKeyArray,
) -> Population:
    """Weighted, resampled, moved: Z = prod_k mean_i exp((b_k - b_{k-1}) (E_base - E_target)(x_i)), for every island.

    Each island's Z is unbiased (Del Moral, Doucet and Jasra 2006) because levels and moves come from a pilot run that
    is thrown away; log Z is the log of their mean, with an error from their spread. Where one island's Z is far from
    the next, no error is right, and a warning says so. `sampler` is that of `ais`.

    >>> import jax, unnorm as un
    >>> target = un.energies.FunctionEnergy(lambda x: 2 * (x**2).sum(), un.spaces.Real((2,)))
    >>> found = tempered_population(target, un.energies.standard_gaussian(2), key=jax.random.key(0))
    >>> found.log_z.covers(0.4515827, 0.999), found.draws(5).shape
    (True, (5, 2))
    """
    require_pair(target, base)
    islands, particles, moves, leapfrogs = whole_numbers(
        islands=islands, particles=particles, moves=moves, leapfrogs=leapfrogs
    )
    require(
        islands >= 8 and particles >= 16,
        f"SMC needs at least 8 islands (for the error) of 16 particles, not {islands} of {particles}",
    )
    require(0 < share < 1, f"the share of effective particles must lie between 0 and 1, not {share}")
    require(moves >= 1, f"SMC needs at least 1 move for each level, not {moves}")
    require_divisible(islands, "islands")
    by = annealing_moves(target, base, sampler, leapfrogs)
    pilot, run = jax.random.split(key)
    if path is None:
        path = laddered_path(target, base, share=share, moves=moves, by=by, key=pilot)
    log_zs, xs, energies, ancestors, acceptance = _islands(base, target, path, islands, particles, moves, run)
    log_zs = np.asarray(log_zs, np.float64)
    dead = int((~np.isfinite(log_zs)).sum())
    require(
        dead == 0,
        f"the energy is not finite at all particles of {dead} of {islands} islands; use more particles, or a base that "
        "lies inside the target",
    )
    families = float(np.mean([len(np.unique(row)) for row in np.asarray(ancestors)]))
    estimate = _judged(log_zs, particles, path, float(jnp.mean(acceptance)), families)
    return Population(with_rounding(estimate, energies), jax.tree.map(np.asarray, xs), log_zs)


def _judged(log_zs: np.ndarray, particles: int, path: Path, acceptance: float, families: float) -> Estimate:
    """The mean over islands, and whether they agree."""
    estimate = log_mean_exp_estimate(log_zs, "SMC")
    effective, islands = estimate.diagnostics["effective_samples"], len(log_zs)
    diagnostics = {
        "islands": float(islands),
        "effective_islands": effective,
        "particles": float(particles),
        "levels": float(len(path.betas) - 1),
        "acceptance": acceptance,
        "families": families,
    }
    warnings = []
    if not effective >= islands / 2:
        warnings.append(
            f"The {islands} islands disagree about Z (as good as {effective:.1f} that agree): the stated error is too "
            "small; use more particles, more moves or a base closer to the target."
        )
    if families < FEWEST_FAMILIES:
        warnings.append(
            f"The particles of an island descend from only {families:.1f} draws of the base; use more particles or a "
            "base closer to the target."
        )
    if len(path.betas) - 1 >= LONGEST:
        warnings.append(f"The path needs more than {LONGEST} levels; use a base closer to the target.")
    return replace(estimate, diagnostics=diagnostics, warnings=tuple(warnings))


def smc(
    target: AbstractEnergy,
    base: AbstractNormalised,
    *,
    islands: int = 32,
    particles: int = 256,
    share: float = 0.5,
    moves: int = 3,
    leapfrogs: int = 5,
    sampler: AbstractSampler | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """log Z by tempered sequential Monte Carlo, as `tempered_population`, without the particles.

    >>> import jax, unnorm as un
    >>> target = un.energies.FunctionEnergy(lambda x: 2 * (x**2).sum(), un.spaces.Real((2,)))
    >>> smc(target, un.energies.standard_gaussian(2), key=jax.random.key(1)).covers(0.4515827, 0.999)
    True
    """
    return tempered_population(
        target, base, islands=islands, particles=particles, share=share, moves=moves, leapfrogs=leapfrogs,
        sampler=sampler, key=key,
    ).log_z  # fmt: skip
