"""Laws of the samplers: moments of targets where they are known, detailed balance, and what `sample` promises.

A repeat is one chain: its time averages are independent of every other chain's. Chains that begin at exact draws of the
target have the target's moments at every step, whatever their length, so no law here waits for convergence unless
convergence is the law.
"""

import itertools
import math
import os
import subprocess
import sys

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.energies.base import AbstractNormalised
from unnorm.errors import InputError
from unnorm.samplers import HMC, MALA, NUTS, AbstractSampler, Gibbs, Info, Langevin
from unnorm.spaces import Binary, Categorical, Real

# ------------------------------------------------------------------------------------------- targets and walks

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


class ReversedGibbs(Wrong):
    """Gibbs with the sign of the energy difference turned round."""

    def step(self, target, state, *, key):
        where, which = jax.random.split(key)
        site = jax.random.randint(where, (), 0, state.size)
        off, on = state.at[site].set(0), state.at[site].set(1)
        turn_on = jax.random.bernoulli(which, jax.nn.sigmoid(target(on) - target(off)))
        return jnp.where(turn_on, on, off), Info(jnp.ones(()), jnp.asarray(False))


# --------------------------------------------------------------------------------------------- moments are exact


# Each exact sampler beside the same moves without what makes them exact. Steps are long, so that mistakes show.
EXACT = {
    "MALA": (MALA(0.2), (Langevin(0.2), SymmetricMALA(0.2))),
    "HMC": (HMC(0.45, leapfrogs=5), (UncheckedHMC(0.45, leapfrogs=5),)),
    "NUTS": (NUTS(0.45, max_doublings=5), ()),
}


def cases(*slow: tuple[str, str]) -> list:
    """Every problem with every sampler; those that take longest only when asked for."""
    pairs = itertools.product(TARGETS, EXACT)
    return [pytest.param(*pair, marks=pytest.mark.thorough if pair in slow else ()) for pair in pairs]


@pytest.mark.parametrize(("problem", "name"), cases(("correlated", "NUTS")))
def test_chains_from_exact_draws_keep_the_moments(problem, name):
    target, moments, truth = TARGETS[problem]
    sampler, wrong = EXACT[name]
    xs = target.samples(4000, key=jax.random.key(1))

    def averages(sampler, inverse_temperature=1.0):
        draws = walk(sampler, inverse_temperature * target, xs, 40, jax.random.key(2))
        return moments(np.asarray(draws, np.float64)).mean(axis=1)

    assert holds(averages(sampler), truth)
    # Negative controls: the right one on a colder target, and the wrong variants (detailed balance has them on the
    # banana).
    assert breaks(averages(sampler, 1.3), truth)
    for variant in wrong if problem == "correlated" else ():
        assert breaks(averages(variant), truth)


@pytest.mark.parametrize(("problem", "name"), cases(("banana", "MALA"), ("correlated", "NUTS")))
def test_chains_from_afar_reach_the_moments_through_warm_up(problem, name):
    target, moments, truth = TARGETS[problem]
    sampler = {"MALA": MALA(), "HMC": HMC(), "NUTS": NUTS()}[name]
    steps = {"MALA": 1600, "HMC": 200, "NUTS": 200}[name]
    far = jnp.full((64, *target.space.shape), 8.0)
    trace = un.sample(target, sampler, chains=64, steps=steps, warmup=400, start=far, key=jax.random.key(3))
    assert holds(moments(trace.draws.astype(np.float64)).mean(axis=1), truth)
    assert problem == "banana" or trace.divergences == 0
    assert name != "MALA" or abs(trace.acceptance.mean() - sampler.target_acceptance) < 0.1
    # Negative control: a tenth of every chain left where it began.
    stuck = trace.draws.astype(np.float64).copy()
    stuck[:, : steps // 10] = 8.0
    assert breaks(moments(stuck).mean(axis=1), truth)


def test_warm_up_steers_to_the_acceptance_asked_for():
    """Dual averaging ends near its aim, not at it: within a tenth, when the default aim is a third away."""

    def acceptance(key):
        warm, run = jax.random.split(key)
        sampler, x = MALA(target_acceptance=0.9).warm_up(BANANA, jnp.zeros(2), steps=400, key=warm)

        def move(state, key):
            state, info = sampler.step(BANANA, state, key=key)
            return state, info.acceptance

        return jax.lax.scan(move, sampler.init(BANANA, x), jax.random.split(run, 200))[1].mean()

    reached = jax.jit(jax.vmap(acceptance))(jax.random.split(jax.random.key(5), 64))
    assert abs(float(reached.mean()) - 0.9) < 0.1 < abs(float(reached.mean()) - MALA().target_acceptance)


def test_hamiltonian_chains_do_not_stand_still_at_a_period_of_the_target():
    """h = 2 sin(pi / 10) makes 10 leapfrog steps on N(0, 1) exactly one period: x comes back to x."""
    target, period = un.energies.standard_gaussian(1), 2 * math.sin(math.pi / 10)
    xs = jnp.full((2000, 1), 3.0)

    def moments(sampler):
        return quadratic_moments(np.asarray(walk(sampler, target, xs, 50, jax.random.key(6)), np.float64)[:, -1])

    assert holds(moments(HMC(period, leapfrogs=10)), [0.0, 1.0])
    fixed = moments(PeriodicHMC(period))
    assert breaks(fixed, [0.0, 1.0])
    assert np.allclose(fixed[:, 0], 3.0, atol=1e-3)


def test_points_of_any_shape():
    precision = jnp.asarray([[1.0, 4.0], [0.25, 9.0]])
    target = un.energies.FunctionEnergy(lambda x: 0.5 * jnp.sum(precision * x**2), Real((2, 2)))
    xs = jax.random.normal(jax.random.key(7), (1000, 2, 2)) / jnp.sqrt(precision)
    draws = walk(HMC(0.8, 1 / precision.reshape(-1), leapfrogs=4), target, xs, 40, jax.random.key(4))
    squares = (np.asarray(draws, np.float64) ** 2).mean(axis=1)
    assert holds(squares, 1 / np.asarray(precision))
    assert breaks(squares, 1 / np.asarray(precision).T)


# ------------------------------------------------------------------------------------------------- Langevin's bias


SCALES = np.array([1.0, 2.0, 0.7])
STEP = 0.2


def langevin_squares(**options) -> np.ndarray:
    target = un.energies.gaussian(np.zeros(3), np.diag(SCALES**2))
    trace = un.sample(target, Langevin(STEP), chains=512, steps=100, thin=5, key=jax.random.key(8), **options)
    return (trace.draws.astype(np.float64) ** 2).mean(axis=1)


def test_langevin_has_its_own_biased_variance():
    """x' = (1 - h / s^2) x + sqrt(2 h) z has the variance s^2 / (1 - h / (2 s^2))."""
    squares = langevin_squares(warmup=300)
    assert holds(squares, SCALES**2 / (1 - STEP / (2 * SCALES**2)))
    assert breaks(squares, SCALES**2)


def test_warm_up_of_a_sampler_that_does_not_adapt_is_left_out():
    far = jnp.full((512, 3), 10.0)
    truth = SCALES**2 / (1 - STEP / (2 * SCALES**2))
    assert holds(langevin_squares(start=far, warmup=300), truth)
    assert breaks(langevin_squares(start=far), truth)


def test_langevin_explodes_beyond_its_bound_and_says_so():
    """The walk is stable for h < 2 s^2 and for no larger h."""
    target = un.energies.standard_gaussian(1)
    start = jnp.ones((4, 1))
    stable = un.sample(target, Langevin(1.9), chains=4, steps=2000, start=start, key=jax.random.key(9))
    assert stable.divergences == 0 and np.isfinite(stable.draws).all()
    exploded = un.sample(target, Langevin(2.2), chains=4, steps=2000, start=start, key=jax.random.key(9))
    assert exploded.divergences > 0
    assert any("transitions diverged" in sentence for sentence in exploded.warnings)
    assert any("not finite" in sentence for sentence in exploded.warnings)


# ----------------------------------------------------------------------------------------------- detailed balance


def antisymmetric(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """u_i(x) u_j(x') - u_j(x) u_i(x') for all pairs: zero on average when p(x) T(x, x') is symmetric.

    With u_0 = 1 this holds stationarity too.
    """

    def functions(x):
        bent = x[:, 1] - BEND * (x[:, 0] ** 2 - 1)
        return np.column_stack([np.ones(len(x)), x, x**2, x[:, 0] * x[:, 1], bent**2, np.cos(2 * x)])

    u, v = functions(before.astype(np.float64)), functions(after.astype(np.float64))
    pairs = itertools.combinations(range(u.shape[1]), 2)
    return np.column_stack([u[:, i] * v[:, j] - u[:, j] * v[:, i] for i, j in pairs])


@pytest.mark.parametrize("name", EXACT)
def test_detailed_balance(name):
    sampler, wrong = EXACT[name]
    xs = BANANA.samples(50_000, key=jax.random.key(10))

    def flow(sampler, inverse_temperature=1.0):
        after = walk(sampler, inverse_temperature * BANANA, xs, 1, jax.random.key(11))[:, 0]
        return antisymmetric(np.asarray(xs), np.asarray(after))

    assert holds(flow(sampler), 0.0)
    for variant in wrong:
        assert breaks(flow(variant), 0.0)
    assert breaks(flow(sampler, 1.3), 0.0)


# ----------------------------------------------------------------------------------------------------------- Gibbs


STATES = np.array(list(itertools.product([0, 1], repeat=4)), dtype=float)
COUPLING = jnp.asarray([[0.0, 1.2, -0.7, 0.0], [0.0, 0.0, 0.9, 0.4], [0.0, 0.0, 0.0, -1.1], [0.0] * 4])
FIELD = jnp.asarray([0.3, -0.5, 0.2, 0.6])
ISING = un.energies.FunctionEnergy(lambda x: -(x @ COUPLING @ x) - FIELD @ x, Binary((4,)))


def enumerated() -> np.ndarray:
    """The probability of each of the 16 states."""
    weights = np.exp(-np.asarray(jax.vmap(ISING)(jnp.asarray(STATES)), np.float64))
    return weights / weights.sum()


def occupation(draws: np.ndarray) -> np.ndarray:
    """chains x 16: the share of its time that a chain spends in each state."""
    numbers = (draws @ [8, 4, 2, 1]).astype(int)
    return np.stack([np.bincount(row, minlength=16) for row in numbers]) / draws.shape[1]


@pytest.mark.parametrize("sites", [1, 3])
def test_gibbs_has_the_enumerated_law(sites):
    trace = un.sample(ISING, Gibbs(sites), chains=400, steps=200, warmup=60, key=jax.random.key(12))
    assert set(np.unique(trace.draws)) == {0.0, 1.0}
    assert holds(occupation(trace.draws), enumerated())
    wrong = un.sample(ISING, ReversedGibbs(), chains=400, steps=200, warmup=60, key=jax.random.key(12))
    assert breaks(occupation(wrong.draws), enumerated())


def test_gibbs_is_in_detailed_balance():
    numbers = jax.random.categorical(jax.random.key(13), jnp.log(jnp.asarray(enumerated())), shape=(40_000,))
    xs = jnp.asarray(STATES)[numbers]

    def flows(sampler):
        after = np.asarray(walk(sampler, ISING, xs, 1, jax.random.key(14))[:, 0] @ jnp.asarray([8.0, 4.0, 2.0, 1.0]))
        # 200 tables of 200 moves each: from i to j less from j to i.
        table = np.zeros((200, 16, 16))
        np.add.at(table, (np.arange(40_000) // 200, np.asarray(numbers), after.astype(int)), 1)
        return (table - table.swapaxes(1, 2)).reshape(200, -1)

    assert holds(flows(Gibbs()), 0.0)
    assert breaks(flows(ReversedGibbs()), 0.0)


# ------------------------------------------------------------------------------------------ the algebra of energies


def test_tempered_sum_and_given_are_sampled_as_what_they_are():
    """b N(0, 1) is N(0, 1/b); N(0, 1) N(2, 1) is N(1, 1/2); x_free | x_fixed is the conditional Gaussian."""
    line = un.energies.standard_gaussian(1)
    fixed, free, values = [1, 3], [0, 2, 4], np.array([0.0, 1.5])
    gain = COVARIANCE[np.ix_(free, fixed)] @ np.linalg.inv(COVARIANCE[np.ix_(fixed, fixed)])
    mean = MEAN[free] + gain @ (values - MEAN[fixed])
    marginal = COVARIANCE[np.ix_(free, free)]
    cases = [
        (4.0 * line, np.zeros(1), np.eye(1) / 4, np.eye(1)),
        (line + un.energies.gaussian([2.0], np.eye(1)), np.ones(1), np.eye(1) / 2, np.eye(1)),
        (CORRELATED.given({1: 0.0, 3: 1.5}), mean, marginal - gain @ COVARIANCE[np.ix_(fixed, free)], marginal),
    ]
    for target, mean, covariance, wrong in cases:
        # From far too wide a start: twenty steps of HMC forget it.
        xs = 3 * jax.random.normal(jax.random.key(15), (1000, len(mean)))
        draws = np.asarray(walk(HMC(0.4, leapfrogs=8), target, xs, 60, jax.random.key(15)), np.float64)[:, 20:]
        moments = quadratic_moments(draws - mean).mean(axis=1)
        centred, upper = np.zeros(len(mean)), np.triu_indices(len(mean))
        assert holds(moments, np.concatenate([centred, covariance[upper]]))
        # Negative control: one factor alone, or the marginal in place of the conditional.
        assert breaks(moments, np.concatenate([centred, wrong[upper]]))


# -------------------------------------------------------------------------------------------- what `sample` promises


def test_thinning_keeps_every_kth_draw():
    options = {"chains": 4, "key": jax.random.key(16)}
    every = un.sample(CORRELATED, Langevin(0.05), steps=60, **options).draws
    third = un.sample(CORRELATED, Langevin(0.05), steps=20, thin=3, **options).draws
    assert np.array_equal(third, every[:, 2::3])
    assert not np.array_equal(third, every[:, ::3])


def test_a_shorter_run_is_the_beginning_of_a_longer_one():
    """So the length of the chunks that a run is cut into does not matter."""
    options = {"chains": 4, "key": jax.random.key(17)}
    long = un.sample(CORRELATED, Langevin(0.05), steps=130, **options).draws
    short = un.sample(CORRELATED, Langevin(0.05), steps=37, **options).draws
    assert np.array_equal(short, long[:, :37])
    other = un.sample(CORRELATED, Langevin(0.05), chains=4, steps=37, key=jax.random.key(18)).draws
    assert not np.array_equal(other, long[:, :37])


def test_chains_begin_where_they_are_told():
    start = np.arange(8).reshape(4, 2)  # whole numbers, as a user would write them
    target = un.energies.standard_gaussian(2)
    told = un.sample(target, Langevin(1e-8), chains=4, steps=1, start=start, key=jax.random.key(19)).draws[:, 0]
    free = un.sample(target, Langevin(1e-8), chains=4, steps=1, key=jax.random.key(19)).draws[:, 0]
    assert np.abs(told - start).max() < 1e-3 < np.abs(free - start).max()


LINE = un.energies.standard_gaussian(2)
REFUSALS = {
    "discrete": (ISING, lambda: NUTS(), {}, r"NUTS follows gradients.*Binary.*use samplers\.Gibbs"),
    "continuous": (LINE, lambda: Gibbs(), {}, r"Gibbs redraws zeros and ones.*Real.*use samplers\.NUTS"),
    "no chains": (LINE, lambda: MALA(), {"chains": 0}, "at least one chain is needed, not 0"),
    "no steps": (LINE, lambda: MALA(), {"steps": 0}, "steps and thin must be positive, not 0 and 1"),
    "no thinning": (LINE, lambda: MALA(), {"thin": 0}, "steps and thin must be positive, not 4 and 0"),
    "short warm-up": (LINE, lambda: HMC(), {"warmup": 19}, "HMC needs at least 20 warm-up steps.*not 19"),
    "starts": (LINE, lambda: MALA(), {"start": jnp.zeros((3, 2))}, "4 chains need 4 starting points, not 3"),
    "shape": (LINE, lambda: MALA(), {"start": jnp.zeros((4, 3))}, r"has shape \(2,\), not \(3,\)"),
    "zero step": (LINE, lambda: Langevin(0.0), {}, "the step size of Langevin must be positive, not 0.0"),
    "negative step": (LINE, lambda: MALA(-1.0), {}, "the step size of MALA must be positive, not -1.0"),
    "no leapfrogs": (LINE, lambda: HMC(0.1, leapfrogs=0), {}, "at least one leapfrog step, not 0"),
    "no sites": (ISING, lambda: Gibbs(0), {}, "at least one site per step, not 0"),
    "vector": (
        un.energies.FunctionEnergy(lambda x: x**2, Real((2,))),
        lambda: MALA(),
        {},
        r"one number per point.*returned shape \(2,\)",
    ),
    "not finite": (
        un.energies.FunctionEnergy(lambda x: jnp.sum(jnp.log(x)), Real((2,))),
        lambda: MALA(),
        {"start": -jnp.ones((4, 2))},
        "not finite at 4 of 4 starting points; pass start=",
    ),
    "no start": (
        un.energies.FunctionEnergy(lambda x: 0.0 * jnp.sum(x), Categorical((2,), 3)),
        lambda: ReversedGibbs(),
        {},
        "need starting points; pass start=",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_done_is_refused_in_one_sentence(case):
    target, sampler, options, sentence = REFUSALS[case]
    with pytest.raises(InputError, match=sentence) as refused:
        un.sample(target, sampler(), **{"chains": 4, "steps": 4, "key": jax.random.key(20), **options})
    assert "\n" not in str(refused.value)


def compiled(caplog, function) -> int:
    """How many programs the compiler was asked for during a call."""
    caplog.clear()
    with jax.log_compiles(), caplog.at_level("WARNING"):
        function()
    return sum(record.getMessage().startswith("Compiling") for record in caplog.records)


def test_a_second_call_compiles_nothing(caplog):
    def mixture(dimension: int, seed: int):
        means = np.random.default_rng(seed).normal(size=(3, dimension))
        return un.energies.gaussian_mixture([1.0, 2.0, 1.0], means, 0.5)

    def run(target, **options):
        un.sample(target, MALA(), chains=4, key=jax.random.key(21), **{"steps": 50, "warmup": 20, **options})

    run(mixture(2, 0))
    another = mixture(2, 1)
    assert compiled(caplog, lambda: run(another)) == 0
    assert compiled(caplog, lambda: run(another, steps=49, thin=3)) == 0
    # Negative control: another structure does need the compiler.
    bigger = mixture(3, 1)
    assert compiled(caplog, lambda: run(bigger)) > 0


TWO_DEVICES = """
import sys
import jax, numpy as np
import unnorm as un
assert jax.device_count() == 2
target = un.energies.gaussian_mixture([1.0, 2.0], [[-1.0, 0.0], [1.0, 0.5]], 0.7)
trace = un.sample(target, un.samplers.Langevin(0.05), chains=8, steps=50, key=jax.random.key(22))
np.save(sys.argv[1], trace.draws)
try:
    un.sample(target, un.samplers.Langevin(0.05), chains=7, steps=50, key=jax.random.key(22))
except un.InputError as refused:
    print(refused)
"""


def test_two_devices_draw_what_one_draws(tmp_path):
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES, str(tmp_path / "draws.npy")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "7 chains cannot be shared equally by 2 devices; use a multiple of 2" in done.stdout
    target = un.energies.gaussian_mixture([1.0, 2.0], [[-1.0, 0.0], [1.0, 0.5]], 0.7)
    two = np.load(tmp_path / "draws.npy")

    def one(seed: int) -> np.ndarray:
        return un.sample(target, Langevin(0.05), chains=8, steps=50, key=jax.random.key(seed)).draws

    # 50 steps of a contracting walk: rounding stays at a few units in the last of 7 digits.
    assert np.allclose(one(22), two, atol=1e-5)
    assert not np.allclose(one(23), two, atol=1e-2)


def test_warnings_see_modes_that_do_not_meet_and_nothing_in_a_gaussian():
    def warnings(distance: float) -> tuple[str, ...]:
        modes = np.array([[-distance, 0.0], [distance, 0.0]])
        target, start = un.energies.gaussian_mixture([1.0, 1.0], modes, 1.0), jnp.asarray([*modes] * 4)
        options = {"chains": 8, "steps": 300, "warmup": 200, "start": start, "key": jax.random.key(24)}
        return un.sample(target, NUTS(max_doublings=5), **options).warnings

    assert any("R-hat" in sentence and "coordinate 0" in sentence for sentence in warnings(10.0))
    assert warnings(0.0) == ()
