"""The law of evidence: a linear Gaussian decoder has log p(x) in closed form, N(0, W W' + sigma^2 I)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from harness import breaks, coverage, holds
from scipy.stats import multivariate_normal

from unnorm.energies import standard_gaussian
from unnorm.evaluation.likelihoods.latent import evidence, evidences, mean_evidence
from unnorm.networks import GaussianDecoder

LOADING = np.array([[1.0, 0.5], [0.2, -0.8], [0.6, 0.3]])
SIGMA = 0.3


class Linear(eqx.Module):
    weight: jax.Array

    def __call__(self, z):
        return self.weight @ z


def decoder(sigma: float = SIGMA) -> GaussianDecoder:
    return GaussianDecoder(Linear(jnp.asarray(LOADING, float)), sigma)


def exact(xs: np.ndarray) -> np.ndarray:
    return multivariate_normal(np.zeros(3), LOADING @ LOADING.T + SIGMA**2 * np.eye(3)).logpdf(xs)


def test_evidence_of_a_linear_decoder():
    x = np.array([1.0, -0.5, 0.8])
    truth = exact(x)

    def repeats(model, n):
        return [
            evidence(model, standard_gaussian(2), jnp.asarray(x, float), chains=256, levels=40, key=jax.random.key(i))
            for i in range(n)
        ]

    found = repeats(decoder(), 16)
    # log of an unbiased estimate: too low by half its variance.
    bias = 0.5 * float(np.mean([e.stderr**2 for e in found]))
    assert holds([e.value for e in found], truth, bias=bias)
    assert coverage(found, truth) >= 0.7  # of 16 at 95%, fewer than 12 would come by chance once in 1,000
    wrong = repeats(decoder(1.2 * SIGMA), 8)
    assert breaks([e.value for e in wrong], truth, bias=bias)


def rows(n: int) -> np.ndarray:
    """Draws of the decoder's own law."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)) @ LOADING.T + SIGMA * rng.normal(size=(n, 3))


def in_stated_errors(model: GaussianDecoder, xs: np.ndarray, repeats: int) -> list[np.ndarray]:
    """(found - true) / stated error of every row and repeat; what a log loses by its curvature is given back."""
    found = [
        evidences(model, standard_gaussian(2), jnp.asarray(xs, float), chains=128, levels=40, key=jax.random.key(i))
        for i in range(repeats)
    ]
    return [
        np.array([(e.value + 0.5 * e.stderr**2 - truth) / e.stderr for e, truth in zip(of, exact(xs), strict=True)])
        for of in found
    ]


def test_evidences_of_rows_along_one_path():
    xs = rows(40)
    xs[-1] *= 3  # far from the rows that tune the path
    scaled = np.concatenate(in_stated_errors(decoder(), xs, 5))
    assert holds(scaled, 0.0)
    inside = np.mean(np.abs(scaled) < 1.96)
    assert 0.90 <= inside <= 0.99  # of 200 at 95%
    assert np.mean(np.abs(2 * scaled) < 1.96) < 0.90
    wrong = np.concatenate(in_stated_errors(decoder(1.2 * SIGMA), xs, 5))
    assert breaks(wrong, 0.0)


def test_errors_of_different_rows_are_independent():
    """The sum over n rows has n times the variance of one; with the same random numbers for all it has n^2 times."""
    n, repeats = 24, 40
    xs = np.repeat(rows(1), n, axis=0)
    apart = np.array(in_stated_errors(decoder(), xs, repeats))
    together = np.repeat(apart[:, :1], n, axis=1)
    for scaled, right in ((apart, True), (together, False)):
        sums = scaled.sum(axis=1) / np.sqrt(n)
        # The variance of 40 normal sums is known to a factor of 1 +- sqrt(2 / 39).
        assert (abs(sums.var(ddof=1) - 1) < 4.5 * np.sqrt(2 / (repeats - 1))) == right


def test_mean_evidence_over_rows():
    xs = rows(8)
    found = mean_evidence(
        decoder(), standard_gaussian(2), jnp.asarray(xs, float), chains=256, levels=40, key=jax.random.key(0)
    )
    truth = exact(xs)
    own = found.diagnostics["annealing_stderr"]
    assert abs(found.value - truth.mean()) < 4.5 * own + 1e-3
    # The error over rows is that of the exact values, which is much larger than that of the annealing.
    assert abs(found.stderr / (truth.std(ddof=1) / np.sqrt(8)) - 1) < 0.1
    assert own < 0.2 * found.stderr
