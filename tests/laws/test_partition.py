"""Laws of log Z, of expectations and of held-out likelihoods: the value is right, and so is the stated error.

A stated error is tested by coverage: of 200 independent intervals of 95%, between 90% and 99% must hold the truth
(for exact intervals, 3 standard errors of the share below and 2.6 above). Halved errors must fail the same test.
"""

import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, coverage, covers, halved, holds, near
from quadratics import lifted_energy, quadratic_energy, quadratic_truth
from scipy.stats import norm

import unnorm as un
from unnorm.estimate import Estimate
from unnorm.evaluation import ais, expectation, importance
from unnorm.evaluation.partition.ais import _anneal
from unnorm.samplers import HMC
from unnorm.spaces import Graph, Real

pytestmark = pytest.mark.optimised

REPEATS = 200

# ----------------------------------------------------------------------------------------------------- the problems

PRECISION = np.array([[4.0, 1.0], [1.0, 2.0]])
MIXTURE = un.energies.gaussian_mixture([0.3, 0.7], [[-1.5, 0.0], [1.5, 0.5]], 0.6)
LIFT = 7.25

# A target, its log Z, a base that covers it (both modes of the mixture), and one for AIS that is much too wide for
# importance sampling.
PROBLEMS = {
    "Gaussian": (
        quadratic_energy(PRECISION),
        quadratic_truth(PRECISION),
        un.energies.standard_gaussian(2),
        un.energies.standard_gaussian(2, 3.0),
    ),
    "mixture": (
        lifted_energy(MIXTURE, LIFT),
        LIFT,
        un.energies.standard_gaussian(2, 2.0),
        un.energies.standard_gaussian(2, 4.0),
    ),
}


def repeated(method: str, problem: str, repeats: int = REPEATS, seed: int = 0) -> list[Estimate]:
    target, _, base, wide = PROBLEMS[problem]
    keys = jax.random.split(jax.random.key(seed), repeats)
    if method == "importance sampling":
        return [importance(target, base, draws=1000, key=k) for k in keys]
    return [ais(target, wide, chains=320, levels=40, key=k) for k in keys]


METHODS = ["importance sampling", "AIS"]


# ------------------------------------------------------------------------------------------------------------- log Z


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", METHODS)
def test_log_z_and_its_stated_error(method, problem):
    truth = PROBLEMS[problem][1]
    found = repeated(method, problem)
    assert all(estimate.method == method and estimate.warnings == () for estimate in found)
    # log of a mean lies below the log of its expectation by half a squared relative error.
    bias = np.mean([estimate.stderr**2 for estimate in found]) / 2
    assert holds([estimate.value for estimate in found], truth, bias)
    assert covers(found, truth)
    assert not covers(halved(found), truth)


@pytest.mark.thorough
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", METHODS)
def test_log_z_covers_at_the_nominal_rate(method, problem):
    """1000 repeats: the share has a standard error of 0.7%, and the intervals of finite samples fall 1% short."""
    truth = PROBLEMS[problem][1]
    found = repeated(method, problem, repeats=1000, seed=1)
    assert 0.92 <= coverage(found, truth) <= 0.98
    assert coverage(halved(found), truth) < 0.75


@pytest.mark.parametrize("method", METHODS)
def test_log_z_of_a_larger_gaussian(method):
    root = np.tril(np.random.default_rng(0).normal(size=(8, 8)), -1) / 4 + np.diag([0.8, 1, 1.5, 2, 1.2, 1, 1, 0.9])
    precision, base = root @ root.T, un.energies.standard_gaussian(8, 1.2)
    target = quadratic_energy(precision)
    if method == "AIS":
        estimate = ais(target, base, key=jax.random.key(2))
    else:
        estimate = importance(target, base, draws=100_000, key=jax.random.key(2))
    assert near(estimate, quadratic_truth(precision))
    assert estimate.stderr < 0.1
    # Negative control: without the factors of 2 pi.
    assert not near(estimate, quadratic_truth(precision) - 4 * math.log(2 * math.pi))


def neural_energy() -> un.energies.AbstractEnergy:
    """A small network, its read-out made larger so that it bends the density."""
    energy = un.energies.MLPEnergy(Real((2,)), width=16, depth=2, key=jax.random.key(3))
    return eqx.tree_at(lambda e: e.network.layers[-1].weight, energy, replace_fn=lambda w: 20 * w)


def test_log_z_of_a_neural_energy_agrees_with_quadrature():
    energy = neural_energy()
    axis, step = np.linspace(-8, 8, 321, retstep=True)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    heights = np.exp(-un.evaluation.energies(energy, jnp.asarray(grid)))
    truth = math.log(heights.sum() * step**2)
    # The rule has converged: on every second point it says the same.
    coarse = heights.reshape(321, 321)[::2, ::2].sum() * (2 * step) ** 2
    assert abs(math.log(coarse) - truth) < 1e-6
    base = un.energies.standard_gaussian(2, 2.0)
    for estimate in (
        importance(energy, base, key=jax.random.key(4)),
        ais(energy, base, levels=50, key=jax.random.key(5)),
    ):
        assert near(estimate, truth) and estimate.stderr < 0.05
        # Negative control: the quadratic alone, without the network.
        assert not near(estimate, math.log(2 * math.pi))


def test_log_z_of_a_target_with_a_wall():
    """exp(-|x|^2 / 2) where x_1 > 0 and nothing elsewhere: log Z = log pi. Infinite energies are weights of zero."""
    target = un.energies.FunctionEnergy(lambda x: jnp.where(x[0] > 0, 0.5 * x @ x, jnp.inf), Real((2,)))
    base = un.energies.standard_gaussian(2, 1.5)
    found = [importance(target, base, key=jax.random.key(7)), ais(target, base, levels=40, key=jax.random.key(8))]
    for estimate in found:
        assert near(estimate, math.log(math.pi))
        assert not near(estimate, math.log(2 * math.pi))


# ------------------------------------------------------------------------------------ annealed weights are unbiased

BASE = un.energies.standard_gaussian(2, 1.5)
BETAS = jnp.asarray([0.0, 0.15, 0.4, 0.7, 1.0])


@jax.jit
def annealed(whole: bool, after: bool) -> jax.Array:
    """log w of chains that go through four levels; the weight of a level may be taken whole, or after the move."""
    target, sampler = PROBLEMS["Gaussian"][0], HMC(0.4, leapfrogs=3)

    def one(key):
        start, key = jax.random.split(key)

        def level(carry, inputs):
            x, log_weight = carry
            b, previous, key = inputs
            energy = (1 - b) * BASE + b * target
            moved = sampler.position(sampler.step(energy, sampler.init(energy, x), key=key)[0])
            where, change = jnp.where(after, moved, x), jnp.where(whole, b, b - previous)
            return (moved, log_weight + change * (BASE(where) - target(where))), None

        inputs = (BETAS[1:], BETAS[:-1], jax.random.split(key, len(BETAS) - 1))
        return jax.lax.scan(level, (BASE.sample(key=start), jnp.zeros(())), inputs)[0][1]

    return jax.vmap(one)(jax.random.split(jax.random.key(9), 40_000))


def test_annealed_weights_are_unbiased_and_mistakes_are_seen():
    """E w = Z for any moves that leave their level invariant, however badly they mix."""
    target, truth = PROBLEMS["Gaussian"][:2]

    def weights(log_weights):
        return np.exp(np.asarray(log_weights, np.float64) - truth)

    for step in (0.4, 0.02):
        samplers = jax.vmap(lambda h: HMC(h, jnp.ones(2), 3))(jnp.full(4, step))
        _, log_weights, _ = _anneal(BASE, target, BETAS, samplers, 40_000, 1, jax.random.key(10))
        assert holds(weights(log_weights), 1.0)
    assert holds(weights(annealed(False, False)), 1.0)
    # Negative controls: b in place of b less the one before it, and the point after the move in place of before.
    assert breaks(weights(annealed(True, False)), 1.0)
    assert breaks(weights(annealed(False, True)), 1.0)


def test_annealing_does_not_depend_on_units():
    """Target and base in other units: log Z moves by d log(unit), and its error is as small."""
    for unit in (1e-3, 1e3):
        target = quadratic_energy(PRECISION / unit**2)
        base = un.energies.standard_gaussian(2, 3 * unit)
        estimate = ais(target, base, chains=256, levels=40, key=jax.random.key(11))
        truth = PROBLEMS["Gaussian"][1] + 2 * math.log(unit)
        assert near(estimate, truth) and estimate.diagnostics["effective_samples"] > 100
        assert not near(estimate, PROBLEMS["Gaussian"][1])


def test_levels_go_where_the_path_changes():
    """A base narrower than its target changes fastest at the target's end: levels placed for a wide one do not do."""
    target, base = quadratic_energy(np.eye(2) / 9), un.energies.standard_gaussian(2, 0.8)
    truth = quadratic_truth(np.eye(2) / 9)
    keys = jax.random.split(jax.random.key(12), 20)

    def errors(betas):
        found = [ais(target, base, betas=betas, chains=256, levels=40, key=k) for k in keys]
        return np.sqrt(np.mean([(estimate.value - truth) ** 2 for estimate in found]))

    assert errors(None) < 0.7 * errors(jnp.linspace(0, 1, 41) ** 2)


def test_annealing_refuses_what_it_cannot_do():
    target, _, base, _ = PROBLEMS["Gaussian"]
    with pytest.raises(un.InputError, match="at least 2 chains and 1 level, not 1 and 200"):
        ais(target, base, chains=1, key=jax.random.key(0))
    with pytest.raises(un.InputError, match="betas must rise from 0 to 1"):
        ais(target, base, betas=jnp.asarray([0.0, 0.7, 0.3, 1.0]), key=jax.random.key(0))


# ------------------------------------------------------------------------------------------------ the method is chosen


def test_a_normalised_energy_has_log_z_zero():
    estimate = un.log_partition(MIXTURE, key=jax.random.key(0))
    assert (estimate.value, estimate.stderr, estimate.method) == (0.0, 0.0, "known exactly")


def test_log_partition_finds_its_own_base():
    covariance = np.array([[4.0, 1.0], [1.0, 0.5]])
    target = lifted_energy(un.energies.gaussian([6.0, -3.0], covariance), LIFT)
    estimate = un.log_partition(target, key=jax.random.key(13))
    assert estimate.method == "importance sampling"
    assert near(estimate, LIFT) and estimate.stderr < 0.05 and estimate.warnings == ()


def test_log_partition_anneals_when_the_weights_collapse():
    """N(0, 0.2^2 I) in 8 dimensions from N(0, I): about one draw in 2,000 is effective."""
    target, base = quadratic_energy(25 * np.eye(8)), un.energies.standard_gaussian(8)
    truth = quadratic_truth(25 * np.eye(8))
    estimate = un.log_partition(target, base=base, key=jax.random.key(14))
    assert estimate.method == "AIS" and estimate.diagnostics["importance_effective_share"] < 0.05
    assert near(estimate, truth) and estimate.stderr < 0.2 and estimate.warnings == ()
    # What it did not settle for.
    quick = importance(target, base, key=jax.random.key(14))
    assert quick.diagnostics["effective_samples"] < 100
    assert len(quick.warnings) == 1 and "weights are effective" in quick.warnings[0]


def test_log_partition_says_when_nothing_worked():
    """Nine tenths of the mass in a spike five times narrower than the rest, in 8 dimensions: few chains find it."""
    spike = un.energies.gaussian_mixture([0.9, 0.1], np.zeros((2, 8)), np.array([0.2, 1.0]))
    target = lifted_energy(spike, LIFT)
    estimate = un.log_partition(target, base=un.energies.standard_gaussian(8, 1.2), key=jax.random.key(15))
    assert estimate.method == "SMC" and estimate.diagnostics["ais_effective_samples"] < 100
    assert len(estimate.warnings) == 1 and "the stated error is too small" in estimate.warnings[0]


@pytest.mark.parametrize("space", [Graph(8), Real((2, 2))])
def test_log_partition_asks_for_a_base_where_it_cannot_find_one(space):
    target = un.energies.FunctionEnergy(lambda x: jnp.sum(x**2), space)
    with pytest.raises(un.InputError, match="pass base="):
        un.log_partition(target, key=jax.random.key(0))


# -------------------------------------------------------------------------------------------------------- expectations


def test_mode_weights_and_their_stated_error():
    target, _, base, _ = PROBLEMS["mixture"]
    truth = 0.3 * norm.cdf(-1.5 / 0.6) + 0.7 * norm.cdf(1.5 / 0.6)
    keys = jax.random.split(jax.random.key(16), REPEATS)

    def right(x):
        return (x[0] > 0).astype(float)

    found = [expectation(target, right, base, draws=1000, key=k) for k in keys]
    # A ratio of means is biased by order 1/n: less than a squared standard error of each weight.
    assert holds([estimate.value for estimate in found], truth, bias=1e-3)
    assert covers(found, truth)
    assert not covers(halved(found), truth)
    # Weights that collapse are said: all draws but a few miss a mode this narrow.
    narrow = lifted_energy(un.energies.gaussian_mixture([0.3, 0.7], [[-1.5, 0.0], [1.5, 0.5]], 0.02), LIFT)
    warnings = expectation(narrow, right, base, draws=1000, key=keys[0]).warnings
    assert len(warnings) == 1 and "weights are effective" in warnings[0] and found[0].warnings == ()
    # Negative control: the proposal's own weights.
    draws = np.asarray(base.samples(20_000, key=jax.random.key(17)))
    assert breaks(draws[:, 0] > 0, truth, bias=1e-3)


# ---------------------------------------------------------------------------------------------------------- likelihoods

DATA_MEAN = np.array([0.3, -0.2])
DATA_COVARIANCE = np.array([[0.4, 0.1], [0.1, 0.6]])


def likelihoods(rows: int, draws: int) -> list[tuple[np.ndarray, Estimate]]:
    """Fresh rows and a fresh log Z of the model, for every repeat."""
    target, _, _, _ = PROBLEMS["Gaussian"]
    base = un.energies.standard_gaussian(2, 1.0)
    rng = np.random.default_rng(18)
    keys = jax.random.split(jax.random.key(19), REPEATS)
    return [
        (rng.multivariate_normal(DATA_MEAN, DATA_COVARIANCE, size=rows), importance(target, base, draws=draws, key=k))
        for k in keys
    ]


@pytest.mark.parametrize(("rows", "draws", "dominates"), [(4000, 250, "log Z"), (200, 4000, "rows")])
def test_log_likelihood_adds_both_errors(rows, draws, dominates):
    """E log p(x) = -(tr(A S) + m' A m) / 2 - log Z for data of mean m and covariance S."""
    target, log_z, _, _ = PROBLEMS["Gaussian"]
    square = np.trace(PRECISION @ DATA_COVARIANCE) + DATA_MEAN @ PRECISION @ DATA_MEAN
    truth = -0.5 * square - log_z
    repeats = likelihoods(rows, draws)
    found = [un.log_likelihood(target, data, z) for data, z in repeats]
    bias = np.mean([z.stderr**2 for _, z in repeats]) / 2
    assert holds([estimate.value for estimate in found], truth, bias)
    assert covers(found, truth)
    # Negative control: the error that dominates, left out.
    if dominates == "log Z":
        short = [un.log_likelihood(target, data, replace(z, stderr=0.0)) for data, z in repeats]
    else:
        short = [replace(estimate, stderr=z.stderr) for estimate, (_, z) in zip(found, repeats, strict=True)]
    assert not covers(short, truth)


def test_log_likelihood_is_a_density_of_the_original_units():
    scale = np.array([3.0, 0.2])
    rows = np.random.default_rng(20).normal(size=(500, 2))
    model, exact = un.energies.standard_gaussian(2), Estimate(0.0, 0.0, "known exactly")
    found = un.log_likelihood(model, rows, exact, log_volume=float(np.log(scale).sum()))
    truth = norm.logpdf(rows * scale, scale=scale).sum(axis=1).mean()
    assert abs(found.value - truth) < 1e-5
    assert abs(un.log_likelihood(model, rows, exact).value - truth) > 0.1
    assert found.method == "mean over 500 rows, log Z by known exactly"
