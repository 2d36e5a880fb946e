"""Targets whose moments are known, a walk over them, and samplers with a mistake in them."""

import itertools
import math
from collections.abc import Callable

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import unnorm as un
from unnorm.energies.base import AbstractNormalised
from unnorm.samplers import HMC, MALA, NUTS, AbstractSampler, Info, Langevin
from unnorm.spaces import Binary, Real

MEAN = np.array([1.0, -1.0, 0.5, 0.0, 2.0])
ROOT = np.tril(np.random.default_rng(0).normal(size=(5, 5)), -1) / 2 + np.diag([1.0, 0.7, 1.3, 0.9, 0.6])
COVARIANCE = ROOT @ ROOT.T
CORRELATED = un.energies.gaussian(MEAN, COVARIANCE)


class Banana(AbstractNormalised):
    """x_1 ~ N(0, 1), x_2 | x_1 ~ N(b (x_1^2 - 1), 1): a Gaussian bent along a parabola, with known moments."""

    bend: jax.Array
    space: Real = eqx.field(static=True, default=Real((2,)))

    def __call__(self, x):
        across = x[1] - self.bend * (x[0] ** 2 - 1)
        return 0.5 * (x[0] ** 2 + across**2) + math.log(2 * math.pi)

    def sample(self, *, key):
        z = jax.random.normal(key, (2,))
        return jnp.stack([z[0], z[1] + self.bend * (z[0] ** 2 - 1)])


BEND = 0.35
BANANA = Banana(jnp.asarray(BEND))


def quadratic_moments(x: np.ndarray) -> np.ndarray:
    """x_i and x_i x_j, i <= j, along the last axis."""
    rows, columns = np.triu_indices(x.shape[-1])
    return np.concatenate([x, x[..., rows] * x[..., columns]], axis=-1)


def banana_moments(x: np.ndarray) -> np.ndarray:
    """First and second moments, and x_1^2 x_2, which sees the bend."""
    return np.concatenate([quadratic_moments(x), x[..., :1] ** 2 * x[..., 1:]], axis=-1)


CORRELATED_TRUTH = np.concatenate([MEAN, (COVARIANCE + np.outer(MEAN, MEAN))[np.triu_indices(5)]])
# Var x_2 = 1 + b^2 Var x_1^2 = 1 + 2 b^2, and E x_1^2 x_2 = b E x_1^2 (x_1^2 - 1) = 2 b.
BANANA_TRUTH = np.array([0.0, 0.0, 1.0, 0.0, 1 + 2 * BEND**2, 2 * BEND])

TARGETS = {
    "correlated": (CORRELATED, quadratic_moments, CORRELATED_TRUTH),
    "banana": (BANANA, banana_moments, BANANA_TRUTH),
}


@eqx.filter_jit
def walk(sampler: AbstractSampler, target, xs, steps: int, key):
    """chains x steps x point from the bare protocol, with nothing tuned."""

    def one(x, key):
        def move(state, key):
            state, _ = sampler.step(target, state, key=key)
            return state, sampler.position(state)

        return jax.lax.scan(move, sampler.init(target, x), jax.random.split(key, steps))[1]

    return jax.vmap(one)(xs, jax.random.split(key, len(xs)))


class Wrong(AbstractSampler):
    """A sampler with a mistake in its step: what a law must reject."""

    def init(self, target, x):
        return x

    def position(self, state):
        return state

    def check(self, target):
        pass


class SymmetricMALA(Wrong):
    """MALA that forgets the densities of its proposals: it accepts with min(1, p(y) / p(x))."""

    step_size: float

    def step(self, target, state, *, key):
        noise, accept = jax.random.split(key)
        proposal, _ = Langevin(self.step_size).step(target, state, key=noise)
        moves = jnp.log(jax.random.uniform(accept)) < target(state) - target(proposal)
        return jnp.where(moves, proposal, state), Info(jnp.ones(()), jnp.asarray(False))


class UncheckedHMC(Wrong):
    """HMC that accepts every trajectory."""

    step_size: float
    leapfrogs: int = eqx.field(static=True, default=10)

    def step(self, target, state, *, key):
        h, gradient = self.step_size, jax.grad(target)
        x, p = state, jax.random.normal(key, state.shape)
        for _ in range(self.leapfrogs):
            p = p - 0.5 * h * gradient(x)
            x = x + h * p
            p = p - 0.5 * h * gradient(x)
        return x, Info(jnp.ones(()), jnp.asarray(False))


class PeriodicHMC(Wrong):
    """HMC whose trajectories all have one length."""

    step_size: float
    leapfrogs: int = eqx.field(static=True, default=10)

    def step(self, target, state, *, key):
        kernel, log_density = blackjax.hmc.build_kernel(), lambda x: -target(x)
        begin = blackjax.hmc.init(state, log_density)
        end, info = kernel(key, begin, log_density, self.step_size, jnp.ones(state.size), self.leapfrogs)
        return end.position, Info(info.acceptance_rate, info.is_divergent)


class NoisyOzaki(Wrong):
    """Ozaki's walk with another variance of its noise, a function of the time and of minus the diagonal."""

    step_size: float
    variance: Callable = eqx.field(static=True)

    def step(self, target, state, *, key):
        h, c = self.step_size, jnp.diag(jax.hessian(target)(state))
        moved = state - (1 - jnp.exp(-h * c)) / c * jax.grad(target)(state)
        moved = moved + jnp.sqrt(self.variance(h, c)) * jax.random.normal(key, state.shape)
        return moved, Info(jnp.ones(()), jnp.asarray(False))


class ReversedGibbs(Wrong):
    """Gibbs with the sign of the energy difference turned round."""

    def step(self, target, state, *, key):
        where, which = jax.random.split(key)
        site = jax.random.randint(where, (), 0, state.size)
        off, on = state.at[site].set(0), state.at[site].set(1)
        turn_on = jax.random.bernoulli(which, jax.nn.sigmoid(target(on) - target(off)))
        return jnp.where(turn_on, on, off), Info(jnp.ones(()), jnp.asarray(False))


EXACT = {
    "MALA": (MALA(0.2), (Langevin(0.2), SymmetricMALA(0.2))),
    "HMC": (HMC(0.45, leapfrogs=5), (UncheckedHMC(0.45, leapfrogs=5),)),
    "NUTS": (NUTS(0.45, max_doublings=5), ()),
}


STATES = np.array(list(itertools.product([0, 1], repeat=4)), dtype=float)
COUPLING = jnp.asarray([[0.0, 1.2, -0.7, 0.0], [0.0, 0.0, 0.9, 0.4], [0.0, 0.0, 0.0, -1.1], [0.0] * 4])
FIELD = jnp.asarray([0.3, -0.5, 0.2, 0.6])
ISING = un.energies.FunctionEnergy(lambda x: -(x @ COUPLING @ x) - FIELD @ x, Binary((4,)))
