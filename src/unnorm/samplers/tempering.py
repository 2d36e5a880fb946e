"""Parallel tempering: replicas at higher temperatures cross between modes and hand what they find down."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unnorm.arguments import at_least, between_0_and_1
from unnorm.energies.base import AbstractEnergy, Point
from unnorm.errors import InputError
from unnorm.samplers.base import (
    AbstractAcceptanceRemarks,
    AbstractAdaptiveSampler,
    AbstractSampler,
    Info,
    Target,
    require_energy,
    require_gradients,
)
from unnorm.samplers.gibbs import Gibbs
from unnorm.samplers.hamiltonian import HMC
from unnorm.spaces import AbstractSpace, Binary, Categorical

#: Replicas that trade less often than this hand nothing down.
LEAST_TRADES = 0.05


class Replicas(NamedTuple):
    """A position for every temperature, the coldest first, and the number of steps taken."""

    positions: Any
    step: Int[Array, ""]


def _ladder(coldest: float, count: int) -> Float[Array, " k"]:
    return jnp.geomspace(1.0, coldest, count)


class ParallelTempering(AbstractAdaptiveSampler, AbstractAcceptanceRemarks):
    """K replicas, the k-th a chain on b_k E with 1 = b_1 > ... > b_K; after every move neighbours may trade places.

    A trade of i and j is accepted with probability min(1, exp((b_i - b_j)(E_i - E_j))), which leaves the product of the
    tempered densities invariant (Swendsen and Wang 1986; Geyer 1991). Even and odd pairs take turns, which carries
    replicas up and down the ladder faster than chance (Okabe et al. 2001). Draws are the coldest replica's, and the
    acceptance is that of the trades. Inverse temperatures fall geometrically to `hottest`. Replicas move by the sampler
    that is given as `moves`; without one by HMC on real numbers, and by Gibbs on zeros and ones and categories. Warm-up
    tunes that of every replica if it can be tuned. Where hardly any trade is accepted, what hot replicas find never
    reaches the draws: the trace says so.

    >>> ParallelTempering(replicas=4, hottest=0.125).inverse_temperatures.round(3).tolist()
    [1.0, 0.5, 0.25, 0.125]
    """

    inverse_temperatures: Float[Array, " k"]
    moves: AbstractSampler
    own: bool = eqx.field(static=True)

    def __init__(
        self,
        replicas: int = 8,
        hottest: float = 0.02,
        *,
        moves: AbstractSampler | None = None,
        leapfrogs: int = 10,
    ):
        """`moves` holds one sampler per replica, its arrays stacked."""
        at_least(2, replicas, "parallel tempering needs at least 2 replicas")
        between_0_and_1(hottest, "the inverse temperature of the hottest replica")
        if not (moves is None or isinstance(moves, AbstractSampler)):
            raise InputError(f"replicas move by a sampler such as samplers.Gibbs(), not a {type(moves).__name__}")
        self.inverse_temperatures = _ladder(hottest, replicas)
        self.own = moves is None
        if moves is None:
            # A density raised to the power b is 1 / sqrt(b) times as wide.
            self.moves = jax.vmap(lambda b: HMC(0.1 / jnp.sqrt(b), None, leapfrogs))(self.inverse_temperatures)
        else:
            arrays, rest = eqx.partition(moves, eqx.is_array)
            stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (replicas, *leaf.shape)), arrays)
            self.moves = eqx.combine(stacked, rest)

    def _moves_on(self, space: AbstractSpace) -> AbstractSampler:
        """One sampler per replica: what was made for real numbers does not move sites."""
        return Gibbs() if self.own and isinstance(space, Binary | Categorical) else self.moves

    def check(self, target: Target) -> None:
        energy = require_energy(target, "ParallelTempering")
        moves = self._moves_on(energy.space)
        if self.own and moves is self.moves:
            require_gradients(energy.space, "ParallelTempering")
        moves.check(0.5 * energy)

    def init(self, target: AbstractEnergy, x: Point) -> Replicas:
        count = len(self.inverse_temperatures)
        copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), x)
        return Replicas(copies, jnp.zeros((), jnp.int32))

    def step(self, target: AbstractEnergy, state: Replicas, *, key: PRNGKeyArray) -> tuple[Replicas, Info]:
        betas, count = self.inverse_temperatures, len(self.inverse_temperatures)
        walk, trade = jax.random.split(key)

        def move(b, sampler, x, key):
            # A replica that has traded stands at a place its sampler has not seen, so its state is made anew.
            moved, info = sampler.step(b * target, sampler.init(b * target, x), key=key)
            return sampler.position(moved), info.divergent

        positions, divergent = eqx.filter_vmap(move)(
            betas, self._moves_on(target.space), state.positions, jax.random.split(walk, count)
        )
        energies = jax.vmap(target)(positions)
        log_odds = (betas[:-1] - betas[1:]) * (energies[:-1] - energies[1:])
        # A single pair has nobody to take turns with.
        ours = (jnp.arange(count - 1) + state.step) % min(2, count - 1) == 0
        accept = ours & (jnp.log(jax.random.uniform(trade, (count - 1,))) < log_odds)
        # Pairs that take turns together do not overlap: k goes to k + 1 where its pair trades, and comes from there.
        up, down = jnp.append(accept, False), jnp.insert(accept, 0, False)
        order = jnp.arange(count) + up - down
        chance = jnp.sum(jnp.where(ours, jnp.exp(jnp.minimum(log_odds, 0.0)), 0.0)) / jnp.sum(ours)
        traded = jax.tree.map(lambda leaf: leaf[order], positions)
        return Replicas(traded, state.step + 1), Info(chance, divergent[0])

    def position(self, state: Replicas) -> Point:
        return jax.tree.map(lambda leaf: leaf[0], state.positions)

    def remarks(self, acceptance: float) -> tuple[str, ...]:
        if acceptance >= LEAST_TRADES:
            return ()
        count = self.inverse_temperatures.shape[-1]  # warm-up leaves one ladder for every chain
        return (
            f"Replicas hardly ever trade: {acceptance:.1%} of the trades were accepted (below {LEAST_TRADES:.0%}), so "
            f"modes that only the hot ones find are missed; use more than {count} replicas.",
        )

    def warm_up(
        self, target: AbstractEnergy, x: Point, *, steps: int, key: PRNGKeyArray
    ) -> tuple["ParallelTempering", Point]:
        """Half of the steps tune every replica alone, the other half mix them."""
        tune, mix = jax.random.split(key)
        count = len(self.inverse_temperatures)

        def alone(b, sampler, key):
            return sampler.warm_up(b * target, x, steps=steps // 2, key=key)[0]

        tuned, moves = self, self._moves_on(target.space)
        if isinstance(moves, AbstractAdaptiveSampler):
            moves = eqx.filter_vmap(alone)(self.inverse_temperatures, moves, jax.random.split(tune, count))
            tuned = eqx.tree_at(lambda s: s.moves, self, moves, is_leaf=lambda leaf: leaf is None)

        def together(state: Any, key: PRNGKeyArray) -> tuple[Any, None]:
            return tuned.step(target, state, key=key)[0], None

        state, _ = jax.lax.scan(together, tuned.init(target, x), jax.random.split(mix, steps - steps // 2))
        return tuned, tuned.position(state)
