"""Laws of the processes from data to noise: what alpha and sigma say of drift, diffusion and the ways back.

Drift and diffusion of each are printed somewhere, and are written out here; and the moments that they give, by the
ordinary equations m' = f m and v' = 2 f v + g^2, are alpha and sigma^2 again.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from scipy.integrate import solve_ivp

import unnorm as un
from unnorm.noises import (
    EDM,
    Chain,
    Cosine,
    Ladder,
    OrnsteinUhlenbeck,
    Path,
    StraightPath,
    SubVariancePreserving,
    VarianceExploding,
    VariancePreserving,
    linear_chain,
    same_noise,
)

RATE = 19.9


#: The seventh roots of the least and the largest noise of Karras et al. 2022.
LOW, HIGH = 0.002 ** (1 / 7), 80.0 ** (1 / 7)


def beta(t):
    return 0.1 + RATE * t


def whole(t):
    """B(t), the integral of beta."""
    return 0.1 * t + RATE * t**2 / 2


def angle(t):
    return (t + 0.008) / 1.008 * np.pi / 2


#: Each process with its f and g^2 as its paper has them, and the levels between which they are looked at.
PROCESSES = {
    "exploding": (
        VarianceExploding(0.01, 50.0),
        lambda t: 0.0,
        lambda t: (0.01 * 5000.0**t) ** 2 * 2 * np.log(5000.0),
        (0.0, 1.0),
    ),
    "preserving": (VariancePreserving(), lambda t: -beta(t) / 2, beta, (0.0, 1.0)),
    "sub-preserving": (
        SubVariancePreserving(),
        lambda t: -beta(t) / 2,
        lambda t: beta(t) * -np.expm1(-2 * whole(t)),
        (0.0, 1.0),
    ),
    "OU": (OrnsteinUhlenbeck(3.0), lambda t: -3.0, lambda t: 6.0, (0.0, 1.0)),
    "cosine": (
        Cosine(),
        lambda t: -np.tan(angle(t)) * np.pi / 2 / 1.008,
        lambda t: 2 * np.tan(angle(t)) * np.pi / 2 / 1.008,
        (0.0, 0.95),
    ),
    "EDM": (EDM(0.0, 80.0, rho=1.0), lambda t: 0.0, lambda t: 2 * 80.0**2 * t, (0.0, 1.0)),
    "Karras": (EDM(), lambda t: 0.0, lambda t: 14 * (LOW + t * (HIGH - LOW)) ** 13 * (HIGH - LOW), (0.0, 1.0)),
    "straight": (StraightPath(), lambda t: -1 / (1 - t), lambda t: 2 * t / (1 - t), (0.0, 0.95)),
    "path": (Path(jnp.cos, jnp.sin), lambda t: -np.tan(t), lambda t: 2 * np.tan(t), (0.0, 1.0)),
}


def read(method, ts) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(method)(jnp.asarray(ts, float)))


@pytest.mark.parametrize("name", PROCESSES)
def test_drift_and_diffusion_are_as_printed_and_give_the_moments_back(name):
    noise, drift, square, (first, last) = PROCESSES[name]
    ts = np.linspace(max(first, 1e-4), last, 9)
    f, g2 = read(noise.drift, ts), read(noise.diffusion, ts) ** 2
    np.testing.assert_allclose(f, [drift(t) for t in ts], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(g2, [square(t) for t in ts], rtol=1e-6)
    alphas, variances = read(noise.alpha, ts), read(noise.variance, ts)

    def moments(factor):
        found = solve_ivp(
            lambda t, y: [drift(t) * y[0], 2 * drift(t) * y[1] + factor * square(t)],
            (ts[0], ts[-1]), [alphas[0], variances[0]], "DOP853", t_eval=ts, rtol=1e-11, atol=1e-14,
        )  # fmt: skip
        return found.y

    np.testing.assert_allclose(moments(1.0), [alphas, variances], rtol=1e-6)
    # Control: half the diffusion, as a forgotten factor 2 would have it.
    assert np.abs(moments(0.5)[1] / variances - 1)[1:].max() > 0.1


@pytest.mark.parametrize("name", PROCESSES)
def test_the_ways_back_are_made_of_drift_and_diffusion(name):
    noise, drift, square, _ = PROCESSES[name]
    x, slope, t = jnp.array([0.7, -1.2]), jnp.array([-0.4, 0.3]), 0.4
    for method, part in ((noise.reverse_drift, 1.0), (noise.flow, 0.5)):
        np.testing.assert_allclose(method(t, x, slope), drift(t) * x - part * square(t) * slope, rtol=1e-4)
    kept, added = noise.between(0.3, 0.8)
    alpha, variance = read(noise.alpha, [0.3, 0.8]), read(noise.variance, [0.3, 0.8])
    np.testing.assert_allclose(kept * alpha[0], alpha[1], rtol=1e-5)
    np.testing.assert_allclose(kept**2 * variance[0] + added, variance[1], rtol=1e-5)
    for t in (0.1, 0.5, 0.9):
        assert float(noise.level_at(noise.log_ratio(jnp.asarray(t)))) == pytest.approx(t, abs=1e-4)


@pytest.mark.parametrize("name", ["sub-preserving", "cosine", "straight"])
def test_a_simulated_process_has_the_moments_that_are_stated(name):
    """dX = f X dt + g dB by Euler's method from X = 1; its own moments, step by step, bound what the steps leave."""
    noise, drift, square, _ = PROCESSES[name]
    last = 0.3 if name == "sub-preserving" else 0.7
    ts = np.linspace(0.0, last, 201)
    f, g2 = np.array([drift(t) for t in ts[:-1]]), np.array([square(t) for t in ts[:-1]])
    generator, x, h = np.random.default_rng(0), np.ones(20_000), ts[1]
    mean, width = 1.0, 0.0
    derived = read(noise.drift, ts[:-1]), np.nan_to_num(read(noise.diffusion, ts[:-1]))
    for i in range(200):
        x = x + derived[0][i] * x * h + derived[1][i] * np.sqrt(h) * generator.normal(size=len(x))
        mean, width = mean * (1 + h * f[i]), width * (1 + h * f[i]) ** 2 + h * g2[i]
    alpha, variance = float(noise.alpha(last)), float(noise.variance(last))
    bias = np.array([abs(mean - alpha), abs(width - variance)])
    assert np.all(bias < 0.02)
    found = np.stack([x, (x - alpha) ** 2], axis=1)
    assert holds(found, [alpha, variance], bias=bias)
    assert breaks(found, [alpha, 0.9 * variance], bias=bias) and breaks(found, [0.9 * alpha, variance], bias=bias)


def test_sub_preserving_has_at_most_the_variance_of_preserving():
    ts = np.linspace(0, 1, 101)
    less, more = read(SubVariancePreserving().variance, ts), read(VariancePreserving().variance, ts)
    assert np.all(less <= more) and np.all((less < more)[(ts > 0) & (ts < 0.6)])
    np.testing.assert_allclose(read(SubVariancePreserving().sigma, ts), -np.expm1(-whole(ts)), rtol=1e-9)
    np.testing.assert_allclose(read(SubVariancePreserving().alpha, ts), np.exp(-whole(ts) / 2), rtol=1e-9)


def test_the_levels_of_karras_are_equal_steps():
    sigmas = (80 ** (1 / 7) + np.arange(18) / 17 * (0.002 ** (1 / 7) - 80 ** (1 / 7))) ** 7
    np.testing.assert_allclose(read(EDM().sigma, np.linspace(1, 0, 18)), sigmas, rtol=1e-8)
    np.testing.assert_allclose(read(EDM(0.0, 80.0, 1.0).sigma, np.array([0.25])), [20.0])


def test_a_path_of_the_same_functions_is_the_same_process():
    ts = np.linspace(0.01, 0.99, 7)
    straight = Path(lambda t: 1 - t, lambda t: t)
    for method in ("alpha", "variance", "drift", "diffusion", "log_ratio"):
        mine, printed = (read(getattr(noise, method), ts) for noise in (straight, StraightPath()))
        np.testing.assert_allclose(mine, printed, rtol=1e-9)
    arc = Path(jnp.cos, jnp.sin)
    assert same_noise(arc, Path(jnp.cos, jnp.sin)) and not same_noise(straight, arc)


# ------------------------------------------------------------------------------------------------------ finite chains


def test_a_geometric_ladder_is_variance_exploding():
    ladder, process = Ladder(np.geomspace(0.01, 50.0, 30)), VarianceExploding(0.01, 50.0)
    ts = np.linspace(0, 1, 47)
    np.testing.assert_allclose(read(ladder.sigma, ts), read(process.sigma, ts), rtol=1e-5)
    np.testing.assert_allclose(read(ladder.sigma, ladder.levels), np.geomspace(0.01, 50.0, 30)[::-1], rtol=1e-5)
    other = Ladder(np.linspace(0.01, 50.0, 30))
    np.testing.assert_allclose(read(other.sigma, other.levels), np.linspace(0.01, 50.0, 30)[::-1], rtol=1e-5)
    assert np.abs(read(other.sigma, ts) / read(process.sigma, ts) - 1).max() > 0.5


MOMENTS = ("alpha", "variance")


def test_a_chain_is_its_own_steps_and_tends_to_variance_preserving():
    """x_i = sqrt(1 - beta_i) x_{i-1} + sqrt(beta_i) z, and 1000 of them are within 1e-3 of the process."""
    chain = linear_chain(1000)
    betas = 0.1 / 1000 + np.arange(1000) * 19.9 / (1000 * 999)
    np.testing.assert_allclose(chain.betas, betas, rtol=1e-5)
    levels = np.asarray(chain.levels, float)
    kept = np.concatenate([np.cumprod(1 - betas)[::-1], [1.0]])
    np.testing.assert_allclose(read(chain.alpha, levels) ** 2, kept, rtol=1e-4)
    for i in (1, 400, 1000):
        a, v = chain.between((i - 1) / 1000, i / 1000)
        np.testing.assert_allclose([a, v], [np.sqrt(1 - betas[i - 1]), betas[i - 1]], rtol=2e-3)
    process, off = VariancePreserving(), {}
    for n in (100, 1000):
        pairs = [[read(getattr(noise, m), levels) for noise in (linear_chain(n), process)] for m in MOMENTS]
        off[n] = np.array([np.abs(one - other).max() for one, other in pairs])
    # What Song 2022, Fig. B.39 shows, to two digits; and ten times as much for a tenth of the steps.
    np.testing.assert_allclose(off[1000], [9.9e-4, 8.1e-4], rtol=1e-2)
    assert np.all(off[100] > 5 * off[1000])


def test_the_prior_is_what_is_left_at_level_1():
    for noise in (VarianceExploding(0.1, 7.0), VariancePreserving()):
        keys = jax.random.split(jax.random.key(0), 4000)
        draws = jax.vmap(lambda k, noise=noise: noise.prior_sample((3,), key=k))(keys)
        squares = np.asarray(draws, np.float64) ** 2
        sigma2 = float(noise.variance(1.0))
        assert holds(squares, sigma2) and breaks(squares, 1.1 * sigma2)
        x = np.array([0.3, -1.0, 2.0])
        log_density = -np.sum(x**2) / (2 * sigma2) - 1.5 * np.log(2 * np.pi * sigma2)
        assert float(noise.prior_log_prob(jnp.asarray(x, jnp.float32))) == pytest.approx(log_density, rel=1e-5)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: SubVariancePreserving(2.0, 1.0), "noise rates must not fall"),
        (lambda: Cosine(-0.1), "the offset of a cosine process must not be negative, not -0.1"),
        (
            lambda: EDM(1.0, 0.5),
            "noise levels must grow from a low that is not negative to a finite high, not 1.0.",
        ),
        (lambda: EDM(rho=0.0), "the exponent rho must be positive and finite, not 0.0"),
        (lambda: Ladder([0.5, 0.1]), "the levels of a ladder are two or more numbers that rise; sort them"),
        (lambda: Ladder([0.0, 0.1]), "a level of a ladder must be positive, not 0.0"),
        (lambda: Chain([0.5, 1.0]), "the rates of a chain are numbers below 1"),
        (lambda: linear_chain(10), "10 steps are too few for rates of 0.1 to 20.0"),
        (lambda: Path(lambda t: 1 - 2 * t, lambda t: t), "below t = 1 the alpha of a path is positive"),
        (lambda: Path(lambda t: 1.0, lambda t: 1 - t), "sigma / alpha of a path never falls"),
    ],
)
def test_processes_that_cannot_be_are_refused(build, words):
    with pytest.raises(un.InputError) as told:
        build()
    assert words in str(told.value)
