"""A flow has an exact density: it integrates to one, its samples follow it, and likelihood finds a known Gaussian."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.energies import NICE
from unnorm.errors import InputError
from unnorm.objectives import MLE
from unnorm.spaces import Real

pytestmark = pytest.mark.optimised


@pytest.fixture(scope="module")
def bent():
    """A flow with weights large enough to bend, and scales that are not one."""
    flow = NICE(Real((2,)), width=8, depth=2, couplings=4, key=jax.random.key(0))
    weights, rest = eqx.partition(flow, eqx.is_inexact_array)
    flow = eqx.combine(jax.tree.map(lambda w: 1.5 * w, weights), rest)
    return eqx.tree_at(lambda f: f.log_scale, flow, jnp.array([0.4, -0.3]))


def quadrature(flow, side=400, width=14.0):
    """Points and masses of p on a grid around the image of 0."""
    axis = jnp.linspace(-width, width, side)
    points = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2) + flow.backward(jnp.zeros(2))
    masses = jnp.exp(jax.jit(jax.vmap(flow.log_prob))(points)) * (axis[1] - axis[0]) ** 2
    return np.asarray(points, np.float64), np.asarray(masses, np.float64)


def test_it_integrates_to_one(bent):
    """The trapezium rule is exact to rounding for a smooth density that vanishes at the edge."""
    _, masses = quadrature(bent)
    assert abs(masses.sum() - 1) < 1e-4
    # A log-determinant that counts the scales twice, or not at all, is a wrong total.
    volume = float(jnp.exp(jnp.sum(bent.log_scale)))
    assert abs(masses.sum() * volume - 1) > 0.05 and abs(masses.sum() / volume - 1) > 0.05


def test_the_log_determinant_is_that_of_the_jacobian(bent):
    xs = jax.random.normal(jax.random.key(1), (5, 2))
    _, logdet = jnp.linalg.slogdet(jax.vmap(jax.jacfwd(bent.forward))(xs))
    assert np.allclose(logdet, jnp.sum(bent.log_scale), atol=1e-5)
    ys = jax.vmap(bent.forward)(xs)
    normal = -0.5 * jnp.sum(ys**2, axis=1) - jnp.log(2 * jnp.pi)
    assert np.allclose(jax.vmap(bent.log_prob)(xs), normal + logdet, atol=1e-4)


def test_the_inverse_is_exact():
    flow = NICE(Real((3, 3)), width=16, depth=3, couplings=4, key=jax.random.key(2))
    xs = jax.random.normal(jax.random.key(3), (10, 3, 3))
    back = jax.jit(jax.vmap(lambda x: flow.backward(flow.forward(x))))(xs)
    assert np.allclose(back, xs, atol=1e-5)
    # Couplings undone in the order they were made do not give x back.
    a, b, c, d = flow.networks
    swapped = eqx.tree_at(lambda f: f.networks, flow, (c, b, a, d))
    assert not np.allclose(jax.vmap(lambda x: swapped.backward(flow.forward(x)))(xs), xs, atol=1e-3)


def test_samples_follow_the_density(bent):
    """First and second moments of draws are those of the quadrature."""

    def moments(x):
        return np.stack([x[:, 0], x[:, 1], x[:, 0] ** 2, x[:, 0] * x[:, 1], x[:, 1] ** 2], axis=1)

    points, masses = quadrature(bent)
    truth = masses @ moments(points)
    draws = np.asarray(jax.jit(lambda key: bent.samples(20_000, key=key))(jax.random.key(4)), np.float64)
    assert holds(moments(draws), truth)
    flipped = eqx.tree_at(lambda f: f.log_scale, bent, -bent.log_scale)
    assert breaks(moments(np.asarray(flipped.samples(20_000, key=jax.random.key(4)), np.float64)), truth)


class WrongVolume(un.energies.AbstractNormalised):
    """The flow with its log-determinant halved."""

    flow: NICE
    space: Real = eqx.field(static=True)

    def __call__(self, x):
        return self.flow(x) + 0.5 * jnp.sum(self.flow.log_scale)

    def sample(self, *, key):
        return self.flow.sample(key=key)


def test_likelihood_finds_a_correlated_gaussian():
    """KL(truth | flow), estimated on fresh draws of the truth, falls to nearly nothing; the entropy is exact."""
    truth = un.energies.gaussian([1.0, -0.5], [[2.0, 0.9], [0.9, 0.6]])
    data, test = truth.samples(4000, key=jax.random.key(5)), truth.samples(4000, key=jax.random.key(6))
    start = NICE(Real((2,)), width=16, depth=1, couplings=4, key=jax.random.key(7))
    options = {"steps": 500, "batch": 256, "rate": 1e-2, "key": jax.random.key(8), "progress": False}
    flow = un.fit(start, MLE(), data, **options).model
    excess = np.asarray(jax.vmap(flow)(test) - jax.vmap(truth)(test), np.float64)
    assert holds(excess, 0.0, bias=0.01)
    wrong = un.fit(WrongVolume(start, start.space), MLE(), data, **options).model.flow
    assert breaks(np.asarray(jax.vmap(wrong)(test) - jax.vmap(truth)(test), np.float64), 0.0, bias=0.01)


def test_what_cannot_be_coupled_is_refused():
    with pytest.raises(InputError, match="two coordinates"):
        NICE(Real((1,)), key=jax.random.key(0))
    with pytest.raises(InputError, match="never changes"):
        NICE(Real((2,)), couplings=1, key=jax.random.key(0))
    with pytest.raises(InputError, match="needs a normalised model"):
        MLE().init(2.0 * un.energies.standard_gaussian(2), jnp.zeros((3, 2)), key=jax.random.key(0))
