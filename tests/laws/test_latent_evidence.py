"""The law of evidence: a linear Gaussian decoder has log p(x) in closed form, N(0, W W' + sigma^2 I)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from harness import breaks, coverage, holds
from scipy.stats import multivariate_normal

from unnorm.energies import standard_gaussian
from unnorm.evaluation.latent import evidence, mean_evidence
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


def test_mean_evidence_over_rows():
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(8, 2)) @ LOADING.T + SIGMA * rng.normal(size=(8, 3))
    found = mean_evidence(
        decoder(), standard_gaussian(2), jnp.asarray(xs, float), chains=256, levels=40, key=jax.random.key(0)
    )
    truth = exact(xs)
    own = found.diagnostics["annealing_stderr"]
    assert abs(found.value - truth.mean()) < 4.5 * own + 1e-3
    # The error over rows is that of the exact values, which is much larger than that of the annealing.
    assert abs(found.stderr / (truth.std(ddof=1) / np.sqrt(8)) - 1) < 0.1
    assert own < 0.2 * found.stderr
