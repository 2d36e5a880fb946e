"""MALA, HMC and NUTS: blackjax's kernels behind the sampler protocol, with warm-up."""

from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.mcmc.diffusions import overdamped_langevin
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import at_least, between_0_and_1, positive
from unnorm.energies.base import AbstractEnergy, Point
from unnorm.errors import require
from unnorm.samplers.base import AbstractAdaptiveSampler, AbstractGradientSampler, Info

Mass = Float[Array, " d"] | None


def _log_density(target: AbstractEnergy):
    return lambda x: -target(x)


def _positive_mass(inverse_mass: Any, name: str) -> Mass:
    return None if inverse_mass is None else positive(inverse_mass, f"the inverse mass of {name}")


def _mass_for(x: Point, inverse_mass: Mass) -> Float[Array, " d"]:
    """The inverse mass of every coordinate of a point: 1 unless told."""
    if inverse_mass is None:
        return jnp.ones(x.size)
    shape = inverse_mass.shape
    require(shape == (x.size,), f"the inverse mass must have shape {(x.size,)} for this target, not {shape}")
    return inverse_mass


def _adaptive_windows(
    algorithm, target: AbstractEnergy, x: Point, sampler: "HMC | NUTS", *, steps: int, key: PRNGKeyArray, **extra: Any
):
    """blackjax's window adaptation (Stan's schedule), which begins with the sampler's own step and inverse mass.

    It ends with a step, a diagonal inverse mass and the last position.
    """
    warm_up = blackjax.window_adaptation(
        algorithm,
        _log_density(target),
        initial_inverse_mass_matrix=_mass_for(x, sampler.inverse_mass),
        # Annotated as a float; an array is as good.
        initial_step_size=sampler.step_size,  # pyright: ignore[reportArgumentType]
        target_acceptance_rate=sampler.target_acceptance,
        adaptation_info_fn=lambda *_: None,
        **extra,
    )
    run: Any = warm_up.run  # typed without its number of steps
    (state, parameters), _ = run(key, x, num_steps=steps)
    return parameters["step_size"], parameters["inverse_mass_matrix"], state.position


class MALA(AbstractAdaptiveSampler, AbstractGradientSampler):
    """y = x - h grad E(x) + sqrt(2 h) z, accepted with probability min(1, p(y) q(x | y) / (p(x) q(y | x))).

    Langevin's move as a proposal with density q(y | x), which is N(x - h grad E(x), 2 h) (Roberts and Tweedie 1996).
    Warm-up tunes the step by dual averaging from `step_size` towards an acceptance of 0.574; with `warmup=0`, `sample`
    runs it with `step_size` as given. A proposal where the energy is not a number counts as divergent.
    """

    step_size: Float[Array, ""] = eqx.field(converter=lambda h: positive(h, "the step size of MALA"), default=0.1)
    target_acceptance: float = eqx.field(static=True, default=0.574)

    def __check_init__(self):
        between_0_and_1(self.target_acceptance, "the target acceptance of MALA")

    def init(self, target: AbstractEnergy, x: Point) -> Any:
        return blackjax.mala.init(x, _log_density(target))

    def step(self, target: AbstractEnergy, state: Any, *, key: PRNGKeyArray) -> tuple[Any, Info]:
        log_density = _log_density(target)
        moved, info = blackjax.mala.build_kernel()(key, state, log_density, self.step_size)
        # The kernel turns down a proposal whose density is not a number without a word. The same proposal made once
        # more, from the same key, is no work: the compiler sees that it is the same.
        propose: Any = overdamped_langevin(jax.value_and_grad(log_density))
        proposal = propose(jax.random.split(key)[0], state, self.step_size)
        return moved, Info(info.acceptance_rate, jnp.isnan(proposal.logdensity))

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


class HMC(AbstractAdaptiveSampler, AbstractGradientSampler):
    """p ~ N(0, M), `leapfrogs` steps of (x, p), accepted with probability min(1, exp(H(x, p) - H(x', p'))).

    H = E(x) + p . M^-1 p / 2, and a leapfrog step is p <- p - (h/2) grad E(x), x <- x + h M^-1 p,
    p <- p - (h/2) grad E(x) (Duane et al. 1987; Neal 2011). `inverse_mass` is the diagonal of M^-1, ones unless told.
    The h of every trajectory is drawn uniformly between `step_size` / 2 and `step_size`: a fixed length comes back
    to where it began whenever it is near a period of the target, and on a Gaussian the chain then stands still
    (Mackenzie 1989).

    Warm-up tunes both, beginning with those given; with `warmup=0`, `sample` runs it with them as given.
    """

    step_size: Float[Array, ""] = eqx.field(converter=lambda h: positive(h, "the step size of HMC"), default=0.1)
    inverse_mass: Mass = eqx.field(converter=lambda m: _positive_mass(m, "HMC"), default=None)
    leapfrogs: int = eqx.field(static=True, default=10)
    target_acceptance: float = eqx.field(static=True, default=0.8)

    def __check_init__(self):
        at_least(1, self.leapfrogs, "HMC needs at least one leapfrog step")
        between_0_and_1(self.target_acceptance, "the target acceptance of HMC")

    def init(self, target: AbstractEnergy, x: Point) -> Any:
        _mass_for(x, self.inverse_mass)
        return blackjax.hmc.init(x, _log_density(target))

    def step(self, target: AbstractEnergy, state: Any, *, key: PRNGKeyArray) -> tuple[Any, Info]:
        mass = _mass_for(state.position, self.inverse_mass)
        shorten, move = jax.random.split(key)
        step = self.step_size * jax.random.uniform(shorten, minval=0.5, maxval=1.0)
        state, info = blackjax.hmc.build_kernel()(move, state, _log_density(target), step, mass, self.leapfrogs)
        return state, Info(info.acceptance_rate, info.is_divergent)

    def position(self, state: Any) -> Point:
        return state.position

    def warm_up(self, target: AbstractEnergy, x: Point, *, steps: int, key: PRNGKeyArray) -> tuple["HMC", Point]:
        step, mass, x = _adaptive_windows(
            blackjax.hmc, target, x, self, steps=steps, key=key, num_integration_steps=self.leapfrogs
        )
        return HMC(step, mass, self.leapfrogs, self.target_acceptance), x


class NUTS(AbstractAdaptiveSampler, AbstractGradientSampler):
    """HMC whose trajectory doubles, forwards or backwards by a fair coin, until v_- . r <= 0 or v_+ . r <= 0.

    v = M^-1 p at either end and r the sum of p along the way (those of the ends by half): it stops when it would turn
    back. The next x is drawn from the trajectory with probability proportional to exp(-H), favouring the later half
    (Hoffman and Gelman 2014; Betancourt 2017). There are at most `max_doublings` doublings; `inverse_mass` is the
    diagonal of M^-1, of ones unless told.

    Warm-up tunes step and mass, beginning with those given; with `warmup=0`, `sample` runs it with them as given.

    >>> NUTS().target_acceptance
    0.8
    """

    step_size: Float[Array, ""] = eqx.field(converter=lambda h: positive(h, "the step size of NUTS"), default=0.1)
    inverse_mass: Mass = eqx.field(converter=lambda m: _positive_mass(m, "NUTS"), default=None)
    max_doublings: int = eqx.field(static=True, default=8)
    target_acceptance: float = eqx.field(static=True, default=0.8)

    def __check_init__(self):
        at_least(1, self.max_doublings, "NUTS needs at least one doubling of its trajectory")
        between_0_and_1(self.target_acceptance, "the target acceptance of NUTS")

    def init(self, target: AbstractEnergy, x: Point) -> Any:
        _mass_for(x, self.inverse_mass)
        return blackjax.nuts.init(x, _log_density(target))

    def step(self, target: AbstractEnergy, state: Any, *, key: PRNGKeyArray) -> tuple[Any, Info]:
        mass = _mass_for(state.position, self.inverse_mass)
        kernel = blackjax.nuts.build_kernel()
        state, info = kernel(key, state, _log_density(target), self.step_size, mass, self.max_doublings)
        return state, Info(info.acceptance_rate, info.is_divergent)

    def position(self, state: Any) -> Point:
        return state.position

    def warm_up(self, target: AbstractEnergy, x: Point, *, steps: int, key: PRNGKeyArray) -> tuple["NUTS", Point]:
        step, mass, x = _adaptive_windows(
            blackjax.nuts, target, x, self, steps=steps, key=key, max_num_doublings=self.max_doublings
        )
        return NUTS(step, mass, self.max_doublings, self.target_acceptance), x
