"""The measure of `reproduce gibbs-table1` against the library's own, and against the sum over all pairs."""

import jax
import jax.numpy as jnp
import numpy as np

from unnorm.evaluation import mmd
from unnorm.experiments.gibbs_chains import WIDTHS, bandwidths, discrepancies, mean_square


def test_the_discrepancy_of_a_chain_is_that_of_the_library():
    reference = jax.random.normal(jax.random.key(0), (300, 2))
    chains = jnp.stack([reference[:200] + 0.3, 1.5 * reference[100:]])
    found = discrepancies(chains, reference)
    truth = [mmd(chain, reference, bandwidths=bandwidths(reference)).value for chain in chains]
    np.testing.assert_allclose(found, truth, rtol=1e-4, atol=1e-5)

    # The published program's: exp(-d^2 / b), b from the mean of d^2, and with the pairs of a point and itself.
    def published(chain):
        points = np.concatenate([np.asarray(reference), np.asarray(chain)]).astype(np.float64)
        squared = np.sum((points[:, None] - points) ** 2, axis=-1)
        n = len(points)
        kernel = sum(np.exp(-squared / (width * squared.sum() / (n**2 - n))) for width in WIDTHS)
        a, b = slice(0, len(reference)), slice(len(reference), n)
        return kernel[a, a].mean() + kernel[b, b].mean() - 2 * kernel[a, b].mean()

    for chain, ours in zip(chains, found, strict=True):
        bias = 5 / len(reference) + 5 / len(chain)
        # Its width has the chain in it, and its bias is at most what a kernel is worth at itself.
        assert ours < published(chain) < 1.1 * ours + bias
    # Control: widths that do not grow with the data, as in another reading of the paper.
    fixed = [mmd(chain, reference, bandwidths=tuple((w / 2) ** 0.5 for w in WIDTHS)).value for chain in chains]
    assert not np.allclose(fixed, truth, rtol=0.1)


def test_the_mean_square_is_that_of_pairs_of_different_points():
    points = jax.random.normal(jax.random.key(1), (40, 2))
    squared = np.sum((np.asarray(points)[:, None] - np.asarray(points)) ** 2, axis=-1)
    np.testing.assert_allclose(mean_square(points), squared.sum() / (40 * 39), rtol=1e-5)
