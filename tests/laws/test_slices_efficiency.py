"""Laws of efficiency: the predicted covariance of score matching is the one that thousands of fits have.

For N(0, I / r) with r unknown the estimators are ratios of means (SM: D / mean |x|^2, SSM: mean |v|^2 / mean (v'x)^2,
SSM-VR: mean |v|^2 / mean |x|^2) and the covariances are known in closed form. A second model, with one precision for
all coordinates and one coupling for all pairs, has a Hessian with entries off the diagonal, which slices feel.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, deviation, holds
from jaxtyping import Array, Float

from unnorm.energies import AbstractEnergy, Shifted
from unnorm.errors import InputError
from unnorm.evaluation.efficiency import score_matching_efficiency, sliced_covariance
from unnorm.objectives import SM, SSM, SSMVR, GaussianSlices, RademacherSlices, SphereSlices
from unnorm.spaces import Real

D, RATE = 10, 2.0


class Coupled(AbstractEnergy):
    """log f(x) = -(r |x|^2 + c ((sum x)^2 - |x|^2)) / 2: precision r on the diagonal, c off it."""

    theta: Float[Array, " p"]
    space: Real = eqx.field(static=True)

    def __call__(self, x):
        square = jnp.sum(x**2)
        coupling = jnp.sum(x) ** 2 - square
        return 0.5 * jnp.dot(self.theta, jnp.stack([square, coupling])[: len(self.theta)])


def scale_model() -> Coupled:
    return Coupled(jnp.array([RATE]), Real((D,)))


def coupled_model(d: int = 4) -> Coupled:
    return Coupled(jnp.array([2.0, 0.5]), Real((d,)))


def draw(model: Coupled, shape: tuple[int, ...], seed: int) -> Array:
    d = model.space.shape[0]
    r, c = [*np.asarray(model.theta, np.float64), 0.0][:2]
    precision = (r - c) * np.eye(d) + c
    root = np.linalg.cholesky(np.linalg.inv(precision))
    return jax.random.normal(jax.random.key(seed), (*shape, d)) @ jnp.asarray(root.T, jnp.float32)


# ------------------------------------------------------------------------------------------------- predicted

TABLE = {
    "sm": 2 * RATE**2 / D,
    "ssm rademacher": 2 * RATE**2,
    "ssm rademacher 5": 2.24,
    "ssm gaussian": 9.6,
    "ssm sphere": 2 * RATE**2,
    "ssm-vr rademacher": 2 * RATE**2 / D,
    "ssm-vr gaussian": 4 * RATE**2 / D,
    "ssm-vr sphere": 2 * RATE**2 / D,
}


def row(efficiency) -> np.ndarray:
    found = (
        efficiency.sm(),
        efficiency.ssm(RademacherSlices()),
        efficiency.ssm(RademacherSlices(), 5),
        efficiency.ssm(GaussianSlices()),
        efficiency.ssm(SphereSlices()),
        efficiency.ssm_vr(RademacherSlices()),
        efficiency.ssm_vr(GaussianSlices()),
        efficiency.ssm_vr(SphereSlices()),
    )
    return np.array([covariance[0, 0] for covariance in found], np.float64)


@pytest.fixture(scope="module")
def predicted() -> np.ndarray:
    """The table from each of 16 sets of 2560 draws."""
    sets = draw(scale_model(), (16, 2560), 0)
    return np.stack([row(score_matching_efficiency(scale_model(), points)) for points in sets])


def test_the_predictions_have_the_closed_form(predicted):
    # A ratio of means over 2560 points is biased by about one part in 2560 * D / 8.
    assert holds(predicted, list(TABLE.values()), bias=0.005)
    # Negative controls: Gaussian slices taken for Rademacher ones, five draws for one, and a missing factor 2.
    for name, wrong in {"ssm rademacher": 9.6, "ssm rademacher 5": 8.0, "ssm gaussian": 0.8 + (9.6 - 0.8) / 2}.items():
        assert breaks(predicted[:, list(TABLE).index(name)], wrong, bias=0.005)


def test_any_law_of_slices_through_its_tensors():
    """The general formula agrees with the one for symmetric laws."""
    model, d = coupled_model(3), 3
    points = draw(model, (300,), 1)
    efficiency = score_matching_efficiency(model, points)
    eye = np.eye(d)
    pairs = [np.einsum(f"{a},{b}->ijkl", eye, eye) for a, b in (("ij", "kl"), ("ik", "jl"), ("il", "jk"))]
    equal = np.einsum("ij,jk,kl->ijkl", eye, eye, eye)
    tensors = {
        GaussianSlices(): sum(pairs),
        RademacherSlices(): sum(pairs) - 2 * equal,
        SphereSlices(): sum(pairs) * d / (d + 2),
    }
    for slices, fourth in tensors.items():
        general = sliced_covariance(model, points, jnp.asarray(eye), jnp.asarray(fourth), draws=2)
        np.testing.assert_allclose(general, efficiency.ssm(slices, 2), rtol=1e-3, atol=1e-4)
    # Negative control: the tensors of one law are not those of another.
    assert not np.allclose(general, efficiency.ssm(GaussianSlices(), 2), rtol=1e-2)


def test_a_constant_is_refused():
    with pytest.raises(InputError, match="additive constant"):
        score_matching_efficiency(Shifted(scale_model()), draw(scale_model(), (128,), 2)).sm()
    with pytest.raises(InputError, match="use ssm"):
        score_matching_efficiency(scale_model(), draw(scale_model(), (128,), 2)).ssm_vr(SphereSlices(radius=1.0))


# ------------------------------------------------------------------------------------------------- measured

FITS, N = 2500, 200
#: The mean square of a ratio of means exceeds the asymptotic one by about 14 / N of it (of N / chi^2_N exactly so).
FINITE = 14 / N


def gaussian_directions(rng, shape):
    return rng.standard_normal(shape, np.float32)


def rademacher_directions(rng, shape):
    return rng.integers(0, 2, shape).astype(np.float32) * 2 - 1


def sphere_directions(rng, shape):
    vs = gaussian_directions(rng, shape)
    return vs * np.sqrt(D) / np.linalg.norm(vs, axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("directions", "draws", "expected"),
    [
        pytest.param(rademacher_directions, 1, ("sm", "ssm rademacher", "ssm-vr rademacher"), id="rademacher"),
        pytest.param(rademacher_directions, 5, ("sm", "ssm rademacher 5", "ssm-vr rademacher"), id="rademacher 5"),
        pytest.param(gaussian_directions, 1, ("sm", "ssm gaussian", "ssm-vr gaussian"), id="gaussian"),
        pytest.param(sphere_directions, 1, ("sm", "ssm sphere", "ssm-vr sphere"), id="sphere"),
    ],
)
def test_thousands_of_closed_form_fits_scatter_as_predicted(directions, draws, expected):
    rng = np.random.default_rng(3)
    xs = gaussian_directions(rng, (FITS, N, 1, D)) / np.float32(np.sqrt(RATE))
    vs = directions(rng, (FITS, N, draws, D))
    length, square = np.mean(np.sum(vs**2, -1), (1, 2)), np.mean(np.sum(xs**2, -1), (1, 2))
    estimates = np.stack([D / square, length / np.mean(np.sum(vs * xs, -1) ** 2, (1, 2)), length / square], 1)
    found = N * (estimates.astype(np.float64) - RATE) ** 2
    truth = np.array([TABLE[name] for name in expected])
    for column, value in zip(found.T, truth, strict=True):
        assert holds(column, value, bias=FINITE * value)
    assert breaks(found[:, 1], 0.75 * truth[1])


@eqx.filter_jit
def newton_fits(objective, model, data, keys):
    """One Newton step, which is exact: the loss is quadratic in theta."""

    def one(inputs):
        points, key = inputs

        def loss(theta):
            return objective(eqx.tree_at(lambda m: m.theta, model, theta), None, points, key=key)[0]

        return model.theta - jnp.linalg.solve(jax.hessian(loss)(model.theta), jax.grad(loss)(model.theta))

    return jax.lax.map(one, (data, keys), batch_size=50)


@pytest.mark.parametrize(
    ("objective", "covariance", "wrong"),
    [
        pytest.param(
            SSM(GaussianSlices(), 2),
            lambda e: e.ssm(GaussianSlices(), 2),
            lambda e: e.ssm(GaussianSlices(), 1),
            id="ssm",
            marks=pytest.mark.thorough,
        ),
        pytest.param(SSMVR(), lambda e: e.ssm_vr(RademacherSlices()), lambda e: e.sm(), id="ssm-vr"),
        pytest.param(SM(), lambda e: e.sm(), lambda e: e.ssm_vr(GaussianSlices()), id="sm", marks=pytest.mark.thorough),
    ],
)
def test_thousands_of_fits_of_the_objective_scatter_as_predicted(objective, covariance, wrong):
    """The covariance of both parameters of the coupled model, from the objectives as they train."""
    model = coupled_model()
    efficiency = score_matching_efficiency(model, draw(model, (20_000,), 4))
    data = draw(model, (FITS, N), 5)
    gaps = np.asarray(newton_fits(objective, model, data, jax.random.split(jax.random.key(6), FITS)) - model.theta)
    products = N * np.stack([gaps[:, 0] ** 2, gaps[:, 0] * gaps[:, 1], gaps[:, 1] ** 2], 1)
    truth, other = (np.asarray(f(efficiency))[[0, 0, 1], [0, 1, 1]] for f in (covariance, wrong))
    # 20,000 draws know the prediction to 2 %; the rest is what N = 200 adds to the asymptotic covariance.
    assert holds(products, truth, bias=(FINITE + 0.02) * np.abs(truth))
    assert breaks(products, other, bias=(FINITE + 0.02) * np.abs(truth))


def test_a_lopsided_law_of_slices_scatters_as_predicted():
    """v ~ N(0, diag(c)): E[v v'] is not a multiple of the identity; the fourth moments are Isserlis's."""
    d, spread = 4, np.array([0.1, 3.0, 0.2, 0.2])
    model = Coupled(jnp.array([RATE]), Real((d,)))
    second = np.diag(spread)
    fourth = sum(np.einsum(f"{a},{b}->ijkl", second, second) for a, b in (("ij", "kl"), ("ik", "jl"), ("il", "jk")))
    prediction = float(
        sliced_covariance(model, draw(model, (20_000,), 7), jnp.asarray(second), jnp.asarray(fourth))[0, 0]
    )
    vs = jax.random.normal(jax.random.key(8), (FITS, N, d)) * np.sqrt(spread)
    xs = draw(model, (FITS, N), 9)
    estimates = jnp.mean(jnp.sum(vs**2, -1), 1) / jnp.mean(jnp.sum(vs * xs, -1) ** 2, 1)
    found = N * (np.asarray(estimates) - RATE) ** 2
    assert holds(found, prediction, bias=(FINITE + 0.02) * prediction)
    # Negative control: the white law of the same family.
    white = float(score_matching_efficiency(model, draw(model, (2000,), 10)).ssm(GaussianSlices())[0, 0])
    assert breaks(found, white, bias=(FINITE + 0.02) * prediction)


# ------------------------------------------------------------------------------------------------- slices


@pytest.mark.parametrize(
    "slices", [GaussianSlices(), RademacherSlices(), SphereSlices(), SphereSlices(radius=0.7)], ids=str
)
def test_slices_have_the_moments_they_state(slices):
    x = jnp.zeros((2, 2))
    vs = jax.vmap(lambda k: slices(x, key=k))(jax.random.split(jax.random.key(11), 40_000)).reshape(-1, 4)
    second, (mixed, pure) = slices.second(4), slices.fourth(4)
    squares = np.stack([vs[:, 0] ** 2, vs[:, 0] * vs[:, 1], vs[:, 1] ** 2 * vs[:, 2] ** 2, vs[:, 3] ** 4], 1)
    rounding = 1e-5
    assert holds(squares, [second, 0.0, mixed, pure], rounding)
    assert breaks(squares, [second, 0.0, mixed, pure * 1.1], rounding)
    assert slices.white == math.isclose(second, 1.0)
    assert deviation(vs, 0.0) < 4.5
