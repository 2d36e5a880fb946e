"""Known figures of the experiments on pictures: exact scores leave the spread they should, data are at no distance."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from known_figures import figure_of, within

from unnorm.estimate import Estimate
from unnorm.evaluation import FeatureNet, PictureFeatures
from unnorm.experiments import faces, mnist_generate
from unnorm.noises import VariancePreserving
from unnorm.scores import LevelledFunction
from unnorm.spaces import Conditioned, Real

NOISE = VariancePreserving()
SIZE = faces.Size(steps=1, draws=1, faces=1, of_each=8, walk=200, between=3)


def exact_score(variance: float) -> LevelledFunction:
    """Of pictures whose pixels are N(0, variance)."""
    return LevelledFunction(
        lambda t, x: -x / (NOISE.alpha(t) ** 2 * variance + NOISE.variance(t)), NOISE, Real((6, 6, 1))
    )


@figure_of("faces")
def test_faces_out_of_noise_are_spread_as_the_truth_is():
    """p(x | x_t) of an exact score is as wide as its mean is wrong; of one that takes faces for others it is not."""
    truth = 0.5 * np.random.default_rng(0).normal(size=(150, 6, 6, 1)).astype(np.float32)
    right, wrong = (faces._out_of_noise(exact_score(v), truth, SIZE, 0, 1.0) for v in (0.25, 2.0))
    # Noise of variance 1 on pixels of variance 1/4 leaves 1/5; the mean of n draws is further off by a share 1/n.
    expected = (0.2 * (1 + 1 / SIZE.of_each)) ** 0.5
    assert within(right[faces.RATIO], 1.0, slack=0.03) and not within(wrong[faces.RATIO], 1.0, slack=0.03)
    assert within(right[faces.NOISY], 1.0, slack=0.1) and right[faces.MEAN]["value"] == pytest.approx(expected, rel=0.1)


@figure_of("mnist-generate")
def test_held_out_digits_are_at_no_distance_from_themselves():
    """Nor further from training pictures than they are; copies of training pictures are at a distance of 0."""
    chance = np.random.default_rng(0)
    train, held = (chance.normal(size=(n, 4, 4, 1)).astype(np.float32) for n in (200, 120))
    labels = chance.integers(3, size=120)
    prepared = SimpleNamespace(train=Conditioned(train, labels), test=Conditioned(held, labels))
    net = FeatureNet(1, 3, key=jax.random.key(0))
    classifier = PictureFeatures(net, Estimate(1.0, 0.0, "made up"))
    own = mnist_generate._figures(held, labels, prepared, classifier, 0)
    copies = mnist_generate._figures(train[:120], labels, prepared, classifier, 0)
    assert own[mnist_generate.PIXELS]["value"] == pytest.approx(0, abs=1e-6)
    assert own[mnist_generate.NEAREST]["value"] == 1.0 and copies[mnist_generate.NEAREST]["value"] < 1e-3
    assert copies[mnist_generate.PIXELS]["value"] > 0.1
    taken_for = np.asarray(jax.vmap(net)(jnp.asarray(held))).argmax(1)
    assert own[mnist_generate.RIGHT]["value"] == pytest.approx(np.mean(taken_for == labels))
