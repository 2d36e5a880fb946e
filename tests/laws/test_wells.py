"""A network of wells is a mixture of round Gaussians when its depths say so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm.energies import gaussian_mixture
from unnorm.errors import InputError
from unnorm.networks import Wells


def test_wells_are_a_mixture():
    rows = jnp.array([[-1.0, 0.0], [1.0, 0.5], [0.0, 2.0]])
    wells = Wells(rows, units=3, radius=0.4, key=jax.random.key(0))
    truth = gaussian_mixture(np.ones(3) / 3, np.asarray(rows), 0.4)
    points = jax.random.normal(jax.random.key(1), (50, 2))
    difference = jax.vmap(lambda x: wells(x)[0] - truth(x))(points)
    np.testing.assert_allclose(difference, difference[0], atol=1e-4)
    # Negative control: of another radius it is not.
    other = Wells(rows, units=3, radius=0.5, key=jax.random.key(0))
    assert np.ptp(jax.vmap(lambda x: other(x)[0] - truth(x))(points)) > 0.1


def test_wells_start_at_rows():
    with pytest.raises(InputError, match="1 to 2 of them, not 3"):
        Wells(jnp.zeros((2, 2)), units=3, radius=1.0, key=jax.random.key(0))
