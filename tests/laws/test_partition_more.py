"""Laws of log Z by sequential Monte Carlo, reverse annealing, thermodynamic integration and bridge sampling.

As in `test_partition`: values within 4 stated errors of truths known in closed form or by quadrature. The
targets are in `targets`, coverage is in `test_partition_coverage`.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, coverage, covers, holds, near
from quadratics import quadratic_energy
from targets import BASE, COVARIANCE, LIFTS, METHODS, MIXTURE, PROBLEMS, draws_of, repeated, truth_of

import unnorm as un
from unnorm.estimate import Estimate, log_mean_exp_estimate
from unnorm.evaluation import ais, bracket, bridge, reverse_ais, smc, tempered_population, thermodynamic
from unnorm.evaluation.partition.ais import _anneal
from unnorm.evaluation.partition.annealing import Path, tuned_path
from unnorm.evaluation.partition.bridge import optimal_bridge
from unnorm.evaluation.partition.reverse_ais import _cool
from unnorm.evaluation.partition.smc import _islands
from unnorm.evaluation.partition.thermodynamic import corrected_trapezoid
from unnorm.samplers import HMC, Trace
from unnorm.spaces import Real

# --------------------------------------------------------------------------------------- values and their stated errors

#: A Gaussian is the mildest of the targets and a funnel the slowest: the quick run takes the other two.
SOME = [p if p in ("mixture", "network") else pytest.param(p, marks=pytest.mark.thorough) for p in PROBLEMS]


@pytest.mark.parametrize("problem", SOME)
@pytest.mark.parametrize("method", METHODS)
def test_log_z_is_right(method, problem):
    """Eight small runs together: within 4.5 of their own standard errors, and none beyond 4 stated ones."""
    truth = truth_of(problem)
    found = repeated(method, problem, repeats=8, seed=1)
    assert all(estimate.method == method and near(estimate, truth) for estimate in found)
    errors = np.array([estimate.stderr for estimate in found])
    together = Estimate(np.mean([e.value for e in found]), float(np.sqrt((errors**2).sum()) / 8), method)
    bias = float(np.mean(errors**2))
    assert abs(together.value - truth) <= 4.5 * together.stderr + bias
    assert together.stderr < 0.06
    # Negative control: a base taken to be N(0, 1) along one coordinate, so that its constant is wrong.
    assert not near(together, truth + math.log(2))


# ---------------------------------------------------------------------------------------------- sequential Monte Carlo

LADDER = jnp.linspace(0, 1, 9) ** 3


def steps_of(size: float) -> HMC:
    return jax.vmap(lambda h: HMC(h, jnp.ones(2), 3))(jnp.full(8, size))


def islands(betas, step: float, problem: str = "mixture"):
    """Many small islands with moves of this step; Z of each over the truth, and their particles."""
    found = _islands(BASE, PROBLEMS[problem], Path(betas, steps_of(step)), 300, 16, 1, jax.random.key(4))
    return np.exp(np.asarray(found[0], np.float64) - truth_of(problem)), np.asarray(found[1])


def test_every_island_is_unbiased_and_so_are_its_particles():
    """E Z_i = Z and E Z_i mean h(x) = Z E_p h, however few the particles and however badly they move."""
    right = 0.3 * 0.5 * math.erfc(1.5 / 0.6 / math.sqrt(2)) + 0.7 * (1 - 0.5 * math.erfc(1.5 / 0.6 / math.sqrt(2)))
    for step in (0.4, 0.02):
        ratios, particles = islands(LADDER, step)
        assert holds(ratios, 1.0)
        shares = (particles[:, :, 0] > 0).mean(axis=1)
        assert holds(ratios * shares, right)
        # Negative control: the base has half of its mass there.
        assert breaks(ratios * shares, 0.5)
    # Negative control: a path whose last factor is missing.
    assert breaks(islands(LADDER.at[-1].set(0.9), 0.4)[0], 1.0)


def test_particles_are_draws_of_the_target():
    found = tempered_population(PROBLEMS["mixture"], BASE, islands=32, particles=128, key=jax.random.key(5))
    weights = np.exp(found.log_weights - LIFTS["mixture"])
    shares = (found.particles[:, :, 0] > 0).mean(axis=1)
    truth = 0.3 * 0.0062097 + 0.7 * 0.9937903
    assert holds(weights * (shares - truth), 0.0)
    assert breaks(weights * (shares - 0.5), 0.0)
    drawn = found.draws(4000, seed=1)
    # Islands are 32 and their shares scatter: the error of a draw's mean is mostly theirs.
    assert abs((drawn[:, 0] > 0).mean() - truth) < 4.5 * (shares.std(ddof=1) / math.sqrt(32) + 0.5 / math.sqrt(4000))


def test_islands_that_disagree_are_said():
    """Two far modes of very unequal widths, and 16 particles to find them: Z differs from one island to the next."""
    narrow = un.energies.gaussian_mixture([0.5, 0.5], [[6.0, 6.0], [-6.0, -6.0]], np.array([0.02, 1.0]))
    target = un.energies.FunctionEnergy(eqx.Partial(_lifted, narrow), Real((2,)))
    found = smc(target, un.energies.standard_gaussian(2), islands=16, particles=16, moves=1, key=jax.random.key(6))
    assert len(found.warnings) == 2 and "islands disagree about Z" in found.warnings[0]
    # Few draws of the base have a descendant at the end, and that is said too.
    families = found.diagnostics["families"]
    assert families < 8 and f"descend from only {families:.1f} draws of the base" in found.warnings[1]
    assert smc(PROBLEMS["Gaussian"], BASE, islands=32, particles=64, key=jax.random.key(7)).warnings == ()


def _lifted(energy, x):
    return energy(x) - 1.0


def test_sequential_monte_carlo_passes_a_wall():
    """exp(-|x|^2 / 2) where x_1 > 1: log Z = log(2 pi) + log P(z > 1)."""
    target = un.energies.FunctionEnergy(lambda x: jnp.where(x[0] > 1, 0.5 * x @ x, jnp.inf), Real((2,)))
    truth = math.log(2 * math.pi) + math.log(0.5 * math.erfc(1 / math.sqrt(2)))
    estimate = smc(target, un.energies.standard_gaussian(2, 1.5), islands=32, particles=64, key=jax.random.key(8))
    assert near(estimate, truth) and estimate.stderr < 0.05
    assert not near(estimate, math.log(2 * math.pi))


# ---------------------------------------------------------------------------------------------------- reverse annealing


def cooled(draws, betas=LADDER, step=0.4, problem="mixture") -> np.ndarray:
    """v Z of chains from these draws: one on average."""
    found, *_ = _cool(BASE, PROBLEMS[problem], betas, steps_of(step), jnp.asarray(draws), 1, jax.random.key(9))
    return np.exp(np.asarray(found, np.float64) + truth_of(problem))


def test_reverse_weights_are_unbiased_for_one_over_z():
    draws = draws_of("mixture", 4000, seed=10)
    for step in (0.4, 0.02):
        assert holds(cooled(draws, step=step), 1.0)
    # Negative controls: a missing factor, draws that are too wide, and draws of one mode only.
    assert breaks(cooled(draws, LADDER.at[-1].set(0.9)), 1.0)
    assert breaks(cooled(1.5 * draws), 1.0)
    assert breaks(cooled(np.resize(draws[draws[:, 0] > 0], draws.shape)), 1.0)


def test_the_two_runs_bracket_log_z():
    """With two chains to a run both are far off on average, each to its own side."""
    truth, draws = truth_of("mixture"), draws_of("mixture", 4000, seed=10)
    up = _anneal(BASE, PROBLEMS["mixture"], LADDER, steps_of(0.4), 4000, 1, jax.random.key(11))[1]
    lower = np.log(np.exp(np.asarray(up, np.float64)).reshape(-1, 2).mean(axis=1))
    upper = truth - np.log(cooled(draws).reshape(-1, 2).mean(axis=1))
    assert breaks(lower, truth) and lower.mean() < truth
    assert breaks(upper, truth) and upper.mean() > truth
    # With 40 levels and more chains they meet.
    tight = bracket(PROBLEMS["mixture"], BASE, draws[:1600], chains=400, levels=40, key=jax.random.key(12))
    assert near(tight.lower, truth) and near(tight.upper, truth) and near(tight.gap, 0.0)
    assert tight.gap.stderr < 0.15 and tight.warnings == ()


def bananas(count: int, seed: int) -> np.ndarray:
    """Exact draws of `BANANA`: y = 0.7 (x^2 - 1) + 0.4 z keeps areas, so that log Z = log(2 pi 0.4)."""
    x, z = np.random.default_rng(seed).normal(size=(2, count))
    return np.stack([x, 0.4 * z + 0.7 * (x**2 - 1)], axis=1).astype(np.float32)


BANANA = un.energies.FunctionEnergy(lambda x: 0.5 * x[0] ** 2 + 3.125 * (x[1] - 0.7 * (x[0] ** 2 - 1)) ** 2, Real((2,)))


def test_the_error_is_right_where_tails_are_lighter_than_the_bases():
    """Sixty squared errors in units of the stated ones: one on average. Walked down to the base they are far more."""
    truth, base = math.log(2 * math.pi * 0.4), un.energies.standard_gaussian(2, 2.0)
    keys = jax.random.split(jax.random.key(15), 60)
    found = [reverse_ais(BANANA, base, bananas(2048, seed), levels=20, key=key) for seed, key in enumerate(keys)]
    squares = [((estimate.value - truth) / estimate.stderr) ** 2 for estimate in found]
    assert holds(squares, 1.0, bias=0.2)
    path = tuned_path(BANANA, base, levels=20, moves=1, leapfrogs=5, betas=None, place=keys[0], tune=keys[1])

    def to_the_base(seed, key):
        log_weights = np.asarray(_cool(base, BANANA, *path, jnp.asarray(bananas(2048, seed)), 1, key)[0])
        whole = log_mean_exp_estimate(log_weights, "down to the base")
        return ((-whole.value - truth) / whole.stderr) ** 2

    assert np.mean([to_the_base(seed, key) for seed, key in enumerate(keys)]) > 2


@pytest.mark.parametrize("options", [{"levels": 2}, {"betas": jnp.array([0.0, 0.5, 1.0])}], ids=["levels", "betas"])
@pytest.mark.parametrize("method", [reverse_ais, bracket])
def test_too_few_levels_are_refused(method, options):
    with pytest.raises(un.InputError, match="at least 3 levels, not 2"):
        method(PROBLEMS["mixture"], BASE, draws_of("mixture", 8, seed=10), **options, key=jax.random.key(0))


def test_draws_that_miss_a_mode_are_seen():
    """Of the mass 0.3 is in the left-hand mode, but more of the annealed chains end there: log Z comes out too low."""
    draws = np.asarray(un.energies.gaussian([-1.5, 0.0], 0.36 * np.eye(2)).samples(1600, key=jax.random.key(13)))
    found = bracket(PROBLEMS["mixture"], BASE, draws, chains=400, levels=40, key=jax.random.key(14))
    assert near(found.lower, LIFTS["mixture"]) and not near(found.upper, LIFTS["mixture"])
    assert any("below the lower one" in sentence for sentence in found.warnings)


# -------------------------------------------------------------------------------------------- draws that come in chains


def chains_of(count: int, steps: int, memory: float, seed: int) -> np.ndarray:
    """x_t = memory x_{t-1} + sqrt(1 - memory^2) z_t with z_t ~ N(0, COVARIANCE): stationary, and known exactly."""
    rng = np.random.default_rng(seed)
    white = rng.multivariate_normal(np.zeros(2), COVARIANCE, size=(steps, count))
    found = [white[0]]
    for fresh in white[1:]:
        found.append(memory * found[-1] + math.sqrt(1 - memory**2) * fresh)
    return np.stack(found, axis=1).astype(np.float32)


def as_trace(draws: np.ndarray) -> Trace:
    return Trace(draws, np.ones(len(draws)), 0, HMC())


def test_the_error_counts_effective_draws():
    """Chains with a memory of 0.95: rows taken as independent would state an error that is too small."""
    target, truth = PROBLEMS["Gaussian"], truth_of("Gaussian")
    base = un.energies.standard_gaussian(2, 1.0)
    every = chains_of(200 * 8, 100, 0.95, seed=15).reshape(200, 8, 100, 2)

    def estimate(draws, i):
        return bridge(target, base, draws, base_draws=4000, key=jax.random.key(2000 + i))

    found = [estimate(as_trace(draws), i) for i, draws in enumerate(every)]
    assert covers(found, truth)
    naive = [estimate(draws.reshape(-1, 2), i) for i, draws in enumerate(every)]
    assert not covers(naive, truth) and coverage(naive, truth) < 0.8


# ------------------------------------------------------------------------------------------ thermodynamic integration


def test_the_correction_makes_the_trapezoid_a_rule_of_fourth_order():
    """From N(0, 1) to precision a = 9 on the line: b has precision c = 1 - b + 9 b, u = (1 - a) / (2 c), u' = 2 u^2."""

    def gaps(levels: int) -> tuple[float, float]:
        betas = np.linspace(0, 1, levels + 1)
        u = (1 - 9) / (2 * (1 + 8 * betas))[:, None]
        truth = -0.5 * math.log(9)
        return (
            abs(corrected_trapezoid(betas, u, 2 * u**2)[0] - truth),
            abs(corrected_trapezoid(betas, u, np.zeros_like(u))[0] - truth),
        )

    (corrected, plain), (finer, plain_finer) = gaps(128), gaps(256)
    assert abs(math.log2(corrected / finer) - 4) < 0.1
    assert abs(math.log2(plain / plain_finer) - 2) < 0.1
    # A fifteenth of the difference to every second level is the error that is left.
    assert abs((gaps(64)[0] - gaps(128)[0]) / 15 / gaps(128)[0] - 1) < 0.1


def test_a_grid_that_is_too_coarse_is_said():
    target, betas = PROBLEMS["Gaussian"], jnp.linspace(0, 1, 5)
    coarse = thermodynamic(target, BASE, chains=256, moves=8, betas=betas, key=jax.random.key(16))
    assert any("too coarse" in sentence for sentence in coarse.warnings) and near(coarse, truth_of("Gaussian"))
    # Negative control: 20 levels placed by the pilot are enough.
    assert repeated("thermodynamic integration", "Gaussian", repeats=1, seed=4)[0].warnings == ()


def test_thermodynamic_integration_refuses_a_wall():
    target = un.energies.FunctionEnergy(lambda x: jnp.where(x[0] > 0, 0.5 * x @ x, jnp.inf), Real((2,)))
    with pytest.raises(un.InputError, match="not finite on the path"):
        thermodynamic(target, BASE, chains=64, levels=20, moves=8, key=jax.random.key(0))


# ---------------------------------------------------------------------------------------------------- bridge sampling


def test_the_optimal_bridge_is_the_fixed_point_of_its_iteration():
    rng = np.random.default_rng(17)
    of_target, of_base = rng.normal(3.0, 1.0, size=300), rng.normal(1.0, 1.5, size=500)
    s1, r = 300 / 800, 1.0
    for _ in range(500):
        above = np.mean(np.exp(of_base) / (s1 * np.exp(of_base) + (1 - s1) * r))
        below = np.mean(1 / (s1 * np.exp(of_target) + (1 - s1) * r))
        r = above / below
    assert abs(optimal_bridge(of_target, of_base) - math.log(r)) < 1e-6
    # Negative control: the weights of equal sample sizes.
    assert abs(optimal_bridge(of_target, of_base, 500) - math.log(r)) > 1e-3


def test_a_bridge_beats_importance_sampling_and_says_when_there_is_none():
    """Same base draws and as many of the target: from a base that is too narrow, only the bridge has an error."""
    narrow = un.energies.standard_gaussian(2, 0.4)
    draws = draws_of("Gaussian", 4000, seed=18)
    found = bridge(PROBLEMS["Gaussian"], narrow, draws, key=jax.random.key(19))
    assert near(found, truth_of("Gaussian")) and found.stderr < 0.05 and found.warnings == ()
    far = bridge(PROBLEMS["Gaussian"], un.energies.gaussian([9.0, 9.0], np.eye(2)), draws, key=jax.random.key(20))
    assert len(far.warnings) == 1 and "overlap" in far.warnings[0]


# ------------------------------------------------------------------------------------------------- many dimensions


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["AIS", "SMC"])
def test_log_z_of_a_gaussian_in_200_dimensions(method):
    """Neighbours correlated by 0.5, from N(0, I): log Z = (200 log 2 pi + log det) / 2, det = 0.75^199."""
    ids = np.arange(200)
    covariance = 0.5 ** np.abs(ids[:, None] - ids)
    target = quadratic_energy(np.linalg.inv(covariance))
    truth = 0.5 * (200 * math.log(2 * math.pi) + 199 * math.log(0.75))
    base = un.energies.standard_gaussian(200)
    if method == "AIS":
        estimate = ais(target, base, key=jax.random.key(21))
    else:
        estimate = smc(target, base, key=jax.random.key(21))
    assert near(estimate, truth) and estimate.stderr < 0.05 and estimate.warnings == ()
    # Negative control: without the determinant.
    assert not near(estimate, 100 * math.log(2 * math.pi))


# ------------------------------------------------------------------------------------------------ the method is chosen


def test_log_partition_says_why():
    exact = un.log_partition(MIXTURE, key=jax.random.key(0))
    assert exact.why == "The energy is normalised."
    easy = un.log_partition(PROBLEMS["Gaussian"], base=BASE, draws=4096, key=jax.random.key(22))
    assert easy.method == "importance sampling" and "% of the draws of the base are effective" in easy.why


def test_log_partition_goes_on_to_sequential_monte_carlo():
    """A target 1,000 times narrower than its base, in 8 dimensions: the steps of 200 annealed levels lag behind."""
    target = quadratic_energy(1e6 * np.eye(8))
    truth = 4 * (math.log(2 * math.pi) - math.log(1e6))
    estimate = un.log_partition(target, base=un.energies.standard_gaussian(8), key=jax.random.key(15))
    assert estimate.method == "SMC" and estimate.diagnostics["ais_effective_samples"] < 100
    assert near(estimate, truth) and estimate.stderr < 0.2 and estimate.warnings == ()
    assert "are effective for importance sampling" in estimate.why
    assert "annealed chains only" in estimate.why
    # What it did not settle for.
    assert abs(estimate.diagnostics["ais_value"] - truth) > 1
