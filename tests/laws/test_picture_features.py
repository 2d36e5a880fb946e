"""Figures in features against known answers: separable labels, certain and useless classifiers, copies and collapse."""

import jax
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm import evaluation as ev

KEY = jax.random.key(0)


def stripes(n: int, seed: int, kinds: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of 8 x 8 whose label is their pattern: rows, columns, or one bright quarter; all of any brightness."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(kinds, size=n)
    patterns = np.zeros((3, 8, 8))
    patterns[0, ::2], patterns[1, :, ::2], patterns[2, :4, :4] = 1, 1, 2
    level = generator.uniform(0.5, 1.5, size=(n, 1, 1))
    pictures = patterns[labels] * level + 0.3 * generator.normal(size=(n, 8, 8))
    return pictures[..., None].astype(np.float32), labels


def test_the_score_of_certain_and_of_useless_classifiers():
    """K certain labels alike: K; weights w: exp of their entropy; nothing known, or all one label: 1."""
    generator = np.random.default_rng(0)
    weights = np.array([0.5, 0.3, 0.2])
    labels = np.eye(3)[generator.choice(3, 4000, p=weights)]
    found = ev.inception_score(labels)
    assert abs(found.value - np.exp(-np.sum(weights * np.log(weights)))) < 4 * found.stderr < 0.1
    assert ev.inception_score(np.full((10, 5), 0.2)).value == pytest.approx(1.0)
    assert ev.inception_score(np.eye(3)[np.zeros(10, int)]).value == pytest.approx(1.0)
    # The stated error is that of repeats.
    repeats = [ev.inception_score(np.eye(3)[generator.choice(3, 300, p=weights)]) for _ in range(60)]
    spread = np.std([one.value for one in repeats], ddof=1)
    assert 0.7 < np.mean([one.stderr for one in repeats]) / spread < 1.4


def test_features_tell_good_draws_from_copies_of_one_label_and_from_noise():
    pictures, labels = stripes(900, 0)
    found = ev.picture_features(pictures, labels, classes=3)
    assert found.accuracy.value > 0.95
    again = ev.picture_features(pictures, labels, classes=3)
    np.testing.assert_array_equal(found.net.weight, again.net.weight)  # settled by the data alone
    data, _ = stripes(400, 1)
    good, one_kind = stripes(200, 2)[0], stripes(200, 3, kinds=1)[0]
    noise = np.random.default_rng(4).normal(size=(200, 8, 8, 1)).astype(np.float32)
    fine, collapsed, lost = (ev.feature_figures(found, draws, data, key=KEY) for draws in (good, one_kind, noise))
    # Good draws are as good as halves of the data, within errors; a label alone is precise and recalls a third.
    for name in ("score", "precision", "recall"):
        gap = getattr(fine, name).minus(fine.of_data[name])
        assert abs(gap.value) < 4.5 * gap.stderr
    assert fine.frechet.value < fine.frechet.diagnostics["floor"] + 4 * fine.frechet.stderr
    assert collapsed.frechet.value > 10 * fine.frechet.value and lost.frechet.value > 10 * fine.frechet.value
    assert collapsed.score.value < 1.2 < 2.5 < fine.score.value
    assert collapsed.recall.value < 0.5 < collapsed.precision.value and lost.precision.value < 0.3


@pytest.mark.thorough
def test_features_of_labels_that_say_nothing_are_seen_by_their_accuracy():
    pictures, _ = stripes(600, 0)
    chance = np.random.default_rng(1).integers(3, size=600)
    found = ev.picture_features(pictures, chance, classes=3)
    named = np.arange(60) < round(60 * found.accuracy.value)
    assert holds(named, 1 / 3) and breaks(named, 0.95)


def test_pictures_without_a_label_each_are_refused():
    pictures, labels = stripes(40, 0)
    with pytest.raises(un.InputError, match="each with a label"):
        ev.picture_features(pictures, labels[:-1], classes=3)
    with pytest.raises(un.InputError, match="labels are numbers from 0 to 1"):
        ev.picture_features(pictures, labels, classes=2)
