"""The effective draws of the Ozaki experiment, on chains whose autocorrelations are known.

Both walks on N(0, v) are x' = a x + noise, with a = exp(-h / v) and variance v for Ozaki, a = 1 - h / v and variance
v / (1 - h / (2 v)) for Langevin. With the true variance v in rho_s = (variance / v) a^s, the sum up to the first lag
where rho_s < 0.05 is a number.
"""

import jax
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.energies import gaussian
from unnorm.experiments.ozaki_targets import CUT, effective_draws
from unnorm.samplers import Langevin, Ozaki

#: Chosen so that no rho_s lies near the cut: a chain then stops at the lag at which the formula does.
DRAWS, CHAINS, VARIANCE = 40_000, 16, 2.0
STEPS = {"Ozaki": float(-VARIANCE * np.log(0.42)), "Langevin": 1.2}


def expected(a: float, inflation: float, n: int = DRAWS) -> float:
    """n over 1 + 2 sum_s (1 - s/n) rho_s up to the cut."""
    lags = np.arange(1, 200)
    rho = inflation * a**lags
    kept = np.logical_and.accumulate(rho >= CUT)
    assert np.min(np.abs(rho - CUT)) > 0.013
    return n / (1 + 2 * np.sum((1 - lags / n) * rho * kept))


def found(sampler) -> np.ndarray:
    """Effective draws of every chain on N(1, VARIANCE)."""
    target = gaussian(np.ones(1), VARIANCE * np.eye(1))
    draws = un.sample(
        target, sampler, chains=CHAINS, steps=DRAWS, warmup=100, key=jax.random.key(0), progress=False
    ).draws  # fmt: skip
    return effective_draws(draws, np.ones(1), np.full(1, VARIANCE))


WALKS = {
    "Ozaki": (Ozaki(STEPS["Ozaki"]), 0.42, 1.0),
    "Langevin": (Langevin(STEPS["Langevin"]), 1 - 1.2 / VARIANCE, 1 / (1 - 1.2 / (2 * VARIANCE))),
}


@pytest.mark.parametrize("name", WALKS)
def test_effective_draws_of_a_linear_chain(name):
    sampler, a, inflation = WALKS[name]
    sizes = found(sampler)
    assert holds(sizes, expected(a, inflation))
    # The whole sum is longer than the one that is cut, and one without the 2 is shorter.
    assert breaks(sizes, DRAWS / (1 + 2 * inflation * a / (1 - a)))
    assert breaks(sizes, DRAWS / (1 + inflation * a / (1 - a)))


def test_a_wrong_variance_is_not_seen_by_independent_draws():
    """Langevin at h = v draws independently with variance 2 v: as many effective draws as steps, of another law."""
    target = gaussian(np.zeros(1), VARIANCE * np.eye(1))
    draws = un.sample(
        target, Langevin(VARIANCE), chains=CHAINS, steps=4000, warmup=10, key=jax.random.key(1), progress=False
    ).draws  # fmt: skip
    sizes = effective_draws(draws, np.zeros(1), np.full(1, VARIANCE))
    assert np.all(sizes == 4000)
    assert holds(draws.var(axis=1), 2 * VARIANCE)
    assert breaks(draws.var(axis=1), VARIANCE)
