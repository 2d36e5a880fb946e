"""Theorems about diffusions as measured identities and bounds, on Gaussians where every term has a closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_scores import gaussian_score, mixture_score
from harness import breaks, holds, near
from jax.tree_util import Partial
from scipy.integrate import quad, solve_ivp
from scipy.stats import norm

from unnorm import evaluation as ev
from unnorm import noises, objectives, scores
from unnorm.generators import ExponentialIntegrator, ReverseDiffusion, Stay, encode, generate
from unnorm.noises import Ladder, OrnsteinUhlenbeck, SubVariancePreserving, VarianceExploding, VariancePreserving

KEY = jax.random.key(0)
VP, SUB = VariancePreserving(), SubVariancePreserving()


def kl(mean: float, variance: float, other: float = 0.0, spread: float = 1.0) -> float:
    """KL(N(mean, variance), N(other, spread))."""
    return 0.5 * (variance / spread + (mean - other) ** 2 / spread - 1 - np.log(variance / spread))


# ------------------------------------------------------------------------------------------ divergences and entropies


@pytest.mark.parametrize(("noise", "integral"), [(VP, 0.4431417821), (SUB, 0.4431417818)])
def test_a_divergence_is_an_integral_over_levels(noise, integral):
    """p = N(.5, .25), q = N(0, 1): KL = .4431471806, of which 5.4e-6 is left at level 1 (Song 2022, Thm 9.2)."""
    p, q = gaussian_score(noise, [0.5], [[0.25]]), gaussian_score(noise, [0.0], [[1.0]])
    rows = 0.5 + 0.5 * jax.random.normal(KEY, (2000, 1))
    found = ev.score_divergence(p, q, rows, levels=50, key=KEY)
    assert near(found, integral) and found.stderr < 0.01
    alpha, variance = float(noise.alpha(1.0)), float(noise.variance(1.0))
    left = kl(0.5 * alpha, 0.25 * alpha**2 + variance, 0.0, alpha**2 + variance)
    assert kl(0.5, 0.25) == pytest.approx(0.4431471806) and integral + left == pytest.approx(0.4431471806, abs=1e-8)
    # Control: half the weight, as a misread g^2 would have it.
    assert not near(found, integral / 2)


def test_entropy_by_the_score_is_the_entropy():
    """N(.5, .25) in 3 coordinates; at the noisy points, where the printed estimator says the clean ones."""
    mean, variance = 0.5, 0.25
    score = gaussian_score(VP, [mean] * 3, variance * np.eye(3))
    rows = mean + variance**0.5 * jax.random.normal(KEY, (1500, 3))
    truth = 1.5 * np.log(2 * np.pi * np.e * variance)
    found = ev.flow_entropy(score, rows, levels=50, key=KEY)
    # -E log pi(x_1) is above H(p_1) by what the mean leaves there.
    slack = 3 * kl(mean * float(VP.alpha(1.0)), 1.0)
    assert abs(found.value - truth) < 4 * found.stderr + slack and found.stderr < 0.2
    # As printed: at the clean point |s|^2 is too small wherever there is noise.
    clean = scores.LevelledFunction(lambda t, x: score(t, jnp.full(3, 0.5)), VP)
    assert abs(ev.flow_entropy(clean, rows, levels=50, key=KEY).value - truth) > 1


# ------------------------------------------------------------------------------------ the bounds of Song 2022, Ch. 9


def test_the_divergence_of_a_wrong_score_bounds_that_of_its_process():
    """KL(p, p_SDE) <= J(s; g^2) + KL(p_1, pi), with equality at exact scores (Thms 9.1, 9.2).

    The score of N(0, 1/4) times a constant is linear, so the reverse process has a variance by an ordinary equation.
    """
    variance, least = 0.25, 1e-5

    def model_variance(wrong: float) -> float:
        # From level 1 down: dV = -(2 f V + 2 g^2 w V / v - g^2) dt for the drift f x + g^2 w x / v.
        def slope(u, value):
            t = 1 - u
            beta = 0.1 + 19.9 * t
            log_alpha = -0.25 * t**2 * 19.9 - 0.05 * t
            v = variance * np.exp(2 * log_alpha) - np.expm1(2 * log_alpha)
            return beta * value - 2 * beta * wrong / v * value + beta

        return float(solve_ivp(slope, (0, 1 - least), [1.0], "LSODA", rtol=1e-9, atol=1e-12).y[0, -1])

    exact = gaussian_score(VP, [0.0], [[variance]])
    rows = variance**0.5 * jax.random.normal(KEY, (512, 1))
    kept = variance * float(VP.alpha(1.0)) ** 2
    prior = kl(0.0, kept + float(VP.variance(1.0)))
    gaps = []
    for wrong in (1.0, 1.2, 0.8):
        # The constant is an argument, so that all three are one program.
        other = scores.LevelledFunction(Partial(lambda w, t, x: w * exact(t, x), jnp.asarray(wrong)), VP)
        bound = ev.score_divergence(exact, other, rows, levels=50, key=KEY)
        truth = kl(0.0, variance, 0.0, model_variance(wrong))
        gaps.append(bound.value + prior - truth)
        assert gaps[-1] > -4 * bound.stderr - 1e-4
    assert abs(gaps[0]) < 1e-4 and min(gaps[1:]) > 0.01


def test_what_truncation_costs_is_what_was_worked_out():
    """q = N(0, 1), VP from level t: -log alpha - 1/2 + E|z + sigma s|^2 / 2 = 3.4534e-7 at 1e-5, 3.7930e-5 at 1e-3.

    With s = -x the last term is (alpha^2 sigma^2 (1.3)^2 + alpha^4) / 2 at x = 1.3: 1.7639385332 without truncation.
    """
    with jax.enable_x64(True):
        for least, bound, cost in ((1e-5, 1.7639381879, 3.4534e-7), (1e-3, 1.7639006025, 3.7930e-5)):
            alpha, variance = float(VP.alpha(jnp.asarray(least))), float(VP.variance(jnp.asarray(least)))
            worked = -np.log(alpha) - 0.5 + 0.5 * (alpha**2 * variance * 1.69 + alpha**4)
            assert worked == pytest.approx(cost, rel=1e-4)
            assert bound + cost == pytest.approx(1.7639385332, abs=2e-9)
        score, rows = scores.LevelledFunction(lambda t, x: -x, VP), jnp.full((1000, 1), 1.3)
        without = ev.pointwise_bound(score, rows, levels=20, corrected=False, key=KEY)
    assert holds(without, 1.7639381879) and breaks(without, 2.0)


def test_the_loss_of_the_exact_score_from_the_least_level():
    """1/2 [Z - ln(v_1 / v_least) - B(1) + B(least)] = 6.214107 a coordinate for N(0, I / 4), by likelihood times."""
    score, rows = gaussian_score(VP, [0.0], [[0.25]]), 0.5 * jax.random.normal(KEY, (100_000, 1))
    loss = objectives.DSM(weighting=objectives.LikelihoodWeighting(), times=noises.LikelihoodTimes())
    levels, draw = jax.random.split(KEY)
    ts, worth = loss.times.draw(VP, jnp.asarray(1e-5), len(rows), key=levels)
    zs = jax.random.normal(draw, rows.shape)
    one = lambda t, w, x, z: w * loss.weighting(VP, score, t) * loss.at(VP, lambda t, y: score(t, y), t, x, z)  # noqa: E731
    found = jax.jit(jax.vmap(one))(ts, worth, rows, zs)
    assert holds(found, 6.214107, bias=1e-3) and breaks(found, 6.4)


@pytest.mark.parametrize(("noise", "least", "printed"), [(VP, 1e-5, -0.403836), (SUB, 1e-2, -0.402619)])
def test_the_flow_s_density_is_the_slope_of_its_code(noise, least, printed):
    """p(x) = pi(c(x)) c'(x) for the code c of a point on the line: at .2 of N(.5, .25), with pi = N(0, 1)."""
    with jax.enable_x64(True):
        score, h = gaussian_score(noise, [0.5], [[0.25]]), 1e-4
        low, middle, high = encode(score, [[0.2 - h], [0.2], [0.2 + h]], least=least, tolerance=1e-9).points[:, 0]
    assert norm.logpdf(middle) + np.log((high - low) / (2 * h)) == pytest.approx(printed, abs=2e-6)


def test_the_flow_s_likelihood_of_a_mixture_is_exact_but_for_the_prior():
    """The mixture of Song 2022, Fig. 5.2: differences of .07 at most, most far below; 116 to 128 evaluations there."""
    centres = np.array([[-5.0, -5.0], [5.0, 5.0]])
    generator = np.random.default_rng(0)
    rows = centres[generator.choice(2, 60, p=[0.2, 0.8])] + generator.normal(size=(60, 2))
    exact = np.log(sum(w * np.prod(norm.pdf(rows - c), axis=1) for w, c in zip((0.2, 0.8), centres, strict=True)))
    found, asked = ev.flow_log_prob(mixture_score(VP, [0.2, 0.8], centres, 1.0), rows, key=KEY)
    assert np.abs(found - exact).max() < 0.12 and abs(np.mean(found - exact)) < 0.02 and 60 < asked.mean() < 200
    # Control: the same rows under equal weights.
    other, _ = ev.flow_log_prob(mixture_score(VP, [0.5, 0.5], centres, 1.0), rows, key=KEY)
    assert np.abs(other - exact).max() > 0.4


# ------------------------------------------------------------------------- the theorem of Chen et al. 2023 (seed 003)

#: Data N(MEAN, WIDTH^2) under dX = -X dt + sqrt(2) dB for a time T, walked back in steps of h with the score held.
MEAN, WIDTH = 0.8, 0.5


def variance_at(u: float) -> float:
    return WIDTH**2 * np.exp(-2 * u) - np.expm1(-2 * u)


def walked_back(time: float, h: float, error: float = 0.0) -> tuple[float, float]:
    """Mean and variance of the walk's end, by x <- e^h x + 2 (e^h - 1) (s + error) + sqrt(e^2h - 1) z as printed."""
    mean, variance, pull = 0.0, 1.0, 2 * np.expm1(h)
    for k in range(round(time / h)):
        u = time - k * h
        v, m = variance_at(u), MEAN * np.exp(-u)
        mean = np.exp(h) * mean + pull * (error - (mean - m) / v)
        variance = (np.exp(h) - pull / v) ** 2 * variance + np.expm1(2 * h)
    return mean, variance


def total_variation(mean: float, variance: float) -> float:
    def gap(x):
        return abs(norm.pdf(x, MEAN, WIDTH) - norm.pdf(x, mean, np.sqrt(variance)))

    return 0.5 * quad(gap, MEAN - 8 * WIDTH, MEAN + 8 * WIDTH, limit=400)[0]


def path_divergence(time: float, h: float, error: float = 0.0) -> float:
    """KL(p_T, N(0, 1)) + int E |s_held + error - s_t|^2 dt along the exact reverse process (Girsanov, g^2 = 2)."""
    total = kl(MEAN * np.exp(-time), variance_at(time))
    for k in range(round(time / h)):
        u = time - k * h

        def apart(back, u=u):
            # The point at noise time u - back, and the older one at u: their standardised residuals correlate.
            v, w = variance_at(u - back), variance_at(u)
            shared = np.exp(-back) * np.sqrt(v / w)
            return 1 / v + 1 / w - 2 * shared / np.sqrt(v * w) + error**2

        total += quad(apart, 0.0, h)[0]
    return total


def test_the_printed_walk_is_the_one_of_the_library():
    noise = OrnsteinUhlenbeck(3.0)
    score = gaussian_score(noise, [MEAN], [[WIDTH**2]])
    levels = np.linspace(1.0, 0.05, 20)
    walk = generate(score, ExponentialIntegrator(), levels=levels, n=20_000, finish=Stay(), key=KEY).points[:, 0]
    mean, variance, h, pull = 0.0, float(noise.variance(1.0)), 0.15, 2 * np.expm1(0.15)
    for k in range(19):
        u = 3.0 - k * h
        mean = np.exp(h) * mean - pull * (mean - MEAN * np.exp(-u)) / variance_at(u)
        variance = (np.exp(h) - pull / variance_at(u)) ** 2 * variance + np.expm1(2 * h)
    assert holds(np.stack([walk, (walk - mean) ** 2], axis=1), [mean, variance], bias=1e-3)
    assert breaks(np.stack([walk, (walk - MEAN) ** 2], axis=1), [MEAN, WIDTH**2], bias=1e-3)


def test_the_error_falls_with_time_and_step_and_grows_with_that_of_the_score():
    """TV <~ sqrt(KL) e^-T + (sqrt h + h) sqrt T + eps sqrt T: each term as fast as allowed, or faster."""
    long = [total_variation(*walked_back(time, 1e-3)) for time in (1.0, 2.0, 3.0)]
    assert long[0] / long[1] > 0.9 * np.e and long[1] / long[2] > 0.9 * np.e
    steps = [total_variation(*walked_back(8.0, h)) for h in (0.1, 0.05, 0.025)]
    assert np.log2(steps[0] / steps[1]) > 0.5 and np.log2(steps[1] / steps[2]) > 0.5
    own = total_variation(*walked_back(8.0, 1e-3))
    errors = [total_variation(*walked_back(8.0, 1e-3, eps)) - own for eps in (0.05, 0.1, 0.2)]
    assert np.all(np.abs(np.array(errors[1:]) / errors[:2] - 2) < 0.15)
    # Control: a walk that does not know the score's mean does not get better with time.
    stuck = [total_variation(*walked_back(time, 1e-3, 0.5)) for time in (4.0, 8.0)]
    assert stuck[1] > 0.9 * stuck[0]


@pytest.mark.parametrize(
    ("time", "h", "error"), [(3.0, 0.05, 0.0), (3.0, 0.2, 0.0), (5.0, 0.05, 1.0), (0.2, 0.02, 0.0)]
)
def test_paths_bound_the_divergence_of_the_ends(time, h, error):
    mean, variance = walked_back(time, h, error)
    ends = kl(MEAN, WIDTH**2, mean, variance)
    assert ends <= path_divergence(time, h, error)
    # The bound is not idle: without what the score's error adds, or what is left at time T, it is none.
    if error > 0:
        assert ends > path_divergence(time, h)
    if time < 1:
        assert ends > path_divergence(time, h) - kl(MEAN * np.exp(-time), variance_at(time))


# ------------------------------------------------------------------------------------------------- discrete levels


def test_a_thousand_levels_are_within_a_fiftieth_of_the_process():
    """Song 2022, Fig. B.39: level i of 1000 against time i / 1000, variances apart by .0169 of themselves at most."""
    ladder, process = Ladder(np.geomspace(0.01, 50.0, 1000)), VarianceExploding(0.01, 50.0)
    rungs = np.asarray(jax.vmap(ladder.variance)(jnp.asarray(np.asarray(ladder.levels, float))))[::-1]
    times = np.asarray(jax.vmap(process.variance)(jnp.arange(1, 1001) / 1000))
    apart = np.abs(rungs / times - 1)
    assert apart.max() == pytest.approx(0.0169, abs=2e-4)
    few = np.geomspace(0.01, 50.0, 100) ** 2 / (0.01 * 5000 ** (np.arange(1, 101) / 100)) ** 2
    assert np.abs(few - 1).max() > 0.1


def test_walks_on_exact_scores_find_weights_and_widths():
    """Song 2022's mixture at 1000 levels under VP by reverse diffusion: .803 and .996 of 20,000 points before."""
    centres = np.array([[-5.0, -5.0], [5.0, 5.0]])
    score = mixture_score(VP, [0.2, 0.8], centres, 1.0)
    levels = np.linspace(1.0, 1e-3, 1001)
    points = generate(score, ReverseDiffusion(), levels=levels, n=3000, key=KEY).points
    larger = points.sum(axis=1) > 0
    offsets = (points[larger] - 5.0) ** 2
    assert holds(larger, 0.8) and breaks(larger, 0.7)
    assert holds(offsets, 0.996**2, bias=0.02) and breaks(offsets, 1.2, bias=0.02)
