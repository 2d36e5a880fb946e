"""Laws of labels: guided scores against the exact conditionals of a mixture, and classifiers of points with noise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.data import DropLabel, Turn
from unnorm.noises import VarianceExploding
from unnorm.objectives import DSM, NoisyLabels
from unnorm.scores import Classified, ClassifierFree, LevelledClassifier, LevelledFunction, levelled_score
from unnorm.spaces import Categorical, Conditioned, Real

NOISE, KEY = VarianceExploding(0.1, 5.0), jax.random.key(0)
#: Three classes in the plane, of unequal weights.
CENTRES = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.5]])
WEIGHTS, WIDTH = np.array([0.5, 0.3, 0.2]), 0.4
SPACE, LABELS = Real((2,)), Categorical((), 3)
NONE = 3


def variance(t):
    return WIDTH**2 + NOISE.variance(t)


def logits(t, x, centres=CENTRES, log_weights=np.log(WEIGHTS)):
    """Of the label given the noisy point."""
    return log_weights - jnp.sum((x - centres) ** 2, axis=1) / (2 * variance(t))


def conditional(t, x, label):
    return (jnp.asarray(CENTRES, float)[label] - x) / variance(t)


def marginal(t, x):
    return jax.nn.softmax(logits(t, x)) @ (CENTRES - x) / variance(t)


def told(t, x, label):
    """The score given the label, or given none."""
    return jnp.where(label == NONE, marginal(t, x), conditional(t, x, jnp.minimum(label, 2)))


TOLD = LevelledFunction(told, NOISE, SPACE, LABELS)
FREE = LevelledFunction(marginal, NOISE, SPACE)


def rows(n, seed=0):
    chance = np.random.default_rng(seed)
    labels = chance.choice(3, size=n, p=WEIGHTS)
    points = CENTRES[labels] + WIDTH * chance.normal(size=(n, 2))
    return Conditioned(points.astype(np.float32), labels.astype(np.int32))


PLACES = jnp.array([[0.2, 0.7], [-2.0, 1.0], [1.5, 0.1]])
TIMES = jnp.array([0.0, 0.4, 0.8])


def everywhere(score):
    """A score of (t, x, label) at every level, place and label."""
    each = jax.vmap(jax.vmap(jax.vmap(score, (None, None, 0)), (None, 0, None)), (0, None, None))
    return np.asarray(jax.jit(each)(TIMES, PLACES, jnp.arange(3)))


def weighted(t, x, label):
    """That of p(x) p(label | x)^2, written out."""
    return jax.grad(lambda x: 2.0 * jax.nn.log_softmax(logits(t, x))[label])(x) + marginal(t, x)


def test_guidance_of_weight_one_is_the_exact_conditional():
    exact, twice = everywhere(conditional), everywhere(weighted)
    for guide in (lambda w: ClassifierFree(TOLD, w), lambda w: Classified(FREE, logits, 3, w)):
        one, two = everywhere(guide(1.0)), everywhere(guide(2.0))
        np.testing.assert_allclose(one, exact, rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(two, twice, rtol=2e-4, atol=2e-4)
        # Control: each is not the other.
        assert np.abs(one - twice).max() > 0.1
    np.testing.assert_allclose(
        everywhere(ClassifierFree(TOLD, 0.0)), everywhere(lambda t, x, label: marginal(t, x)), rtol=1e-4, atol=1e-5
    )


class Posterior(eqx.Module):
    """The exact classifier as a network of centres and weights; without `noisy`, that of points without noise."""

    centres: jax.Array
    log_weights: jax.Array
    noisy: bool = eqx.field(static=True, default=True)

    def __call__(self, x, level, condition):
        level = level if self.noisy else jnp.zeros_like(level)
        # The network is shown x / w, w^2 = 1 + sigma^2.
        return logits(level, x * jnp.sqrt(1 + NOISE.variance(level)), self.centres, self.log_weights)


def classifier(noisy=True):
    network = Posterior(jnp.asarray(CENTRES, float), jnp.asarray(np.log(WEIGHTS), float), noisy)
    return LevelledClassifier(network, NOISE, SPACE, 3)


def gradients(model, objective, repeats=40):
    def one(key):
        which, where, run = jax.random.split(key, 3)
        chosen = jax.random.categorical(which, jnp.log(jnp.asarray(WEIGHTS, float)), shape=(256,))
        points = jnp.asarray(CENTRES, float)[chosen] + WIDTH * jax.random.normal(where, (256, 2))
        batch = Conditioned(points, chosen)
        found = jax.grad(lambda m: objective(m, None, batch, key=run)[0])(model)
        return jnp.concatenate([found.network.centres.ravel(), found.network.log_weights])

    return jax.jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(KEY, repeats))


def test_noisy_labels_stand_still_at_the_exact_posterior():
    objective = NoisyLabels()
    assert holds(gradients(classifier(), objective), 0.0)
    # Controls: a classifier that takes every point for one without noise, and other weights.
    assert breaks(gradients(classifier(noisy=False), objective), 0.0)
    moved = eqx.tree_at(lambda m: m.network.log_weights, classifier(), jnp.zeros(3))
    assert breaks(gradients(moved, objective), 0.0)


STEPS = {"steps": 800, "batch": 128, "rate": 5e-3, "key": jax.random.key(3), "progress": False}


@eqx.filter_jit
def _off(score, t, points, label):
    exact = jax.vmap(lambda x: told(t, x, label))(points)
    found = jax.vmap(lambda x: score(t, x, label))(points)
    return jnp.mean(variance(t) * (found - exact) ** 2)


def learnt(transform):
    model = levelled_score(NOISE, 2, spread=1.0, condition=LABELS, width=48, depth=2, key=jax.random.key(1))
    return un.fit(model, DSM(), rows(4000), transform=transform, average=0.99, **STEPS).model


def test_labels_left_out_teach_the_score_with_and_without_one():
    """What is off, in units of the score's own size; without rows that have no label, "none" is never learnt."""
    dropping, keeping = learnt(DropLabel(3, 0.3)), learnt(None)
    found = rows(500, seed=5)
    points = jnp.asarray(found.x) + NOISE.sigma(0.5) * jax.random.normal(KEY, found.x.shape)

    def off(model, label):
        return float(_off(model, jnp.asarray(0.5), points, jnp.asarray(label)))

    assert max(off(dropping, label) for label in (0, 1, 2, NONE)) < 0.05
    assert off(keeping, 0) < 0.05 and off(keeping, NONE) > 0.1


# ------------------------------------------------------------------------------------------------ turned pictures


def test_a_turned_slope_is_the_slope_turned():
    """On values that are a linear function of the place straight lines are exact: angle and zoom can be read off."""
    down, right = np.meshgrid(np.arange(9.0) - 4, np.arange(9.0) - 4, indexing="ij")
    picture = jnp.asarray(down[..., None], float)

    def read(transform):
        turned = np.asarray(jax.vmap(lambda k: transform(picture, key=k))(jax.random.split(KEY, 1000)))
        inner = turned[:, 3:6, 3:6, 0]
        slope = np.stack([(inner * (part[3:6, 3:6] / 6)).sum(axis=(1, 2)) for part in (down, right)], axis=1)
        # It is still a slope, of the same value in the middle.
        rebuilt = slope[:, :1, None] * down[3:6, 3:6] + slope[:, 1:, None] * right[3:6, 3:6]
        np.testing.assert_allclose(inner, rebuilt, atol=1e-4)
        return np.rad2deg(np.arctan2(slope[:, 1], slope[:, 0])), np.log(np.hypot(*slope.T))

    angles, zooms = read(Turn(20.0, 1.5))
    assert holds(angles, 0.0) and holds(angles**2, 20.0**2 / 3) and np.abs(angles).max() <= 20.001
    assert holds(zooms, 0.0) and holds(zooms**2, np.log(1.5) ** 2 / 3)
    assert breaks(read(Turn(25.0, 1.5))[0] ** 2, 20.0**2 / 3)
    np.testing.assert_allclose(Turn(0.0)(picture, key=KEY), picture, atol=1e-5)


def test_what_is_no_label_or_picture_is_refused():
    for build, words in (
        (lambda: NoisyLabels().init(TOLD, rows(4), key=KEY), "teaches a scores.LevelledClassifier"),
        (lambda: Turn(200.0), "0 to 180 degrees"),
        (lambda: Turn(10.0, 0.5), "a factor of 1 or more"),
        (lambda: Turn()(jnp.zeros(3), key=KEY), "two axes at least"),
    ):
        with pytest.raises(un.InputError, match=words):
            build()
