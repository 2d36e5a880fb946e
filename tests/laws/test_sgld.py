"""Stochastic-gradient Langevin on a conjugate posterior, and the two ways to write Langevin's step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.samplers import SGLD, Langevin, SumOverRows

pytestmark = pytest.mark.optimised

# Rows of N(theta, NOISE^2), theta of N(0, WIDTH^2): the posterior is N(MEAN, 1 / A).
ROWS = np.random.default_rng(0).normal(0.8, 1.5, size=(200, 2)).astype(np.float32)
NOISE, WIDTH, BATCH = 1.5, 2.0, 20
A = 1 / WIDTH**2 + len(ROWS) / NOISE**2
MEAN = ROWS.sum(0) / NOISE**2 / A
# Of n / batch sum_b (theta - row_b) / NOISE^2, rows drawn with replacement: it does not depend on theta.
GRADIENT_VARIANCE = len(ROWS) ** 2 / BATCH * ROWS.var(0) / NOISE**4


def term(x, row):
    return 0.5 * jnp.sum((row - x) ** 2) / NOISE**2


POSTERIOR = SumOverRows(un.energies.standard_gaussian(2, scale=WIDTH), term, ROWS)


class Unscaled(SumOverRows):
    """The mistake: the chosen rows count as if they were all."""

    def estimate(self, x, chosen):
        return self.prior(x) + jnp.sum(jax.vmap(lambda row: self.term(x, row))(self.rows[chosen]))


def moments(sampler, target=POSTERIOR, steps=200, chains=4000):
    """theta - MEAN and its square, at the end of chains that begin at the prior's mean."""
    trace = un.sample(
        target, sampler, chains=chains, steps=1, thin=steps, start=jnp.zeros((chains, 2)), key=jax.random.key(1),
        progress=False,
    )  # fmt: skip
    offsets = trace.draws[:, 0].astype(np.float64) - MEAN
    return np.column_stack([offsets, offsets**2])


@pytest.mark.parametrize("share", [0.06, 0.2])
def test_a_constant_step_has_the_variance_of_step_and_gradient_noise_together(share):
    """v = (1 - h a)^2 v + h^2 V + 2 h, so v = (2 + h V) / (a (2 - h a))."""
    h = share / A
    found = moments(SGLD(h, BATCH))
    stationary = (2 + h * GRADIENT_VARIANCE) / (A * (2 - h * A))
    assert holds(found, [0, 0, *stationary])
    # Negative controls: the posterior itself, Langevin's bias alone, and a sum that is not scaled up.
    assert breaks(found, [0, 0, 1 / A, 1 / A])
    assert share < 0.1 or breaks(found, [0, 0, *[2 / (A * (2 - h * A))] * 2])
    unscaled = Unscaled(POSTERIOR.prior, term, ROWS)
    assert breaks(moments(SGLD(h, BATCH), unscaled), [0, 0, *stationary])


def test_falling_steps_settle_on_the_posterior():
    """The variance after every step is known, and the excess over 1 / a falls with the step."""
    h, decay, delay, steps = 0.3 / A, 0.6, 2.0, 600
    variance, excess = MEAN**2 * 0, []
    bias = -MEAN.astype(np.float64)
    for t in range(steps):
        step = h * (1 + t / delay) ** -decay
        variance = (1 - step * A) ** 2 * variance + step**2 * GRADIENT_VARIANCE + 2 * step
        bias = (1 - step * A) * bias
        excess.append(variance * A - 1)
    found = moments(SGLD(h, BATCH, decay=decay, delay=delay), steps=steps)
    assert holds(found, [*bias, *(variance + bias**2)])
    assert np.all(excess[-1] < 0.1) and np.all(excess[20] > 5 * excess[-1])
    # Negative control: the first step kept.
    assert breaks(moments(SGLD(h, BATCH)), [*bias, *(variance + bias**2)])


def test_all_of_the_energy_is_the_posterior():
    """E(x) - E(MEAN) = a |x - MEAN|^2 / 2, and the estimate over all rows is E itself."""
    xs = jnp.asarray(np.random.default_rng(1).normal(MEAN, 0.3, size=(50, 2)), float)
    energies = jax.vmap(POSTERIOR)(xs) - POSTERIOR(jnp.asarray(MEAN, float))
    np.testing.assert_allclose(energies, 0.5 * A * np.sum((xs - MEAN) ** 2, axis=1), rtol=1e-3, atol=1e-3)
    estimates = jax.vmap(lambda x: POSTERIOR.estimate(x, jnp.arange(len(ROWS))))(xs)
    np.testing.assert_allclose(estimates, jax.vmap(POSTERIOR)(xs), rtol=1e-5)


def test_both_ways_to_write_langevins_step_are_one_walk():
    """x - (e / 2) g + sqrt(e) z at e = 2 h is x - h g + sqrt(2 h) z at h: to the last bit."""
    target = un.energies.gaussian([1.0, -1.0], [[1.0, 0.4], [0.4, 0.5]])
    epsilon, key = 0.06, jax.random.key(2)

    def walk(sampler):
        return un.sample(target, sampler, chains=8, steps=50, key=key, progress=False).draws

    assert np.array_equal(walk(Langevin.halved(epsilon)), walk(Langevin(epsilon / 2)))
    # Negative control: the same number in the two conventions is not the same walk.
    assert not np.allclose(walk(Langevin.halved(epsilon)), walk(Langevin(epsilon)), atol=1e-3)
    # And by hand, from the formula.
    x = jnp.asarray([0.3, 0.2])
    moved, _ = Langevin.halved(epsilon).step(target, x, key=key)
    by_hand = x - epsilon / 2 * jax.grad(target)(x) + jnp.sqrt(epsilon) * jax.random.normal(key, (2,))
    np.testing.assert_allclose(moved, by_hand, rtol=1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 1.2])
def test_the_halved_step_has_the_variance_as_printed(epsilon):
    """v / (1 - e / (4 v)), unstable from e = 4 v (spec of Eq. 4.19)."""
    target = un.energies.standard_gaussian(1, scale=0.8)
    trace = un.sample(
        target, Langevin.halved(epsilon), chains=4000, steps=1, thin=200, key=jax.random.key(3), progress=False
    )
    squares = trace.draws[:, 0].astype(np.float64) ** 2
    assert holds(squares, 0.64 / (1 - epsilon / (4 * 0.64)))
    assert breaks(squares, 0.64 / (1 - epsilon / (2 * 0.64)))
