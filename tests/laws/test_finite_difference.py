"""Law of finite differences: their bias shrinks with the square of the step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unnorm.energies import AbstractEnergy
from unnorm.objectives import FDSSM, SM
from unnorm.spaces import Real


class Quartic(AbstractEnergy):
    space: Real = eqx.field(static=True, default=Real((1,)))

    def __call__(self, x):
        return jnp.sum(0.5 * x**2 + 0.25 * x**4 + 0.3 * x**3)


@eqx.filter_jit
def loss_and_trace(objective, batch):
    loss, (_, info) = objective(Quartic(), None, batch, key=jax.random.key(0))
    return loss, info["trace"]


def test_finite_differences_are_of_second_order():
    """In one dimension v^2 = 1, so that the sliced loss is the exact one and the gap is all bias."""
    steps = (0.2, 0.1, 0.05)
    with jax.enable_x64(True):
        batch = jnp.linspace(-1.5, 1.2, 50)[:, None]
        exact = float(loss_and_trace(SM(), batch)[0])
        found = np.array([loss_and_trace(FDSSM(step), batch) for step in steps])
    gaps = np.abs(found[:, 0] - exact)
    np.testing.assert_allclose(np.log2(gaps[:-1] / gaps[1:]), 2.0, atol=0.05)
    # Negative control: a factor 1/4 where 1/8 belongs leaves a gap that does not close.
    lost = np.abs(2 * found[:, 0] - found[:, 1] - exact)
    assert lost[-1] > 0.9 * lost[0]
