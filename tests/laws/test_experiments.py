"""Of every experiment a figure that is known: closed forms, enumerations and printed exact values, at a small size.

Where a figure is what is measured of a trained model, the training is replaced by one that ends with a model of which
everything is known, most often the truth, and, as a control, with one that is wrong by a known amount.
"""

import importlib
import math
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_experiments_levels
import test_experiments_more
from harness import breaks, holds
from known_figures import KNOWN, figure_of, learns, within
from scipy.integrate import quad
from scipy.stats import multivariate_normal

import unnorm.experiments.demo as demo
from unnorm.catalogue import EXPERIMENTS
from unnorm.data import load
from unnorm.data.uci import UCISplit
from unnorm.energies import fit_gaussian, gaussian, gaussian_mixture
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation import defensive
from unnorm.evaluation.efficiency import score_matching_efficiency
from unnorm.experiments import (
    blindness,
    cnce_figure1,
    cnce_table1,
    dkef_uci,
    ed_density,
    references,
    ssm_scaling,
    ssm_variance,
    tables,
)
from unnorm.objectives import SM
from unnorm.runs.assess import in_unit_coordinates
from unnorm.runs.references import References


def test_every_listed_experiment_has_a_figure_that_is_known():
    assert test_experiments_more and test_experiments_levels
    assert {name for name, _ in EXPERIMENTS} == KNOWN


#: Nats lost by equal weights where they are 0.8 and 0.2.
EQUAL = 0.8 * math.log(0.8 / 0.5) + 0.2 * math.log(0.2 / 0.5)


def bimodal(weight: float):
    return gaussian_mixture([weight, 1 - weight], [[-1.5, 0.0], [1.5, 0.0]], 0.3)


@figure_of("demo")
def test_the_demo_tells_the_truth_from_equal_weights(monkeypatch):
    """One of its models is the truth, the other has equal weights, and nothing is trained."""

    def trained(settings, prepared, progress):
        right = settings.objective.name == "cnce"
        return learns(in_unit_coordinates(bimodal(0.8 if right else 0.5), prepared))()

    def known(prepared, seed):
        standard = prepared.schema.standardiser
        unit = gaussian_mixture([0.8, 0.2], standard.to_unit(np.array([[-1.5, 0.0], [1.5, 0.0]])), 0.5)
        baselines = {"one Gaussian": fit_gaussian(prepared.train), "mixture of 2": unit}
        return References(baselines, defensive(unit, prepared.train))

    monkeypatch.setattr(demo, "train", trained)
    monkeypatch.setattr(demo, "references_of", known)
    # The draws belong to no figure that is looked at here.
    monkeypatch.setattr(
        importlib.import_module("unnorm.runs.assess"), "sample",
        lambda *_, start, **__: SimpleNamespace(draws=start[:, None].repeat(25, 1), warnings=()),
    )  # fmt: skip
    result = demo.run_demo(progress=False)
    for name, weight, lost in (("cnce", 0.8, 0.0), ("dsm", 0.5, EQUAL)):
        found = result.assessments[name]
        assert within(found.weights[0][1], weight, 1e-3) and found.weights[0][0] == pytest.approx(0.8)
        assert found.weights[0][1].stderr < 0.02
        # In units of the standardised columns Z is one over their scales.
        assert within(found.log_z, -result.prepared.schema.log_volume, 1e-3)
        # Of 10,000 rows: the error of the loss is below (log(0.8/0.5) - log(0.2/0.5)) * 0.4 / 100.
        assert abs(result.shortfall(name) - lost) < 4.5 * (0.006 + found.log_z.stderr)
        assert abs(result.weight_error(name).value - abs(0.8 - weight)) < 0.03
    assert "CNCE finds the weights" in result.verdict and "DSM misses the weights" in result.verdict


@figure_of("cnce-table1")
def test_the_true_density_has_the_printed_floor_and_a_tempered_one_known_errors():
    """NLL is the entropy, -13.98, and both errors are nought.

    Of 1.1 times the energy log f / p = 10 log 1.1 - u / 20 with u of chi-squared law, 20 degrees of freedom: Ratio is
    twice the variance 0.1 of it, MSE that variance and the square of its mean.
    """
    problem = load("gmm20")
    truth = problem.truth
    found = cnce_table1.figures(truth, problem, draws=20_000)
    entropy = math.log(40) + 20 * (0.5 * math.log(2 * math.pi * math.e) + math.log(0.1))
    assert round(entropy, 2) == -13.98
    # The log density of a row has the variance 20 / 2.
    error = math.sqrt(10 / len(problem.test))
    assert abs(found["NLL"] - entropy) < 4.5 * error < 0.15
    assert found["Ratio"] < 1e-8 and found["MSE"] < 1e-8
    warm = cnce_table1.figures(1.1 * truth, problem, draws=20_000)
    # A square of a chi-squared law has some three times the relative error of one of a Gaussian.
    for name, known, spread in (
        ("Ratio", 0.2, 0.2 * math.sqrt(2 / 5000)),
        ("MSE", 0.1022, 0.1 * math.sqrt(2 / 10_000)),
    ):
        assert abs(warm[name] - known) < 4.5 * 3 * spread
    assert abs(warm["NLL"] - found["NLL"] - (1 - 10 * math.log(1.1))) < 4.5 * (0.1 * error + math.sqrt(0.1 / 20_000))


@figure_of("cnce-figure1")
@pytest.mark.parametrize("weight", [0.8, 0.5])
def test_the_weight_of_a_known_density_is_found_by_quadrature(monkeypatch, weight):
    monkeypatch.setattr(cnce_figure1, "fit", learns(bimodal(weight)))
    found = cnce_figure1._one(0.8, "mix", 0, 1)
    assert abs(found["left"] - weight) < 1e-4
    lost = {0.8: 0.0, 0.5: EQUAL}[weight]
    assert abs(found["shortfall"] - lost) < 1e-4 + (0 if weight == 0.8 else 4.5 * 0.4 * math.log(4) / math.sqrt(2000))
    # As a density of the first coordinate it has the mass one.
    assert abs(np.trapezoid(found["line"], np.linspace(-4, 4, 160)) - 1) < 1e-3


@figure_of("blindness")
def test_the_error_of_a_weight_is_that_of_the_mode_further_left(monkeypatch):
    def ends_with(weights, means):
        fits = SimpleNamespace(
            logits=jnp.log(jnp.asarray(weights)), components=SimpleNamespace(mean=jnp.asarray(means)[..., None])
        )
        monkeypatch.setattr(blindness, "fit_repeats", lambda *_, **__: fits)
        return blindness._errors("SM", 4.0, 2, 1, 0)["errors"]

    found = ends_with([[0.3, 0.7], [0.7, 0.3]], [[-2.0, 2.0], [2.0, -2.0]])
    np.testing.assert_allclose(found, 0.0, atol=1e-6)
    # Left where it began, and with the modes taken for each other.
    np.testing.assert_allclose(ends_with([[0.5, 0.5]] * 2, [[-2.0, 2.0]] * 2), 0.2, atol=1e-6)
    np.testing.assert_allclose(ends_with([[0.7, 0.3]] * 2, [[-2.0, 2.0]] * 2), 0.4, atol=1e-6)


@figure_of("blindness")
def test_twelve_standard_deviations_away_scores_and_local_noise_see_nothing():
    """The weight stays at 0.5, an error of 0.2; NCE finds it, to the share of the rows (0.012 on average)."""
    blind, local, seeing = (blindness._errors(name, 12.0, 8, 200, 0)["errors"] for name in ("SM", "CNCE local", "NCE"))
    np.testing.assert_allclose([blind, local], 0.2, atol=1e-3)
    share = math.sqrt(0.3 * 0.7 / 1000)
    assert np.mean(seeing) < share * (math.sqrt(2 / math.pi) + 4.5 * 0.6 / math.sqrt(8)) < 0.05


@figure_of("ed-density")
@pytest.mark.parametrize("weight", [0.8, 0.5])
def test_a_known_density_loses_what_it_must_under_energy_discrepancy(monkeypatch, weight):
    monkeypatch.setattr(ed_density, "fit", learns(bimodal(weight)))
    found = ed_density._learn("bimodal", 0.5, 1, 0)
    assert within(found["gap"], 0.0 if weight == 0.8 else EQUAL, 1e-3)
    assert within(found["truth"], -load("bimodal", n_train=5).facts["entropy"])
    assert found["gap"]["stderr"] < 0.01


def contrasted(m: float, s: float, t: float) -> float:
    """E U(x) - E U_t(x + sqrt(t) z), exp(-U_t) being exp(-U) with noise, by quadrature; x and z are N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    y = nodes * math.sqrt(1 + t)

    def noisy(y):
        return quad(lambda x: math.exp(-((x - m) ** 2) / (2 * s * s) - (y - x) ** 2 / (2 * t)), y - 40, y + 40,
                    points=[y, m], limit=200)[0] / math.sqrt(2 * math.pi * t)  # fmt: skip

    kept = weights > 1e-13
    return float(weights @ (nodes - m) ** 2 / (2 * s * s) + weights[kept] @ [math.log(noisy(v)) for v in y[kept]])


@figure_of("ed-density")
def test_energy_discrepancy_has_its_formula_and_its_two_limits():
    m, s = ed_density.MEAN, ed_density.SCALE
    theta = jnp.array([m, math.log(s)])
    for t in (0.5, 4.0):
        assert abs(float(ed_density._discrepancy(theta, t)) - contrasted(m, s, t)) < 1e-5
        # Control: the noise t taken for its root.
        assert abs(float(ed_density._discrepancy(theta, t)) - contrasted(m, s, math.sqrt(t))) > 1e-2
    for t in (0.5, 0.1):
        small = ed_density._small(t, 16, 0)
        assert within(small["measured"], small["formula"])
    assert Estimate.from_dict(small["measured"]).stderr < 0.05
    far = ed_density._small(0.5, 16, 0)
    assert not within(far["measured"], far["limit"])
    # d/d log s of r^2 (1 + m^2) / 2 - r at r = s^-2 by differences, the limit of the formula as t falls.
    losses = [math.exp(-4 * v) * (1 + m**2) / 2 - math.exp(-2 * v) for v in (math.log(s) + 1e-5, math.log(s) - 1e-5)]
    assert abs(far["limit"] - (losses[0] - losses[1]) / 2e-5) < 1e-6
    with jax.enable_x64(True):
        tiny = float(jax.grad(ed_density._discrepancy)(jnp.array([m, math.log(s)]), 1e-4)[1]) / 1e-4
    assert abs(tiny - far["limit"]) < 1e-3
    large = ed_density._large(1.0, 16, 0)
    assert within(large["measured"], large["formula"])
    divergence = quad(lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
                      * (-x * x / 2 + (x - m) ** 2 / (2 * s * s) + math.log(s)), -12, 12)[0]  # fmt: skip
    assert abs(large["limit"] - divergence) < 1e-8
    assert 0 < large["limit"] - large["formula"] < large["bound"]
    assert not within(large["measured"], large["limit"])


def scale_cases():
    return [case for case in ssm_variance._cases(quick=True) if case[0] == "scale"]


@figure_of("ssm-variance")
def test_theorem_3_3_has_its_closed_forms():
    """N Var = 2 r^2 / D = 0.8 for SM, ten times that for one Rademacher slice, twelve for a Gaussian one."""
    assert ssm_variance._closed_form("scale", "SM", "", 0) == pytest.approx(0.8)
    assert ssm_variance._closed_form("scale", "SSM", "Rademacher", 1) == pytest.approx(8.0)
    assert ssm_variance._closed_form("scale", "SSM", "Gaussian", 1) == pytest.approx(9.6)
    assert ssm_variance._closed_form("scale", "SSM-VR", "Gaussian", 5) == pytest.approx(0.96)
    sets = ssm_variance._draw((2.0,), (8, 4096), jax.random.key(1))
    model = ssm_variance.Coupled(theta=jnp.array([2.0]))
    efficiencies = [score_matching_efficiency(model, rows) for rows in sets]
    found = [[ssm_variance._predict(e, *case[1:]) for case in scale_cases()] for e in efficiencies]
    closed = np.array([ssm_variance._closed_form(*case) for case in scale_cases()])
    assert holds(found, closed)
    # Control: one dimension too many, 2 r^2 / 11.
    assert breaks(found, closed * 10 / 11)


@figure_of("ssm-variance")
def test_a_fit_by_exact_score_matching_is_a_ratio_of_moments():
    """r = D / mean |x|^2, to the last digit; over fits it scatters as the theorem says."""
    keys = jax.random.split(jax.random.key(0), 400)
    theta, free, root = jnp.array([2.0, 0.0]), jnp.array([True, False]), jnp.asarray(ssm_variance._root((2.0,)))
    gaps = np.asarray(ssm_variance._fits(SM(), theta, free, root, keys, 200), np.float64)
    points = jax.vmap(lambda key: jax.random.normal(jax.random.split(key)[0], (200, 10)) @ root.T)(keys)
    squares = np.mean(np.sum(np.asarray(points, np.float64) ** 2, axis=2), axis=1)
    np.testing.assert_allclose(gaps[:, 0], 10 / squares - 2, atol=1e-4)
    assert np.all(gaps[:, 1] == 0)
    scatter = 200 * gaps[:, 0] ** 2
    assert holds(scatter, 0.8, bias=0.8 * 14 / 200)
    assert breaks(scatter, 8.0, bias=0.8)


@figure_of("dkef-uci")
def test_score_matching_losses_and_widths_of_a_gaussian():
    rng = np.random.default_rng(0)
    precision, mean = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([0.3, -1.0])
    rows = rng.normal(size=(50, 2)).astype(np.float32)
    found = dkef_uci.sm_losses(gaussian(mean, np.linalg.inv(precision)), jnp.asarray(rows))
    slopes = (rows - mean) @ precision
    np.testing.assert_allclose(found, 0.5 * np.sum(slopes**2, axis=1) - 3.0, atol=1e-4)
    assert not np.allclose(found, np.sum(slopes**2, axis=1) - 3.0, atol=0.1)
    # One kernel: the likeliest width is the root mean square of the coordinates about it.
    width = dkef_uci.parzen_scale(np.zeros((1, 2), np.float32), rows)
    assert width == pytest.approx(np.sqrt(np.mean(rows.astype(np.float64) ** 2)), rel=1e-3)
    # Half of the base is N(0, 4 I), half the Gaussian of the training rows.
    split = UCISplit(1.5 * rows + 1.0, rows, rows, ("a", "b"))
    parts = [
        multivariate_normal(split.train.mean(0), np.cov(split.train.T, bias=True)),
        multivariate_normal(np.zeros(2), 4),
    ]
    truth = np.log(0.5 * sum(part.pdf(rows) for part in parts))
    found = jax.vmap(dkef_uci._proposal(split).log_prob)(jnp.asarray(rows))
    np.testing.assert_allclose(found, truth, atol=0.02)
    assert not np.allclose(found, np.log(parts[1].pdf(rows)), atol=0.1)


@figure_of("references")
def test_one_gaussian_is_as_far_from_a_gaussian_as_its_five_parameters_make_it(monkeypatch):
    """Of n rows a fit of k parameters loses k / (2 n) nats; columns are five times as wide, which must be counted."""
    problem = load("gaussian")
    wide = replace(
        problem, truth=gaussian(np.zeros(2), 25 * np.array([[1.0, 0.8], [0.8, 1.0]])),
        **{part: 5 * getattr(problem, part) for part in ("train", "valid", "test")},
    )  # fmt: skip
    monkeypatch.setattr(references, "load", lambda name: wide)
    monkeypatch.setattr(references, "_fitted", lambda kind, train, valid, seed: fit_gaussian(train))
    piece = {kind: np.asarray(rows) for kind, rows in references._piece("gaussian", 0).items()}
    entropy = problem.facts["entropy"] + 2 * math.log(5)
    assert within(mean_estimate(piece["true density"], "rows"), -entropy)
    gap = mean_estimate(piece["one Gaussian"] - piece["true density"], "paired rows")
    assert within(gap, -5 / (2 * len(problem.train))) and gap.stderr < 1e-3
    # Control: the change of variables forgotten.
    assert not within(replace(gap, value=gap.value + 2 * math.log(5)), 0.0)


@figure_of("tables")
def test_peers_are_judged_by_their_densities_and_chosen_by_the_held_out_rows():
    rng = np.random.default_rng(0)
    train, valid, test = (rng.normal(size=(400, 3)) @ np.diag([1.0, 2.0, 0.5]) for _ in range(3))
    split = UCISplit(*(part.astype(np.float32) for part in (train, valid, test)), ("a", "b", "c"))
    found = next(tables._gaussian(split, 0))
    truth = multivariate_normal(train.mean(0), np.cov(train.T, bias=True))
    np.testing.assert_allclose(found.log_densities, truth.logpdf(test), atol=0.05)
    assert found.score == pytest.approx(truth.logpdf(valid).mean(), abs=0.01)
    rivals = [tables.Candidate(score, np.full(2, score)) for score in (-3.0, -1.0, -2.0)]
    assert tables._best_within(iter(rivals), 10.0)[0].tolist() == [-1.0, -1.0]
    # Without time there is the first alone.
    assert tables._best_within(iter(rivals), 0.0)[0].tolist() == [-3.0, -3.0]
    pieces = [
        {"x": {"log_densities": [1.0, 3.0], "log_z_error": 0.3}, "together": [0, 1]},
        {"x": {"log_densities": [2.0], "log_z_error": 0.1}, "together": [0]},
    ]
    mean = tables._mean(pieces, "x")
    assert mean.value == pytest.approx(2.0) and mean.stderr == pytest.approx(math.hypot(1 / math.sqrt(3), 0.2))


@figure_of("ssm-scaling")
def test_powers_of_the_dimension_have_their_exponents():
    dimensions = list(ssm_scaling.DIMENSIONS)

    def claims(of_sm):
        times = {name: [1e-4 * d**0.3 for d in dimensions] for name in ssm_scaling.METHODS}
        times["SM"] = [1e-4 * d**of_sm for d in dimensions]
        slopes = {name: ssm_scaling._slope(dimensions, seconds) for name, seconds in times.items()}
        assert slopes["SM"] == pytest.approx(of_sm) and slopes["SSM"] == pytest.approx(0.3)
        return [claim.holds for claim in ssm_scaling._claims(times, slopes)]

    assert claims(1.3) == [True] * 5
    # Controls: a loss that costs no more than its substitutes, and one of a derivative for every pair of coordinates.
    assert claims(0.3) == [False, False, True, False, False]
    assert claims(2.3) == [True, False, True, True, True]
    timed = ssm_scaling._time("SSM", 3, 0, 50, 0.0)
    assert timed["repeats"] == 5 and 0 < timed["fastest"] <= timed["median"] < timed["first"]
