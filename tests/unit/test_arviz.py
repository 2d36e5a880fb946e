"""Traces in ArviZ: the same draws, and ArviZ's own diagnostics agree with ours."""

import sys
import warnings

import numpy as np
import pytest

from unnorm.errors import InputError
from unnorm.samplers import HMC, Trace


def correlated(shape: tuple[int, ...], rho: float) -> np.ndarray:
    """AR(1) chains along the second axis."""
    draws = np.random.default_rng(0).normal(size=shape)
    for t in range(1, shape[1]):
        draws[:, t] = rho * draws[:, t - 1] + np.sqrt(1 - rho**2) * draws[:, t]
    return draws


def imported():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("arviz", reason="ArviZ is an extra, and it is not installed")


@pytest.mark.parametrize("rho", [-0.4, 0.0, 0.8])
def test_arviz_finds_the_same_numbers(rho):
    """Both follow Vehtari et al. (2021). Indicators of tails differ in a single draw at the quantile itself."""
    arviz = imported()
    trace = Trace(correlated((4, 500, 2, 3), rho), np.full(4, 0.9), 3, HMC(), 2)
    data = trace.to_arviz("theta")
    assert data["posterior"]["theta"].dims[:2] == ("chain", "draw")
    np.testing.assert_array_equal(data["posterior"]["theta"].values, trace.draws)
    attributes = data["posterior"].attrs
    assert (attributes["sampler"], attributes["divergences"], attributes["clipped"]) == ("HMC", 3, 2)

    def theirs(function, method):
        return function(data, method=method)["theta"].values

    ours = trace.diagnostics
    np.testing.assert_allclose(ours.rhat, theirs(arviz.rhat, "rank"), rtol=1e-6)
    np.testing.assert_allclose(ours.ess_bulk, theirs(arviz.ess, "bulk"), rtol=1e-6)
    np.testing.assert_allclose(ours.ess_tail, theirs(arviz.ess, "tail"), rtol=0.01)
    # Negative control: the size for the mean is another number, and so is R-hat without ranks.
    assert not np.allclose(ours.ess_bulk, theirs(arviz.ess, "mean"), rtol=1e-3)
    assert not np.allclose(ours.rhat, theirs(arviz.rhat, "split"), rtol=1e-6)


def test_without_arviz_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(InputError, match=r"to_arviz needs ArviZ: pip install"):
        Trace(np.zeros((2, 4, 1)), np.ones(2), 0, HMC()).to_arviz()
