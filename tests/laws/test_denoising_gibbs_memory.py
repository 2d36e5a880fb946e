"""A diagonal Gibbs step on an energy of 784 dimensions has no room for a Hessian, and grows in proportion to D.

What XLA sets aside beside inputs and outputs is known once a step is compiled. The full covariance, which forms the
matrix, is the negative control: it takes at least the 4 D^2 bytes of one, and four times as much when D doubles.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

from unnorm.energies import MLPEnergy
from unnorm.samplers import DenoisingGibbs, DiagonalCovariance, FullCovariance, IsotropicCovariance
from unnorm.spaces import Real

PIXELS, PROBES, WIDTH = 784, 10, 16
CHEAP = {"diagonal": DiagonalCovariance(PROBES), "isotropic": IsotropicCovariance(0.1)}


def step_of(covariance, dimension):
    """One step as a function of the point and the key."""
    model = MLPEnergy(Real((dimension,)), width=WIDTH, depth=2, key=jax.random.key(0))
    return lambda x, key: DenoisingGibbs(0.5, covariance).step(model, x, key=key)[0]


def scratch(covariance, dimension=PIXELS) -> int:
    """Bytes of the compiled step beside its inputs and outputs."""
    step = jax.jit(step_of(covariance, dimension))
    analysis = step.lower(jnp.zeros(dimension), jax.random.key(1)).compile().memory_analysis()
    assert analysis is not None
    return int(analysis.temp_size_in_bytes)


def sizes(jaxpr):
    """How many numbers every intermediate holds, those of programs inside included."""
    for equation in jaxpr.eqns:
        yield from (int(np.prod(v.aval.shape)) for v in equation.outvars if hasattr(v.aval, "shape"))
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda p: isinstance(p, ClosedJaxpr | Jaxpr)):
            if isinstance(parameter, ClosedJaxpr | Jaxpr):
                yield from sizes(parameter.jaxpr if isinstance(parameter, ClosedJaxpr) else parameter)


def largest(covariance) -> int:
    """Numbers in the largest intermediate of a step."""
    jaxpr = jax.make_jaxpr(step_of(covariance, PIXELS))(jnp.zeros(PIXELS), jax.random.key(1))
    return max(sizes(jaxpr.jaxpr))


def test_no_intermediate_of_a_cheap_step_is_a_matrix_of_pixels():
    # The probes, then the point itself.
    assert largest(CHEAP["diagonal"]) <= max(PROBES, WIDTH) * PIXELS
    assert largest(CHEAP["isotropic"]) <= WIDTH * PIXELS
    assert largest(FullCovariance()) >= PIXELS**2


@pytest.mark.parametrize("name", CHEAP)
def test_the_compiled_step_has_no_room_for_a_hessian(name):
    hessian = 4 * PIXELS**2
    assert scratch(CHEAP[name]) < hessian / 4
    assert scratch(FullCovariance()) >= hessian


def test_scratch_grows_in_proportion_to_the_dimension():
    assert scratch(CHEAP["diagonal"], 2 * PIXELS) < 2.2 * scratch(CHEAP["diagonal"])
    assert scratch(FullCovariance(), 2 * PIXELS) > 3 * scratch(FullCovariance())
