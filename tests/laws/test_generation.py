"""Laws of what is done with walks and flows: codes of points, points between, parts that are known, compositions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_scores import gaussian_score, mixture_score
from harness import breaks, holds
from scipy.integrate import solve_ivp
from solver_papers import CENTRES, SCALE, WEIGHTS, Process, preserving

import unnorm as un
from unnorm.generators import (
    AdaptiveFlow,
    FlowEuler,
    LangevinCorrector,
    MetropolisCorrector,
    ReverseDiffusion,
    Stay,
    Then,
    decode,
    encode,
    generate,
    impute,
    mixed_walks,
    slerp,
)
from unnorm.noises import VarianceExploding, VariancePreserving
from unnorm.scores import (
    EnergyMixture,
    EnergyProduct,
    GivenEnergy,
    LevelledEnergyFunction,
    LevelledFunction,
    ScoreProduct,
)
from unnorm.spaces import Real

KEY = jax.random.key(0)
VP, VE = VariancePreserving(), VarianceExploding(0.01, 20.0)
MIXTURE = mixture_score(VP, WEIGHTS, CENTRES[:, None], SCALE)

# ------------------------------------------------------------------------------------------- the flow and its codes


def test_an_adaptive_flow_keeps_to_its_tolerance_and_counts_what_it_asks():
    """Against an eighth-order solution of the same equation, from noise to a little above the data."""
    process, last, starts = preserving(), 0.1, np.linspace(-2, 2, 12)
    plain = Process(lambda t: 1.0, lambda t: t)
    first, end = (np.exp(-process.ratio(t)) for t in (1.0, last))
    solved = solve_ivp(lambda r, y: plain.noise(r, y), (first, end), starts / process.alpha(1.0), "DOP853", rtol=1e-11)
    truth = process.alpha(last) * solved.y[:, -1]
    options = {"levels": [1.0, last], "n": 12, "start": starts[:, None], "finish": Stay(), "key": KEY}
    walks = {tolerance: generate(MIXTURE, AdaptiveFlow(tolerance), **options) for tolerance in (1e-2, 1e-5)}
    errors = {at: np.abs(walk.points[:, 0] - truth).max() for at, walk in walks.items()}
    asked = {at: walk.counts["evaluations"] / 12 for at, walk in walks.items()}
    assert errors[1e-5] < 1e-4 and errors[1e-2] > 10 * errors[1e-5] and asked[1e-2] < asked[1e-5] < 200
    found = decode(MIXTURE, starts[:, None], least=last, tolerance=1e-5)
    np.testing.assert_allclose(found.points, walks[1e-5].points, atol=1e-4)
    assert found.evaluations.mean() == pytest.approx(asked[1e-5], rel=0.02)
    # Control: as many evaluations in equal steps of Euler are not as good.
    even = generate(MIXTURE, FlowEuler(), **{**options, "levels": np.linspace(1.0, last, int(asked[1e-5]) + 1)})
    assert np.abs(even.points[:, 0] - truth).max() > 10 * errors[1e-5]


def rows_of_the_mixture(n: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    return (CENTRES[generator.choice(2, n, p=WEIGHTS)] + SCALE * generator.normal(size=n))[:, None].astype(np.float32)


def test_codes_are_noise_and_lead_back_to_their_points():
    rows = rows_of_the_mixture(1000)
    codes = encode(MIXTURE, rows).points
    assert holds(np.concatenate([codes, codes**2, codes**4], axis=1), [0.0, 1.0, 3.0])
    # In the mean: in the valley between the modes the way back stretches what rounding leaves.
    assert np.abs(decode(MIXTURE, codes).points - rows).mean() < 1e-3
    # Controls: data of another law have codes that are no noise, and equal steps do not lead back.
    wide = encode(MIXTURE, 1.2 * rows).points
    assert breaks(np.concatenate([wide, wide**2, wide**4], axis=1), [0.0, 1.0, 3.0])
    levels = np.linspace(1.0, 1e-3, 41)
    back = generate(MIXTURE, FlowEuler(), levels=levels, n=1000, start=codes, finish=Stay(), key=KEY).points
    assert np.abs(back - rows).mean() > 1e-2


def test_two_networks_agree_on_codes():
    """Song et al. 2021, D.5: what a code is, is settled by data and noise. Other widths, other weights, one code."""
    rows, codes = rows_of_the_mixture(4000), []
    for width, seed in ((48, 1), (32, 2)):
        begin, run = jax.random.split(jax.random.key(seed))
        model = un.scores.levelled_score(VP, 1, spread=1.2, width=width, depth=2, key=begin)
        loss = un.objectives.DSM()
        fitted = un.fit(model, loss, rows, steps=800, batch=128, rate=3e-3, key=run, progress=False).model
        codes.append(encode(fitted, rows[:100], least=1e-2, tolerance=1e-4).points[:, 0])
    exact = encode(MIXTURE, rows[:100], least=1e-2, tolerance=1e-4).points[:, 0]
    apart, far = np.abs(codes[0] - codes[1]).mean(), np.abs(codes[0] - np.roll(codes[1], 1)).mean()
    assert apart < 0.15 * far and np.corrcoef(codes)[0, 1] > 0.99
    assert np.abs(codes[0] - exact).mean() < 0.15 * far


# ------------------------------------------------------------------------------------------------- points between


def test_an_arc_stays_among_the_noise_and_a_line_does_not():
    one, other = jax.random.normal(KEY, (2, 4000))
    shares = np.linspace(0, 1, 5)
    arc = np.stack([slerp(one, other, share) for share in shares])
    np.testing.assert_allclose(arc[[0, -1]], [one, other], atol=1e-5)
    assert holds(arc[2] ** 2, 1.0) and breaks(((one + other) / 2) ** 2, 1.0)
    # At equal speed: the angle to the first is its share of the whole.
    arc = np.stack([slerp(one, other * jnp.linalg.norm(one) / jnp.linalg.norm(other), share) for share in shares])
    unit = arc / np.linalg.norm(arc, axis=1, keepdims=True)
    angles = np.arccos(np.clip(unit @ unit[0], -1, 1))
    np.testing.assert_allclose(angles, shares * angles[-1], atol=2e-3)
    np.testing.assert_allclose(slerp(one, 2 * one, 0.25), 1.25 * one, rtol=1e-5)


def test_every_point_between_two_walks_is_a_draw():
    """Coordinates that are alike and independent: those of one point are so many draws."""
    width, size = 0.5, 3000
    noise = VarianceExploding(0.3, 4.0)
    score = gaussian_score(noise, np.zeros(1), [[width**2]])
    each = LevelledFunction(lambda t, x: jax.vmap(lambda one: score(t, one[None])[0])(x), noise, Real((size,)))
    levels = np.linspace(1.0, 0.0, 201)
    for step in (ReverseDiffusion(), LevelCorrected := LangevinCorrector(0.1, steps=3)):
        points = mixed_walks(each, step, levels=levels, n=2, shape=(size,), finish=Stay(), key=KEY)
        truth = width**2 + float(noise.variance(0.0))
        # Langevin's own variance is V / (1 - a / (2 V)) with its step a.
        a = 0.1 * float(noise.variance(0.0))
        truth = truth / (1 - a / (2 * truth)) if step is LevelCorrected else truth
        assert holds(points.T**2, truth, bias=0.015)
        # Control: noise mixed along a line is too quiet in the middle. The walk is linear, so that is the mean of both.
        assert breaks(((points[0] + points[-1]) / 2) ** 2, truth, bias=0.015)
        near, far = (np.corrcoef(points[[0, k]])[0, 1] for k in (1, 3))
        assert near > far + 0.2


# ------------------------------------------------------------------------------------------- parts that are known


def test_known_parts_are_beside_what_goes_with_them():
    """N(0, [[1, .8], [.8, 1]]) with the first known to be 1: the other has mean .8 and variance .36.

    Replaced without correctors it has .506 and .501 (Song 2022's Algorithm worked out at 1000 levels).
    """
    score = gaussian_score(VarianceExploding(0.01, 50.0), np.zeros(2), [[1, 0.8], [0.8, 1]])
    levels = np.linspace(1.0, 0.0, 501)

    def other(corrections: int) -> np.ndarray:
        walk = impute(
            score, [1.0, 0.0], [True, False], levels=levels, n=1500, corrections=corrections, finish=Stay(), key=KEY
        )
        np.testing.assert_allclose(walk.points[:, 0], 1.0)
        x = walk.points[:, 1]
        return np.stack([x, (x - x.mean()) ** 2], axis=1)

    biased = other(0)
    assert holds(biased, [0.506, 0.501], bias=0.01) and breaks(biased, [0.8, 0.36], bias=0.02)
    assert holds(other(1), [0.8, 0.36], bias=0.02)


# ------------------------------------------------------------------------------------------------- compositions


def gaussian_energy(mean: float, width: float, noise=VE) -> LevelledEnergyFunction:
    """The energy of N(mean, width^2) with the noise of each level, normalised."""

    def energy(t, x):
        variance = (noise.alpha(t) * width) ** 2 + noise.variance(t)
        return jnp.sum((x - noise.alpha(t) * mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance)) / 2

    return LevelledEnergyFunction(energy, noise, Real((1,)))


ONE, OTHER = gaussian_energy(-1.0, 1.0), gaussian_energy(1.5, 0.5)


@pytest.mark.parametrize(("weights", "mean", "variance"), [((1.0, 1.0), 1.0, 0.2), ((-0.5, 1.0), 13 / 7, 2 / 7)])
def test_products_and_negations_need_moves_that_keep_each_level(weights, mean, variance):
    """Precisions and their means add: 1 + 4 and -1 + 6; with the first taken away by half, 4 - 1/2 and 6 + 1/2."""
    model, levels = EnergyProduct((ONE, OTHER), weights), np.linspace(1.0, 0.0, 101)
    options = {"levels": levels, "n": 4000, "finish": Stay(), "key": KEY}
    mended = generate(model, Then(ReverseDiffusion(), MetropolisCorrector(0.5, steps=10)), **options)
    assert 0 < mended.counts["refused"] < 0.5 * 4000 * 100 * 10
    alone = generate(model, ReverseDiffusion(), **options)
    moments = [np.stack([w.points[:, 0], (w.points[:, 0] - mean) ** 2], axis=1) for w in (mended, alone)]
    assert holds(moments[0], [mean, variance], bias=0.01) and breaks(moments[1], [mean, variance], bias=0.03)


def test_a_mixture_of_noised_models_is_the_noised_mixture():
    model = EnergyMixture((gaussian_energy(-1.0, 0.4), gaussian_energy(1.5, 0.4)), (0.3, 0.7))
    exact = mixture_score(VE, WEIGHTS, CENTRES[:, None], SCALE)
    for t in (0.0, 0.3, 0.9):
        for x in (jnp.array([-1.2]), jnp.array([0.4])):
            np.testing.assert_allclose(model(t, x), exact(t, x), rtol=2e-3, atol=1e-4)
    wrong = EnergyMixture(model.parts, (0.5, 0.5))
    assert abs(float(wrong(0.3, jnp.array([0.4]))[0] - exact(0.3, jnp.array([0.4]))[0])) > 0.05
    together = ScoreProduct((ONE, OTHER), (1.0, -0.5))
    x = jnp.array([0.3])
    np.testing.assert_allclose(together(0.2, x), ONE(0.2, x) - 0.5 * OTHER(0.2, x), rtol=1e-5)
    np.testing.assert_allclose(EnergyProduct((ONE, OTHER), (1.0, -0.5))(0.2, x), together(0.2, x), rtol=1e-5)


def test_metropolis_keeps_a_level_with_steps_that_langevin_does_not_bear():
    start = ONE.noise.sigma(0.5) * 0 + np.random.default_rng(0).normal(size=(4000, 1)) * np.sqrt(
        1 + float(VE.variance(0.5))
    )
    options = {"levels": [0.5, 0.5], "n": 4000, "start": start - 1.0, "finish": Stay(), "key": KEY}
    truth = 1 + float(VE.variance(0.5))

    def squares(step) -> np.ndarray:
        return (generate(ONE, step, **options).points + 1) ** 2

    # Langevin's own variance is V / (1 - a / (2 V)), with a six times the noise here.
    assert holds(squares(MetropolisCorrector(6.0, steps=20)), truth)
    assert breaks(squares(LangevinCorrector(6.0, steps=20)), truth)


def test_what_does_not_go_together_is_refused():
    other = gaussian_energy(0.0, 1.0, VarianceExploding(0.1, 20.0))
    told = un.scores.levelled_energy(VE, 1, condition=un.spaces.Categorical((), 3), width=4, depth=1, key=KEY)
    cases = [
        (lambda: EnergyProduct((ONE, OTHER), (1.0,)), "of 2 models needs as many weights"),
        (lambda: EnergyProduct((ONE, other), (1.0, 1.0)), "have one noise"),
        (lambda: EnergyProduct((ONE, told), (1.0, 1.0)), "settle it first"),
        (lambda: EnergyMixture((ONE, OTHER), (1.0, -1.0)), "weights of a mixture are positive"),
        (lambda: generate(MIXTURE, MetropolisCorrector(), levels=[1, 0.5], n=4, key=KEY), "has none; use Langevin"),
        (lambda: encode(un.scores.FunctionScore(lambda t, x: -x), jnp.zeros((1, 1))), "has none"),
        (lambda: impute(MIXTURE, [np.nan], [True], levels=[1, 0.5], n=4, key=KEY), "must be finite"),
        (lambda: AdaptiveFlow(0.0), "tolerance of a flow must be positive"),
    ]
    for call, words in cases:
        with pytest.raises(un.InputError, match=words):
            call()
    settled = GivenEnergy(told, jnp.asarray(2))
    np.testing.assert_allclose(settled(0.5, jnp.ones(1)), told(0.5, jnp.ones(1), jnp.asarray(2)), rtol=1e-6)


# ------------------------------------------------------------------------------------------------------- guidance


def test_guidance_is_the_exact_conditional_of_a_mixture():
    """With the classifier of p_t, s + grad log p_t(label | x) is the score of the label's component at every level."""

    def logits(t, x):
        offsets = VP.alpha(t) * jnp.asarray(CENTRES) - x[0]
        return jnp.log(jnp.asarray(WEIGHTS)) - offsets**2 / (2 * ((VP.alpha(t) * SCALE) ** 2 + VP.variance(t)))

    def told(t, x, label):
        # A label beyond the last says that none is told.
        alone = jnp.stack([gaussian_score(VP, [c], [[SCALE**2]])(t, x) for c in CENTRES])
        return jnp.where(label == 2, MIXTURE(t, x), alone[jnp.minimum(label, 1)])

    labels = un.spaces.Categorical((), 2)
    by_labels = LevelledFunction(told, VP, Real((1,)), labels)
    for t, x in ((0.05, jnp.array([0.2])), (0.5, jnp.array([-0.7]))):
        for label in (0, 1):
            exact = gaussian_score(VP, [CENTRES[label]], [[SCALE**2]])(t, x)
            guided = un.scores.Classified(MIXTURE, logits, 2)(t, x, label)
            np.testing.assert_allclose(guided, exact, rtol=2e-3, atol=2e-3)
            np.testing.assert_allclose(un.scores.ClassifierFree(by_labels, 1.0)(t, x, label), exact, rtol=1e-4)
            # Both push alike: with weight w by the w-th power of the classifier.
            both = (un.scores.Classified(MIXTURE, logits, 2, 3.0), un.scores.ClassifierFree(by_labels, 3.0))
            one, other = (float(score(t, x, label)[0]) for score in both)
            assert one == pytest.approx(other, abs=0.02) and abs(one - float(exact[0])) > 0.05
    levels = np.linspace(1.0, 1e-3, 201)
    options = {"levels": levels, "n": 2000, "condition": jnp.asarray(0), "key": KEY}
    walk = generate(un.scores.ClassifierFree(by_labels, 1.0), ReverseDiffusion(), **options)
    moments = np.concatenate([walk.points, (walk.points - CENTRES[0]) ** 2], axis=1)
    assert holds(moments, [CENTRES[0], SCALE**2], bias=0.015) and breaks(moments, [CENTRES[1], SCALE**2], bias=0.015)


# ------------------------------------------------------------------------------------------------ on real pictures


@pytest.mark.thorough
def test_technique_1_is_what_keeps_draws_apart():
    """Song 2022, Fig. 6.2: the exact score of 5,000 pictures of CIFAR-10. Mean distances of draws over that of data.

    By levels from 50 as far apart as data to a tenth; from 1, with ten levels, less than 0.6 of it.
    """
    from scipy.spatial.distance import pdist

    from unnorm.data.local import local_file

    with np.load(local_file("cifar10/cifar10_subset_5k.npz", "https://www.cs.toronto.edu/~kriz/cifar.html")) as found:
        rows = (np.asarray(found["x"], np.float32).reshape(-1, 3072) / 255)[:5000]
    against = jnp.asarray(rows)
    squares = jnp.sum(against**2, axis=1)
    apart = pdist(rows[:200]).mean()
    start = np.random.default_rng(0).uniform(size=(24, 3072))

    def walked(sigmas: np.ndarray, moves: int, step: float) -> float:
        noise = un.noises.Ladder(np.sort(sigmas))

        def slope(t, x):
            variance = noise.variance(t)
            weights = jax.nn.softmax((2 * against @ x - squares) / (2 * variance))
            return (weights @ against - x) / variance

        score = LevelledFunction(slope, noise, Real((3072,)))
        ts = np.asarray(noise.levels, float)
        corrector = LangevinCorrector(step / 0.01**2, steps=moves)
        options = {"levels": np.append(ts[:1], ts), "n": 24, "start": start, "finish": Stay(), "key": KEY}
        return float(pdist(generate(score, corrector, **options).points).mean() / apart)

    assert abs(walked(np.geomspace(0.01, 50, 232), 5, 6.2e-6) - 1) < 0.1
    assert walked(np.geomspace(0.01, 1, 10), 100, 2e-5) < 0.6
