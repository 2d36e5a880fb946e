"""log Z of Boltzmann machines by annealing their layers: hidden units are summed over, and drawn to move the others.

At level b the energy of an RBM's visible units is E_b(x) = -((1 - b) a + b v)'x - sum_j softplus(b (c_j + x'W_j)), an
RBM again: at b = 0 the visible units are coins of log-odds a and the hidden ones fair coins, log Z_0 = hidden log 2 +
sum_i softplus(a_i); at b = 1 it is the machine (Salakhutdinov and Murray 2008). The path is not linear in b, but each
of its levels moves by block Gibbs, and the weights of a walk over x alone have less variance than of one over x and z.
A deep machine is an RBM of its odd layers with the even ones summed over (Salakhutdinov and Hinton 2009).
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.energies import RBM, AbstractEnergy, DeepBoltzmann, IndependentSites
from unnorm.errors import InputError, require
from unnorm.estimate import Estimate, log_mean_exp_estimate
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.partition.annealing import PILOT, even_levels
from unnorm.evaluation.partition.chains import Draws, as_chains, mean_of_chains
from unnorm.evaluation.partition.reverse_ais import Bracket
from unnorm.evaluation.partition.rounding import with_rounding
from unnorm.evaluation.partition.tails import judged

#: Levels of a pilot run, at most.
SCOUT = 200


class Ladder(NamedTuple):
    """A machine, the log-odds of its visible units at level 0, and the levels from 0 to 1."""

    machine: RBM
    base: Float[Array, " visible"]
    betas: Float[Array, " levels+1"]

    @property
    def log_z0(self) -> float:
        """log Z at level 0."""
        base = np.asarray(self.base, np.float64)
        return float(np.logaddexp(0, base).sum()) + len(self.machine.hidden) * math.log(2)

    def starts(self, n: int, key: PRNGKeyArray) -> Float[Array, "n visible"]:
        """Draws at level 0."""
        return jax.random.bernoulli(key, jax.nn.sigmoid(self.base)[None], (n, len(self.base))).astype(float)

    def input(self, x: Float[Array, " visible"]) -> Float[Array, " hidden"]:
        """The log-odds of the hidden units at level 1."""
        return self.machine.hidden + x @ self.machine.weights

    def gain(self, x: Float[Array, " visible"], u: Float[Array, " hidden"], low: Array, high: Array) -> Array:
        """E_low(x) - E_high(x), u the input of x."""
        tilt = (high - low) * ((self.machine.visible - self.base) @ x)
        return tilt + jnp.sum(jax.nn.softplus(high * u) - jax.nn.softplus(low * u))

    def move(self, u: Float[Array, " hidden"], b: Array, key: PRNGKeyArray) -> Float[Array, " visible"]:
        """A sweep of block Gibbs at level b from a point of input u."""
        up, down = jax.random.split(key)
        z = jax.random.bernoulli(up, jax.nn.sigmoid(b * u)).astype(float)
        odds = (1 - b) * self.base + b * (self.machine.visible + self.machine.weights @ z)
        return jax.random.bernoulli(down, jax.nn.sigmoid(odds)).astype(float)


def _ahead(ladder: Ladder, xs: Array, low: Array, high: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
    """From one level to the next: the gains of the log-weights where points stand, and the points moved there."""

    def one(x, key):
        u = ladder.input(x)
        return ladder.move(u, high, key), ladder.gain(x, u, low, high)

    return jax.vmap(one)(xs, jax.random.split(key, len(xs)))


@compiled
def _up(ladder: Ladder, chains: int, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
    """Points and log-weights of AIS, and the spread of the gains at every level."""
    begin, key = jax.random.split(key)

    def level(carry, inputs):
        xs, log_weights = carry
        xs, gains = _ahead(ladder, xs, *inputs)
        return (xs, log_weights + gains), jnp.std(gains)

    inputs = (ladder.betas[:-1], ladder.betas[1:], jax.random.split(key, len(ladder.betas) - 1))
    (xs, log_weights), spread = jax.lax.scan(level, (ladder.starts(chains, begin), jnp.zeros(chains)), inputs)
    return xs, log_weights, spread


@compiled
def _down(ladder: Ladder, xs: Array, key: PRNGKeyArray) -> Array:
    """Log-weights of chains that walk from level 1 to level 0."""

    def level(carry, inputs):
        xs, log_weights = carry
        low, high, key = inputs

        def one(x, key):
            u = ladder.input(x)
            return ladder.move(u, low, key), -ladder.gain(x, u, low, high)

        xs, gains = jax.vmap(one)(xs, jax.random.split(key, len(xs)))
        return (xs, log_weights + gains), None

    inputs = (ladder.betas[:-1], ladder.betas[1:], jax.random.split(key, len(ladder.betas) - 1))
    return jax.lax.scan(level, (xs, jnp.zeros(len(xs))), inputs, reverse=True)[0][1]


@compiled
def _islands(ladder: Ladder, islands: int, particles: int, key: PRNGKeyArray) -> tuple[Array, Array]:
    """log Z / Z_0 of every island, and where its particles end."""

    def island(key):
        begin, key = jax.random.split(key)

        def level(carry, inputs):
            xs, logs, total = carry
            low, high, key = inputs
            walk, comb = jax.random.split(key)
            xs, gains = _ahead(ladder, xs, low, high, walk)
            logs = logs + gains
            shares = jax.nn.softmax(logs)
            poor = jnp.sum(shares**2) * particles > 2
            # Systematic resampling, where fewer than half of the particles are effective.
            places = (jnp.arange(particles) + jax.random.uniform(comb)) / particles
            chosen = jnp.searchsorted(jnp.cumsum(shares), places).clip(0, particles - 1)
            kept = jnp.where(poor, chosen, jnp.arange(particles))
            total = total + jnp.where(poor, jax.nn.logsumexp(logs) - math.log(particles), 0.0)
            return (xs[kept], jnp.where(poor, 0.0, logs), total), None

        inputs = (ladder.betas[:-1], ladder.betas[1:], jax.random.split(key, len(ladder.betas) - 1))
        start = (ladder.starts(particles, begin), jnp.zeros(particles), jnp.zeros(()))
        (xs, logs, total), _ = jax.lax.scan(level, start, inputs)
        return total + jax.nn.logsumexp(logs) - math.log(particles), xs

    return jax.vmap(island)(jax.random.split(key, islands))


def machine_of(model: Any) -> RBM:
    """The RBM whose log Z is asked for: the model itself, or a deep machine folded."""
    if isinstance(model, DeepBoltzmann):
        return model.folded()
    if not isinstance(model, RBM):
        raise InputError(f"layers are those of an RBM or a DeepBoltzmann, not of {type(model).__name__}; use ais")
    return eqx.tree_at(lambda m: m.weights, model, model.weights.astype(float))


def ladder_of(model: Any, base: IndependentSites | None, levels: int, key: PRNGKeyArray) -> Ladder:
    """The path of a machine, its levels placed by a pilot run of 64 chains that is thrown away.

    `base` is the law of the visible units at level 0 (of the odd layers of a deep machine); without one, fair coins.
    """
    machine = machine_of(model)
    (levels,) = whole_numbers(levels=levels)
    require(levels >= 2, f"annealing by layers needs at least 2 levels, not {levels}")
    log_odds = jnp.zeros(machine.visible.shape)
    if base is not None:
        require(
            isinstance(base, IndependentSites) and base.space == machine.space,
            f"the base of the layers is a law of sites on {machine.space}, such as energies.fit_sites gives",
        )
        flat = base.logits.reshape(-1, 2)
        log_odds = flat[:, 1] - flat[:, 0]
    first = Ladder(machine, log_odds, jnp.linspace(0.0, 1.0, min(levels, SCOUT) + 1))
    return first._replace(betas=even_levels(first.betas, _up(first, PILOT, key)[2], levels))


def _forward(ladder: Ladder, chains: int, key: PRNGKeyArray) -> Estimate:
    xs, log_weights, _ = _up(ladder, chains, key)
    estimate = judged(log_mean_exp_estimate(log_weights, "AIS of layers"), log_weights)
    return _shifted(ladder, estimate, estimate.value, xs, log_weights)


def _shifted(ladder: Ladder, estimate: Estimate, value: float, xs: Any, log_weights: Any = None) -> Estimate:
    found = replace(
        estimate,
        value=ladder.log_z0 + value,
        diagnostics={**estimate.diagnostics, "levels": float(len(ladder.betas) - 1)},
    )
    energies = _energies(ladder.machine, jnp.asarray(xs).reshape(-1, *ladder.machine.space.shape))
    return with_rounding(found, energies, log_weights)


@compiled
def _energies(machine: AbstractEnergy, xs: Array) -> Array:
    return jax.vmap(machine)(xs)


def layered_ais(
    model: RBM | DeepBoltzmann,
    base: IndependentSites | None = None,
    *,
    chains: int = 256,
    levels: int = 1000,
    key: PRNGKeyArray,
) -> Estimate:
    """log Z of a Boltzmann machine by annealed importance sampling over its layers; on average too low.

    >>> import jax, jax.numpy as jnp, unnorm as un
    >>> machine = un.energies.RBM(un.spaces.Binary((3,)), jnp.ones((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> layered_ais(machine, levels=50, key=jax.random.key(0)).covers(
    ...     float(un.energies.enumerated_log_z(machine)), 0.999
    ... )
    True
    """
    place, run = jax.random.split(key)
    (chains,) = whole_numbers(chains=chains)
    require(chains >= 2, f"AIS needs at least 2 chains, not {chains}")
    return _forward(ladder_of(model, base, levels, place), chains, run)


def layered_bracket(
    model: RBM | DeepBoltzmann,
    draws: Draws,
    base: IndependentSites | None = None,
    *,
    chains: int = 256,
    levels: int = 1000,
    key: PRNGKeyArray,
) -> Bracket:
    """log Z from below by AIS, and from above by walks from draws of the machine (Grosse, Ghahramani and Adams 2015).

    `draws` are points of the machine, a `Trace` or an array: of the visible units of an RBM, of all of a deep machine.
    Draws that are not from the whole law can make the upper bound too low; `Bracket.warnings` says so where it shows.
    """
    place, up, down = jax.random.split(key, 3)
    (chains,) = whole_numbers(chains=chains)
    require(chains >= 2, f"AIS needs at least 2 chains, not {chains}")
    found = as_chains(draws, model.space.struct().shape, "reverse AIS")
    ladder = ladder_of(model, base, levels, place)
    points = jnp.asarray(found.reshape(-1, model.space.size), float)
    xs = jax.vmap(model.odd)(points) if isinstance(model, DeepBoltzmann) else points
    log_weights = np.asarray(_down(ladder, xs, down), np.float64)
    estimate = judged(log_mean_exp_estimate(log_weights, "reverse AIS of layers"), log_weights)
    mean = mean_of_chains(np.exp(log_weights - log_weights.max()).reshape(found.shape[:2]))
    upper = _shifted(ladder, estimate, -estimate.value, xs)
    stderr = mean.stderr / mean.value if mean.value > 0 else math.inf
    return Bracket(_forward(ladder, chains, up), replace(upper, stderr=stderr))


def layered_smc(
    model: RBM | DeepBoltzmann,
    base: IndependentSites | None = None,
    *,
    islands: int = 32,
    particles: int = 64,
    levels: int = 200,
    key: PRNGKeyArray,
) -> Estimate:
    """log Z by sequential Monte Carlo over the layers: where fewer than half of them count, particles are drawn anew.

    Each island's Z is unbiased, and the error is that of their spread (Del Moral, Doucet and Jasra 2006).
    """
    place, run = jax.random.split(key)
    islands, particles = whole_numbers(islands=islands, particles=particles)
    require(
        islands >= 8 and particles >= 16,
        f"SMC needs at least 8 islands (for the error) of 16 particles, not {islands} of {particles}",
    )
    ladder = ladder_of(model, base, levels, place)
    log_zs, xs = _islands(ladder, islands, particles, run)
    found = log_mean_exp_estimate(log_zs, "SMC of layers")
    effective = found.diagnostics["effective_samples"]
    warnings = ()
    if not effective >= islands / 2:
        warnings = (
            f"The {islands} islands disagree about Z (as good as {effective:.1f} that agree): the stated error is too "
            "small; use more particles or more levels.",
        )
    diagnostics = {"islands": float(islands), "effective_islands": effective, "particles": float(particles)}
    return _shifted(ladder, replace(found, diagnostics=diagnostics, warnings=warnings), found.value, xs)


@compiled
def _above(model: DeepBoltzmann, rows: Array, betas: Array, chains: int, key: PRNGKeyArray) -> tuple[Array, Array]:
    def one(pair):
        x, key = pair
        machine = model.above(x).folded()
        ladder = Ladder(machine, machine.visible, betas)
        _, log_weights, _ = _up(ladder, chains, key)
        log_z0 = jnp.sum(jax.nn.softplus(machine.visible)) + len(machine.hidden) * math.log(2)
        largest = jnp.max(log_weights)
        weights = jnp.exp(log_weights - largest)
        mean = jnp.mean(weights)
        value = model.biases[0] @ x + log_z0 + largest + jnp.log(mean)
        return value, jnp.std(weights, ddof=1) / (mean * math.sqrt(chains))

    return jax.lax.map(one, (rows, jax.random.split(key, len(rows))), batch_size=16)


def unnormalised_evidence(
    model: DeepBoltzmann, rows: Any, *, chains: int = 16, levels: int = 100, key: PRNGKeyArray
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """log sum_h exp(-E(x, h)) of every row of visible units, by AIS over the hidden layers, and its stated errors.

    Less log Z it is log p(x). Each value is on average too low, by half its squared error. With one hidden layer the
    sum is known: the energy of an RBM.
    """
    xs = jnp.asarray(rows, float).reshape(len(rows), -1)
    require(
        xs.shape[1] == model.visible,
        f"a row has {model.visible} visible units, not {xs.shape[1]}",
    )
    chains, levels = whole_numbers(chains=chains, levels=levels)
    require(chains >= 2 and levels >= 1, f"AIS needs at least 2 chains and 1 level, not {chains} and {levels}")
    values, errors = _above(model, xs, jnp.linspace(0.0, 1.0, levels + 1), chains, key)
    return np.asarray(values, np.float64), np.asarray(errors, np.float64)
