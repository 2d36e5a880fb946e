"""MALA, HMC and NUTS: blackjax's kernels behind the sampler protocol, with warm-up."""

from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.adaptation.step_size import dual_averaging_adaptation
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, Point
from unnorm.errors import require
from unnorm.samplers.base import AbstractAdaptiveSampler, Info
from unnorm.samplers.langevin import positive


def _log_density(target: AbstractEnergy):
    return lambda x: -target(x)


def _adaptive_windows(algorithm, target: AbstractEnergy, x: Point, steps: int, acceptance: float, key, **extra):
    """blackjax's window adaptation (Stan's schedule): step size, diagonal inverse mass, last position."""
    warm_up = blackjax.window_adaptation(
        algorithm,
        _log_density(target),
        target_acceptance_rate=acceptance,
        adaptation_info_fn=lambda *_: None,
        **extra,
    )
    run: Any = warm_up.run  # typed without its number of steps
    (state, parameters), _ = run(key, x, num_steps=steps)
    return parameters["step_size"], parameters["inverse_mass_matrix"], state.position


class MALA(AbstractAdaptiveSampler):
    """Langevin's move as a proposal, accepted by Metropolis-Hastings (Roberts and Tweedie 1996).

    Warm-up tunes the step by dual averaging towards an acceptance of 0.574.
    """

    step_size: Float[Array, ""] = eqx.field(converter=lambda h: positive(h, "the step size of MALA"), default=0.1)
    target_acceptance: float = eqx.field(static=True, default=0.574)

    def init(self, target: AbstractEnergy, x: Point) -> Any:
        return blackjax.mala.init(x, _log_density(target))

    def step(self, target: AbstractEnergy, state: Any, *, key: PRNGKeyArray) -> tuple[Any, Info]:
        state, info = blackjax.mala.build_kernel()(key, state, _log_density(target), self.step_size)
        return state, Info(info.acceptance_rate, jnp.asarray(False))

    def position(self, state: Any) -> Point:
        return state.position

    def warm_up(self, target: AbstractEnergy, x: Point, *, steps: int, key: PRNGKeyArray) -> tuple["MALA", Point]:
        start, update, final = dual_averaging_adaptation(self.target_acceptance)

        def move(carry, key):
            state, tuning = carry
            tried = eqx.tree_at(lambda s: s.step_size, self, jnp.exp(tuning.log_step_size))
            state, info = tried.step(target, state, key=key)
            return (state, update(tuning, info.acceptance)), None

        carry = (self.init(target, x), start(self.step_size))
        (state, tuning), _ = jax.lax.scan(move, carry, jax.random.split(key, steps))
        return eqx.tree_at(lambda s: s.step_size, self, final(tuning)), state.position


class HMC(AbstractAdaptiveSampler):
    """Hamiltonian Monte Carlo with a fixed number of leapfrog steps (Duane et al. 1987; Neal 2011).

    The step of every trajectory is drawn uniformly between `step_size` / 2 and `step_size`: a fixed length comes back
    to where it began whenever it is near a period of the target, and on a Gaussian the chain then stands still
    (Mackenzie 1989).
    """

    step_size: Float[Array, ""] = eqx.field(converter=lambda h: positive(h, "the step size of HMC"), default=0.1)
    inverse_mass: Float[Array, " d"] | None = None
    leapfrogs: int = eqx.field(static=True, default=10)
    target_acceptance: float = eqx.field(static=True, default=0.8)

    def __check_init__(self):
        require(self.leapfrogs >= 1, f"HMC needs at least one leapfrog step, not {self.leapfrogs}")

    def init(self, target: AbstractEnergy, x: Point) -> Any:
        return blackjax.hmc.init(x, _log_density(target))

    def step(self, target: AbstractEnergy, state: Any, *, key: PRNGKeyArray) -> tuple[Any, Info]:
        mass = jnp.ones(state.position.size) if self.inverse_mass is None else self.inverse_mass
        shorten, move = jax.random.split(key)
        step = self.step_size * jax.random.uniform(shorten, minval=0.5, maxval=1.0)
        state, info = blackjax.hmc.build_kernel()(move, state, _log_density(target), step, mass, self.leapfrogs)
        return state, Info(info.acceptance_rate, info.is_divergent)

    def position(self, state: Any) -> Point:
        return state.position

    def warm_up(self, target: AbstractEnergy, x: Point, *, steps: int, key: PRNGKeyArray) -> tuple["HMC", Point]:
        step, mass, x = _adaptive_windows(
            blackjax.hmc, target, x, steps, self.target_acceptance, key, num_integration_steps=self.leapfrogs
        )
        return HMC(step, mass, self.leapfrogs, self.target_acceptance), x


class NUTS(AbstractAdaptiveSampler):
    """Hamiltonian Monte Carlo that stops when it would turn back (Hoffman and Gelman 2014).

    >>> NUTS().target_acceptance
    0.8
    """

    step_size: Float[Array, ""] = eqx.field(converter=lambda h: positive(h, "the step size of NUTS"), default=0.1)
    inverse_mass: Float[Array, " d"] | None = None
    max_doublings: int = eqx.field(static=True, default=8)
    target_acceptance: float = eqx.field(static=True, default=0.8)

    def init(self, target: AbstractEnergy, x: Point) -> Any:
        return blackjax.nuts.init(x, _log_density(target))

    def step(self, target: AbstractEnergy, state: Any, *, key: PRNGKeyArray) -> tuple[Any, Info]:
        mass = jnp.ones(state.position.size) if self.inverse_mass is None else self.inverse_mass
        kernel = blackjax.nuts.build_kernel()
        state, info = kernel(key, state, _log_density(target), self.step_size, mass, self.max_doublings)
        return state, Info(info.acceptance_rate, info.is_divergent)

    def position(self, state: Any) -> Point:
        return state.position

    def warm_up(self, target: AbstractEnergy, x: Point, *, steps: int, key: PRNGKeyArray) -> tuple["NUTS", Point]:
        step, mass, x = _adaptive_windows(
            blackjax.nuts, target, x, steps, self.target_acceptance, key, max_num_doublings=self.max_doublings
        )
        return NUTS(step, mass, self.max_doublings, self.target_acceptance), x
