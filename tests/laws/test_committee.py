"""Averages of densities, the shapes of covariances, and kernel densities as models."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from scipy import stats

from unnorm.energies import KDE, Blend, GaussianMixture, fit_mixture, gaussian, gaussian_mixture, stacked
from unnorm.energies.committee import Kernels, judged, kernel_estimates
from unnorm.energies.em import DIAGONAL, FULL, SPHERICAL, TIED, Covariance, mean_log_prob
from unnorm.errors import InputError

NARROW, WIDE = gaussian([0.0], [[0.25]]), gaussian([1.0], [[4.0]])


def blend(weight: float = 0.3) -> Blend:
    return Blend((NARROW, WIDE), jnp.log(jnp.array([weight, 1 - weight])))


def test_a_blend_is_the_average_density_and_integrates_to_one():
    xs = np.linspace(-12, 14, 4001)
    found = np.exp(jax.vmap(blend().log_prob)(jnp.asarray(xs)[:, None]))
    expected = 0.3 * stats.norm.pdf(xs, 0, 0.5) + 0.7 * stats.norm.pdf(xs, 1, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)
    assert abs(np.trapezoid(found, xs) - 1) < 1e-4
    # Negative control: weights that are not normalised first.
    wrong = sum(np.exp(jax.vmap(p.log_prob)(jnp.asarray(xs)[:, None])) for p in blend().parts)
    assert abs(np.trapezoid(wrong, xs) - 1) > 0.5


def test_draws_of_a_blend_have_its_distribution():
    draws = np.asarray(blend().samples(20_000, key=jax.random.key(0)))[:, 0]

    def cdf(x, weight):
        return weight * stats.norm.cdf(x, 0, 0.5) + (1 - weight) * stats.norm.cdf(x, 1, 2)

    assert stats.kstest(draws, lambda x: cdf(x, 0.3)).pvalue > 1e-3
    assert stats.kstest(draws, lambda x: cdf(x, 0.35)).pvalue < 1e-6


def test_stacking_finds_the_weights_that_made_the_rows():
    """The maximum-likelihood weight of many sets of rows, against the true one; its error is the repeats' own."""
    sets = jax.vmap(lambda key: blend().samples(500, key=key))(jax.random.split(jax.random.key(1), 60))
    found = []
    for rows in sets:
        joined = stacked([judged(NARROW, rows), judged(WIDE, rows)], least=0.0).density
        assert isinstance(joined, Blend)
        found.append(float(joined.weights[0]))
    assert holds(np.array(found), 0.3)
    # The weights of maximum likelihood: the mean of p_i / p is 1 for every part. Equal weights do not do it.
    rows = sets[0]
    for weights, right in ((jnp.array([found[0], 1 - found[0]]), True), (jnp.array([0.5, 0.5]), False)):
        mixed = Blend((NARROW, WIDE), jnp.log(weights))
        whole = jax.vmap(mixed.log_prob)(rows)
        ratios = [np.mean(np.exp(jax.vmap(p.log_prob)(rows) - whole)) for p in mixed.parts]
        assert (max(abs(r - 1) for r in ratios) < 1e-3) == right


def test_a_part_that_helps_no_row_is_dropped_and_mixtures_are_joined():
    far = gaussian([50.0], [[1.0]])
    rows = NARROW.samples(200, key=jax.random.key(2))
    assert stacked([judged(NARROW, rows), judged(far, rows)]).density is NARROW
    pair = [gaussian_mixture([0.5, 0.5], [[-a], [a]], 0.5) for a in (0.1, 1.0)]
    data = jnp.concatenate([m.samples(300, key=jax.random.key(3)) for m in pair])
    found = stacked([judged(m, data) for m in pair])
    joined = found.density
    assert isinstance(joined, GaussianMixture)
    # What it says of the rows is what the density says.
    np.testing.assert_allclose(found.logs, jax.vmap(joined.log_prob)(data), atol=1e-5)
    assert len(joined.weights) == 4
    apart = stacked([judged(m, data) for m in pair], least=0.0).density
    np.testing.assert_allclose(mean_log_prob(joined, data), mean_log_prob(apart, data), rtol=1e-5)


def covariance_data() -> jax.Array:
    return gaussian([1.0, -1.0], [[2.0, 0.9], [0.9, 1.0]]).samples(40, key=jax.random.key(4))


@pytest.mark.parametrize("bandwidth", [0.2, 1.0])
def test_a_shaped_kernel_density_is_the_sum_it_says(bandwidth):
    centres = covariance_data()
    shape = np.linalg.cholesky(np.cov(np.asarray(centres, np.float64).T))
    kde = KDE(centres, bandwidth, shape=jnp.asarray(shape), block=16)
    points = np.asarray(centres[:10] + 0.3, np.float64)
    kernel = bandwidth**2 * shape @ shape.T
    logs = [[stats.multivariate_normal.logpdf(y, c, kernel) for c in np.asarray(centres)] for y in points]
    expected = np.logaddexp.reduce(logs, axis=1) - np.log(len(centres))
    found = jax.vmap(kde.log_prob)(jnp.asarray(points, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    round_kernels = jax.vmap(KDE(centres, bandwidth).log_prob)(jnp.asarray(points, jnp.float32))
    assert np.max(np.abs(round_kernels - expected)) > 0.05


def test_draws_of_a_shaped_kernel_density_have_its_covariance():
    """Cov = that of the centres + bandwidth^2 S; each entry's error from 50 groups of draws."""
    centres = covariance_data()
    s = np.cov(np.asarray(centres, np.float64).T, bias=True)
    kde = KDE(centres, 0.8, shape=jnp.asarray(np.linalg.cholesky(s)))
    groups = np.asarray(kde.samples(50 * 400, key=jax.random.key(5))).reshape(50, 400, 2)
    centred = groups - np.asarray(centres).mean(0)
    products = np.einsum("gni,gnj->gij", centred, centred) / 400
    truth = s * (1 + 0.8**2)
    for i, j in ((0, 0), (0, 1), (1, 1)):
        assert holds(products[:, i, j], truth[i, j])
    # Negative control: round kernels leave the covariance between the columns as it was.
    assert breaks(products[:, 0, 1], s[0, 1])


def test_the_width_that_held_out_rows_choose_is_near_the_rule_for_a_gaussian():
    """For Gaussian data Silverman's width is optimal to leading order, so it or a neighbour wins."""
    rows = jax.random.normal(jax.random.key(6), (6000, 1))
    found = kernel_estimates(rows[:3000], rows[3000:])
    best = max(found, key=lambda c: c.score).density
    assert isinstance(best, KDE)
    rule = (4 / 3) ** 0.2 * 3000 ** (-0.2)
    assert 0.4 * rule < float(best.bandwidth) <= 1.2 * rule
    assert mean_log_prob(KDE(rows[:3000], 0.1 * rule), rows[3000:]) < max(c.score for c in found) - 0.002


COVARIANCES = jnp.array([[[2.0, 0.5], [0.5, 1.0]], [[4.0, -1.0], [-1.0, 3.0]]])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FULL, COVARIANCES),
        (DIAGONAL, [[[2.0, 0], [0, 1.0]], [[4.0, 0], [0, 3.0]]]),
        (SPHERICAL, [[[1.5, 0], [0, 1.5]], [[3.5, 0], [0, 3.5]]]),
        (TIED, [[[2.5, 0.125], [0.125, 1.5]]] * 2),
        (Covariance(full=0.5, diagonal=0.5), [[[2.0, 0.25], [0.25, 1.0]], [[4.0, -0.5], [-0.5, 3.0]]]),
    ],
)
def test_a_covariance_takes_its_shape(kind, expected):
    np.testing.assert_allclose(kind.of(COVARIANCES, jnp.array([3.0, 1.0])), np.asarray(expected), rtol=1e-6)


def scattered(n: int = 1500) -> tuple[GaussianMixture, jax.Array]:
    truth = gaussian_mixture([0.5, 0.3, 0.2], [[0.0] * 6, [2.0] * 6, [-3.0, 1.0, 0, 0, 2.0, 0]], [0.5, 0.8, 0.4])
    return truth, truth.samples(n, key=jax.random.key(7))


@pytest.mark.parametrize("kind", [FULL, DIAGONAL, SPHERICAL, TIED])
def test_every_shape_climbs_its_likelihood_to_a_fixed_point(kind):
    """EM never falls, and at the end more steps gain nothing."""
    _, data = scattered()
    climb = [
        mean_log_prob(
            fit_mixture(data, 3, steps=s, ridge=1e-6, tolerance=0.0, covariance=kind, key=jax.random.key(8)), data
        )
        for s in (1, 2, 4, 8, 30, 60)
    ]
    assert all(b >= a - 1e-4 for a, b in itertools.pairwise(climb))
    assert climb[-1] - climb[-2] < 1e-3


def lopsided() -> jax.Array:
    """Rows on which every shape of covariance is another fit."""
    covariances = [[[1.0, 0.8], [0.8, 1.0]], [[2.0, -0.3], [-0.3, 0.2]]]
    return gaussian_mixture([0.6, 0.4], [[-1.0, 0.0], [2.0, 1.0]], covariances).samples(1500, key=jax.random.key(11))


@pytest.mark.parametrize("kind", [FULL, DIAGONAL, SPHERICAL, TIED])
def test_at_the_end_every_shape_has_the_moments_of_its_shares(kind):
    """The fixed point of EM: weights, means and covariances are those of the rows by their responsibilities."""
    data = lopsided()
    fitted = fit_mixture(data, 2, steps=1000, ridge=1e-6, tolerance=0.0, covariance=kind, key=jax.random.key(8))
    rows = np.asarray(data, np.float64)
    logs = np.asarray(jax.vmap(fitted.component_log_probs)(data), np.float64)
    shares = np.exp(logs - np.logaddexp.reduce(logs, axis=1)[:, None])
    counts = shares.sum(axis=0)
    means = shares.T @ rows / counts[:, None]
    offsets = rows[:, None] - means
    scatter = np.einsum("nk,nki,nkj->kij", shares, offsets, offsets) / counts[:, None, None]
    np.testing.assert_allclose(fitted.weights, counts / len(rows), atol=1e-3)
    np.testing.assert_allclose(fitted.means, means, atol=3e-3)
    found = jax.vmap(lambda part: part.covariance)(fitted.components)
    np.testing.assert_allclose(found, kind.of(jnp.asarray(scatter), jnp.asarray(counts)), atol=5e-3)
    # Control: none of the other shapes fits.
    for other in (FULL, DIAGONAL, SPHERICAL, TIED):
        if other is not kind:
            assert not np.allclose(found, other.of(jnp.asarray(scatter), jnp.asarray(counts)), atol=5e-2)


def test_spherical_components_are_recovered_and_need_fewer_rows():
    """Where the truth is round, round components lose less on new rows: 3 numbers of spread against 63."""
    truth, data = scattered(150)
    fresh = truth.samples(4000, key=jax.random.key(9))
    entropy = mean_log_prob(truth, fresh)
    lost = {
        kind: entropy - mean_log_prob(fit_mixture(data, 3, ridge=1e-4, covariance=kind, key=jax.random.key(8)), fresh)
        for kind in (FULL, SPHERICAL)
    }
    # Twice a fit's expected loss in nats is its free numbers over the rows: (2 + 18 + 3) / 150 and (2 + 18 + 63) / 150.
    assert 0 < lost[SPHERICAL] < 23 / 150
    assert lost[FULL] > 1.5 * lost[SPHERICAL]


def test_a_mixture_does_not_depend_on_the_padding_of_its_program():
    """3 components run in a program for 4, 5 in one for 16: the same as with none empty, to rounding."""
    from unnorm.energies import em

    _, data = scattered(400)
    for k in (3, 5):
        padded = fit_mixture(data, k, key=jax.random.key(10))
        kept, em._PADDED = em._PADDED, (k,)
        try:
            plain = fit_mixture(data, k, key=jax.random.key(10))
        finally:
            em._PADDED = kept
        np.testing.assert_allclose(padded.weights, plain.weights, atol=1e-3)
        np.testing.assert_allclose(mean_log_prob(padded, data), mean_log_prob(plain, data), atol=1e-3)


def test_columns_that_follow_from_one_another_have_a_kernel_density():
    """b = 2 a, and a column without spread: the density is that of the line, as narrow across it as the ridge."""
    a = jax.random.normal(jax.random.key(0), (400,))
    rows = jnp.stack([a, 2 * a, jnp.zeros(400)], axis=1)
    best = max(kernel_estimates(rows[:200], rows[200:]), key=lambda c: c.score)
    assert np.isfinite(best.score)
    on, off = (best.density.log_prob(jnp.array(x)) for x in ([0.5, 1.0, 0.0], [0.5, -1.0, 0.0]))
    assert float(on) > float(off) + 10


def test_impossible_blends_are_refused():
    for make in (
        lambda: Blend((), jnp.zeros(0)),
        lambda: Blend((NARROW,), jnp.zeros(2)),
        lambda: Blend((NARROW, gaussian([0.0, 0.0], np.eye(2))), jnp.zeros(2)),
        lambda: fit_mixture(jnp.zeros((3, 1)), 4, key=jax.random.key(0)),
    ):
        with pytest.raises(InputError):
            make()


def test_the_shape_of_kernels_is_computed_in_double_precision():
    """Twenty columns of which one is the sum of two others: in single precision their covariance is not positive."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(3000, 20)) @ np.diag(np.linspace(0.5, 3, 20))
    rows[:, -1] = rows[:, 0] + rows[:, 1]
    rows = jnp.asarray(rows, jnp.float32)
    wide = np.asarray(rows, np.float64)
    covariance = np.cov(wide.T, bias=True)
    expected = np.linalg.cholesky(covariance + 1e-6 * np.trace(covariance) / 20 * np.eye(20))
    found = np.asarray(Kernels(1.0).fit(rows).shape, np.float64)
    # The last diagonal entry is what the ridge leaves across the plane of the rows.
    np.testing.assert_allclose(found[-1, -1], expected[-1, -1], rtol=1e-5)
    narrow = jnp.cov(rows.T, bias=True) + 1e-6 * float(np.trace(covariance)) / 20 * jnp.eye(20)
    single = np.asarray(jnp.linalg.cholesky(narrow), np.float64)
    assert not abs(single[-1, -1] / expected[-1, -1] - 1) < 1e-4
