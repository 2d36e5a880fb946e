"""The second half of `test_experiments`: images, second-order scores, samplers and log Z."""

import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from known_figures import figure_of, learns, within
from scipy.integrate import quad
from scipy.stats import multivariate_normal

from unnorm.energies import NICE, gaussian_mixture
from unnorm.estimate import Estimate
from unnorm.evaluation import energies
from unnorm.experiments import (
    denoising,
    gibbs_chains,
    gibbs_digits,
    gibbs_mnist,
    gibbs_models,
    gibbs_posterior,
    gibbs_table1,
    gibbs_variances,
    hosm_errors,
    hosm_table,
    implicit_training,
    implicit_vae,
    langevin_modes,
    logz_race,
    logz_targets,
    nice_mnist,
    ozaki,
)
from unnorm.experiments.hosm_targets import CORRELATION, best_of_rank, correlated_pairs
from unnorm.experiments.hosm_times import _parameters, widest
from unnorm.networks import MLP, GaussianDecoder, GaussianEncoder
from unnorm.scores import FunctionScore, LowRankSecondOrder, low_rank_mlp
from unnorm.spaces import Real
from unnorm.tasks import Denoised


@figure_of("nice-mnist")
def test_pixels_as_logits_and_a_flow_that_is_a_gaussian(monkeypatch):
    """A share (1/512 + 0.001) 256 = 0.756 of a background pixel's dequantised values is clipped to one number."""
    images = np.stack([np.zeros((20, 20)), np.full((20, 20), 0.5)])
    dark, grey = nice_mnist.logits(images, np.random.default_rng(0))
    lowest = math.log(0.001) - math.log(0.999)
    clipped = np.isclose(dark, lowest, atol=1e-5)
    assert dark.min() >= lowest - 1e-5 and holds(clipped, (1 / 512 + 0.001) * 256)
    # Control: dequantised by whole grey levels, as if by U[0, 1/256].
    assert breaks(clipped, 0.001 * 256)
    assert np.abs(1 / (1 + np.exp(-grey)) - 0.5).max() <= 1 / 512 + 1e-6
    # With no couplings left and log scales s it is N(0, exp(-2 s)), whose loss is -e^{2 s} + e^{4 s} x^2 / 2 each.
    flow = NICE(Real((4,)), width=4, depth=1, key=jax.random.key(0))
    flow = jax.tree.map(lambda leaf: 0 * leaf if eqx.is_array(leaf) else leaf, flow)
    scale = np.array([0.0, 0.5, -0.3, 0.2])
    flow = eqx.tree_at(lambda f: f.log_scale, flow, jnp.asarray(scale, float))
    monkeypatch.setattr(nice_mnist, "fit", learns(flow))
    rows = np.random.default_rng(1).normal(size=(30, 4)).astype(np.float32)
    settings = {"side": 2, "width": 4, "depth": 1, "steps": 100, "falls": True, "rows": 10, "test": 20}
    found = nice_mnist._one({"train": rows, "valid": rows, "test": rows}, nice_mnist.MLE(), settings, 1e-3, 0)
    # The flow puts even coordinates before odd ones.
    y = rows[:, [0, 2, 1, 3]]
    rate = np.exp(2 * scale)
    np.testing.assert_allclose(found["sm"], (0.5 * rate**2 * y**2 - rate).sum(axis=1)[:20], rtol=1e-4)
    truth = multivariate_normal(np.zeros(4), np.diag(1 / rate)).logpdf(y)
    np.testing.assert_allclose(found["log_likelihood"], truth, rtol=1e-4)
    assert not np.allclose(
        found["log_likelihood"], multivariate_normal(np.zeros(4), np.diag(rate)).logpdf(y), rtol=1e-2
    )


@figure_of("implicit-vae")
def test_the_evidence_of_a_linear_decoder():
    """log p(x) is that of N(0, L L' + s^2 I); a code whose posterior is the prior is not used."""
    loading = np.random.default_rng(0).normal(size=(3, implicit_training.LATENT)) / 2
    xs = np.random.default_rng(1).normal(size=(12, 3)) @ np.diag([1.0, 2.0, 0.5])
    decoder = GaussianDecoder(lambda z: jnp.asarray(loading, float) @ z, 0.8)
    size = replace(implicit_training.QUICK, chains=64, levels=30)
    found = implicit_vae._evidences(decoder, xs.astype(np.float32), size, jax.random.key(0))
    right, narrow = (
        multivariate_normal(np.zeros(3), loading @ loading.T + s * np.eye(3)).logpdf(xs) for s in (0.64, 0.4)
    )
    values, errors = (np.array([getattr(e, part) for e in found]) for part in ("value", "stderr"))
    # An average of log p(x) is too low by half the variance of its error.
    assert np.all(np.abs(values - right) < 4.5 * errors + errors**2)
    assert not np.all(np.abs(values - narrow) < 4.5 * errors + errors**2)
    moments = jnp.array([1.0, 0.0, 0.0, 0.4, 0.0, 0.2, 1.0, 0.0])
    # Four means and log deviations, with divergences of 1/2, (e^0.4 - 1.4) / 2 = 0.05, (e^2 - 3) / 2 = 2.2 and 0.08.
    assert implicit_vae._used(GaussianEncoder(lambda x: moments), xs) == 2
    table = np.array([[1.0, 3.0], [2.0, 6.0]])
    mean = implicit_vae._over(table)
    # Digits scatter by 1.5 / sqrt 2 * sqrt 2, seeds by (4 - 2) / 2.
    assert mean.value == 3.0 and mean.stderr == pytest.approx(math.hypot(1.5, 1.0))
    pieces = [{"rows": row.tolist(), "errors": [3.0, 4.0]} for row in table]
    assert implicit_vae._annealing(pieces) == pytest.approx(math.sqrt(50) / 4)
    assert implicit_vae._behind(pieces[:1], pieces[1:]).value == pytest.approx(-2.0)


TINY = replace(hosm_errors.QUICK, points=100)


@figure_of("hosm-table")
@pytest.mark.parametrize("rank", [3, 6])
def test_the_best_second_order_score_of_its_rank_leaves_what_the_closed_form_says(monkeypatch, rank):
    """beta has the off-diagonal entry c / (1 - c^2) of as many pairs as its rank."""
    pair = CORRELATION / (1 - CORRELATION**2)
    beta = np.zeros((TINY.dimension, rank))
    for k in range(rank):
        beta[[2 * k, 2 * k + 1], k] = math.sqrt(pair)
    precision = np.linalg.inv(correlated_pairs(TINY.dimension, TINY.pairs))
    alpha = -np.diag(precision) - np.sum(beta**2, axis=1)
    score = FunctionScore(lambda t, x: -jnp.asarray(precision, float) @ x)
    best = LowRankSecondOrder(
        score, lambda x: jnp.asarray(alpha, float), lambda x: jnp.asarray(beta.ravel(), float), rank
    )
    monkeypatch.setattr(
        hosm_errors, "trained", lambda model, *_: best if isinstance(model, LowRankSecondOrder) else score
    )
    assert hosm_errors.error_on_normal(rank, 0.05, TINY, 0) == pytest.approx(best_of_rank(rank, TINY.pairs), rel=1e-4)
    # The exact score has the exact derivative.
    assert hosm_errors.error_on_normal("DSM", 0.05, TINY, 0) < 1e-6


@figure_of("hosm-table")
def test_the_printed_errors_of_ranks_are_the_best_of_their_ranks():
    """7.04, 5.28 and 1.76 of 35 pairs; the printed figures 7.12, 5.24 and 1.76 are within 3 % of them."""
    assert [round(best_of_rank(rank, 35), 2) for rank in (15, 20, 30)] == [7.04, 5.28, 1.76]
    # By the matrix itself: all but `rank` of the entries off the diagonal are left.
    precision = np.linalg.inv(correlated_pairs(100, 35))
    left = precision - np.diag(np.diag(precision))
    left[:30, :30] = 0
    assert np.sum(left**2) == pytest.approx(best_of_rank(15, 35))
    assert np.sum(left**2) != pytest.approx(best_of_rank(15, 34), rel=1e-3)
    for rank, printed in ((15, 7.12), (20, 5.24), (30, 1.76)):
        assert abs(printed / best_of_rank(rank, 35) - 1) < 0.03
        assert hosm_table.PRINTED[f"normal: s2 of rank {rank}"][0.01][0] == printed
    # As wide as so many parameters allow, and one parameter fewer is a unit fewer.
    model = low_rank_mlp(10, rank=2, factor_width=21, key=jax.random.key(0))
    parameters = _parameters((model.alpha, model.beta))
    assert [widest(10, 10 * 3, 2, number) for number in (parameters, parameters - 1)] == [21, 20]


@figure_of("gibbs-posterior")
def test_posteriors_of_denoising_where_they_are_known():
    """Far beyond a corner one Gaussian is left, of variance 0.02; in the middle the four means stand at +-1/2."""
    noisy = np.array([[-1.6, -1.6], [0.0, 0.0]])
    _, entropy, mean, covariance = gibbs_posterior.true_posterior(noisy)
    one = 0.02 * np.eye(2)
    np.testing.assert_allclose(mean, [[-1.3, -1.3], [0.0, 0.0]], atol=1e-6)
    np.testing.assert_allclose(covariance, [one, one + 0.25 * np.eye(2)], atol=1e-5)
    alone = 1 + math.log(2 * math.pi * 0.02)

    # The four overlap a little: a product of two densities of the line, each of two modes.
    def line(x):
        return sum(math.exp(-((x - m) ** 2) / 0.04) for m in (-0.5, 0.5)) / (2 * math.sqrt(2 * math.pi * 0.02))

    middle = -2 * quad(lambda x: line(x) * math.log(line(x)), -1.5, 1.5)[0]
    assert 0 < alone + math.log(4) - middle < 0.002
    np.testing.assert_allclose(entropy, [alone, middle], atol=1e-5)
    exact = gaussian_mixture(np.full(4, 0.25), gibbs_models.CORNERS, math.hypot(0.2, 0.2))
    found = gibbs_posterior._gaussians(exact, 0.04, noisy)

    def divergence(name):
        return gibbs_posterior.divergence(entropy, mean, covariance, *found[name][:2])

    # KL of N(0, v) and N(0, 2 v) in the plane is log 2 - 1/2; in the middle the Gaussian is too narrow or just right.
    for name in (gibbs_posterior.FULL, gibbs_posterior.DIAGONAL):
        np.testing.assert_allclose(divergence(name), [0, -entropy[1] + 1 + math.log(2 * math.pi * 0.27)], atol=1e-4)
    np.testing.assert_allclose(
        divergence(gibbs_posterior.ISOTROPIC),
        [math.log(2) - 0.5, -entropy[1] + math.log(2 * math.pi * 0.04) + 0.27 / 0.04], atol=1e-4,
    )  # fmt: skip
    assert found[gibbs_posterior.FULL][2] == 0
    # A matrix with an eigenvalue below 0 is raised there, and counted.
    raised, number = gibbs_posterior._raised(np.array([np.diag([1.0, -1.0])]))
    np.testing.assert_allclose(raised[0], np.diag([1.0, 1e-6 * 0.04]), atol=1e-12)
    assert number == 1


@figure_of("gibbs-table1")
@pytest.mark.parametrize("name", gibbs_models.DATA)
def test_the_exact_energy_is_that_of_the_rows_with_noise(name):
    """Against the mean of the noise's density over rows: E(y) = -log mean_x N(y; x, 0.2^2) and a constant."""
    rows = np.asarray(gibbs_models.data_of(name, 40_000, jax.random.key(0)), np.float64)
    noisy = rows[:40] + 0.2 * np.random.default_rng(0).normal(size=(40, 2))

    def logs(sigma):
        squared = np.sum((noisy[:, None] - rows) ** 2, axis=-1)
        kernel = np.exp(-squared / (2 * sigma**2)) / (2 * math.pi * sigma**2)
        return np.log(kernel.mean(axis=1)), kernel.std(axis=1) / kernel.mean(axis=1) / math.sqrt(len(rows))

    found = -energies(gibbs_models.noisy_energy(name), noisy.astype(np.float32)).astype(np.float64)

    def gaps(sigma):
        """How far from a constant, in standard errors."""
        truth, error = logs(sigma)
        gap = found - truth
        return np.abs(gap - np.average(gap, weights=error**-2)) / error

    assert np.max(gaps(0.2)) < 4.5
    # Control: too little noise.
    assert np.max(gaps(0.15)) > 10


@figure_of("gibbs-table1")
def test_a_figure_of_chains_is_their_mean_and_the_floor_has_the_error_of_the_null():
    pieces = [{"full": {"values": [1.0, 3.0], "clipped": 0.2}, gibbs_chains.FLOOR: {"values": [0.1], "null": 0.3}}]
    figure = gibbs_table1._figure(pieces, "full")
    assert (figure.value, figure.stderr) == pytest.approx((2.0, 1.0))
    assert gibbs_table1._figure(pieces * 4, gibbs_chains.FLOOR).stderr == pytest.approx(0.15)
    # Of several networks the spread of their means counts, not that of the chains.
    assert gibbs_table1._figure(pieces * 4, "full").stderr == 0


@figure_of("logz-race")
def test_the_targets_of_the_race_have_their_log_z():
    """By the rule on a grid of another step and width; a banana's without its scale is off by log 0.4."""
    axis, step = np.linspace(-14, 14, 1201, retstep=True)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2).astype(np.float32)
    for name, part in zip(logz_targets.TARGETS, logz_targets.all_parts(), strict=True):
        if name != "funnel":
            found = math.log(np.exp(-energies(part, grid).astype(np.float64)).sum() * step**2)
            assert abs(found - logz_targets.true_log_z(name)) < 1e-4
    assert logz_targets.true_log_z("funnel") == 0.0
    assert abs(logz_targets.true_log_z("banana") - math.log(2 * math.pi)) > 0.9
    piece = logz_race._race("banana", "importance sampling", 8, 0)
    values, errors = np.array(piece["values"]), np.array(piece["errors"])
    assert holds((values - piece["truth"]) / errors, 0.0) and np.all(errors < 0.05)
    assert breaks((values - math.log(2 * math.pi)) / errors, 0.0)
    assert piece["evaluations"] == [40_960] * 8
    row = logz_race._row("a", "b", {"values": [1.1, 0.9], "truth": 1.0, "errors": [0.2, 0.2], "seconds": [1.0, 1.0],
                                    "evaluations": [5, 5], "warned": [0, 0]})  # fmt: skip
    told = {name: figure.value for name, figure in row.figures.items()}
    assert told == pytest.approx(
        {"mean error": 0, "root mean square error": 0.1, "stated error": 0.2, "error / stated": 0.5, "seconds": 1.0,
         "evaluations": 5}, abs=1e-12,
    )  # fmt: skip


@figure_of("langevin-modes")
def test_independent_draws_have_the_weight_and_the_printed_settings_lose_every_point(monkeypatch):
    """The first of the printed steps is 1000 / 2; a density of variance 101 bears less than 404 / 2."""
    truth = langevin_modes._repeat(langevin_modes.TRUTH, 8, 0)
    assert holds(truth["weights"], 0.8) and breaks(truth["weights"], 0.7)
    monkeypatch.setattr(langevin_modes, "POINTS", 64)
    assert langevin_modes._repeat(langevin_modes.PRINTED, 1, 0)["lost"] == [1.0]
    assert langevin_modes._repeat(langevin_modes.CODE, 1, 0)["lost"] == [0.0]
    noise, own, transition = langevin_modes.WALKS[langevin_modes.PRINTED]
    assert transition.ratio * float(noise.variance(1.0)) == pytest.approx(500)
    # The score of a level is the gradient of the mixture's log density with that level's variance.
    y, score = jnp.array([[0.3, -0.4], [4.0, 6.0], [-9.0, 2.0]]), langevin_modes.MixtureSlope(noise, own)
    at_level = jax.vmap(score, in_axes=(None, 0))
    for t in (0.2, 0.9):
        wide = gaussian_mixture(langevin_modes.WEIGHTS, langevin_modes.CENTRES, float((1 + noise.variance(t)) ** 0.5))
        truth = jax.vmap(jax.grad(wide.log_prob))(y)
        np.testing.assert_allclose(at_level(t, y), truth, rtol=1e-3, atol=1e-5)
        assert not np.allclose(at_level(t + 0.05, y), truth, rtol=1e-2)


@figure_of("ozaki")
def test_the_targets_of_the_walks_have_their_moments_and_energies():
    """A Gaussian of the plane has the mean energy 1 + log det(2 pi C) / 2; two modes have the variance 1.6^2 + 0.3."""
    n = 50_000
    targets = ozaki.targets()
    for name, determinant in ((ozaki.ALIGNED, 0.1 * 10), (ozaki.ACROSS, 16 * (1 - 0.95**2))):
        known = ozaki.truth_of(targets[name], n).energy
        assert abs(known - 1 - math.log(2 * math.pi) - 0.5 * math.log(determinant)) < 4.5 / math.sqrt(n)
    found = ozaki.truth_of(targets[ozaki.FIRST], n)
    # The variance of x^2 is at most its mean fourth moment.
    fourth = 1.6**4 + 6 * 1.6**2 * 0.3 + 3 * 0.3**2
    assert abs(found.variance[0] - 2.86) < 4.5 * math.sqrt((fourth - 2.86**2) / n) < 0.06
    assert abs(found.variance[1] - 1.0) < 4.5 * math.sqrt(2 / n)
    curves = np.full((2, 30), 1.0)
    curves[0, 7:], curves[1, 9:] = 0.0, 0.0
    # Reached at the eighth and the tenth look, ten iterations apart.
    assert ozaki._iterations(curves).value == pytest.approx(90)


@figure_of("denoising")
def test_what_variances_and_directions_explain_of_gaussian_errors():
    """Errors N(0, diag v) at every point: the leading share is that of v, and what is predicted is found.

    Two variances a and b, in turns of points: they explain 1 - 2 E v^2 / (2 E v^2 + Var v) of the squared errors.
    """
    rng, n, d = np.random.default_rng(0), 20_000, 8
    shape = np.array([4.0, 2.0, 1.0, 0.5, 0.4, 0.3, 0.2, 0.1])
    variances = np.where(np.arange(n)[:, None] % 2, 2.0, 0.5) * shape
    clean = np.sqrt(variances) * rng.normal(size=(n, d))
    basis = np.broadcast_to(np.eye(d)[:2], (n, 2, d))
    denoised = Denoised(np.zeros((n, d)), variances, variances[:, :2], basis, np.zeros((n, 2)))
    found = denoising.measured(denoised, clean, seed=0)
    assert within(found[denoising.ERROR], variances.mean())
    assert within(found[denoising.ALONG], 6 / 8.5) and within(found[denoising.FOUND], 1.0)
    square, spread = 2 * np.mean(variances**2), np.var(variances)
    assert within(found[denoising.EXPLAINED], 1 - square / (square + spread))
    axes, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(d, 2)))
    assert within(found[denoising.RANDOM], np.sum(axes**2 * shape[:, None]) / 8.5)
    # Control: variances of twice the size.
    wrong = denoising.measured(
        replace(denoised, variances=2 * variances, eigenvalues=2 * variances[:, :2]), clean, seed=0
    )
    assert within(wrong[denoising.FOUND], 0.5) and not within(wrong[denoising.FOUND], 1.0)
    assert within(wrong[denoising.EXPLAINED], 1 - (square + np.mean(variances**2)) / (square + spread))
    assert all(figure.stderr < 0.05 for figure in found.values())


@figure_of("gibbs-mnist")
def test_the_estimate_of_variances_has_the_error_that_theory_gives_it():
    """The squared error of n probes is sigma^8 sum_{j != i} J_ij^2 / n, on a denoiser of six pixels."""
    model = gibbs_mnist.Digits(MLP(6, 6, width=16, depth=1, key=jax.random.key(0)))
    model = jax.tree.map(lambda leaf: 6 * leaf if isinstance(leaf, jax.Array) else leaf, model)
    held = np.random.default_rng(0).uniform(size=(400, 6)).astype(np.float32)
    size = replace(gibbs_mnist.QUICK, counted=(1, 4), points=400, rows=400)
    piece = gibbs_variances.measured_variances(model, {"held": held}, size, 0)
    one, four = (piece["counts"][count] for count in ("1", "4"))
    for found in (one, four):
        assert within(found["against theory"], 1.0) and found["against theory"]["stderr"] < 0.1
        # Control: the number of probes forgotten, or squared.
        assert not within(found["against theory"], 2.0)
    # What is missed, as a share of the squared size, falls with the number of probes.
    few, many = (Estimate.from_dict(found["missed"]) for found in (one, four))
    error = math.hypot(few.stderr / few.value, many.stderr / many.value)
    assert abs(math.log(few.value / many.value) - math.log(4)) < 4.5 * error < math.log(2)


@figure_of("gibbs-mnist")
def test_shares_and_influences_of_points():
    share = gibbs_variances.share_explained(np.array([1.0, 2.0, 3.0]), np.array([4.0, 4.0, 4.0]))
    assert share.value == pytest.approx(0.5) and share.stderr == pytest.approx(1 / (math.sqrt(3) * 4))
    rng = np.random.default_rng(0)
    points, reference = rng.normal(size=(40, 3)), rng.normal(size=(50, 3)) + 0.5
    own, other = gibbs_digits.influence(points, reference)
    # In the mean they are 2 (E k(x, x') - E k(x, y)) and -2 E k(x, y), by the sum of five kernels.
    widths = np.array(gibbs_digits.bandwidths_of(reference))

    def kernel(a, b):
        squared = np.sum((a[:, None] - b) ** 2, axis=-1)[..., None]
        return np.exp(-squared / (2 * widths**2)).sum(axis=-1).mean()

    cross = kernel(points, reference)
    assert np.mean(other) == pytest.approx(-2 * cross, rel=1e-4)
    assert np.mean(own) == pytest.approx(2 * kernel(points, points) - 2 * cross, abs=1e-4)
