"""Laws of the walks back through noise: weak orders, limits and temperatures, on a Gaussian whose score is exact.

There every step is x <- a x + b + c z, and the three numbers are read off the transition itself: at two points with no
noise, and at one with it. Mean and variance after a walk follow from them without any simulation.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_scores import gaussian_score
from harness import breaks, holds

from unnorm.generators import (
    DDIM,
    Ancestral,
    EulerMaruyama,
    ExponentialIntegrator,
    LangevinCorrector,
    PosteriorMean,
    ReverseDiffusion,
    SignalToNoise,
    Stay,
    Then,
    generate,
)
from unnorm.noises import (
    Chain,
    OrnsteinUhlenbeck,
    SubVariancePreserving,
    VarianceExploding,
    VariancePreserving,
    linear_chain,
)

NOISES = {
    "exploding": VarianceExploding(0.3, 4.0),
    "preserving": VariancePreserving(),
    "sub-preserving": SubVariancePreserving(),
    "OU": OrnsteinUhlenbeck(2.0),
}
MEAN, WIDTH, LAST = 0.7, 0.5, 0.2


def marginal(noise, t: float) -> np.ndarray:
    """Mean and variance of the noised data."""
    with jax.enable_x64(True):
        alpha, variance = float(noise.alpha(t)), float(noise.variance(t))
    return np.array([alpha * MEAN, (alpha * WIDTH) ** 2 + variance])


def parts(kind, noise, levels: np.ndarray, **options) -> np.ndarray:
    """a, b and c of the step between each two levels."""
    key = jax.random.key(0)

    @jax.jit
    @jax.vmap
    def each(t, s):
        score = gaussian_score(noise, [MEAN], [[WIDTH**2]])
        cold, warm = kind(temperature=0.0, **options), kind(temperature=1.0, **options)

        def move(transition, x):
            return transition.move(score, t, s, jnp.full(1, x), key=key)[0][0]

        b, z = move(cold, 0.0), jax.random.normal(key, (1,), float)[0]
        return jnp.stack([move(cold, 1.0) - b, b, (move(warm, 0.0) - b) / z])

    with jax.enable_x64(True):
        return np.asarray(each(jnp.asarray(levels[:-1]), jnp.asarray(levels[1:])))


def after(found: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Mean and variance after all steps."""
    mean, variance = begin
    for a, b, c in found:
        mean, variance = a * mean + b, a**2 * variance + c**2
    return np.array([mean, variance])


KINDS = {
    "Euler-Maruyama": (EulerMaruyama, {}),
    "reverse diffusion": (ReverseDiffusion, {}),
    "ancestral": (Ancestral, {}),
    "ancestral, upper": (Ancestral, {"upper": 1.0}),
    "exponential": (ExponentialIntegrator, {}),
}


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_error_of_a_walk_back_falls_with_its_steps(kind, name):
    """Weak order 1: from 400 steps to 800 it is halved. Controls: noise a tenth too loud, half of the pull."""
    noise, (transition, options) = NOISES[name], KINDS[kind]
    # One walk after the other, so that one program reads the steps of both; the step up between them is left out.
    levels = np.concatenate([np.linspace(1.0, LAST, n + 1) for n in (400, 800)])
    found = parts(transition, noise, levels, **options)
    coarse, fine = found[:400], found[401:]
    begin, end = marginal(noise, 1.0), marginal(noise, LAST)
    scale = np.sqrt(end[1]) ** np.array([1, 2])

    def errors(twist) -> tuple[np.ndarray, np.ndarray]:
        return tuple(np.abs(after(twist(steps), begin) - end) / scale for steps in (coarse, fine))

    def orders(twist) -> np.ndarray:
        first, second = errors(twist)
        return np.log2(first[second > 1e-4] / second[second > 1e-4])

    assert errors(lambda steps: steps)[1].max() < 0.02
    assert np.all(orders(lambda steps: steps) > 0.85)
    loud, weak = (lambda steps: steps * [1.0, 1.0, 1.1]), (lambda steps: steps * [0.5, 0.5, 1.0] + [0.5, 0.0, 0.0])
    for twist in (loud, weak):
        assert errors(twist)[1].max() > 0.05 and orders(twist).min() < 0.5


def test_the_exponential_integrator_of_ornstein_and_uhlenbeck():
    """x <- e^h x + 2 (e^h - 1) s + sqrt(e^2h - 1) z with the score held, in time tau = horizon t."""
    noise, (t, s) = NOISES["OU"], (0.8, 0.5)
    h = 2.0 * (t - s)
    mean, variance = marginal(noise, t)
    a, b, c = parts(ExponentialIntegrator, noise, np.array([t, s]))[0]
    pull = 2 * np.expm1(h)
    printed = [np.exp(h) - pull / variance, pull * mean / variance, np.sqrt(np.expm1(2 * h))]
    np.testing.assert_allclose([a, b, c], printed, rtol=1e-6)
    # Controls: as one might read the slip of a sign or of the factor 2 into it.
    assert abs(a - (np.exp(h) - 0.5 * pull / variance)) > 0.1 and abs(c - np.sqrt(np.expm1(h))) > 0.1


def test_ancestral_tends_to_reverse_diffusion_as_rates_fall():
    """In a DDPM (x + beta s) / sqrt(1 - beta) and (2 - sqrt(1 - beta)) x + beta s differ by O(beta^2), as printed."""

    def gap(beta: float) -> np.ndarray:
        chain = Chain(np.array([0.5, beta]))  # one step from where there is noise already
        step = np.array([1.0, 0.5])
        ancestral = parts(Ancestral, chain, step, upper=1.0)[0]
        alpha, score = np.sqrt(0.5 * (1 - beta)), marginal(chain, 1.0)
        kept = np.sqrt(1 - beta)
        printed = np.array([1 - beta / score[1], beta * alpha * MEAN / score[1]]) / kept
        np.testing.assert_allclose(ancestral, [*printed, np.sqrt(beta)], rtol=1e-5)
        reverse = parts(ReverseDiffusion, chain, step)[0]
        printed = np.array([2 - kept - beta / score[1], beta * alpha * MEAN / score[1]])
        np.testing.assert_allclose(reverse, [*printed, np.sqrt(beta)], rtol=1e-5)
        return np.abs(ancestral - reverse)[:2]

    coarse, fine = gap(0.1), gap(0.05)
    assert np.all(np.log2(coarse / fine) > 1.9)
    # Control: the noise of the posterior is not that of reverse diffusion, but tends to it only by beta.
    lower = parts(Ancestral, Chain(np.array([0.5, 0.1])), np.array([1.0, 0.5]))[0, 2]
    assert abs(lower - np.sqrt(0.1)) > 0.005


def test_a_ddpm_is_ancestral_steps_of_its_chain():
    """With N rates the walk over the chain's own levels ends near the data; by Eq. 7.4 of Song 2022 to the letter."""
    chain = linear_chain(200)
    levels = np.asarray(chain.levels, float)[:-1]  # the last step, to no noise at all, is the finish
    end = after(parts(Ancestral, chain, levels, upper=1.0), marginal(chain, 1.0))
    assert np.abs(end - marginal(chain, levels[-1])).max() < 0.02
    x = jnp.full(1, 0.3)
    score, t, s = gaussian_score(chain, [MEAN], [[WIDTH**2]]), levels[10], levels[11]
    beta = float(chain.betas[189])
    printed = (x + beta * score(t, x)) / np.sqrt(1 - beta)
    moved = Ancestral(temperature=0.0).move(score, t, s, x, key=jax.random.key(0))[0]
    np.testing.assert_allclose(moved, printed, rtol=1e-4)


def test_implicit_models_with_all_noise_fresh_are_ancestral():
    noise, key = NOISES["preserving"], jax.random.key(3)
    score, x = gaussian_score(noise, [MEAN], [[WIDTH**2]]), jnp.full(1, 0.3)

    def to(transition):
        return float(transition.move(score, 0.8, 0.6, x, key=key)[0][0])

    assert to(DDIM(eta=1.0)) == pytest.approx(to(Ancestral()), abs=2e-5)
    assert abs(to(DDIM(eta=0.5)) - to(Ancestral())) > 1e-2


# ------------------------------------------------------------------------------------------------------- correctors


def corrected(noise, predictor, levels: np.ndarray, ratio: float, steps: int) -> np.ndarray:
    """The same with Langevin moves after each step."""
    mean, variance = marginal(noise, 1.0)
    moves = parts(LangevinCorrector, noise, levels, ratio=ratio)
    for step, move in zip(parts(predictor, noise, levels), moves, strict=True):
        for a, b, c in [step, *[move] * steps]:
            mean, variance = a * mean + b, a**2 * variance + c**2
    return np.array([mean, variance]) - marginal(noise, levels[-1])


def test_a_corrector_takes_away_the_bias_of_the_predictor():
    noise, levels = NOISES["preserving"], np.linspace(1.0, LAST, 13)

    def bias(predictor, ratio, steps) -> float:
        return abs(corrected(noise, predictor, levels, ratio, steps)[1])

    alone, few, many = (bias(EulerMaruyama, 0.05, steps) for steps in (0, 10, 60))
    assert alone > 0.1 and few < 0.5 * alone and many < 0.1 * alone
    # What is left is the corrector's own, whatever the predictor was, and falls with its step.
    assert bias(ReverseDiffusion, 0.05, 60) == pytest.approx(many, rel=0.05)
    assert bias(EulerMaruyama, 0.005, 1200) < 0.2 * many


POINTS = 6000


def moments(noise, transition, levels, **options) -> np.ndarray:
    score = gaussian_score(noise, [MEAN, -MEAN], np.diag([WIDTH**2, 1.0]))
    alpha, variance = float(noise.alpha(levels[0])), float(noise.variance(levels[0]))
    cloud = np.random.default_rng(0).normal(size=(POINTS, 2))
    start = alpha * np.array([MEAN, -MEAN]) + cloud * np.sqrt(alpha**2 * np.array([WIDTH**2, 1.0]) + variance)
    options = {"n": POINTS, "start": start, "finish": Stay(), "key": jax.random.key(1)} | options
    walk = generate(score, transition, levels=levels, **options)
    assert walk.warnings == ()
    end = marginal(noise, levels[-1])
    offset = walk.points - [end[0], -end[0]]
    return np.concatenate([offset, offset**2], axis=1)


def truth(noise, t: float) -> np.ndarray:
    alpha, variance = float(noise.alpha(t)), float(noise.variance(t))
    return np.array([0.0, 0.0, (alpha * WIDTH) ** 2 + variance, alpha**2 + variance])


def test_predictor_corrector_by_the_ratio_of_signal_to_noise():
    """Few steps of the predictor are biased by more than the corrector, whose own bias is its step: small for 0.1."""
    noise, levels, bias = NOISES["preserving"], np.linspace(1.0, LAST, 13), 0.03
    assert breaks(moments(noise, EulerMaruyama(), levels), truth(noise, LAST), bias=bias)
    corrector = SignalToNoise(0.1, steps=40)
    assert holds(moments(noise, Then(EulerMaruyama(), corrector), levels), truth(noise, LAST), bias=bias)
    # Control: steps of each point's own are long where its score is small, which in two dimensions it often is.
    own = SignalToNoise(0.1, steps=40, together=False)
    assert breaks(moments(noise, Then(EulerMaruyama(), own), levels), truth(noise, LAST), bias=bias)


def test_the_step_is_set_by_the_means_over_all_points():
    """One move from known points: e = 2 a^2 (ratio mean|z| / mean|s|)^2 with the very norms, in NumPy."""
    noise, (t, s), n = NOISES["preserving"], (0.6, 0.5), 50
    score = gaussian_score(noise, [0.0, 0.0], np.eye(2))
    xs = jnp.asarray(np.random.default_rng(1).normal(size=(n, 2)), jnp.float32)
    keys = jax.random.split(jax.random.key(2), n)

    def step(corrector, x, key):
        return corrector.position(corrector.step(score, t, s, corrector.init(score, t, x), key=key)[0])

    found = jax.jit(jax.vmap(lambda x, k: step(SignalToNoise(0.2), x, k), axis_name="walkers"))(xs, keys)
    own = jax.jit(jax.vmap(lambda x, k: step(SignalToNoise(0.2, together=False), x, k)))(xs, keys)
    zs = np.array([jax.random.normal(jax.random.split(key, 1)[0], (2,)) for key in keys])
    slopes = -np.asarray(xs)  # N(0, I) stays what it is
    share = float((noise.alpha(t) / noise.alpha(s)) ** 2)

    def by(loud, steep):
        size = 2 * share * (0.2 * loud / steep) ** 2
        return np.asarray(xs) + size * slopes + np.sqrt(2 * size) * zs

    lengths, steep = np.linalg.norm(zs, axis=1), np.linalg.norm(slopes, axis=1)
    np.testing.assert_allclose(found, by(lengths.mean(), steep.mean()), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(own, by(np.sqrt(2.0), steep[:, None]), rtol=1e-4, atol=1e-5)
    assert np.abs(found - by(np.sqrt(np.mean(lengths**2)), steep.mean())).max() > 1e-3


def test_points_that_look_at_one_another_are_not_shared_out(monkeypatch):
    from unnorm import devices

    noise, levels = NOISES["exploding"], np.linspace(1.0, LAST, 4)
    walks = []
    for cores in (1, 3):
        monkeypatch.setattr(devices, "_cores", lambda cores=cores: cores)
        walks.append(moments(noise, Then(ReverseDiffusion(), SignalToNoise(0.2)), levels))
    np.testing.assert_allclose(*walks, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------------ temperature


@pytest.mark.parametrize("kind", [EulerMaruyama, ReverseDiffusion, Ancestral, ExponentialIntegrator, LangevinCorrector])
def test_a_cold_walk_has_its_variance_times_the_temperature(kind):
    noise, levels = NOISES["exploding"], np.linspace(1.0, LAST, 31)
    found = parts(kind, noise, levels)
    mean, warm = after(found, marginal(noise, 1.0))
    begin = marginal(noise, 1.0) * [1.0, 0.25]
    cold = after(parts(kind, noise, levels) * [1.0, 1.0, 0.5], begin)
    np.testing.assert_allclose(cold, [mean, 0.25 * warm], rtol=1e-6)
    score, key = gaussian_score(noise, [MEAN], [[WIDTH**2]]), jax.random.key(0)
    ends = [kind(temperature=c).move(score, 0.8, 0.7, jnp.ones(1), key=key)[0][0] for c in (0.0, 0.25, 1.0)]
    assert float(ends[1] - ends[0]) == pytest.approx(0.5 * float(ends[2] - ends[0]), rel=1e-4)


def test_a_cold_start_cools_the_flow():
    """The flow is linear on a Gaussian: a start of variance c sigma^2 ends with c times the variance."""
    noise, levels = VarianceExploding(0.01, 40.0), np.linspace(1.0, 0.0, 60)
    score = gaussian_score(noise, [MEAN, -MEAN], np.diag([WIDTH**2, 1.0]))
    options = {"levels": levels, "n": POINTS, "finish": PosteriorMean(), "key": jax.random.key(1)}

    def squares(temperature: float) -> np.ndarray:
        points = generate(score, DDIM(), temperature=temperature, **options).points
        return (points - points.mean(0)) ** 2

    assert holds(squares(0.25), 0.25 * np.array([WIDTH**2, 1.0]), bias=0.02)
    assert breaks(squares(1.0), 0.25 * np.array([WIDTH**2, 1.0]), bias=0.02)
