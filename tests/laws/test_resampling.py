"""Independent draws by weight: right moments, right weights of modes, and how many proposals counted."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

from unnorm.energies import FunctionEnergy, Tilted, gaussian, gaussian_mixture, standard_gaussian
from unnorm.errors import InputError
from unnorm.samplers import ImportanceResampling
from unnorm.spaces import Real

MODES = gaussian_mixture([0.5, 0.5], [[-3.0], [3.0]], 0.5)


class Step(eqx.Module):
    """log 4 to the right of 0 and 0 to the left: weights 1/2 and 1/2 become 4/5 and 1/5."""

    def __call__(self, x):
        return jnp.where(x > 0, jnp.log(4.0), 0.0)


@pytest.fixture(scope="module")
def tilted():
    return ImportanceResampling()(Tilted(MODES, Step()), 4096, key=jax.random.key(0))


def test_draws_have_the_weights_and_moments_of_the_target(tilted):
    x = tilted.draws[:, 0]
    left = x < 0
    # Choosing by weight among m = 16 n proposals adds 1/16 of the variance of n independent draws.
    assert holds(left, 0.8) and holds(x[left], -3.0) and holds(x[~left], 3.0)
    assert holds((x[left] + 3) ** 2, 0.25)
    # Negative control: proposals without their weights.
    plain = np.asarray(MODES.samples(4096, key=jax.random.key(1)))[:, 0]
    assert breaks(plain < 0, 0.8)


def test_the_effective_share_is_that_of_the_weights(tilted):
    # E[w]^2 / E[w^2] with w = 1 and 1/4 at equal odds.
    exact = (0.5 * 1 + 0.5 * 0.25) ** 2 / (0.5 * 1 + 0.5 * 0.25**2)
    assert tilted.proposals == 16 * 4096
    assert abs(tilted.effective - exact) < 4.5 * 0.5 / np.sqrt(tilted.proposals)
    assert abs(tilted.effective - 1.0) > 0.2
    assert tilted.warnings == ()


def test_no_draw_is_repeated_where_weights_are_bounded(tilted):
    assert tilted.repeated == 0 and len(np.unique(tilted.draws)) == 4096
    # A base that misses most of the target: few proposals carry everything, and that is said.
    far = ImportanceResampling(standard_gaussian(1))(gaussian([4.0], [[1.0]]), 512, key=jax.random.key(2))
    assert far.repeated == 512 - len(np.unique(far.draws)) > 256
    assert "are effective" in far.warnings[0]


def test_a_base_may_be_given_and_one_is_needed():
    target = FunctionEnergy(lambda x: 0.5 * jnp.sum((x - 0.5) ** 2), Real((2,)))
    draws = ImportanceResampling(standard_gaussian(2, 1.5))(target, 2048, key=jax.random.key(3)).draws
    assert holds(draws, 0.5) and holds((draws - 0.5) ** 2, 1.0) and breaks(draws, 0.0)
    with pytest.raises(InputError, match="has no reference"):
        ImportanceResampling()(target, 10, key=jax.random.key(0))
    with pytest.raises(InputError, match="the base is on"):
        ImportanceResampling(standard_gaussian(1))(target, 10, key=jax.random.key(0))
