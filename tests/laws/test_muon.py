"""Muon moves kernels along nearly orthogonal matrices and all else as Adam does, and its runs resume to the bit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_runs import Killed, kill_at_save, same, saved

from unnorm.errors import InputError
from unnorm.networks import Conv
from unnorm.noises import Gaussian
from unnorm.objectives import DSM
from unnorm.scores import LevelledScore
from unnorm.spaces import Real
from unnorm.training import adam, fit, muon

KEY = jax.random.key(0)
KERNEL = np.asarray(jax.random.normal(KEY, (3, 3, 2, 4)), np.float64)


def newton_schulz(matrix):
    """The five steps of Jordan et al. 2024, written out."""
    x = matrix / np.linalg.norm(matrix)
    x = x.T if len(x) > len(x.T) else x
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x if matrix.shape == x.shape else x.T


def updates(gradients):
    """What Muon makes of gradients that come one after another."""
    state = muon().init(gradients[0])
    for gradient in gradients:
        update, state = muon().update(gradient, state)
    return update


def test_a_kernel_moves_along_its_orthogonalised_gradient():
    weights = {"kernel": jnp.asarray(KERNEL, jnp.float32), "bias": jnp.arange(4.0), "matrix": jnp.ones((2, 3))}
    found = updates([weights])
    truth = 20 / 3 * newton_schulz(KERNEL.reshape(18, 4)).reshape(KERNEL.shape)
    np.testing.assert_allclose(found["kernel"], truth, atol=1e-4)
    # Controls: laid out otherwise, and not orthogonalised.
    other = 20 / 3 * newton_schulz(KERNEL.reshape(3, 24)).reshape(KERNEL.shape)
    assert np.abs(found["kernel"] - other).max() > 0.1
    assert np.abs(found["kernel"] - 20 / 3 * KERNEL / np.linalg.norm(KERNEL)).max() > 0.1
    # All else as Adam has it, to the bit.
    plain, _ = adam().update(weights, adam().init(weights))
    for name in ("bias", "matrix"):
        np.testing.assert_array_equal(found[name], plain[name])


def test_the_mean_of_gradients_is_turned_a_step_ahead():
    """Two gradients: mean 0.95 m + 0.05 g, and once more for Nesterov."""
    other = np.asarray(jax.random.normal(jax.random.key(1), KERNEL.shape), np.float64)
    mean = 0.95 * 0.05 * KERNEL + 0.05 * other
    found = updates([jnp.asarray(KERNEL, jnp.float32), jnp.asarray(other, jnp.float32)])
    truth = 20 / 3 * newton_schulz((0.95 * mean + 0.05 * other).reshape(18, 4)).reshape(KERNEL.shape)
    np.testing.assert_allclose(found, truth, atol=1e-4)
    assert np.abs(found - 20 / 3 * newton_schulz(mean.reshape(18, 4)).reshape(KERNEL.shape)).max() > 0.1


def test_kernels_of_one_shape_are_turned_each_by_itself():
    kernels = [jax.random.normal(jax.random.key(i), (3, 3, 2, 4)) for i in range(3)] + [jnp.ones((1, 1, 2, 3))]
    together = updates([kernels])
    for alone, kernel in zip(together, kernels, strict=True):
        np.testing.assert_allclose(alone, updates([kernel]), atol=1e-4)
    assert np.abs(together[0] - together[1]).max() > 0.1


def test_the_size_of_a_gradient_does_not_matter():
    kernels = [jnp.asarray(scale * KERNEL, jnp.float32) for scale in (1.0, 100.0)]
    np.testing.assert_allclose(*(updates([kernel]) for kernel in kernels), atol=1e-3)


class Small(eqx.Module):
    first: Conv
    second: Conv

    def __call__(self, x, level, condition=None):
        return self.second(jax.nn.silu(self.first(x)))


def run(path, **options):
    """12 steps in 3 chunks on pictures of 4 x 4, each saved."""
    one, two = jax.random.split(KEY)
    net = Small(Conv(1, 3, key=one), Conv(3, 1, scale=0.0, key=two))
    model = LevelledScore(network=net, noise=Gaussian(0.5), space=Real((4, 4, 1)))
    rows = jax.random.normal(KEY, (32, 4, 4, 1))
    settings = {"steps": 12, "batch": 16, "evaluations": 3, "direction": muon(), "rate": 3e-3} | options
    return fit(model, DSM(), rows, checkpoint=path, checkpoint_seconds=0.0, key=KEY, progress=False, **settings)


def test_a_run_by_muon_resumes_to_the_same_bits(tmp_path, monkeypatch):
    run(tmp_path / "whole")
    path = tmp_path / "run"
    with monkeypatch.context() as patched:
        kill_at_save(patched, 2)
        with pytest.raises(Killed):
            run(path)
    with pytest.raises(InputError, match="another optimiser; give"):
        run(path, direction=muon(5.0), resume=True)
    run(path, resume=True)
    assert same(saved(path)[0], saved(tmp_path / "whole")[0]) and saved(path)[1] == saved(tmp_path / "whole")[1]


def test_a_direction_beside_an_optimiser_is_refused(tmp_path):
    with pytest.raises(InputError, match="give one of the two"):
        run(tmp_path / "run", optimiser=optax.sgd(0.1), rate=None)
    with pytest.raises(InputError, match="positive number of times"):
        muon(0.0)
