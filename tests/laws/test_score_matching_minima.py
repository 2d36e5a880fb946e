"""Minima of the forms of score matching, found by one exact Newton step: the quick form of `test_score_matching`.

For s(x) = b - A x with A symmetric every one of these losses is a quadratic of theta = (b, A), so that its gradients at
0 and at the unit vectors say where its minimum is. On data N(m, S) that is A = S^-1, b = S^-1 m for the population,
whatever the directions and whatever the matrix of the diffusion form; for exact score matching it is the same with the
mean and the covariance of the sample.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

from unnorm.energies import AbstractEnergy
from unnorm.objectives import SM, SSM, SSMVR, DiffusionSM, GaussianSlices, RademacherSlices, SphereSlices
from unnorm.objectives.score_matching import score_field, value_and_divergence
from unnorm.scores import AbstractPlainScore
from unnorm.spaces import Real

MEAN = np.array([0.5, -0.3])
COVARIANCE = np.array([[1.0, 0.4], [0.4, 0.8]])
REPEATS, ROWS = 64, 1000


class Quadratic(AbstractEnergy):
    """E(x) = x'A x / 2 - b'x, theta = (b_1, b_2, A_11, A_12, A_22)."""

    theta: jax.Array
    space: Real = eqx.field(static=True, default=Real((2,)))

    def __call__(self, x):
        return jnp.dot(self.theta, jnp.stack([-x[0], -x[1], x[0] ** 2 / 2, x[0] * x[1], x[1] ** 2 / 2]))


class Linear(AbstractPlainScore):
    """The same as a score of its own."""

    theta: jax.Array

    def __call__(self, t, x, condition=None):
        b1, b2, a, c, d = self.theta
        return jnp.stack([b1 - a * x[0] - c * x[1], b2 - c * x[0] - d * x[1]])


def tables() -> np.ndarray:
    root = np.linalg.cholesky(COVARIANCE)
    return (MEAN + np.random.default_rng(0).normal(size=(REPEATS, ROWS, 2)) @ root.T).astype(np.float32)


TABLES = tables()


@eqx.filter_jit
def _gradients(objective, kind, tables, keys):
    """At 0 and at the unit vectors, on each table with its own key."""
    places = jnp.concatenate([jnp.zeros((1, 5)), jnp.eye(5)])

    def one(table, key):
        slope = jax.grad(lambda theta: objective(kind(theta), None, table, key=key)[0])
        return jax.lax.map(slope, places)

    return jax.lax.map(lambda pair: one(*pair), (tables, keys))


def minima(objective: Callable, kind: type = Quadratic) -> np.ndarray:
    """Mean A^-1 b and covariance A^-1 of the minimum on each table."""
    keys = jax.random.split(jax.random.key(1), REPEATS)
    found = np.asarray(_gradients(objective, kind, jnp.asarray(TABLES), keys), np.float64)
    hessians = found[:, 1:] - found[:, :1]
    theta = -np.linalg.solve(hessians, found[:, 0, :, None])[..., 0]
    covariances = np.linalg.inv(theta[:, [[2, 3], [3, 4]]])
    means = np.einsum("nij,nj->ni", covariances, theta[:, :2])
    return np.concatenate([means, covariances[:, [0, 0, 1], [0, 1, 1]]], axis=1)


def truth(factor: float = 1.0) -> np.ndarray:
    return np.concatenate([MEAN, factor * COVARIANCE[[0, 0, 1], [0, 1, 1]]])


#: The mean square error of an estimate is a few over ROWS, and so is its bias.
BIAS = 4 / ROWS


def slanted(x):
    """A positive-definite b that is no multiple of the identity and changes with x."""
    return jnp.array([[1.0, 0.2], [0.2, 1.0]]) + 0.5 * jnp.diag(jax.nn.sigmoid(x))


OBJECTIVES = {
    "SM": (SM(), Quadratic),
    "SSM": (SSM(), Quadratic),
    "SSM, a score": (SSM(GaussianSlices(), draws=2), Linear),
    "SSM, unit sphere": (SSM(SphereSlices(radius=1.0)), Quadratic),
    "SSM-VR": (SSMVR(), Quadratic),
    "SSM-VR, a score": (SSMVR(SphereSlices(), draws=2), Linear),
    "diffusion, diagonal": (DiffusionSM(lambda x: 1 + 0.5 * jnp.tanh(x)), Quadratic),
    "diffusion, matrix": (DiffusionSM(slanted), Linear),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_minimum_is_the_gaussian(name):
    found = minima(*OBJECTIVES[name])
    assert holds(found, truth(), bias=BIAS)
    # A tenth of the variance would be seen, and so would the factors of the wrong forms below.
    assert breaks(found, truth(1.1), bias=BIAS)


@pytest.mark.parametrize("kind", [Quadratic, Linear])
def test_that_of_exact_score_matching_has_the_moments_of_the_sample(kind):
    rows = TABLES.astype(np.float64)
    means = rows.mean(axis=1)
    centred = rows - means[:, None]
    covariances = np.einsum("rni,rnj->rij", centred, centred) / ROWS
    expected = np.concatenate([means, covariances[:, [0, 0, 1], [0, 1, 1]]], axis=1)
    np.testing.assert_allclose(minima(SM(), kind), expected, rtol=1e-4, atol=1e-4)


# --------------------------------------------------------------------------------------------- negative controls


def parts(model, batch):
    return jax.vmap(lambda x: value_and_divergence(score_field(model), x))(batch)


def without_the_half(model, state, batch, *, key):
    scores, traces = parts(model, batch)
    return jnp.mean(traces) + jnp.mean(jnp.sum(scores**2, 1)), (None, {})


def trace_over_dimension(model, state, batch, *, key):
    scores, traces = parts(model, batch)
    return jnp.mean(traces) / 2 + 0.5 * jnp.mean(jnp.sum(scores**2, 1)), (None, {})


def one_slice_without_the_half(model, state, batch, *, key):
    """Sliced score matching with (v's)^2 in place of half of it."""
    loss, (_, info) = SSM(RademacherSlices())(model, state, batch, key=key)
    return 2 * loss - info["trace"], (None, {})


def exact_square_of_unit_slices(model, state, batch, *, key):
    """The variance reduction with slices it must not be used with: E[v v'] = I / 2."""
    _, (_, info) = SSM(SphereSlices(radius=1.0))(model, state, batch, key=key)
    return info["trace"] + 0.5 * jnp.mean(jnp.sum(parts(model, batch)[0] ** 2, 1)), (None, {})


WRONG = {
    "without the half": (without_the_half, 2.0),
    "trace over the dimension": (trace_over_dimension, 2.0),
    "a slice without the half": (one_slice_without_the_half, 2.0),
    "square of unit slices": (exact_square_of_unit_slices, 2.0),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_forms_have_another_minimum(name):
    """Each has the minimum that its mistake gives it."""
    wrong, factor = WRONG[name]
    found = minima(wrong)
    assert breaks(found, truth(), bias=BIAS)
    assert holds(found, truth(factor), bias=factor * BIAS)


def test_diffusion_that_takes_its_matrix_out_of_the_divergence_has_another_minimum():
    def forgetful(model, state, batch, *, key):
        def one(x):
            s, divergence = value_and_divergence(lambda y: score_field(model)(y), x)
            weight = (1 + 0.5 * jnp.tanh(x[0])) ** 2
            return 0.5 * weight * jnp.sum(s**2) + weight * divergence

        return jnp.mean(jax.vmap(one)(batch)), (None, {})

    assert breaks(minima(forgetful), truth(), bias=BIAS)
