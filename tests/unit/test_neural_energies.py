"""Energies that are networks or functions: they confine, they scale, and what they cannot be is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm.energies import FunctionEnergy, MLPEnergy, NeuralEnergy, ResNetEnergy
from unnorm.errors import InputError
from unnorm.networks import MLP
from unnorm.spaces import Binary, Real


def points(n: int, d: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(n, d)) * 1.5, jnp.float32)


def energies(energy, xs) -> np.ndarray:
    return np.asarray(jax.vmap(energy)(xs), np.float64)


@pytest.mark.parametrize("make", [MLPEnergy, ResNetEnergy])
def test_neural_energies_are_confining(make):
    """Along every ray E(r u) = exp(a) r^2 / (2 s^2) + O(r), for any weights."""
    model = make(Real((3,)), width=16, scale=0.5, key=jax.random.key(9))
    # Weights ten times as large, and a confinement of 0.7: what training may do.
    large = jax.tree.map(lambda leaf: 10 * leaf if eqx.is_inexact_array(leaf) else leaf, model.network)
    model = eqx.tree_at(lambda m: (m.network, m.log_confinement), model, (large, jnp.log(0.7)))
    directions = points(20, 3)
    directions = directions / jnp.linalg.norm(directions, axis=1, keepdims=True)

    def excess(energy, r: float) -> np.ndarray:
        return np.abs(energies(energy, r * directions) / (0.7 * r**2 / (2 * 0.5**2)) - 1).max()

    slope = max(np.abs(np.asarray(jax.vmap(model.network)(1e6 * directions))).max() / 1e6, 1.0)
    assert np.isfinite(slope)
    for r in (1e4 * slope, 1e5 * slope):
        # |network(x)| <= slope |x| up to a constant, so the excess is at most slope r / (0.7 r^2 / 2).
        assert excess(model, float(r)) < 2 * slope / (0.7 * r / 2)
    # Negative control: the bare network has no such quadratic.
    bare = FunctionEnergy(lambda x: model.network(x)[0] / 0.5**2, Real((3,)))
    assert excess(bare, 1e4 * slope) > 0.9


def test_the_scale_divides_the_energy():
    network = MLP(2, 1, width=8, depth=1, key=jax.random.key(10))
    one, tenth = NeuralEnergy(Real((2,)), network), NeuralEnergy(Real((2,)), network, scale=0.1)
    xs = points(20, 2)
    np.testing.assert_allclose(energies(tenth, xs), 100 * energies(one, xs), rtol=1e-4)
    flat = NeuralEnergy(Real((1, 2)), network)
    np.testing.assert_allclose(energies(flat, xs[:, None, :]), energies(one, xs), rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NeuralEnergy(Real((2,)), MLP(2, 1, width=8, depth=1, key=jax.random.key(0)), scale=0.0),
        lambda: NeuralEnergy(Real((2,)), MLP(2, 1, width=8, depth=1, key=jax.random.key(0)), confinement=-1.0),
        lambda: MLPEnergy(Binary((2,)), key=jax.random.key(0)),
        lambda: ResNetEnergy(Binary((2,)), key=jax.random.key(0)),
    ],
)
def test_impossible_neural_energies_are_refused(make):
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (lambda: FunctionEnergy(Real((2,)), jnp.sum), "not of a Real and a "),
        (lambda: FunctionEnergy(jnp.sum, (2,)), " and a tuple"),
        (lambda: FunctionEnergy(jnp.sum, Real), " and the class Real"),
        (lambda: FunctionEnergy(1.0, Real((2,))), "not of 1.0 and a Real"),
    ],
)
def test_a_function_energy_of_anything_but_a_function_and_a_space_is_refused(make, given):
    with pytest.raises(InputError, match=r"as in FunctionEnergy\(function, Real\(\(2,\)\)\)") as error:
        make()
    assert given in str(error.value) and "\n" not in str(error.value)
    # Control: a module that can be called is a function too.
    assert FunctionEnergy(MLP(2, 1, width=4, depth=1, key=jax.random.key(0)), Real((2,))).space == Real((2,))
