"""Likelihoods and bounds of diffusions against closed forms, and the figures worked out for them beforehand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm import evaluation as ev
from unnorm import noises, objectives, scores
from unnorm.estimate import Estimate

KEY = jax.random.key(0)
VP, SUB, VE = noises.VariancePreserving(), noises.SubVariancePreserving(), noises.VarianceExploding(0.01, 50.0)
PROCESSES = {"VP": VP, "sub-VP": SUB, "VE": VE, "OU": noises.OrnsteinUhlenbeck()}


def gaussian_score(noise, mean=0.5, variance=0.25, wrong=1.0):
    """The exact score of N(mean, variance) with the noise of each level, in every coordinate."""

    def slope(t, x):
        marginal = wrong * noise.alpha(t) ** 2 * variance + noise.variance(t)
        return -(x - noise.alpha(t) * mean) / marginal

    return scores.LevelledFunction(slope, noise)


# ------------------------------------------------------------------------------------------------ levels


@pytest.mark.parametrize(
    ("noise", "least", "mass", "median"),
    [
        (VP, 1e-5, 23.864472, 0.114421),
        (VP, 5e-5, 22.251064, None),
        (VP, 1e-3, 19.165387, None),
        (SUB, 1e-2, 22.484136, 0.228901),
        (SUB, 1e-3, 28.280883, None),
        (SUB, 1e-5, 37.678946, None),
        (VE, 1e-5, 17.034216, None),
    ],
)
def test_mass_and_median_of_likelihood_times(noise, least, mass, median):
    with jax.enable_x64(True):
        assert abs(float(noises.likelihood_mass(noise, least)) - mass) < 2e-5
        if median is None:
            return
        ts, _ = noises.LikelihoodTimes().draw(noise, jnp.asarray(least), 20_000, key=KEY)
        below = np.asarray(ts < median)
        assert holds(below, 0.5) and breaks(np.asarray(ts < 1.5 * median), 0.5)


@pytest.mark.parametrize("name", PROCESSES)
def test_levels_drawn_otherwise_have_the_same_mean(name):
    """E[worth h(t)] is the mean of h over uniform levels, whatever the law of the levels."""
    noise, least = PROCESSES[name], jnp.asarray(1e-2)
    grid = np.linspace(0.01, 1, 100_001)
    truth = np.trapezoid(np.cos(3 * grid), grid) / 0.99
    for times in (noises.UniformTimes(), noises.LikelihoodTimes()):
        ts, worth = times.draw(noise, least, 20_000, key=KEY)
        assert holds(worth * jnp.cos(3 * ts), truth)
    if name != "VE":  # where likelihood times are uniform
        assert breaks(jnp.cos(3 * ts), truth)


def test_discrete_and_log_normal_levels_are_what_they_say():
    ts, _ = noises.DiscreteTimes((0.25, 0.5, 1.0)).draw(VP, jnp.asarray(1e-5), 9000, key=KEY)
    assert all(holds(ts == level, 1 / 3) for level in (0.25, 0.5, 1.0))
    edm = noises.EDM()
    ts, _ = noises.LogNormalTimes(-1.2, 1.2).draw(edm, jnp.zeros(()), 5000, key=KEY)
    logs = np.log(jax.vmap(edm.sigma)(ts))
    assert holds(logs, -1.2) and holds((logs + 1.2) ** 2, 1.44) and breaks(logs, -1.0)


# ------------------------------------------------------------------------------------------------ losses


@pytest.mark.parametrize(
    ("noise", "least", "truth"), [(VP, 1e-3, 3.864782), (SUB, 1e-2, 5.523966), (SUB, 1e-3, 8.422332)]
)
def test_likelihood_weighted_loss_of_the_exact_score(noise, least, truth):
    """For x ~ N(0, I / 4): 1/2 [Z - ln(v_1 / v_least) - B(1) + B(least)] a coordinate, by either law of levels."""
    score = gaussian_score(noise, 0.0)
    rows = 0.5 * jax.random.normal(KEY, (200_000, 1))
    found = {}
    for times in (noises.UniformTimes(), noises.LikelihoodTimes()):
        levels, draw = jax.random.split(jax.random.key(1))
        ts, worth = times.draw(noise, jnp.asarray(least), len(rows), key=levels)
        zs = jax.random.normal(draw, rows.shape)
        loss = objectives.DSM(weighting=objectives.LikelihoodWeighting())

        def one(t, w, x, z, loss=loss):
            return w * loss.weighting(noise, score, t) * loss.at(noise, lambda t, y: score(t, y), t, x, z)

        # The mean over uniform levels, times how many there are, is the integral.
        found[type(times).__name__] = (1 - least) * np.asarray(jax.jit(jax.vmap(one))(ts, worth, rows, zs))
    assert all(holds(values, truth) for values in found.values())
    assert breaks(found["LikelihoodTimes"], 1.05 * truth)


def test_likelihood_times_cut_the_variance_of_the_loss():
    """At least threefold for VP from 1e-5: printed standard deviations of one row, 208 against 5.62."""
    score = gaussian_score(VP, 0.0)
    rows = 0.5 * jax.random.normal(KEY, (20_000, 64))
    spread = {}
    for times in (noises.UniformTimes(), noises.LikelihoodTimes()):
        loss = objectives.DSM(weighting=objectives.LikelihoodWeighting(), times=times)
        each = jax.jit(jax.vmap(lambda x, k, loss=loss: loss(score, None, x[None], key=k)[0]))
        spread[type(times).__name__] = float(np.std(each(rows, jax.random.split(KEY, len(rows)))))
    assert spread["UniformTimes"] > 3 * spread["LikelihoodTimes"]
    assert abs(spread["LikelihoodTimes"] - 5.62) < 0.15


def test_flow_weighting_is_flow_matching():
    """The weighted loss is | v - (alpha' x_0 + sigma' z) |^2, written out."""
    x, z, t = jnp.array([0.3, -1.0]), jnp.array([1.2, 0.4]), jnp.asarray(0.4)
    for noise in (VP, noises.StraightPath(), VE):
        score = gaussian_score(noise, 0.1, wrong=0.7)
        alpha, sigma = noise.alpha(t), noise.sigma(t)
        y = alpha * x + sigma * z
        velocity = noise.drift(t) * y - 0.5 * noise.diffusion(t) ** 2 * score(t, y)
        target = jax.grad(noise.alpha)(t) * x + jax.grad(noise.sigma)(t) * z
        loss = objectives.DSM(weighting=objectives.FlowWeighting())
        found = loss.weighting(noise, score, t) * loss.at(noise, lambda t, y, s=score: s(t, y), t, x, z)
        np.testing.assert_allclose(found, jnp.mean((velocity - target) ** 2), rtol=1e-4)


def test_answer_weighting_is_the_error_of_the_answer():
    score = scores.levelled_score(VE, 2, width=4, depth=1, key=KEY)
    score = scores.LevelledScore(
        network=lambda x, level, c: jnp.sin(x), noise=VE, preconditioning=score.preconditioning, space=score.space
    )
    x, z, t = jnp.array([0.3, -1.0]), jnp.array([1.2, 0.4]), jnp.asarray(0.4)
    sigma, width = VE.sigma(t), jnp.sqrt(1 + VE.variance(t))
    y = x + sigma * z
    # s = -y / w^2 - F / (sigma w) is to be -z / sigma, so F is to be (z / sigma - y / w^2) sigma w.
    target = (z / sigma - y / width**2) * sigma * width
    loss = objectives.DSM(weighting=objectives.AnswerWeighting())
    found = loss.weighting(VE, score, t) * loss.at(VE, lambda t, y: score(t, y), t, x, z)
    np.testing.assert_allclose(found, jnp.mean((jnp.sin(y / width) - target) ** 2), rtol=1e-4)


# ------------------------------------------------------------------------------------------------ the flow


def test_flow_of_the_exact_score_is_the_density_at_the_least_level():
    """p = N(.5, .25), x = .2: -.403836 under VP with pi = N(0, 1), of which .0019 are pi's."""
    found, asked = ev.flow_log_prob(gaussian_score(VP), jnp.array([[0.2]]), key=KEY)
    assert abs(found[0] + 0.403836) < 2e-4 and 20 < asked[0] < 200
    wrong, _ = ev.flow_log_prob(gaussian_score(VP, wrong=1.1), jnp.array([[0.2]]), key=KEY)
    assert abs(wrong[0] + 0.403836) > 5e-3


def test_probes_have_the_mean_of_the_exact_divergence():
    mix = jax.random.normal(KEY, (6, 6)) / 2
    covariance = mix @ mix.T + 0.3 * jnp.eye(6)

    def slope(t, x):
        return -jnp.linalg.solve(VP.alpha(t) ** 2 * covariance + VP.variance(t) * jnp.eye(6), x)

    score = scores.LevelledFunction(slope, VP)
    x = jnp.ones(6)
    truth = jax.scipy.stats.multivariate_normal.logpdf(x, jnp.zeros(6), covariance)
    exact, _ = ev.flow_log_prob(score, x[None], key=KEY)
    assert abs(exact[0] - float(truth)) < 2e-3
    probed, _ = ev.flow_log_prob(score, jnp.tile(x, (200, 1)), probes=1, key=KEY)
    assert holds(probed, exact[0], bias=2e-3) and probed.std() > 0.05


def test_mean_likelihood_covers_the_truth():
    score = gaussian_score(VP, 0.0)
    truth = -0.5 * np.log(2 * np.pi * 0.25) * 2 - 1
    rows = 0.5 * jax.random.normal(KEY, (20, 100, 2))
    found = [ev.flow_log_likelihood(score, part, tolerance=1e-4, key=KEY) for part in rows]
    assert holds([(one.value - truth) / one.stderr for one in found], 0.0)
    assert 0.5 < np.std([(one.value - truth) / one.stderr for one in found]) < 1.6


def test_bits_count_steps_and_coordinates():
    """A uniform law over 256 values is 8 bits, however its values are scaled."""
    nats = Estimate(-3 * np.log(2.0), 0.3, "by hand")  # uniform on [-1, 1]^3
    assert abs(ev.bits_per_dimension(nats, 3, 256).value - 8) < 1e-9
    assert abs(ev.bits_per_dimension(Estimate(0.0, 0.0, "by hand"), 3, 256, width=1.0).value - 8) < 1e-9
    assert abs(ev.bits_per_dimension(nats, 3, 17).value - np.log2(17)) < 1e-9


# ------------------------------------------------------------------------------------------------ the bounds


def test_bound_of_the_exact_score_is_the_likelihood():
    """q = N(0, 1), x = 1.3 under VP: 1.7639385332 corrected, by denoising and by slices alike."""
    with jax.enable_x64(True):
        score = scores.LevelledFunction(lambda t, x: -x, VP)
        rows = jnp.full((400, 1), 1.3)
        for slices in (False, True):
            found = ev.pointwise_bound(score, rows, levels=100, slices=slices, key=KEY)
            assert holds(found, 1.7639385332)
        loose = scores.LevelledFunction(lambda t, x: -1.3 * x, VP)
        assert np.mean(ev.pointwise_bound(loose, rows, levels=100, key=KEY)) > 1.77


@pytest.mark.parametrize("name", PROCESSES)
def test_bound_holds_and_is_sharp_for_exact_scores_alone(name):
    noise = PROCESSES[name]
    rows = 0.5 * jax.random.normal(KEY, (300, 2))
    truth = -np.asarray(jnp.sum(jax.scipy.stats.norm.logpdf(rows, 0.0, 0.5), axis=1))
    exact = ev.pointwise_bound(gaussian_score(noise, 0.0), rows, levels=200, key=KEY) - truth
    wrong = ev.pointwise_bound(gaussian_score(noise, 0.0, wrong=3.0), rows, levels=200, key=KEY) - truth
    # N(0, sigma(1)^2 I) is not quite the law of the noised data: by KL(p_1, pi) at most.
    left = float(noise.alpha(1.0) ** 2 / noise.variance(1.0))
    assert holds(exact, 0.0, bias=left)
    # By KL(N(0, 1/4), N(0, 3/4)) in two coordinates; with the same levels and noise, row by row.
    assert holds(wrong - exact, 1 / 3 - 1 + np.log(3), bias=left) and breaks(wrong - exact, 0.0)


def test_mean_bound_is_stated_with_its_error():
    bound = ev.likelihood_bound(gaussian_score(VP, 0.0), 0.5 * jax.random.normal(KEY, (300, 2)), levels=50, key=KEY)
    truth = -0.5 * np.log(2 * np.pi * 0.25) * 2 - 1
    assert abs(bound.value - truth) < 4 * bound.stderr and 0.02 < bound.stderr < 0.2


def test_a_score_without_levels_has_no_flow():
    with pytest.raises(un.InputError, match="has none"):
        ev.flow_log_prob(scores.FunctionScore(lambda t, x: -x), jnp.zeros((1, 2)), key=KEY)
    with pytest.raises(un.InputError, match="has none"):
        ev.pointwise_bound(scores.FunctionScore(lambda t, x: -x), jnp.zeros((1, 2)), key=KEY)
