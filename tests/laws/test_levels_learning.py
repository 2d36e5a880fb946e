"""Laws of what is learnt over levels: closed forms of their law, discrete levels and continuous ones, flow matching."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_scores import mixture_score
from harness import breaks, holds

import unnorm as un
from unnorm import noises, objectives, scores
from unnorm.networks import Wells

KEY = jax.random.key(0)
VP, SUB, VE = noises.VariancePreserving(), noises.SubVariancePreserving(), noises.VarianceExploding(0.01, 50.0)
LOW, HIGH = 0.1, 20.0


def whole(t):
    """B(t) of VP and sub-VP."""
    return LOW * t + (HIGH - LOW) * t**2 / 2


def level(b):
    """t of B."""
    return (-LOW + np.sqrt(LOW**2 + 2 * (HIGH - LOW) * b)) / (HIGH - LOW)


#: F, the integral of g^2 / sigma^2, and B as a function of it.
CLOSED = {
    "VP": (VP, lambda b: np.log(np.expm1(b)), lambda f: np.logaddexp(0.0, f)),
    "sub-VP": (SUB, lambda b: 2 * np.log(2 * np.sinh(b / 2)), lambda f: 2 * np.arcsinh(np.exp(f / 2) / 2)),
}


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("least", [1e-5, 1e-2])
def test_likelihood_times_are_those_of_the_closed_form(name, least):
    noise, rise, back = CLOSED[name]
    with jax.enable_x64(True):
        ts, _ = noises.LikelihoodTimes().draw(noise, jnp.asarray(least, jnp.float64), 200, key=KEY)
        shares = np.asarray(jax.random.uniform(KEY, (200,), jnp.float64))
    first, last = rise(whole(least)), rise(whole(1.0))
    np.testing.assert_allclose(ts, level(back(first + shares * (last - first))), rtol=1e-6)
    # Control: uniform in time.
    assert np.abs(ts - (least + (1 - least) * shares)).max() > 0.1


def test_likelihood_times_are_uniform_where_variance_explodes():
    with jax.enable_x64(True):
        ts, worth = noises.LikelihoodTimes().draw(VE, jnp.asarray(1e-5), 200, key=KEY)
        shares = np.asarray(jax.random.uniform(KEY, (200,), jnp.float64))
    np.testing.assert_allclose(ts, 1e-5 + (1 - 1e-5) * shares, rtol=1e-6)
    np.testing.assert_allclose(worth, 1.0, rtol=1e-6)


def gaussian(noise, slack=1.0):
    """The score of data N(0, I / 4), its size off by a factor."""
    return scores.LevelledFunction(lambda t, x: -slack * x / (0.25 * noise.alpha(t) ** 2 + noise.variance(t)), noise)


@pytest.mark.parametrize(
    ("process", "first", "mean", "uniform", "sampled"),
    [(VP, 1e-3, 3.864782, 18.9, 4.28), (SUB, 1e-2, 5.523966, 15.2, 5.27), (SUB, 1e-3, 8.422332, 38.3, 6.67)],
)
def test_a_process_that_begins_at_a_level_has_the_loss_from_there(process, first, mean, uniform, sampled):
    """The integral of the weighted loss over [first, 1], and the printed deviations of one draw of it."""
    noise = noises.Begun(process, first)
    rows = 0.5 * jax.random.normal(jax.random.key(1), (12_000, 64))
    for times, deviation in ((noises.UniformTimes(), uniform), (noises.LikelihoodTimes(), sampled)):
        loss = objectives.DSM(weighting=objectives.LikelihoodWeighting(), times=times)
        each = jax.jit(jax.vmap(lambda x, k, loss=loss, noise=noise: loss(gaussian(noise), None, x[None], key=k)[0]))
        found = np.asarray(each(rows, jax.random.split(KEY, len(rows))), np.float64)
        assert holds(found, mean)
        assert abs(found.std() / deviation - 1) < (0.05 if deviation == sampled else 0.3)
    assert breaks(found, 1.1 * mean)


# ------------------------------------------------------------------------------------------ discrete and continuous


def expected(noise, ts, slack):
    """E| sigma s + z |^2 a coordinate for the score above: 1 - (2 k - k^2) sigma^2 / w^2, over these levels."""
    with jax.enable_x64(True):
        alpha, variance = (np.asarray(jax.vmap(part)(jnp.asarray(ts))) for part in (noise.alpha, noise.variance))
    return float(np.mean(1 - (2 * slack - slack**2) * variance / (0.25 * alpha**2 + variance)))


CHAINS = {
    "ten levels of NCSN": (noises.Ladder(np.geomspace(0.05, 5.0, 10)), slice(None)),
    "a hundred steps of DDPM": (noises.linear_chain(100), slice(None, -1)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_discrete_training_is_continuous_training_at_other_levels(name):
    """One loss; the sampler of its levels makes it the sum of Song and Ermon 2019 or of Ho et al. 2020."""
    noise, kept = CHAINS[name]
    levels = tuple(float(t) for t in noise.levels[kept])
    rows = 0.5 * jax.random.normal(jax.random.key(2), (20_000, 1))
    for times, ts in (
        (noises.DiscreteTimes(levels), np.array(levels)),
        (noises.UniformTimes(), (np.arange(10_000) + 0.5) / 10_000),
    ):
        loss = objectives.DSM(times=times)
        each = jax.jit(
            jax.vmap(lambda x, k, loss=loss, noise=noise: loss(gaussian(noise, 0.5), None, x[None], key=k)[0])
        )
        found = each(rows, jax.random.split(KEY, len(rows)))
        assert holds(found, expected(noise, ts, 0.5), bias=1e-3)
    few = noises.DiscreteTimes(levels[:3])
    assert breaks(found, expected(noise, few.levels, 0.5), bias=1e-3)


# ------------------------------------------------------------------------------------------ flow matching

PROCESSES = {
    "VP": VP, "sub-VP": SUB, "VE": VE, "OU": noises.OrnsteinUhlenbeck(), "straight": noises.StraightPath(),
    "cosine": noises.Cosine(),
}  # fmt: skip
MEAN, COVARIANCE = np.array([0.5, -1.0]), np.array([[0.8, 0.3], [0.3, 0.4]])


@pytest.mark.parametrize("name", PROCESSES)
def test_flow_matching_and_diffusion_have_one_velocity_on_gaussians(name):
    """E[alpha' x_0 + sigma' z | x_t], by the rules of Gaussians, is f x - g^2 s / 2 with the exact score."""
    noise = PROCESSES[name]
    with jax.enable_x64(True):
        for t in (0.1, 0.5, 0.9):
            time, x = jnp.asarray(t), jnp.array([0.7, 0.2])
            (alpha, rise), (sigma, widening) = (jax.value_and_grad(part)(time) for part in (noise.alpha, noise.sigma))
            covariance = alpha**2 * COVARIANCE + sigma**2 * np.eye(2)
            pull = np.linalg.solve(covariance, x - alpha * MEAN)
            matched = rise * (MEAN + alpha * COVARIANCE @ pull) + widening * sigma * pull
            np.testing.assert_allclose(noise.flow(time, x, -pull), matched, rtol=1e-6)
            # Control: the drift of the reverse process, whose second term counts twice.
            assert np.abs(noise.reverse_drift(time, x, -pull) - matched).max() > 1e-3


class Velocity(eqx.Module):
    """A network whose answer is the velocity of N(mean, e^(2 log_width)) under the straight path."""

    mean: jax.Array
    log_width: jax.Array

    def __call__(self, x, t, condition):
        # The network is shown x / w with spread 1.
        x = x * jnp.sqrt((1 - t) ** 2 + t**2)
        square = jnp.exp(2 * self.log_width)
        pull = (x - (1 - t) * self.mean) / ((1 - t) ** 2 * square + t**2)
        return -(self.mean + (1 - t) * square * pull) + t * pull


def test_flow_matching_stands_still_at_the_velocity_of_gaussian_data():
    noise, mean, width = noises.StraightPath(), 0.7, 0.5

    def gradients(model_mean):
        network = Velocity(jnp.asarray([model_mean]), jnp.log(jnp.asarray([width])))
        score = scores.LevelledScore(network=network, noise=noise, preconditioning=scores.PredictFlow())
        loss = objectives.DSM(weighting=objectives.FlowWeighting(), times=noises.DiscreteTimes((0.2, 0.5, 0.8)))

        def one(key):
            draw, run = jax.random.split(key)
            rows = mean + width * jax.random.normal(draw, (128, 1))
            found = jax.grad(lambda n: loss(eqx.tree_at(lambda s: s.network, score, n), None, rows, key=run)[0])(
                network
            )
            return jnp.concatenate([found.mean, found.log_width])

        return jax.jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(KEY, 100))

    assert holds(gradients(mean), 0.0) and breaks(gradients(mean + 0.1), 0.0)


# ------------------------------------------------------------------------------------------ wells over levels


@pytest.mark.parametrize("name", ["VP", "VE"])
def test_noised_wells_are_the_mixture_at_every_level(name):
    noise = PROCESSES[name]
    centres, weights, scale = np.array([[-1.0, 0.0], [1.0, 0.5], [0.3, 1.5]]), np.array([0.5, 0.3, 0.2]), 0.3
    wells = Wells(jnp.asarray(centres, float), units=3, radius=scale, key=KEY)
    wells = eqx.tree_at(lambda w: (w.centres, w.depths), wells, (jnp.asarray(centres, float), jnp.log(weights)))
    model = scores.wells_energy(noise, jnp.asarray(centres, float), units=3, radius=scale, key=KEY)
    model = eqx.tree_at(lambda m: m.network.wells, model, wells)
    exact, x = mixture_score(noise, weights, centres, scale), jnp.array([0.2, 0.4])
    for t in (0.05, 0.4, 1.0):
        level = jnp.asarray(t)
        np.testing.assert_allclose(model(level, x), exact(level, x), rtol=1e-3, atol=1e-4)
        # Control: the wells as they are, whatever the noise.
        still = -jax.grad(lambda x: wells(x)[0])(x)
        assert np.abs(still - exact(level, x)).max() > 1e-3
    assert not any(jax.tree.leaves(un.training.trainable(model).network.noise))
