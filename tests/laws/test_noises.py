"""Laws of the noises: what is drawn has the density that is stated, and a process is what its moments say."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from clouds import centres, kde_by_hand, keys, points, proposals
from harness import breaks, holds
from scipy.special import logsumexp
from scipy.stats import kstest

from unnorm.energies import gaussian_mixture
from unnorm.errors import InputError
from unnorm.noises import (
    AbstractNoise,
    BlendedJumps,
    BlendedKernel,
    Choice,
    DataJump,
    Gaussian,
    GlobalJumps,
    Independent,
    Jumps,
    KDEJump,
    OrnsteinUhlenbeck,
    VarianceExploding,
    VariancePreserving,
)
from unnorm.objectives import CNCE

#: A uniform sample fails a Kolmogorov-Smirnov test at this level once in 100,000 runs.
LEVEL = 1e-5
LEVELS = np.array([0.0, 0.05, 0.3, 0.7, 1.0])


def local_and_global(d: int, kind: type, shares=(0.6, 0.4)):
    return kind((Gaussian(0.3), KDEJump(centres(50, d), 0.25, block=16)), shares)


# Each noise, the level at which it is looked at, and a wrong reading of its density.
DENSITIES = {
    "gaussian": (Gaussian(0.7), 0.0, lambda y, x: Gaussian(0.77).log_prob(0.0, y, x)),
    "exploding": (VarianceExploding(0.1, 3.0), 0.6, lambda y, x: VarianceExploding(0.1, 3.0).log_prob(0.63, y, x)),
    # The signal not shrunk, and the variance that a rate twice too large would give.
    "preserving": (VariancePreserving(), 0.3, lambda y, x: Gaussian(0.776).log_prob(0.0, y, x)),
    "ornstein": (OrnsteinUhlenbeck(2.0), 0.2, lambda y, x: OrnsteinUhlenbeck(4.0).log_prob(0.2, y, x)),
    # A variance twice too large.
    "kde": (KDEJump(centres(50, 1), 0.25, block=16), 0.0, lambda y, x: KDEJump(centres(50, 1), 0.354).log_density(y)),
    "independent": (
        Independent(gaussian_mixture([0.3, 0.7], [[-1.0], [1.0]], 0.5)),
        0.0,
        lambda y, x: gaussian_mixture([0.35, 0.65], [[-1.0], [1.0]], 0.5).log_prob(y),
    ),
    "blend": (
        local_and_global(1, BlendedKernel),
        0.0,
        lambda y, x: local_and_global(1, BlendedKernel, (0.4, 0.6)).log_prob(0.0, y, x),
    ),
    "choice": (local_and_global(1, Choice), 0.0, lambda y, x: Gaussian(0.3).log_prob(0.0, y, x)),
}


def cumulative(log_density, points: np.ndarray) -> np.ndarray:
    """The distribution function by the trapezoidal rule."""
    density = np.exp(np.asarray(jax.jit(jax.vmap(log_density))(jnp.asarray(points, jnp.float32)[:, None]), np.float64))
    steps = 0.5 * (density[1:] + density[:-1]) * np.diff(points)
    return np.concatenate([[0.0], np.cumsum(steps)])


@pytest.mark.parametrize("name", DENSITIES)
def test_draws_have_the_stated_density(name):
    """In one dimension: the density integrates to 1 and its distribution function makes the draws uniform."""
    noise, t, wrong = DENSITIES[name]
    x = jnp.array([0.4])
    draws = jax.vmap(lambda k: noise.sample(t, x, key=k))(keys(1))[:, 0]
    grid = np.linspace(-14.0, 16.0, 6001)
    right = cumulative(lambda y: noise.log_prob(t, y, x), grid)
    assert abs(right[-1] - 1) < 1e-4
    assert kstest(np.interp(draws, grid, right), "uniform").pvalue > LEVEL
    # Negative control: the wrong reading is a density too, but not that of the draws.
    false = cumulative(lambda y: wrong(y, x), grid)
    assert abs(false[-1] - 1) < 1e-4
    assert kstest(np.interp(draws, grid, false), "uniform").pvalue < LEVEL


IN_SPACE = {
    "gaussian": (Gaussian(0.7), 0.0),
    "exploding": (VarianceExploding(0.1, 3.0), 0.6),
    "preserving": (VariancePreserving(), 0.3),
    "ornstein": (OrnsteinUhlenbeck(2.0), 0.2),
    "kde": (KDEJump(centres(50, 3), 0.6, block=16), 0.0),
    "blend": (BlendedKernel((Gaussian(0.7), KDEJump(centres(50, 3), 0.6)), (0.6, 0.4)), 0.0),
    "choice": (Choice((Gaussian(0.7), KDEJump(centres(50, 3), 0.6)), (0.6, 0.4)), 0.0),
}


@pytest.mark.parametrize("name", IN_SPACE)
def test_importance_weights_average_to_one(name):
    """In three dimensions: E_q[p(y) / q(y | x)] = 1 for a density p that q covers."""
    noise, t = IN_SPACE[name]
    x = jnp.array([0.4, -0.2, 0.1])
    covered = Gaussian(0.4)
    middle = noise.alpha(t) * x if name in ("preserving", "ornstein") else jnp.zeros(3)

    @jax.jit
    @jax.vmap
    def weight(y):
        return jnp.exp(covered.log_prob(t, y, middle) - noise.log_prob(t, y, x))

    draws = jax.vmap(lambda k: noise.sample(t, x, key=k))(keys(2))
    assert holds(weight(draws), 1.0)
    # Negative control: draws stretched away from their stated density.
    assert breaks(weight(middle + 1.1 * (draws - middle)), 1.0)


@pytest.mark.parametrize("name", ["gaussian", "exploding", "preserving", "ornstein"])
def test_moments_are_alpha_and_sigma(name):
    noise, t = IN_SPACE[name]
    x = jnp.array([1.5, -2.0, 0.7])
    draws = jax.vmap(lambda k: noise.sample(t, x, key=k))(keys(3))
    alpha, sigma = float(noise.alpha(t)), float(noise.sigma(t))
    assert holds(draws, alpha * np.asarray(x))
    squares = (np.asarray(draws) - alpha * np.asarray(x)) ** 2
    assert holds(squares, sigma**2)
    # Negative control: a standard deviation taken for a variance (nowhere 1 in these cases).
    assert breaks(squares, sigma)


# ------------------------------------------------------------------------------------------------- processes


def rates(noise):
    """Drift and diffusion at the levels looked at, both ends included."""
    return (
        np.asarray(jax.vmap(noise.drift)(jnp.asarray(LEVELS, jnp.float32)), np.float64),
        np.asarray(jax.vmap(noise.diffusion)(jnp.asarray(LEVELS, jnp.float32)), np.float64),
    )


CLOSED = {
    # f and g as functions of t.
    "preserving": (
        VariancePreserving(0.1, 20.0),
        lambda t: -(0.1 + 19.9 * t) / 2,
        lambda t: np.sqrt(0.1 + 19.9 * t),
    ),
    "ornstein": (OrnsteinUhlenbeck(3.0), lambda t: -3.0 + 0 * t, lambda t: math.sqrt(6.0) + 0 * t),
    "exploding": (
        VarianceExploding(0.1, 5.0),
        lambda t: 0 * t,
        lambda t: 0.1 * 50.0**t * math.sqrt(2 * math.log(50.0)),
    ),
    "gaussian": (Gaussian(0.3), lambda t: 0 * t, lambda t: 0 * t),
}


@pytest.mark.parametrize("name", CLOSED)
def test_drift_and_diffusion_are_the_closed_forms(name):
    noise, f, g = CLOSED[name]
    drift, diffusion = rates(noise)
    np.testing.assert_allclose(drift, f(LEVELS), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(diffusion, g(LEVELS), rtol=1e-4, atol=1e-6)
    if name in ("preserving", "ornstein"):
        # Negative control: rates a factor 2 apart, as where beta is taken for beta/2.
        assert not np.allclose(drift, 2 * f(LEVELS), rtol=1e-2)
        assert not np.allclose(diffusion, g(LEVELS) / math.sqrt(2), rtol=1e-2)


@pytest.mark.parametrize("name", ["preserving", "ornstein", "exploding"])
def test_the_process_arrives_at_its_moments(name):
    """alpha' = f alpha and variance' = 2 f variance + g^2, integrated from t = 0, give alpha and sigma^2 back."""
    noise = CLOSED[name][0]
    ts = np.linspace(0.0, 1.0, 4001)
    f = np.asarray(jax.vmap(noise.drift)(jnp.asarray(ts, jnp.float32)), np.float64)
    g = np.asarray(jax.vmap(noise.diffusion)(jnp.asarray(ts, jnp.float32)), np.float64)

    def integral(values):
        return np.concatenate([[0.0], np.cumsum(0.5 * (values[1:] + values[:-1]) * np.diff(ts))])

    def moments(f, g):
        alpha = float(noise.alpha(0.0)) * np.exp(integral(f))
        return alpha, alpha**2 * (float(noise.variance(0.0)) + integral(g**2 / alpha**2))

    alphas = np.asarray(jax.vmap(noise.alpha)(jnp.asarray(ts, jnp.float32)))
    variances = np.asarray(jax.vmap(noise.sigma)(jnp.asarray(ts, jnp.float32))) ** 2
    alpha, variance = moments(f, g)
    np.testing.assert_allclose(alpha, alphas, rtol=1e-3)
    np.testing.assert_allclose(variance, variances, rtol=1e-3, atol=1e-6)
    # Negative control: g^2 = (sigma^2)' + 2 f sigma^2, the sign of the second term lost; for VE, where f = 0, g a
    # factor sqrt 2 too large.
    lost = np.sqrt(np.maximum(g**2 + 4 * f * variances, 0)) if np.any(f) else math.sqrt(2) * g
    assert not np.allclose(moments(f, lost)[1], variances, rtol=1e-1, atol=1e-3)


# ------------------------------------------------------------------------------------------------- proposals


@pytest.mark.parametrize("name", [n for n in IN_SPACE if n != "choice"])
def test_the_ratio_is_the_difference_of_the_densities(name):
    noise, t = IN_SPACE[name]
    xs = points(200, 3)
    ys, ratios = proposals(noise, t, xs, key=jax.random.key(6))
    density = jax.jit(jax.vmap(lambda y, x: noise.log_prob(t, y, x)))
    there, back = density(ys, xs), density(xs, ys)
    np.testing.assert_allclose(ratios, there - back, atol=1e-4)
    if name in ("gaussian", "exploding"):
        np.testing.assert_allclose(ratios, 0.0, atol=1e-4)
    else:
        # Negative control: the two directions exchanged.
        assert not np.allclose(ratios, back - there, atol=1e-1)


@pytest.mark.parametrize(
    ("noise", "t"), [(VariancePreserving(), 0.1), (VariancePreserving(), 0.8), (OrnsteinUhlenbeck(2.0), 0.3)]
)
def test_variance_preserving_noise_is_reversible(noise, t):
    """It is in detailed balance with N(0, I) at every level, so the ratio is (|x|^2 - |y|^2) / 2."""
    xs = points(200, 3)
    ys, ratios = proposals(noise, t, xs, key=jax.random.key(7))
    expected = 0.5 * (np.sum(np.asarray(xs) ** 2, 1) - np.sum(np.asarray(ys) ** 2, 1))
    np.testing.assert_allclose(ratios, expected, atol=1e-3)
    assert not np.allclose(ratios, -expected, atol=1e-1)


def test_a_jump_between_data_points_has_ratio_zero():
    noise = GlobalJumps(0.0).fit(centres(40, 2))
    assert isinstance(noise, DataJump)
    xs = centres(40, 2)
    ys, ratios = proposals(noise, 0.0, xs, key=jax.random.key(8))
    np.testing.assert_array_equal(ratios, 0.0)
    rows = {tuple(row) for row in np.asarray(xs).tolist()}
    assert all(tuple(row) in rows for row in np.asarray(ys).tolist())
    # Negative control: a KDE of the same data leaves the data points, and its ratio is not zero.
    ys, ratios = proposals(GlobalJumps(0.3).fit(xs), 0.0, xs, key=jax.random.key(8))
    assert not any(tuple(row) in rows for row in np.asarray(ys).tolist())
    assert np.abs(ratios).max() > 0.1


def test_data_jumps_are_uniform():
    noise = DataJump(jnp.arange(5.0)[:, None])
    ys = jax.vmap(lambda k: noise.sample(0.0, jnp.zeros(1), key=k))(keys(9))
    hits = np.asarray(ys) == np.arange(5.0)
    assert holds(hits, 0.2)
    # Negative control: the last point never drawn, as when a range is taken to end before it.
    assert breaks(hits, (0.25, 0.25, 0.25, 0.25, 0.0))


class Shift(AbstractNoise):
    """y = x + offset, with the offset as its ratio: a noise whose hand can be recognised."""

    offset: float

    @property
    def makes_real_numbers(self) -> bool:
        return True

    def sample(self, t, x, *, key):
        return x + self.offset

    def log_prob(self, t, y, x):
        raise TypeError("a shift has no density")

    def propose(self, t, x, *, key):
        return x + self.offset, jnp.asarray(self.offset)


@pytest.mark.parametrize(
    ("n", "shares", "expected"),
    [(100, (0.5, 0.3, 0.2), (50, 30, 20)), (10, (1 / 3, 1 / 3, 1 / 3), (3, 4, 3)), (7, (0.9, 0.05, 0.05), (6, 1, 0))],
)
def test_choice_is_stratified(n, shares, expected):
    """Its shares of the rows, exactly, and each row with the ratio of the noise that made it."""
    noise = Choice((Shift(0.0), Shift(1.0), Shift(2.0)), shares)
    ys, ratios = noise.propose_each(0.0, jnp.zeros((n, 2)), key=jax.random.key(10))
    np.testing.assert_array_equal(np.bincount(np.asarray(ys[:, 0], int), minlength=3), expected)
    np.testing.assert_array_equal(ratios, ys[:, 0])


def test_choice_row_by_row_has_the_shares_on_average():
    shares = (0.5, 0.3, 0.2)
    noise = Choice((Shift(0.0), Shift(1.0), Shift(2.0)), shares)
    ys, ratios = jax.vmap(lambda k: noise.propose(0.0, jnp.zeros(2), key=k))(keys(11))
    np.testing.assert_array_equal(ratios, ys[:, 0])
    hits = np.asarray(ys)[:, :1] == np.arange(3)
    assert holds(hits, shares)
    assert breaks(hits, (0.48, 0.31, 0.21))
    # Negative control for the stratified version: row by row, the counts of 100 rows scatter.
    assert len(set(hits.reshape(200, 100, 3).sum(1)[:, 0])) > 5


def test_choice_has_the_ratio_of_the_chosen_noise_and_blend_that_of_the_mixture():
    kde = KDEJump(centres(60, 2), 0.4)
    parts, shares = (Gaussian(0.3), kde), (0.6, 0.4)
    xs = points(100, 2)
    ys, ratios = proposals(Choice(parts, shares), 0.0, xs, key=jax.random.key(12))
    np.testing.assert_allclose(ratios[:60], 0.0, atol=1e-5)
    density = jax.jit(jax.vmap(kde.log_density))
    np.testing.assert_allclose(ratios[60:], density(ys[60:]) - density(xs[60:]), atol=1e-4)

    # As one kernel: both densities summed, in double precision and by hand.
    def mixture(y, x):
        local = -0.5 * np.sum((y - x) ** 2, 1) / 0.09 - np.log(2 * np.pi * 0.09)
        return logsumexp(np.stack([local + np.log(0.6), kde_by_hand(y, centres(60, 2), 0.4) + np.log(0.4)]), axis=0)

    ys, ratios = proposals(BlendedKernel(parts, shares), 0.0, xs, key=jax.random.key(12))
    x, y = np.asarray(xs, np.float64), np.asarray(ys, np.float64)
    np.testing.assert_allclose(ratios, mixture(y, x) - mixture(x, y), atol=1e-3)
    # Negative control: the two are different noises; the chosen part's ratio is not the mixture's.
    far = np.abs(np.asarray(density(ys) - density(xs))) > 0.5
    assert np.any(np.abs(ratios[far]) > 0.1) and np.any(np.abs(ratios[far] - (density(ys) - density(xs))[far]) > 0.1)


def test_jumps_go_their_shares_near_far_and_wide():
    """Two local sizes share the local moves; wide jumps come from the data's Gaussian at twice its spread."""
    data = jnp.concatenate([jnp.full((50, 2), 99.0), jnp.full((50, 2), 101.0)])
    noise = Jumps(local=(0.01, 0.1), bandwidth=0.2, share=0.5, wide=0.25).fit(data)
    ys, ratios = proposals(noise, 0.0, jnp.zeros((400, 2)), key=jax.random.key(13))
    ys, ratios = np.asarray(ys), np.asarray(ratios)
    squares = ys**2
    assert holds(squares[:100], 0.01**2) and holds(squares[100:200], 0.1**2)
    assert holds((ys[200:300] - 100) ** 2, 1 + 0.2**2)
    assert holds((ys[300:] - 100) ** 2, 4.0)
    # Negative controls: one local size for all, and wide jumps no wider than the data.
    assert breaks(squares[100:200], 0.01**2)
    assert breaks((ys[300:] - 100) ** 2, 1.0)
    # The local ratio is 0; from a point the jumps never reach to one they do, it is large.
    np.testing.assert_allclose(ratios[:200], 0.0, atol=1e-5)
    assert np.all(ratios[200:] > 100)


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "make",
    [
        lambda: KDEJump(centres(9, 2), 0.0),
        lambda: KDEJump(centres(9, 2), -0.1),
        lambda: KDEJump(centres(9, 2), math.nan),
        lambda: KDEJump(centres(9, 2)[:, 0], 0.1),
        lambda: KDEJump(centres(9, 2), 0.1, block=0),
        lambda: GlobalJumps(-0.1),
        lambda: GlobalJumps(0.0, leave_one_out=True),
        lambda: Jumps(local=0.1, bandwidth=0.0, leave_one_out=True),
        lambda: KDEJump(centres(1, 2), 0.1).leave_one_out(jnp.zeros(2)),
        lambda: Gaussian(0.0),
        lambda: Gaussian(-1.0),
        lambda: Gaussian(math.nan),
        lambda: VarianceExploding(0.0, 1.0),
        lambda: VarianceExploding(2.0, 1.0),
        lambda: VariancePreserving(0.0, 1.0),
        lambda: VariancePreserving(2.0, 1.0),
        lambda: OrnsteinUhlenbeck(0.0),
        lambda: Jumps(local=0.1, bandwidth=0.1, share=0.0),
        lambda: Jumps(local=0.1, bandwidth=0.1, share=1.0),
        lambda: Jumps(local=0.1, bandwidth=-0.1),
        lambda: Jumps(local=(), bandwidth=0.1),
        lambda: Jumps(local=0.1, bandwidth=0.1, share=0.5, wide=0.5),
        lambda: Jumps(local=0.1, bandwidth=0.1, wide=-0.1),
        lambda: Jumps(local=0.0, bandwidth=0.1),
        lambda: Jumps(local=(0.1, -0.1), bandwidth=0.1),
        lambda: BlendedJumps(local=0.1, bandwidth=0.1, share=1.5),
        lambda: BlendedJumps(local=0.1, bandwidth=0.0),
        lambda: BlendedJumps(local=-0.1, bandwidth=0.1),
        lambda: Choice((Gaussian(0.1),), (0.5, 0.5)),
        lambda: Choice((Gaussian(0.1), Gaussian(0.2)), (0.5, 0.4)),
        lambda: BlendedKernel((Gaussian(0.1), Gaussian(0.2)), (1.5, -0.5)),
        lambda: Choice((), ()),
        lambda: CNCE(Gaussian(0.1), draws=0),
        lambda: DataJump(centres(9, 2)).log_prob(0.0, jnp.zeros(2), jnp.zeros(2)),
        lambda: BlendedKernel((Gaussian(0.1), DataJump(centres(9, 2))), (0.5, 0.5)).log_prob(
            0.0, jnp.zeros(2), jnp.zeros(2)
        ),
    ],
)
def test_impossible_noises_are_refused_in_one_sentence(make):
    with pytest.raises(InputError) as refusal:
        make()
    assert 10 < len(str(refusal.value)) < 200 and "\n" not in str(refusal.value)


def test_possible_noises_are_not_refused():
    KDEJump(centres(9, 2), 1e-3)
    GlobalJumps(0.0)
    Jumps(local=0.1, bandwidth=0.0, share=0.01)
    CNCE(Gaussian(1e-6), draws=1)
    Choice((Gaussian(0.1), Gaussian(0.2), Gaussian(0.3)), (1 / 3, 1 / 3, 1 / 3))
