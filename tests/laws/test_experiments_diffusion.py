"""The figures of the experiments on diffusions that are known: exact scores and mixtures in place of trained ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_scores import gaussian_score
from known_figures import figure_of

from unnorm.energies import UniformDequantiser
from unnorm.experiments import diffusion_modes, digits_likelihood
from unnorm.networks import Wells
from unnorm.noises import VarianceExploding
from unnorm.scores import wells_energy


def grid_of(weights):
    """Wells over levels that are the grid of 25 modes at level 0, with these weights of the modes."""
    centres = np.stack(np.meshgrid(*[np.arange(-2.0, 3.0)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    rows = jnp.asarray(centres, float)
    noise = VarianceExploding(diffusion_modes.LOW, diffusion_modes.HIGH)
    model = wells_energy(noise, rows, units=25, radius=(0.01 - diffusion_modes.LOW**2) ** 0.5, key=jax.random.key(0))
    wells: Wells = model.network.wells
    exact = eqx.tree_at(lambda w: (w.centres, w.depths), wells, (rows, jnp.log(jnp.asarray(weights, float))))
    return eqx.tree_at(lambda m: m.network.wells, model, exact)


@figure_of("diffusion-modes")
def test_the_grid_itself_has_no_wrong_mass_and_the_entropy(monkeypatch):
    size = diffusion_modes.Size(1, 1, 1, (1.0,), (0.1,), 4000)
    monkeypatch.setattr(diffusion_modes, "elbo", lambda *_: 0.0)

    def found(weights):
        monkeypatch.setattr(diffusion_modes, "trained", lambda *_: grid_of(weights))
        return diffusion_modes._one("grid", size, "wells", (1.0, 0.1), 1)

    right = found(np.full(25, 1 / 25))
    assert right["wrong mass"] < 1e-3 and right["Ratio"] < 1e-4 and right["MSE"] < 1e-4
    # 10,000 rows of an entropy of 1.452, whose log densities have a deviation of 1.
    assert abs(right["NLL"] - 1.4519) < 0.045
    # Control: ten modes twice as heavy as the others are 10 (2 / 35 - 1 / 25) too heavy together.
    heavy = np.where(np.arange(25) < 10, 2.0, 1.0) / 35
    wrong = found(heavy)
    assert wrong["wrong mass"] == pytest.approx(10 * (2 / 35 - 1 / 25), abs=1e-3)
    # log p is off by log(35 / 50) or log(35 / 25).
    offs = np.log([50 / 35, 25 / 35])
    assert wrong["MSE"] == pytest.approx(0.4 * offs[0] ** 2 + 0.6 * offs[1] ** 2, rel=0.05)


@figure_of("digits-likelihood")
def test_bits_of_rounded_gaussians_are_the_closed_form():
    """Of values v under N(m, w^2): the mean of -log p(v + h (u - 1/2)) has ((v - m)^2 + h^2 / 12) / 2 w^2 in it."""
    mean, width, step, size = 0.1, 0.5, digits_likelihood.STEP, digits_likelihood.SIZE
    values = np.random.default_rng(0).normal(mean, width, size=(48, size))
    values = (np.round(values / step) * step).astype(np.float32)
    square = ((values.astype(np.float64) - mean) ** 2).mean() + step**2 / 12
    truth = (0.5 * np.log(2 * np.pi * width**2) + square / (2 * width**2)) / np.log(2) - np.log2(step)
    noise = digits_likelihood.PROCESSES["VP"]
    score = gaussian_score(noise, np.full(size, mean), width**2 * np.eye(size))
    scale = digits_likelihood.Size(1, 1, 1, 1, 1, 100, 1)
    found = digits_likelihood.judged(score, UniformDequantiser(step), values, scale)
    # One draw of u for each value, with (v - m) h (u - 1/2) / w^2 in its log density; and what N(0, I) is off at t = 1.
    error = step / 12**0.5 / width / np.sqrt(values.size) / np.log(2)
    assert abs(found["NLL"][0] - truth) < 4.5 * error + 2e-3
    assert abs(found["bound"][0] - truth) < 4.5 * error + 4.5 * found["bound"][1]
    # Control: half the step forgotten, a bit.
    assert abs(found["NLL"][0] + 1 - truth) > 0.5


@figure_of("digits-likelihood")
def test_importance_sampling_has_its_printed_spread():
    """Of N(0, I / 4) under VP from 1e-5: 5.62 a coordinate, and some two hundred without it."""
    size = digits_likelihood.SIZE
    score = gaussian_score(digits_likelihood.PROCESSES["VP"], np.zeros(size), 0.25 * np.eye(size))
    rows = 0.5 * np.random.default_rng(0).normal(size=(8000, size)).astype(np.float32)
    found = digits_likelihood.spreads(score, rows)
    assert found["LW+IS"] == pytest.approx(5.62, rel=0.05) and found["LW"] > 40


def pieces(nll, bound):
    """Every training from two seeds, with figures by (process, training, way)."""
    ways = digits_likelihood.DEQUANTISED

    def one(p, t):
        cells = {w: {"NLL": [nll(p, t, w), 0.1], "bound": [bound(p, t, w), 0.1]} for w in ways}
        return cells | {"spreads": {"LW": 8.0, "LW+IS": 2.0}}

    trainings = [(p, t) for p in digits_likelihood.PROCESSES for t in digits_likelihood.TRAININGS]
    return {(p, t, seed): one(p, t) for p, t in trainings for seed in range(2)}


def test_the_five_sentences_hold_where_they_should():
    better = {"base": 0.0, "LW": 0.1, "LW+IS": 0.2}

    def nll(p, t, w):
        return 3.0 - better[t] - 0.05 * (w == "variational")

    held = [claim.holds for claim in digits_likelihood.claims_of(pieces(nll, lambda *at: nll(*at) + 0.1), range(2))]
    assert held == [True] * 6
    worse = [claim.holds for claim in digits_likelihood.claims_of(pieces(lambda *at: 6 - nll(*at), nll), range(2))]
    assert worse == [False, False, False, False, False, True]
