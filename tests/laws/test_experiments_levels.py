"""Of the experiments with noise levels a figure that is known: shifted data, exact scores, propositions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import near
from known_figures import figure_of
from scipy.stats import norm

from unnorm.energies import gaussian_mixture
from unnorm.experiments import digit_levels, ncsn_techniques, score_toy, solver_table
from unnorm.generators import Ancestral, Stay, generate
from unnorm.noises import VariancePreserving
from unnorm.scores import EnergyScore, FunctionScore


@figure_of("solver-table")
def test_distances_are_those_of_shifts_and_the_exact_score_that_of_the_noised_mixture():
    """W1 of a shift is the shift, the squared Frechet distance of one in 64 pixels 64 times its square."""
    ideal = digit_levels._quantiles(2000)
    assert digit_levels.distance_to_mixture(ideal, seed=0).value == 0
    assert digit_levels.distance_to_mixture(ideal + 0.3, seed=0).value == pytest.approx(0.3)
    assert not np.isfinite(digit_levels.distance_to_mixture([1.0, np.nan], seed=0).value)
    train, _ = digit_levels.digits()
    assert digit_levels.distance_to_digits(train, seed=0).value == pytest.approx(0.0, abs=1e-4)
    assert digit_levels.distance_to_digits(train + 0.1, seed=0).value == pytest.approx(0.64, abs=1e-4)
    noise, t, x, h = VariancePreserving(), 0.3, 1.7, 1e-4
    alpha, variance = float(noise.alpha(t)), float(noise.variance(t))

    def log_density(x):
        parts = zip(digit_levels.WEIGHTS, digit_levels.CENTRES, strict=True)
        return np.log(sum(w * norm.pdf(x, alpha * c, np.sqrt(alpha**2 + variance)) for w, c in parts))

    slope = (log_density(x + h) - log_density(x - h)) / (2 * h)
    score = digit_levels.mixture_score(noise)
    assert float(score(t, jnp.array([x]))[0]) == pytest.approx(slope, rel=1e-3)
    # A level that is named again is one at which nothing is done.
    levels = np.linspace(1.0, 0.01, 11)
    options = {"n": 50, "finish": Stay(), "start": np.zeros((50, 1)), "key": jax.random.key(0)}
    short, long = (
        generate(score, Ancestral(temperature=0.0), levels=each, **options).points
        for each in (levels, solver_table.padded(levels, 30))
    )
    np.testing.assert_allclose(short, long, rtol=1e-4)


@figure_of("score-toy")
def test_errors_of_scores_that_are_wrong_by_a_known_amount():
    truth = gaussian_mixture(*score_toy.TRUTH, 1.0)
    right = score_toy.regions(EnergyScore(truth))
    off = score_toy.regions(FunctionScore(lambda t, x: -jax.grad(truth)(x) + jnp.array([3.0, 4.0])))
    assert all(abs(value) < 1e-4 for value in right.values())
    assert all(value == pytest.approx(5.0, abs=1e-3) for value in off.values())


@figure_of("ncsn-techniques")
def test_propositions_and_the_exact_score_of_a_data_set():
    found = ncsn_techniques.propositions(400_000, 0)
    bound, second, third = found.values()
    assert bound["simulated"].value <= bound["as stated"].value
    assert second["as stated"].value == pytest.approx(0.567, abs=1e-3)
    assert abs(second["simulated"].value - second["as stated"].value) < 4 * second["simulated"].stderr + 0.005
    assert third["as stated"].value == pytest.approx(1.05547, abs=1e-4) and near(third["simulated"], 1.05547)
    assert not near(third["simulated"], 1.037559**2)  # what it was before the walk
    # Two rows and their noise: the score is the slope of the mixture's log density.
    ladder, _ = ncsn_techniques.walk_of("ncsn")
    rows, x, t, h = jnp.array([[0.0], [1.0]]), 0.4, 0.5, 1e-3
    sigma = float(ladder.sigma(t))
    log_density = lambda x: np.log(norm.pdf(x, 0, sigma) + norm.pdf(x, 1, sigma))  # noqa: E731
    slope = (log_density(x + h) - log_density(x - h)) / (2 * h)
    assert float(ncsn_techniques.DataSlope(ladder, rows)(t, jnp.array([x]))[0]) == pytest.approx(slope, rel=1e-3)
