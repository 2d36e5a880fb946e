"""The bank of problems: every truth is a density, the data come from it, and the facts are facts.

A law here is a z-score, the distance of a sample mean from what the density says in units of its standard error,
and must stay below 4.5; each is also shown a wrong density or wrong data and must reject it.
"""

import math
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm.data import PROBLEMS, Problem, load
from unnorm.data.shapes import Funnel, Rings, SwissRoll, length
from unnorm.energies.base import AbstractNormalised
from unnorm.energies.mixture import gaussian_mixture
from unnorm.errors import InputError
from unnorm.spaces import Real

LIMIT = 4.5
MASS_TOLERANCE = 1e-10
# For each truth in the plane: half the side of the square that holds it, and panels of at most 2.5 standard deviations.
BOXES = {
    "bimodal": (4.5, 0.75),
    "grid": (3.0, 0.25),
    "fourmodes": (3.0, 0.5),
    "rings": (3.0, 0.25),
    "swissroll": (4.5, 0.5),
    "funnel": (14.0, 2.0),
    "gaussian": (9.0, 1.0),
}


@cache
def problem(name: str) -> Problem:
    return load(name)


def truth_of(name: str) -> AbstractNormalised:
    truth = problem(name).truth
    assert isinstance(truth, AbstractNormalised)
    return truth


def integrate(truth: AbstractNormalised, box: tuple[float, float]) -> tuple[float, float]:
    """The integrals of p and of -p log p over the plane, in double precision.

    Gauss-Legendre panels, another rule than the one behind the facts. The funnel is integrated in (v, x exp(-v/2)),
    where it is as wide at the neck as at the mouth.
    """
    nodes, weights = np.polynomial.legendre.leggauss(12)
    side, panel = box
    starts = np.arange(-side, side, panel)
    axis = (starts[:, None] + panel / 2 * (1 + nodes)).ravel()
    mass = np.tile(panel / 2 * weights, len(starts))
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    areas = np.outer(mass, mass).ravel()
    if isinstance(truth, Funnel):
        stretch = np.exp(points[:, 0] / 2)
        points, areas = points * np.stack([np.ones_like(stretch), stretch], axis=1), areas * stretch
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), truth)
        energies = np.asarray(jax.lax.map(exact, jnp.asarray(points), batch_size=8192))
    density = np.exp(-energies)
    return float(areas @ density), float(areas @ np.where(density > 0, density * energies, 0.0))


def z_score(draws: np.ndarray, expected: np.ndarray | float) -> float:
    """The largest distance of the means of independent draws from what is expected, in standard errors."""
    draws = np.asarray(draws, dtype=np.float64)
    return float(np.max(np.abs(draws.mean(axis=0) - expected) / (draws.std(axis=0, ddof=1) / math.sqrt(len(draws)))))


@eqx.filter_jit
def energies_and_products(energy: AbstractNormalised, x: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """E(x) and x . grad E(x) for every row."""
    values, slopes = jax.vmap(jax.value_and_grad(energy))(x)
    return values, jnp.sum(x * slopes, axis=1)


def entropy_z(energy: AbstractNormalised, x: np.ndarray, entropy: float) -> float:
    """E[E(x)] is the entropy for x from p: ties the height of the energy to the data."""
    return z_score(np.asarray(energies_and_products(energy, x)[0]), entropy)


def stein_z(energy: AbstractNormalised, x: np.ndarray) -> float:
    """E[x . grad E(x)] = d for x from p, by parts: ties the slope of the energy to the data."""
    return z_score(np.asarray(energies_and_products(energy, x)[1]), x.shape[1])


def weights_z(counts: np.ndarray, weights: np.ndarray) -> float:
    n = counts.sum()
    return float(np.max(np.abs(counts / n - weights) / np.sqrt(weights * (1 - weights) / n)))


def mode_counts(name: str, x: np.ndarray) -> np.ndarray:
    modes = jax.jit(jax.vmap(truth_of(name).assign))(x)  # pyright: ignore[reportAttributeAccessIssue]
    return np.bincount(np.asarray(modes), minlength=len(problem(name).facts["mode_weights"]))


@pytest.mark.parametrize("name", BOXES)
def test_the_truth_integrates_to_one_and_has_the_stated_entropy(name: str):
    mass, entropy = integrate(truth_of(name), BOXES[name])
    assert abs(mass - 1) < MASS_TOLERANCE
    assert abs(entropy - problem(name).facts["entropy"]) < 1e-6  # the facts know nothing of float32 parameters


def test_the_integral_rejects_an_energy_that_is_not_normalised():
    class Guess(AbstractNormalised):
        """N(|x|; 1, s^2) / (2 pi): a ring without its Bessel function, off by a few parts in 100,000 only."""

        space = Real((2,))

        def __call__(self, x):
            return 0.5 * ((length(x) - 1) / 0.3) ** 2 + 1.5 * math.log(2 * math.pi) + math.log(0.3)

        def sample(self, *, key):
            raise NotImplementedError

    assert abs(integrate(Guess(), BOXES["rings"])[0] - 1) > 100 * MASS_TOLERANCE
    assert abs(integrate(Rings([1.0], [1.0], 0.3), BOXES["rings"])[0] - 1) < MASS_TOLERANCE


@pytest.mark.parametrize("part", ("train", "valid", "test"))
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_data_come_from_the_truth(name: str, part: str):
    x = getattr(problem(name), part)
    assert entropy_z(truth_of(name), x, problem(name).facts["entropy"]) < LIMIT
    assert stein_z(truth_of(name), x) < LIMIT


@pytest.mark.parametrize("name", PROBLEMS)
def test_data_from_elsewhere_are_rejected(name: str):
    stretched = 1.1 * problem(name).test
    assert entropy_z(truth_of(name), stretched, problem(name).facts["entropy"]) > LIMIT
    assert stein_z(truth_of(name), stretched) > LIMIT


@pytest.mark.parametrize(
    "name, wrong",
    (
        ("bimodal", lambda: gaussian_mixture([0.7, 0.3], [[-1.5, 0.0], [1.5, 0.0]], 0.3)),
        ("rings", lambda: Rings([0.5, 0.5], [1.0, 2.0], 0.11)),
        ("swissroll", lambda: SwissRoll(0.22)),
        ("funnel", lambda: Funnel(2, 1.65)),
    ),
)
def test_a_wrong_density_is_rejected(name: str, wrong):
    energy = wrong()
    assert entropy_z(energy, problem(name).test, integrate(energy, BOXES[name])[1]) > LIMIT


@pytest.mark.parametrize("name", PROBLEMS)
def test_mean_and_covariance_are_as_stated(name: str):
    x, facts = problem(name).test.astype(np.float64), problem(name).facts
    mean = np.array(facts["mean"])
    products = ((x - mean)[:, :, None] * (x - mean)[:, None, :]).reshape(len(x), -1)
    assert z_score(x, mean) < LIMIT
    assert z_score(products, np.ravel(facts["covariance"])) < LIMIT
    assert z_score(x + 0.2, mean) > LIMIT
    assert z_score(1.2 * products, np.ravel(facts["covariance"])) > LIMIT


@pytest.mark.parametrize("name", ("bimodal", "grid", "gmm20", "fourmodes", "rings"))
def test_modes_have_their_weights(name: str):
    weights = np.array(problem(name).facts["mode_weights"])
    counts = mode_counts(name, problem(name).test)
    assert weights.sum() == pytest.approx(1)
    assert weights_z(counts, weights) < LIMIT
    tilted = weights * np.linspace(0.7, 1.3, len(weights))
    assert weights_z(counts, tilted / tilted.sum()) > LIMIT


def test_the_modes_of_gmm20_are_too_far_apart_to_change_its_entropy():
    centres = np.array(problem("gmm20").facts["mode_centres"])
    gaps = np.linalg.norm(centres[:, None] - centres, axis=-1)[np.triu_indices(40, 1)]
    # The overlap of two modes a distance g apart is at most exp(-g^2 / (8 s^2)).
    assert gaps.min() / 0.1 > 30
    assert sum(math.exp(-((g / 0.1) ** 2) / 8) for g in gaps) < 1e-30


def test_the_gradient_of_the_rings_is_that_of_a_fine_mixture_even_at_the_origin():
    angles = 2 * math.pi * np.arange(400) / 400
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    fine = gaussian_mixture(np.full(400, 1 / 400), circle, 0.3)
    points = jnp.array([[0.0, 0.0], [0.02, -0.01], [0.6, 0.8], [-1.7, 0.3]])
    ours, theirs = (jax.jit(jax.vmap(jax.grad(e)))(points) for e in (Rings([1.0], [1.0], 0.3), fine))
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_the_funnel_comes_in_ten_dimensions():
    ten = load("funnel", dimension=10, scale=3.0, n_train=5, n_valid=5)
    assert isinstance(ten.truth, Funnel)
    assert ten.test.shape == (10_000, 10)
    assert entropy_z(ten.truth, ten.test, ten.facts["entropy"]) < LIMIT
    assert stein_z(ten.truth, ten.test) < LIMIT


def test_the_gaussian_comes_in_any_dimension():
    six = load("gaussian", dimension=6, correlation=-0.5, n_train=5, n_valid=5)
    assert six.truth.entropy() == pytest.approx(six.facts["entropy"], abs=1e-5)
    assert entropy_z(six.truth, six.test, six.facts["entropy"]) < LIMIT


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_seed_decides_the_rows_and_nothing_else_does(name: str):
    again, other = load(name), load(name, seed=1)
    for part in ("train", "valid", "test"):
        rows = getattr(problem(name), part)
        assert rows.shape == (10_000, again.space.size) and rows.dtype == np.float32
        np.testing.assert_array_equal(rows, getattr(again, part))
        assert not np.isin(rows[:, 0], getattr(other, part)[:, 0]).all()
    assert not np.isin(again.test[:, 0], again.train[:, 0]).all()
    assert again.facts == other.facts


def test_a_seed_means_the_same_rows_in_double_precision():
    with jax.enable_x64(True):
        double = load("rings")
    assert double.truth.radii.dtype == jnp.float64
    np.testing.assert_array_equal(double.test, problem("rings").test)


def test_the_size_of_one_part_does_not_change_another():
    usual, small = problem("gaussian"), load("gaussian", n_train=5, n_valid=7)
    assert (small.train.shape, small.valid.shape) == ((5, 2), (7, 2))
    np.testing.assert_array_equal(small.test, usual.test)


@pytest.mark.parametrize(
    "arguments, words",
    (
        ({"name": "bimodel"}, ("'bimodel'", "did you mean 'bimodal'?", *PROBLEMS)),
        ({"name": "zzzz"}, ("'zzzz'", *PROBLEMS)),
        ({"name": "grid", "dimension": 3}, ("'grid'", "'dimension'", "n_train, n_valid, n_test")),
        ({"name": "grid", "draws": 3}, ("'draws'",)),
        ({"name": "grid", "n_valid": 0}, ("n_valid is 0",)),
        ({"name": "grid", "seed": -1}, ("-1",)),
        ({"name": "funnel", "dimension": 11}, ("2 to 10", "11")),
        ({"name": "bimodal", "weight": 1.0}, ("between 0 and 1",)),
        ({"name": "gaussian", "correlation": 1.0}, ("between -1 and 1",)),
    ),
)
def test_a_request_that_cannot_be_met_gets_one_sentence(arguments: dict, words: tuple[str, ...]):
    with pytest.raises(InputError) as caught:
        load(**arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message
