"""Laws of scores over noise levels: what they learn, under a condition too, and which noise goes with them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_scores import mixture_score
from harness import breaks, holds

import unnorm as un
from unnorm.generators import GibbsTransition, PosteriorDraw, generate
from unnorm.networks import silent_mlp, silent_resnet
from unnorm.noises import Gaussian, OrnsteinUhlenbeck, VarianceExploding, VariancePreserving, same_noise
from unnorm.objectives import DSM, DSMVR
from unnorm.scores import (
    AbstractLevelledScore,
    FreeScore,
    Given,
    LevelledFunction,
    PredictNoise,
    levelled_energy,
    levelled_score,
)
from unnorm.spaces import Categorical, Conditioned, Mixed, Real, WithCondition
from unnorm.training import fit

KEY = jax.random.key(0)
NOISES = {"exploding": VarianceExploding(0.3, 4.0), "preserving": VariancePreserving(), "OU": OrnsteinUhlenbeck(2.0)}


@pytest.mark.parametrize("name", NOISES)
def test_an_untrained_levelled_score_is_that_of_gaussian_data(name):
    noise, x = NOISES[name], jnp.array([0.7, -2.0])
    for make in (silent_mlp, silent_resnet):
        for kind in (levelled_score, levelled_energy):
            score = kind(noise, 2, spread=1.5, width=8, make=make, key=jax.random.key(5))
            for t in jnp.array([0.1, 0.9]):
                exact = -x / (2.25 * noise.alpha(t) ** 2 + noise.variance(t))
                assert np.allclose(score(t, x), exact, rtol=1e-5)
                assert not np.allclose(score(t, x), -x / (2.25 + noise.variance(t) * 2), rtol=1e-2)


@pytest.mark.parametrize("preconditioning", [None, PredictNoise(0.8)], ids=["scaled", "noise"])
def test_a_levelled_score_learns_the_scores_of_all_levels(preconditioning):
    """E |sigma (s - s_exact)|^2 / d over noised data, what DSM exceeds its minimum by, falls to a seventh or less."""
    noise, centres, weights = VarianceExploding(0.1, 5.0), [[-1.0, 0.0], [1.0, 0.5]], [0.3, 0.7]
    data = un.energies.gaussian_mixture(weights, centres, 0.4).samples(5000, key=jax.random.key(6))
    options = {"spread": 0.8, "preconditioning": preconditioning, "width": 64, "depth": 2}
    model = levelled_score(noise, 2, **options, key=jax.random.key(7))
    before = levelled_score(noise, 2, spread=0.8, width=4, key=jax.random.key(7))  # the Gaussian's, whatever is learnt
    learnt = fit(model, DSM(), data, steps=2000, batch=256, rate=3e-3, key=jax.random.key(8), progress=False).model
    exact = mixture_score(noise, weights, centres, 0.4)

    @eqx.filter_jit
    def excess(score_of, t):
        ys = data + noise.sigma(t) * jax.random.normal(jax.random.key(9), data.shape)
        return jnp.mean(jax.vmap(lambda y: noise.sigma(t) * (score_of(t, y) - exact(t, y)))(ys) ** 2)

    for t in jnp.array([0.0, 0.3, 0.6, 0.9]):
        assert float(excess(learnt, t)) < 0.15 * float(excess(before, t))
        # Control: the scores of another level, which are all alike where the noise is narrow.
        if t > 0:
            assert float(excess(lambda t, y: learnt(t + 0.2, y), t)) > 0.5 * float(excess(before, t))


# ------------------------------------------------------------------------------------------------- under a condition

MEANS, LABELS = np.array([[-2.0, 0.5], [0.0, 1.0], [3.0, -1.0]]), Categorical((), 3)


class PerLabel(AbstractLevelledScore):
    """s(t, x, c) = -(x - alpha m_c) / (alpha^2 / 4 + sigma^2): data N(m_c, I / 4)."""

    means: jax.Array
    noise: un.noises.AbstractGaussianNoise
    space: Real = eqx.field(static=True, default=Real((2,)))
    condition: Categorical = eqx.field(static=True, default=LABELS)

    def __call__(self, t, x, condition=None):
        alpha = self.noise.alpha(t)
        return -(x - alpha * self.means[condition]) / (0.25 * alpha**2 + self.noise.variance(t))

    def at(self, t, condition=None):
        return un.scores.LevelScore(score=self, level=t, space=self.space, settled=condition)


TRUTH = PerLabel(jnp.asarray(MEANS, float), NOISES["OU"])


@pytest.mark.parametrize("objective", [DSM(), DSMVR()])
def test_each_point_is_denoised_under_its_own_condition(objective):
    """At the truth the mean gradient is zero; with the conditions handed to other points it is not."""

    def gradients(shift: int) -> np.ndarray:
        def one(key):
            draw, pick, use = jax.random.split(key, 3)
            labels = jax.random.randint(pick, (64,), 0, 3)
            xs = jnp.asarray(MEANS, float)[labels] + 0.5 * jax.random.normal(draw, (64, 2))
            rows = Conditioned(xs, jnp.roll(labels, shift))
            return jax.grad(lambda m: objective(eqx.tree_at(lambda s: s.means, TRUTH, m), None, rows, key=use)[0])(
                TRUTH.means
            ).ravel()

        return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(KEY, 300)))

    assert holds(gradients(0), 0.0)
    assert breaks(gradients(1), 0.0)


def test_a_walk_under_a_condition_ends_with_the_data_of_that_condition():
    labels = np.arange(600) % 3
    options = {"levels": np.linspace(1, 0.05, 6), "n": 600, "finish": PosteriorDraw(), "key": jax.random.key(1)}

    def walk(condition):
        points = generate(TRUTH, GibbsTransition(), condition=condition, **options).points
        return [np.concatenate([p - m, (p - m) ** 2 - 0.25], axis=1) for p, m in zip(
            [points[labels == k] for k in range(3)], MEANS, strict=True
        )]  # fmt: skip

    # OU ends with a trace of the data left at level 1, alpha = e^-2, where the walk begins as if there were none.
    trace = np.abs(MEANS).max() * np.exp(-4.0) * 1.1
    own = walk(jnp.asarray(labels))
    assert all(holds(found, 0.0, bias=trace) for found in own)
    assert all(breaks(found, 0.0, bias=trace) for found in walk(jnp.asarray((labels + 1) % 3)))
    one = walk(2)
    assert holds(one[2], 0.0, bias=trace) and breaks(one[0], 0.0, bias=trace)


def each(model, xs):
    return jax.vmap(lambda x, c: model(0.5, x, c))(xs, jnp.arange(4))


def test_a_network_is_told_the_condition_and_may_be_told_no_label():
    for make in (levelled_score, levelled_energy):
        model = make(NOISES["OU"], 2, width=8, depth=1, condition=LABELS, key=KEY)
        assert model.rows_space() == WithCondition(Real((2,)), LABELS)
        last = model.network.network.layers[-1]
        model = eqx.tree_at(
            lambda m: m.network.network.layers[-1].weight, model, jax.random.normal(KEY, last.weight.shape)
        )
        xs = jnp.ones((4, 2))
        found = each(model, xs)
        assert len({tuple(np.asarray(row).tolist()) for row in found}) == 4  # the label 3 is "none", and a fourth one
        # Zeros are what "no label" looks like: to change the weights of the labels changes nothing for it.
        first = model.network.network.layers[0].weight
        changed = eqx.tree_at(lambda m: m.network.network.layers[0].weight, model, first.at[:, -3:].add(1.0))
        after = each(changed, xs)
        assert np.array_equal(after[3], found[3]) and not np.array_equal(after[0], found[0])
        # Settled, it is a score of points alone, and one of a level.
        settled = Given(model, jnp.asarray(1))
        assert settled.condition is None and np.allclose(settled(0.5, xs[1]), found[1], rtol=1e-5)
        at = settled.at(0.5)
        slope = -jax.grad(at)(xs[1]) if make is levelled_energy else at(0.0, xs[1])
        assert np.allclose(slope, found[1], rtol=1e-5)


def test_an_observation_and_a_mixed_condition_are_laid_end_to_end():
    both = Mixed((Real((2,)), LABELS))
    model = levelled_score(NOISES["OU"], 2, width=4, depth=1, condition=both, key=KEY)
    assert model.network.network.layers[0].weight.shape == (4, 2 + 7 + 2 + 3)
    assert model(0.3, jnp.ones(2), (jnp.ones(2), jnp.asarray(1))).shape == (2,)


# -------------------------------------------------------------------------------------------- one noise for a score

OTHER = VarianceExploding(0.3, 5.0)


def refused(call, words: str) -> None:
    with pytest.raises(un.InputError) as told:
        call()
    assert words in str(told.value), str(told.value)


@pytest.mark.parametrize("kind", [DSM, DSMVR])
def test_another_noise_than_the_score_s_is_refused(kind):
    score = levelled_score(NOISES["exploding"], 2, width=4, key=KEY)
    rows = jnp.ones((8, 2))
    words = (
        f"{kind.__name__} adds VarianceExploding(low=0.3, high=5.0), and LevelledScore is made for "
        f"VarianceExploding(low=0.3, high=4.0); leave the noise out, as in {kind.__name__}(), to take the score's own"
    )
    refused(lambda: kind(OTHER).init(score, rows, key=KEY), words)
    refused(lambda: fit(score, kind(OTHER), rows, steps=1, key=KEY, progress=False), words)
    # Equal ones are the same however they came about, and so is none.
    same = kind(VarianceExploding(0.3, 4.0))
    losses = [float(objective(score, None, rows, key=KEY)[0]) for objective in (same, kind())]
    assert losses[0] == losses[1] and np.isfinite(losses[0])
    assert same.init(score, rows, key=KEY) is None
    # Arrays are compared by their values, and where they have none, in compiled code, only by their make.
    scaled = levelled_score(Gaussian(0.5), 2, width=4, key=KEY)
    refused(lambda: kind(Gaussian(0.4)).init(scaled, rows, key=KEY), "adds Gaussian(scale=0.4), and")
    assert np.isfinite(float(eqx.filter_jit(lambda o: o(scaled, None, rows, key=KEY)[0])(kind(Gaussian(0.5)))))
    assert not same_noise(Gaussian(0.5), NOISES["OU"])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: DSM().init(FreeScore(lambda x: -x), jnp.ones((4, 2)), key=KEY),
            "DSM needs a noise, for FreeScore has none of its own; use DSM(noises.Gaussian(0.1))",
        ),
        (
            lambda: DSM().init(TRUTH, jnp.ones((4, 2)), key=KEY),
            "PerLabel takes a condition on Categorical(shape=(), categories=3); give DSM rows that are spaces.Cond",
        ),
        (
            lambda: DSM(OTHER).init(un.energies.standard_gaussian(2), Conditioned(jnp.ones((4, 2)), 0), key=KEY),
            "DSM got a condition beside each point, and EnergyScore takes none; train on the points",
        ),
        (
            lambda: generate(TRUTH, GibbsTransition(), levels=[1.0, 0.0], n=2, key=KEY),
            "PerLabel takes a condition on Categorical(shape=(), categories=3); pass condition=",
        ),
        (
            lambda: generate(TRUTH, GibbsTransition(), levels=[1.0, 0.0], n=2, condition=jnp.zeros(3, int), key=KEY),
            "for all 2 points, or one for each",
        ),
        (lambda: TRUTH.at(0.0), "PerLabel takes a condition on"),
        (lambda: Given(TRUTH, jnp.zeros(2)), "a condition of PerLabel is a point of Categorical"),
        (lambda: LevelledFunction(lambda t, x: -x, OTHER).at(0.0, 1), "LevelledFunction takes no condition"),
        (
            lambda: LevelledFunction(lambda t, x, c: -x, OTHER, condition=LABELS),
            "a LevelledFunction with a condition says the space of its points too",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(call, words):
    refused(call, words)
