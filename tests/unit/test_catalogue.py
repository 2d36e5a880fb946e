"""What a saved density is rebuilt from: a spec and arrays, bit for bit, and nothing that does not fit."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm import energies
from unnorm.catalogue.saved import frame_of, load_density, save_density, spec_of
from unnorm.data.shapes import SwissRoll
from unnorm.energies.reference import OneGaussian, Recipe, choose_reference
from unnorm.errors import InputError

ROWS = jax.random.normal(jax.random.key(0), (30, 2))
PARTS = {
    "gaussian": energies.standard_gaussian(2),
    "mixture": energies.gaussian_mixture([0.5, 0.5], [[0.0, 0.0], [1.0, 1.0]], 0.3),
    "kernels": energies.KDE(ROWS, 0.2),
    "shaped kernels": energies.KDE(ROWS, 0.2, shape=jnp.eye(2), block=7),
}
DENSITIES = {
    **PARTS,
    "blend": energies.Blend(tuple(PARTS.values()), jnp.zeros(4)),
    "eleven parts": energies.Blend((PARTS["kernels"], *[PARTS["mixture"]] * 10), jnp.arange(11.0)),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_a_density_comes_back_bit_for_bit(name, tmp_path):
    density = DENSITIES[name]
    save_density(tmp_path / "density", density, {"mine": 1})
    found, notes = load_density(tmp_path / "density")
    assert notes == {"mine": 1} and jax.tree.structure(found) == jax.tree.structure(density)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(density), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes() and a.dtype == b.dtype
    # Negative control: a frame alone is another density.
    frame = frame_of(json.loads(json.dumps(spec_of(density))))
    assert jax.tree.structure(frame) == jax.tree.structure(density)
    same = [bool(jnp.array_equal(a, b)) for a, b in zip(jax.tree.leaves(frame), jax.tree.leaves(density), strict=True)]
    assert name == "gaussian" or not all(same)


def test_what_cannot_be_saved_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be saved"):
        save_density(tmp_path / "density", SwissRoll())
    with pytest.raises(InputError, match="no density of the kind"):
        frame_of({"kind": "flow"})


def test_a_recipe_makes_what_was_chosen_again():
    """Of the same rows the same density, to rounding; by way of plain data too. Of other rows, another."""
    source = energies.gaussian_mixture([0.5, 0.5], [[-2.0, 0.0], [2.0, 0.0]], 0.4)
    train, valid, other = (source.samples(n, key=jax.random.key(i)) for i, n in enumerate((300, 200, 300)))
    chosen = choose_reference(train, valid, key=jax.random.key(3))
    recipe = Recipe.from_dict(json.loads(json.dumps(chosen.recipe.to_dict())))
    assert not isinstance(recipe.ingredients[0], OneGaussian)
    log_density = jax.vmap(chosen.density.log_prob)(valid)
    again = jax.vmap(recipe.fit(train, key=jax.random.key(3)).log_prob)(valid)
    np.testing.assert_allclose(again, log_density, atol=2e-3)
    # Fitted on to its own rows a mixture that has converged stays where it is.
    stays = jax.vmap(recipe.refit(chosen.density, train).log_prob)(valid)
    assert np.abs(stays - log_density).mean() < 0.02
    moved = jax.vmap(recipe.refit(chosen.density, other).log_prob)(valid)
    assert np.abs(moved - log_density).mean() > 0.05
