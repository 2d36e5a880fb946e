"""Energies against closed forms: the algebra, Gaussians, mixtures and their fits."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal

from unnorm.energies import (
    FunctionEnergy,
    GaussianDensity,
    Sum,
    best_mixture,
    fit_gaussian,
    fit_mixture,
    gaussian,
    gaussian_mixture,
    standard_gaussian,
)
from unnorm.errors import InputError
from unnorm.scores import EnergyScore
from unnorm.spaces import Binary, Categorical, Graph, Mixed, Real

MEAN = np.array([0.5, -1.0, 2.0, 0.3])
ROOT = np.array([[1.0, 0.0, 0.0, 0.0], [0.6, 0.8, 0.0, 0.0], [-0.3, 0.2, 1.2, 0.0], [0.1, -0.5, 0.4, 0.7]])
COVARIANCE = ROOT @ ROOT.T
WEIGHTS = np.array([0.2, 0.5, 0.3])
MEANS = np.array([[-2.0, 0.0], [1.0, 2.0], [2.0, -2.0]])
COVARIANCES = np.array([[[0.5, 0.2], [0.2, 0.4]], [[0.3, 0.0], [0.0, 0.9]], [[0.6, -0.3], [-0.3, 0.5]]])


def points(n: int, d: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(n, d)) * 1.5, jnp.float32)


def energies(energy, xs) -> np.ndarray:
    return np.asarray(jax.vmap(energy)(xs), np.float64)


def differences(energy, xs) -> np.ndarray:
    """Energies up to the constant that an unnormalised model does not have."""
    values = energies(energy, xs)
    return values - values[0]


def within(draws, truth) -> bool:
    """Whether the mean of independent draws is the truth, to 4.5 standard errors."""
    draws = np.asarray(draws, np.float64)
    stderr = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    return bool(np.all(np.abs(draws.mean(0) - truth) <= 4.5 * stderr))


# ------------------------------------------------------------------------------------------------- the algebra


def test_a_sum_is_a_product_of_experts():
    """N(m1, S1) N(m2, S2) has precision S1^-1 + S2^-1 and the precision-weighted mean."""
    other_mean, other = np.array([1.0, 0.0, -1.0, 0.5]), np.diag([0.5, 1.0, 2.0, 1.5])
    precision = np.linalg.inv(COVARIANCE) + np.linalg.inv(other)
    mean = np.linalg.solve(precision, np.linalg.solve(COVARIANCE, MEAN) + np.linalg.solve(other, other_mean))
    xs = points(50, 4)
    product = gaussian(MEAN, COVARIANCE) + gaussian(other_mean, other)
    truth = gaussian(mean, np.linalg.inv(precision))
    np.testing.assert_allclose(differences(product, xs), differences(truth, xs), rtol=1e-4, atol=1e-3)
    # Negative control: covariances, not precisions, added (the law of a sum of variables).
    summed = gaussian(MEAN + other_mean, COVARIANCE + other)
    assert np.abs(differences(product, xs) - differences(summed, xs)).max() > 1
    # Sums nest, and the order of the terms does not matter.
    third = standard_gaussian(4)
    left, right = (product + third)(xs[0]), (third + (gaussian(other_mean, other) + gaussian(MEAN, COVARIANCE)))(xs[0])
    np.testing.assert_allclose(left, right, rtol=1e-5)


@pytest.mark.parametrize("factor", [2, 0.5, np.float32(3.0), jnp.asarray(1.5)])
def test_a_multiple_is_a_power_of_the_density(factor):
    """p^b of a Gaussian is the Gaussian with covariance / b."""
    xs = points(50, 4)
    tempered = factor * gaussian(MEAN, COVARIANCE)
    truth = gaussian(MEAN, COVARIANCE / float(factor))
    np.testing.assert_allclose(differences(tempered, xs), differences(truth, xs), rtol=1e-4, atol=1e-3)
    wrong = gaussian(MEAN, COVARIANCE * float(factor))
    assert np.abs(differences(tempered, xs) - differences(wrong, xs)).max() > 1


def test_adding_energies_on_different_spaces_is_refused():
    with pytest.raises(InputError, match="one space"):
        standard_gaussian(2) + standard_gaussian(3)
    with pytest.raises(InputError, match="at least one"):
        Sum(())


@pytest.mark.parametrize("values", [{1: 0.7, 3: -0.4}, {3: -0.4, 1: 0.7}, {np.int64(1): 0.7, np.int64(3): -0.4}])
def test_fixing_is_the_conditional_density(values):
    """Of a Gaussian: mean m_a + S_ab S_bb^-1 (v - m_b), covariance S_aa - S_ab S_bb^-1 S_ba."""
    a, b, v = [0, 2], [1, 3], np.array([0.7, -0.4])
    gain = COVARIANCE[np.ix_(a, b)] @ np.linalg.inv(COVARIANCE[np.ix_(b, b)])
    truth = gaussian(MEAN[a] + gain @ (v - MEAN[b]), COVARIANCE[np.ix_(a, a)] - gain @ COVARIANCE[np.ix_(b, a)])
    xs = points(50, 2)
    conditional = gaussian(MEAN, COVARIANCE).fixing(values)
    assert conditional.space == Real((2,))
    np.testing.assert_allclose(differences(conditional, xs), differences(truth, xs), rtol=1e-4, atol=1e-3)
    # Negative controls: the marginal density, and the two values exchanged.
    marginal = gaussian(MEAN[a], COVARIANCE[np.ix_(a, a)])
    exchanged = gaussian(MEAN, COVARIANCE).fixing({1: -0.4, 3: 0.7})
    for wrong in (marginal, exchanged):
        assert np.abs(differences(conditional, xs) - differences(wrong, xs)).max() > 0.5


def test_fixing_numbers_the_coordinates_of_a_flattened_point():
    square = FunctionEnergy(lambda x: jnp.sum(x * jnp.array([[1.0, 10.0], [100.0, 1000.0]])), Real((2, 2)))
    assert float(square.fixing({2: 5.0})(jnp.array([1.0, 2.0, 3.0]))) == 1 + 20 + 500 + 3000
    assert float(square.fixing({})(jnp.ones(4))) == 1111


@pytest.mark.parametrize(
    ("energy", "values"),
    [
        (standard_gaussian(2), {2: 0.0}),
        (standard_gaussian(2), {-1: 0.0}),
        (standard_gaussian(2), {0: 0.0, 1: 0.0}),
        (FunctionEnergy(jnp.sum, Graph(3)), {0: 0.0}),
        (FunctionEnergy(jnp.sum, Mixed((Real((2,)),))), {0: 0.0}),
        (FunctionEnergy(jnp.sum, Binary((3,))), {0: 0.5}),
        (FunctionEnergy(jnp.sum, Categorical((3,), 4)), {0: 4}),
    ],
)
def test_fixing_refuses_what_it_cannot_fix(energy, values):
    with pytest.raises(InputError):
        energy.fixing(values)


#: E(x) = -x'Ax - b'x with A not symmetric, so that coordinates cannot be mistaken for each other.
PAIRS = np.random.default_rng(3).normal(size=(4, 4))
FIELDS = np.random.default_rng(4).normal(size=4)


def quadratic(x):
    return -(x @ jnp.asarray(PAIRS, float) @ x) - jnp.asarray(FIELDS, float) @ x


@pytest.mark.parametrize("space", [Binary((4,)), Categorical((4,), 3)])
def test_fixing_is_the_conditional_law_of_a_discrete_energy(space):
    """All points are enumerated: P(free | fixed) = P(free and fixed) / sum over free of the same."""
    k = 2 if isinstance(space, Binary) else space.categories
    conditional = FunctionEnergy(quadratic, space).fixing({2: 1, 0: k - 1})
    assert conditional.space == space.of_shape((2,))
    every = np.array(list(itertools.product(range(k), repeat=4)))
    weight = np.exp(np.einsum("ni,ij,nj->n", every, PAIRS, every) + every @ FIELDS)

    def law(fixed):
        kept = weight[(every[:, list(fixed)] == list(fixed.values())).all(1)]
        return kept / kept.sum()

    free = np.array(list(itertools.product(range(k), repeat=2)))
    xs = conditional.space.cast(free, "enumerated")
    assert conditional.space.accepts(xs[0]) and space.accepts(conditional.whole(xs[0]))
    found = np.asarray(jax.nn.softmax(-jax.vmap(conditional)(xs)))
    np.testing.assert_allclose(found, law({0: k - 1, 2: 1}), rtol=1e-4, atol=1e-6)
    # Negative control: other values held, as when the order of the mapping is lost.
    assert np.abs(found - law({0: 1, 2: k - 1} if k > 2 else {0: 0, 2: 1})).max() > 0.05
    # Inside a compiled program the value may be unknown.
    traced = jax.jit(lambda v: FunctionEnergy(quadratic, space).fixing({0: v, 2: 1})(xs[0]))
    assert float(traced(k - 1)) == pytest.approx(float(conditional(xs[0])), rel=1e-5)


def test_what_cannot_be_fixed_is_said_in_one_sentence():
    with pytest.raises(InputError) as refused:
        FunctionEnergy(jnp.sum, Binary((3,))).fixing({1: 2})
    said = "coordinate 1 of a point of Binary(shape=(3,)) cannot be 2; fix it at a value that such points have"
    assert str(refused.value) == said


def test_an_energy_returns_one_number():
    with pytest.raises(InputError, match=r"one number per point.*\(2,\)"):
        FunctionEnergy(lambda x: x**2, Real((2,)))(jnp.ones(2))
    with pytest.raises(InputError, match="one number"):
        jax.vmap(FunctionEnergy(lambda x: jnp.sum(x, keepdims=True), Real((2,))))(jnp.ones((5, 2)))
    assert float(FunctionEnergy(lambda x: jnp.sum(x**2), Real((2,)))(jnp.ones(2))) == 2.0


# ------------------------------------------------------------------------------------------------- Gaussians


def test_the_gaussian_density():
    xs = points(50, 4)
    truth = multivariate_normal(MEAN, COVARIANCE).logpdf(np.asarray(xs, np.float64))
    np.testing.assert_allclose(-energies(gaussian(MEAN, COVARIANCE), xs), truth, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(gaussian(MEAN, COVARIANCE).covariance, COVARIANCE, atol=1e-5)
    assert abs(gaussian(MEAN, COVARIANCE).entropy() - multivariate_normal(MEAN, COVARIANCE).entropy()) < 1e-4
    wide = multivariate_normal(np.zeros(3), 4 * np.eye(3)).logpdf(np.ones(3))
    assert abs(float(standard_gaussian(3, 2.0).log_prob(jnp.ones(3))) - wide) < 1e-5


def test_gaussian_draws_have_its_moments():
    draws = np.asarray(gaussian(MEAN, COVARIANCE).samples(20_000, key=jax.random.key(0)), np.float64)
    assert within(draws, MEAN)
    products = (draws - MEAN)[:, :, None] * (draws - MEAN)[:, None, :]
    assert within(products, COVARIANCE)
    # Negative control: the precision factor used where its inverse belongs.
    assert not within(products, np.linalg.inv(COVARIANCE))


@pytest.mark.parametrize(
    "make",
    [
        lambda: gaussian([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]),
        lambda: gaussian([0.0, 0.0], np.eye(3)),
        lambda: gaussian([0.0, 0.0], np.zeros((2, 2))),
        lambda: standard_gaussian(2, 0.0),
        lambda: fit_gaussian(np.zeros((1, 2))),
        lambda: gaussian_mixture([0.5, 0.5], [[0.0], [1.0]], 0.0),
        lambda: gaussian_mixture([1.0, 0.0], [[0.0], [1.0]], 1.0),
        lambda: gaussian_mixture([1.0], [[0.0], [1.0]], 1.0),
        lambda: gaussian_mixture([0.5, 0.5], [[0.0], [1.0]], np.ones((2, 2, 2))),
    ],
)
def test_impossible_densities_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_packed_factors_make_every_gaussian_proper():
    """Any numbers in the packed factor give a positive definite covariance: what a gradient step may do is allowed."""
    raw = jax.random.normal(jax.random.key(11), (50, 3, 3)) * 2
    smallest = jax.vmap(lambda f: jnp.linalg.eigvalsh(GaussianDensity(jnp.zeros(3), f).covariance)[0])(raw)
    assert np.all(np.asarray(smallest) > 0)
    # Negative control: the same numbers used unpacked would not all be factors of a proper precision.
    assert np.any(np.asarray(jax.vmap(lambda f: jnp.linalg.eigvalsh(f + f.T)[0])(raw)) < 0)


def test_fit_gaussian_is_the_maximum_likelihood():
    data = np.random.default_rng(1).normal(size=(200, 3)) @ np.diag([1.0, 2.0, 0.1]) + [5.0, 0.0, -1.0]
    fitted = fit_gaussian(data)
    np.testing.assert_allclose(fitted.mean, data.mean(0), atol=1e-5)
    np.testing.assert_allclose(fitted.covariance, np.cov(data.T, bias=True), rtol=1e-3, atol=1e-4)


# ------------------------------------------------------------------------------------------------- mixtures


def mixture():
    return gaussian_mixture(WEIGHTS, MEANS, COVARIANCES)


def component_log_densities(xs) -> np.ndarray:
    """log w_k + log N_k(x) by scipy, n x k."""
    parts = [multivariate_normal(m, c).logpdf(xs) for m, c in zip(MEANS, COVARIANCES, strict=True)]
    return np.log(WEIGHTS) + np.stack(parts, axis=1)


def test_the_mixture_density_and_its_score():
    """score = sum_k r_k(x) S_k^-1 (m_k - x), with responsibilities r = softmax of the component log densities."""
    xs = 2 * points(100, 2)
    x = np.asarray(xs, np.float64)
    logs = component_log_densities(x)
    np.testing.assert_allclose(-energies(mixture(), xs), logsumexp(logs, axis=1), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(jax.vmap(mixture().assign)(xs), logs.argmax(1))
    pulls = np.stack([(m - x) @ np.linalg.inv(c) for m, c in zip(MEANS, COVARIANCES, strict=True)], axis=1)
    score = (softmax(logs, axis=1)[:, :, None] * pulls).sum(1)
    found = jax.vmap(lambda p: EnergyScore(mixture())(0.0, p))(xs)
    np.testing.assert_allclose(found, score, rtol=1e-3, atol=2e-3)
    # Negative control: weights in place of responsibilities.
    assert np.abs(np.asarray(found) - (WEIGHTS[:, None] * pulls).sum(1)).max() > 1


def test_mixture_weights_need_not_be_normalised():
    a, b = gaussian_mixture(WEIGHTS, MEANS, 0.5), gaussian_mixture(7 * WEIGHTS, MEANS, [0.5, 0.5, 0.5])
    np.testing.assert_allclose(energies(a, points(20, 2)), energies(b, points(20, 2)), rtol=1e-5)
    np.testing.assert_allclose(a.weights, WEIGHTS, atol=1e-6)


def test_mixture_draws_have_its_moments():
    draws = np.asarray(mixture().samples(20_000, key=jax.random.key(2)), np.float64)
    mean = WEIGHTS @ MEANS
    second = np.einsum("k,kij->ij", WEIGHTS, COVARIANCES + MEANS[:, :, None] * MEANS[:, None, :])
    assert within(draws, mean)
    assert within(draws[:, :, None] * draws[:, None, :], second)
    assert not within(draws, MEANS.mean(0))


def test_the_stated_error_of_an_entropy_covers():
    """A mixture of one component has the Gaussian's entropy, known in closed form."""
    single = gaussian_mixture([1.0], MEAN[None], COVARIANCE[None])
    truth = gaussian(MEAN, COVARIANCE).entropy()
    keys = jax.random.split(jax.random.key(3), 40)
    found = [single.entropy(500, key=k) for k in keys]
    # Of 40 intervals at 95 % fewer than 33 hold the truth with probability 6e-4.
    assert np.mean([e.covers(truth) for e in found]) >= 33 / 40
    assert within([e.value for e in found], truth)
    # Var log p = d/2 for a Gaussian, so the stated error is sqrt(2 / 500).
    assert within([e.stderr**2 * 500 for e in found], 2.0)
    # Negative control: intervals half as wide do not cover.
    assert np.mean([abs(e.value - truth) < 0.98 * e.stderr for e in found]) < 33 / 40


# ------------------------------------------------------------------------------------------------- EM


def log_likelihood(density, data) -> float:
    return float(jnp.mean(jax.vmap(density.log_prob)(data)))


@pytest.fixture(scope="module")
def separated():
    truth = mixture()
    return truth, truth.samples(3000, key=jax.random.key(4)), truth.samples(3000, key=jax.random.key(5))


def test_em_recovers_a_separated_mixture(separated):
    truth, train, _ = separated
    fitted = fit_mixture(train, 3, key=jax.random.key(6))
    order = np.argsort(np.asarray(fitted.means)[:, 0])
    n = len(train) * WEIGHTS
    # Standard errors of a component's share, mean and variances from its n_k points.
    assert np.all(np.abs(np.asarray(fitted.weights)[order] - WEIGHTS) < 4.5 * np.sqrt(WEIGHTS * (1 - WEIGHTS) / 3000))
    mean_error = np.sqrt(np.diagonal(COVARIANCES, axis1=1, axis2=2) / n[:, None])
    assert np.all(np.abs(np.asarray(fitted.means)[order] - MEANS) < 5 * mean_error)
    fitted_covariances = np.asarray(jax.vmap(lambda c: c.covariance)(fitted.components))[order]
    diagonals = np.diagonal(COVARIANCES, axis1=1, axis2=2)
    spread = np.sqrt((diagonals[:, :, None] * diagonals[:, None, :] + COVARIANCES**2) / n[:, None, None])
    assert np.all(np.abs(fitted_covariances - COVARIANCES) < 5 * spread)
    # On its own data the maximum of the likelihood is at least as likely as the truth, and one Gaussian is not.
    assert log_likelihood(fitted, train) >= log_likelihood(truth, train)
    assert log_likelihood(fit_gaussian(train), train) < log_likelihood(truth, train) - 0.1


def test_em_never_lowers_the_likelihood():
    """Two components where one Gaussian would nearly do: a long climb, and each part of it upwards."""
    data = gaussian_mixture([0.5, 0.5], [[-1.2], [1.2]], 1.0).samples(500, key=jax.random.key(7))
    path = [
        log_likelihood(fit_mixture(data, 2, steps=steps, ridge=1e-6, key=jax.random.key(7)), data)
        for steps in (1, 8, 64)
    ]
    assert np.all(np.diff(path) > -1e-5)
    # Negative control: there was something to climb, and the first steps are not the top.
    assert path[-1] - path[0] > 1e-3


def test_best_mixture_finds_the_number_of_components(separated):
    _, train, valid = separated
    chosen, size = best_mixture(train, valid, sizes=(2, 3), key=jax.random.key(8))
    assert size == 3 and len(chosen.weights) == 3
    two = fit_mixture(train, 2, key=jax.random.fold_in(jax.random.key(8), 2))
    assert log_likelihood(fit_gaussian(train), valid) < log_likelihood(two, valid) < log_likelihood(chosen, valid)
    # With few points many components fit the training set and nothing else; held-out points refuse them.
    few = train[:60]
    assert best_mixture(few, valid, sizes=(3, 12), key=jax.random.key(8))[1] == 3
    overfitted = fit_mixture(few, 12, key=jax.random.fold_in(jax.random.key(8), 12))
    assert log_likelihood(overfitted, few) > log_likelihood(mixture(), few) + 0.3
    # A size that five points per component cannot feed is not tried.
    assert best_mixture(few, valid, sizes=(3, 13), key=jax.random.key(8))[1] == 3
