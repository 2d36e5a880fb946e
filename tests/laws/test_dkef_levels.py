"""The denoising loss of the DKEF experiment, whose noise is an array, is the one of the library at every level."""

import equinox as eqx
import jax
import numpy as np

from unnorm.energies import DKEF
from unnorm.experiments.dkef_uci import Denoising
from unnorm.noises import Gaussian
from unnorm.objectives import DSM
from unnorm.objectives.kernel_family import quadratic

ROWS = jax.random.normal(jax.random.key(0), (30, 3))


def test_one_program_for_all_levels_gives_the_same_quadratic():
    model = DKEF(ROWS, anchors=6, width=4, key=jax.random.key(1))
    form = eqx.filter_jit(quadratic)
    rest = (model, ROWS, jax.random.key(3), jax.random.uniform(jax.random.key(2), (30,)))
    expected = form(DSM(Gaussian(0.3)), *rest)
    for a, b, c in zip(expected, form(Denoising(0.3), *rest), form(Denoising(0.36), *rest), strict=True):
        scale = float(np.abs(a).max())
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5 * scale)
        # Control: another level gives another loss.
        assert not np.allclose(c, a, rtol=1e-2, atol=1e-3 * scale)
