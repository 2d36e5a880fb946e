"""What a saved run is rebuilt from: the names and shapes of its arrays."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from unnorm import energies
from unnorm.catalogue.models import _frame
from unnorm.training.checkpoint import to_arrays

ROWS = jax.random.normal(jax.random.key(0), (30, 2))
PARTS = {
    "gaussian": energies.standard_gaussian(2),
    "mixture": energies.gaussian_mixture([0.5, 0.5], [[0.0, 0.0], [1.0, 1.0]], 0.3),
    "kernels": energies.KDE(ROWS, 0.2),
    "shaped kernels": energies.KDE(ROWS, 0.2, shape=jnp.eye(2)),
}
DENSITIES = {
    **PARTS,
    "blend": energies.Blend(tuple(PARTS.values()), jnp.zeros(4)),
    "eleven parts": energies.Blend((PARTS["kernels"], *[PARTS["mixture"]] * 10), jnp.zeros(11)),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_a_reference_is_framed_from_the_shapes_of_its_arrays(name):
    model = energies.tilt(DENSITIES[name], key=jax.random.key(1))
    saved = {place: a.shape for place, a in to_arrays(eqx.filter(model, eqx.is_inexact_array)).items()}
    framed = _frame(saved, ".reference")
    assert jax.tree.structure(framed) == jax.tree.structure(model.reference)
    assert [a.shape for a in jax.tree.leaves(framed)] == [a.shape for a in jax.tree.leaves(model.reference)]
    # Negative control: another kind of density is not taken for this one.
    other = "kernels" if name != "kernels" else "mixture"
    assert jax.tree.structure(framed) != jax.tree.structure(DENSITIES[other])
