"""Deep Boltzmann machines are learnt with their hidden units at mean field: exact with one layer, a bound with more."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from discrete import MACHINE, gradients, kl, truth
from harness import breaks, holds

import unnorm as un
from unnorm.energies import DeepBoltzmann
from unnorm.evaluation import enumerated
from unnorm.objectives import MeanFieldPCD
from unnorm.objectives.mean_field import mean_field
from unnorm.spaces import Binary

LAYERS = DeepBoltzmann(
    (jnp.asarray([[1.5, -1.0], [0.5, 1.2], [-1.1, 0.7]]), jnp.asarray([[1.0], [-1.2]])),
    (jnp.asarray([0.2, -0.1, 0.3]), jnp.asarray([0.1, -0.3]), jnp.asarray([0.2])),
)


def marginal(model: DeepBoltzmann) -> np.ndarray:
    """The law of the visible units."""
    law = enumerated(model)
    return law.probabilities.reshape(2**model.visible, -1).sum(1)


def test_with_one_hidden_layer_mean_field_is_exact():
    """The gradient vanishes at the truth, and is that of the restricted machine."""
    machine = MACHINE.joint()
    objective = MeanFieldPCD(chains=128, moves=2)
    assert holds(gradients(objective, machine, truth(MACHINE)), 0.0)
    assert breaks(gradients(objective, machine, enumerated(0.6 * MACHINE)), 0.0)
    x = jnp.asarray(truth(MACHINE).draws(1)[0])
    filled = jnp.concatenate(mean_field(machine, x, 1))
    ours, theirs = jax.grad(lambda m: m(filled))(machine), jax.grad(lambda m: m(x))(MACHINE)
    assert np.allclose(ours.weights[0], theirs.weights, atol=1e-5)


def test_mean_field_is_a_fixed_point_and_bounds_the_likelihood():
    x = jnp.asarray([1.0, 0.0, 1.0])
    layers = mean_field(LAYERS, x, 60)
    for layer in (1, 2):
        assert np.allclose(jax.nn.sigmoid(LAYERS.inputs(layer, layers)), layers[layer], atol=1e-5)
    law = enumerated(LAYERS)
    entropy = sum(float(jnp.sum(-m * jnp.log(m) - (1 - m) * jnp.log1p(-m))) for m in layers[1:])
    bound = -float(LAYERS(jnp.concatenate(layers))) + entropy - law.log_z
    exact = math.log(marginal(LAYERS)[0b101])
    assert exact - 0.3 < bound <= exact + 1e-5
    half = (x, jnp.full(2, 0.5), jnp.full(1, 0.5))
    loose = -float(LAYERS(jnp.concatenate(half))) + 3 * math.log(2) - law.log_z
    assert loose < bound


def test_a_deep_machine_learns_the_law_of_its_visible_units():
    law = marginal(LAYERS)
    rows = np.asarray(un.energies.every_point(Binary((3,))))[np.random.default_rng(11).choice(8, size=3000, p=law)]
    blank = un.energies.deep_boltzmann((3, 2, 1), scale=0.3, key=jax.random.key(8))
    fitted = un.fit(
        blank, MeanFieldPCD(chains=256, moves=3), rows, steps=1500, rate=0.02, batch=256, key=jax.random.key(9),
        progress=False,
    ).model  # fmt: skip
    assert kl(law, marginal(fitted)) < 0.1 * kl(law, marginal(blank))
