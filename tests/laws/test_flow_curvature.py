"""Laws of curvature propagated through a flow: the gradient is exact in both methods; the random diagonal has the
Hessian's for its mean; the approximate one is exact where every layer is diagonal, and biased elsewhere.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import losses_and_gradients
from harness import breaks, deviation, holds

from unnorm.energies import NICE, standard_gaussian
from unnorm.errors import InputError
from unnorm.objectives import SM
from unnorm.objectives.flow_curvature import (
    FlowApproximateBP,
    FlowCurvaturePropagation,
    Kind,
    approximate_flow_curvature,
    sampled_flow_curvature,
)
from unnorm.spaces import Real

D = 5


def flow(width: int = 6, depth: int = 2, couplings: int = 3, size: int = D) -> NICE:
    """With bends of both signs and scales that matter."""
    model = NICE(Real((size,)), width=width, depth=depth, couplings=couplings, key=jax.random.key(0))
    sharper = jax.tree.map(lambda w: 2.0 * w, eqx.filter(model, eqx.is_inexact_array))
    return eqx.tree_at(lambda m: m.log_scale, eqx.combine(sharper, model), jnp.linspace(-0.4, 0.3, size))


@eqx.filter_jit
def exact(model, x):
    def log_prob(x):
        return -model(x)

    return jax.grad(log_prob)(x), jnp.diagonal(jax.hessian(log_prob)(x))


approximate = eqx.filter_jit(approximate_flow_curvature)
X = jax.random.normal(jax.random.key(1), (D,))
DRAWS = jax.random.split(jax.random.key(2), 40_000)


def test_both_gradients_are_exact():
    model = flow()
    gradient, _ = exact(model, X)
    sampled = eqx.filter_jit(sampled_flow_curvature)(model, X, floor=1e-4, key=DRAWS[0])
    for found in (approximate(model, X), sampled):
        np.testing.assert_allclose(found[0], gradient, rtol=1e-4, atol=1e-5)
    # Controls: every coupling taken for one of the same kind, as in the released programs.
    even = flow(size=4)
    truth = exact(even, X[:4])[0]
    for kind in (None, *Kind):
        sampled = sampled_flow_curvature(even, X[:4], floor=1e-4, taken_for=kind, key=DRAWS[0])
        for found in (approximate_flow_curvature(even, X[:4], taken_for=kind), sampled):
            assert np.allclose(found[0], truth, rtol=1e-2) == (kind is None)
    with pytest.raises(InputError, match="two halves of one size"):
        approximate_flow_curvature(model, X, taken_for=Kind.FIRST)


def test_a_coupling_taken_for_one_of_its_own_kind_is_right():
    """What the released derivatives are: with the other networks nought, they are right for one kind and wrong for the
    other, whose slopes they send to the wrong half."""
    model = flow(couplings=2, size=4)
    for i, own in enumerate(Kind):
        other = model.networks[1 - i]
        still = jax.tree.map(jnp.zeros_like, eqx.filter(other, eqx.is_inexact_array))
        single = eqx.tree_at(lambda m, j=1 - i: m.networks[j], model, eqx.combine(still, other))
        truth = exact(single, X[:4])[0]
        for kind in Kind:
            found = approximate_flow_curvature(single, X[:4], taken_for=kind)[0]
            assert np.allclose(found, truth, rtol=1e-4, atol=1e-5) == (kind is own)


def test_the_random_diagonal_has_the_right_mean():
    model = flow()
    _, diagonal = exact(model, X)

    @eqx.filter_jit
    def sample(floor):
        return jax.lax.map(lambda k: sampled_flow_curvature(model, X, floor=floor, key=k)[1], DRAWS, batch_size=2000)

    found = sample(1e-4)
    assert holds(found, diagonal, bias=1e-5)
    # A floor changes the spread and not the mean.
    assert holds(sample(0.1), diagonal, bias=1e-5)
    # Controls: the diagonal of approximate backpropagation, and a Hessian at y forgotten, are not the mean.
    assert breaks(found, approximate(model, X)[1], bias=1e-5)
    assert breaks(found, diagonal + np.exp(2 * np.linspace(-0.4, 0.3, D)), bias=1e-5)


def test_the_approximate_diagonal_is_exact_for_two_coordinates_of_one_unit():
    """Networks of one unit from one number to one have nothing off a diagonal, but for the last walk into x.

    With the second network nought, x1 -> y2 = x2 + m(x1) is the only coupling: d2/dx1^2 = -1 - m'^2 - y2 m''.
    """
    model = flow(width=1, depth=1, couplings=2, size=2)
    still = jax.tree.map(jnp.zeros_like, eqx.filter(model.networks[1], eqx.is_inexact_array))
    model = eqx.tree_at(lambda m: m.networks[1], model, eqx.combine(still, model.networks[1]))
    found, truth = approximate(model, X[:2])[1], exact(model, X[:2])[1]
    np.testing.assert_allclose(found, truth, rtol=1e-4, atol=1e-5)
    # With more units it is not: the square of a sum of slopes is not the sum of their squares.
    wide = flow(width=6, depth=1, couplings=2, size=2)
    assert np.abs(approximate(wide, X[:2])[1] - exact(wide, X[:2])[1]).max() > 0.02


def test_loss_and_gradient_average_to_those_of_exact_score_matching():
    model, batch = flow(depth=1, couplings=2), jax.random.normal(jax.random.key(3), (8, D))
    loss, gradient = losses_and_gradients(SM(), model, batch, DRAWS[:1])
    losses, gradients = losses_and_gradients(FlowCurvaturePropagation(), model, batch, DRAWS[:600])
    assert holds(losses, loss[0], bias=1e-4)
    assert holds(gradients, gradient[0], bias=1e-3)
    other, slopes = losses_and_gradients(FlowApproximateBP(), model, batch, DRAWS[:1])
    assert breaks(losses, other[0], bias=1e-4)
    assert deviation(gradients, slopes[0], 1e-3) > 4.5


def test_other_models_and_floors_are_refused():
    for objective in (FlowApproximateBP(), FlowCurvaturePropagation()):
        with pytest.raises(InputError, match="flow NICE"):
            objective.init(standard_gaussian(2), X, key=DRAWS[0])
    with pytest.raises(InputError, match="floor"):
        FlowCurvaturePropagation(floor=0.0)
