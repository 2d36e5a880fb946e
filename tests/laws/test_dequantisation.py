"""Laws of dequantisation: on values whose probabilities are known, uniform <= learnt <= the truth."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from scipy.stats import norm

import unnorm as un
from unnorm import energies, noises, objectives, scores
from unnorm import evaluation as ev

KEY = jax.random.key(0)
#: Values two apart, of a density three tenths of that wide: much of it varies within a step.
STEP, MEAN, WIDTH = 1.0, 0.2, 0.5
VP = noises.VariancePreserving()


def score_of(noise):
    """The exact score of N(MEAN, WIDTH^2) in every coordinate, whose bound is sharp."""

    def slope(t, x):
        return -(x - noise.alpha(t) * MEAN) / ((noise.alpha(t) * WIDTH) ** 2 + noise.variance(t))

    return scores.LevelledFunction(slope, noise)


def probability(values):
    """log P(v) of rows: the mass of the Gaussian in each step."""
    edges = [norm.cdf((np.asarray(values, np.float64) + side * STEP / 2 - MEAN) / WIDTH) for side in (-1, 1)]
    return np.log(edges[1] - edges[0]).sum(axis=1)


def rows(n, size=2):
    return np.round(MEAN + WIDTH * np.random.default_rng(0).normal(size=(n, size))).astype(np.float32)


@pytest.fixture(scope="module")
def learnt():
    model = energies.dequantiser(2, STEP, width=16, depth=1, key=KEY)
    objective = objectives.VariationalDequantisation(score_of(VP))
    return un.fit(model, objective, rows(2000), steps=600, batch=128, rate=1e-2, key=KEY, progress=False).model


def gaps(dequantiser, n=1500):
    """log P(v) less its bound, the density by its formula."""
    values = rows(n)
    points, logs = ev.dequantised(dequantiser, values, key=jax.random.key(1))
    density = norm.logpdf(points.astype(np.float64), MEAN, WIDTH).sum(axis=1)
    return probability(values) - (density - logs)


class Forgetful(energies.AbstractDequantiser):
    """The wrong variant: the log of the sigmoid's slope is left out."""

    right: energies.FlowDequantiser
    step: float = eqx.field(static=True, default=STEP)

    def __call__(self, value, *, key):
        y, log_q = self.right(value, key=key)
        u = (y - value) / self.step + 0.5
        return y, log_q + jnp.sum(jnp.log(u * (1 - u)))


def test_learnt_dequantisation_lies_between_uniform_and_the_truth(learnt):
    uniform, better = gaps(energies.UniformDequantiser(STEP)), gaps(learnt)
    assert breaks(uniform, 0.0) and uniform.mean() > 0
    # The gap is a divergence, and what is left of it is small.
    assert better.mean() + 4.5 * better.std() / len(better) ** 0.5 >= 0
    assert better.mean() < 0.15 * uniform.mean()
    # Control: without its log determinant it exceeds what no bound can.
    wrong = gaps(Forgetful(learnt))
    assert wrong.mean() < -0.1 and breaks(wrong, better.mean())


def test_its_density_is_one_of_what_it_draws():
    """With couplings and weights at random: E_q[f(u) / q(u)] is the integral of f over the cube."""
    model = energies.dequantiser(2, 0.5, couplings=2, width=8, depth=1, key=KEY)
    leaves, tree = jax.tree.flatten(eqx.filter(model, eqx.is_inexact_array))
    keys = jax.random.split(jax.random.key(2), len(leaves))
    moved = [leaf + 0.3 * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    model = eqx.combine(jax.tree.unflatten(tree, moved), model)
    value = np.tile(np.array([[0.5, -1.0]], np.float32), (20_000, 1))
    points, logs = ev.dequantised(model, value, key=jax.random.key(3))
    u = (points.astype(np.float64) - value) / 0.5 + 0.5
    worth = np.exp(-(logs + 2 * np.log(0.5)))
    # A function that vanishes where q does, so that its mean exists.
    smooth = (30 * (u * (1 - u)) ** 2).prod(axis=1) * (u[:, 0] + 2 * u[:, 1])
    assert holds(worth * smooth, 1.5)
    # Control: taken for uniform.
    assert breaks(smooth, 1.5)


def test_bound_and_flow_of_rounded_values_are_below_the_truth(learnt):
    values = rows(64)
    expected = (probability(values) - np.tile(gaps(learnt, 20_000).mean(), len(values))).mean()
    flow = ev.discrete_log_likelihood(score_of(VP), values, learnt, probes=1, tolerance=1e-3, key=KEY)
    bound = ev.discrete_bound(score_of(VP), values, learnt, levels=50, key=KEY)
    for found in (flow, bound):
        assert abs(found.value - expected) < 4.5 * found.stderr + 5e-3
        # Control: the volume of a step of half the size.
        assert abs(found.value + 2 * np.log(2) - expected) > 4.5 * found.stderr + 5e-3


def test_what_cannot_be_is_refused():
    for build, words in (
        (lambda: energies.UniformDequantiser(0.0), "is positive, not 0.0"),
        (lambda: energies.dequantiser(1, 1.0, couplings=1, key=KEY), "at least two coordinates"),
        (lambda: objectives.VariationalDequantisation(scores.FunctionScore(lambda t, x: -x)), "has none"),
        (lambda: noises.Begun(VP, 1.0), "not at 1.0"),
    ):
        with pytest.raises(un.InputError, match=words):
            build()
    with pytest.raises(un.InputError, match=r"teaches an energies.FlowDequantiser"):
        objectives.VariationalDequantisation(score_of(VP)).init(score_of(VP), rows(4), key=KEY)
