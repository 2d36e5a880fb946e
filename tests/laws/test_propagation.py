"""Laws of propagated curvature: approximate backpropagation is exact with one hidden layer and biased with two; the
random complex vector of curvature propagation has the Hessian's diagonal for its mean, at any depth.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import losses_and_gradients
from harness import breaks, deviation, holds

from unnorm.energies import NeuralEnergy, ResNetEnergy
from unnorm.errors import InputError
from unnorm.networks import MLP
from unnorm.objectives import SM, ApproximateBP, CurvaturePropagation
from unnorm.objectives.propagation import approximate_curvature, sampled_curvature
from unnorm.spaces import Real

D = 5


def energy(depth: int) -> NeuralEnergy:
    """A network with bends of both signs, a scale and a confinement that matter."""
    network = MLP(D, 1, width=16, depth=depth, activation=jax.nn.softplus, key=jax.random.key(depth))
    sharper = jax.tree.map(lambda w: 2.0 * w, eqx.filter(network, eqx.is_inexact_array))
    network = eqx.combine(sharper, network)
    return NeuralEnergy(Real((D,)), network, scale=0.7, confinement=1.7)


@eqx.filter_jit
def exact_curvature(network, x):
    def f(x):
        return network(x)[0]

    return jax.grad(f)(x), jnp.diagonal(jax.hessian(f)(x))


@pytest.fixture(scope="module")
def batch():
    return jax.random.normal(jax.random.key(10), (16, D))


KEYS = jax.random.split(jax.random.key(11), 1000)


def test_approximate_backpropagation_is_exact_with_one_hidden_layer_only(batch):
    exact, approximate = (
        losses_and_gradients(objective, energy(1), batch, KEYS[:1]) for objective in (SM(), ApproximateBP())
    )
    np.testing.assert_allclose(approximate[0], exact[0], rtol=1e-5)
    np.testing.assert_allclose(approximate[1], exact[1], rtol=1e-3, atol=1e-4)
    x = batch[0]
    # With two, the gradient is still exact and the diagonal is not: far from it, in units of rounding.
    gradient, diagonal = approximate_curvature(energy(2).network, x)
    true_gradient, true_diagonal = exact_curvature(energy(2).network, x)
    np.testing.assert_allclose(gradient, true_gradient, rtol=1e-4, atol=1e-5)
    assert np.abs(diagonal - true_diagonal).max() > 0.02 * np.abs(true_diagonal).max()


@pytest.mark.parametrize("depth", [pytest.param(1, marks=pytest.mark.thorough), 3])
def test_curvature_propagation_is_unbiased(batch, depth):
    network, x = energy(depth).network, batch[0]
    draws = jax.random.split(jax.random.key(12), 20_000)

    def sample(key, floor=1e-4):
        return sampled_curvature(network, x, floor=floor, key=key)[1]

    found = jax.jit(jax.vmap(sample))(draws)
    _, diagonal = exact_curvature(network, x)
    assert holds(found, diagonal, bias=1e-5)
    # A floor of any size changes the spread and not the mean.
    if depth == 3:
        assert holds(jax.jit(jax.vmap(lambda k: sample(k, 0.1)))(draws), diagonal, bias=1e-5)
        # Negative control: the diagonal of approximate backpropagation is not the mean.
        assert deviation(found, approximate_curvature(network, x)[1], 1e-5) > 4.5
        # Negative control: bends of both signs taken for positive.
        assert breaks(jax.jit(jax.vmap(lambda k: rectified(network, x, k)))(draws), diagonal)


def rectified(network, x, key):
    """Curvature propagation that drops the imaginary part: only the positive bends of the last hidden layer count."""
    positive = jnp.maximum(network.layers[-1].weight, 0)
    return sampled_curvature(eqx.tree_at(lambda n: n.layers[-1].weight, network, positive), x, floor=1e-4, key=key)[1]


def test_its_loss_and_gradient_average_to_those_of_exact_score_matching(batch):
    exact_loss, exact_gradient = losses_and_gradients(SM(), energy(2), batch, KEYS[:1])
    losses, gradients = losses_and_gradients(CurvaturePropagation(), energy(2), batch, KEYS)
    assert holds(losses, exact_loss[0], bias=1e-4)
    assert holds(gradients, exact_gradient[0], bias=1e-3)
    # Negative control: approximate backpropagation has another loss.
    approximate, _ = losses_and_gradients(ApproximateBP(), energy(2), batch, KEYS[:1])
    assert breaks(losses, approximate[0], bias=1e-4)


def test_other_models_are_refused(batch):
    model = ResNetEnergy(Real((D,)), width=8, blocks=1, key=jax.random.key(0))
    for objective in (ApproximateBP(), CurvaturePropagation()):
        with pytest.raises(InputError, match="on an MLP"):
            objective.init(model, batch, key=jax.random.key(0))
