"""The error of a gain over a peer knows of both constants: log Z is one number for all rows of a split."""

import numpy as np
import pytest
from harness import SIGMAS

from unnorm.experiments.tables import OURS, _gain

PEER, TRUTH, REPEATS = "a peer", 0.3, 2000


def covered(told: float) -> np.ndarray:
    """Whether 95% intervals hold the true gain when log Z of ours is off by N(0, 0.1^2) and said to be by `told`."""
    rng = np.random.default_rng(0)
    held = []
    for _ in range(REPEATS):
        theirs = rng.normal(size=100)
        ours = theirs + TRUTH + 0.5 * rng.normal(size=100) + 0.1 * rng.normal()
        piece = {
            "together": list(range(100)),
            OURS: {"log_densities": ours.tolist(), "log_z_error": told},
            PEER: {"log_densities": theirs.tolist(), "log_z_error": 0.0},
        }
        gain = _gain([piece], PEER)
        held.append(abs(gain.value - TRUTH) < 1.96 * gain.stderr)
    return np.asarray(held, float)


@pytest.mark.parametrize(("told", "right"), [(0.1, True), (0.0, False)])
def test_an_interval_holds_the_gain_as_often_as_it_says(told, right):
    shares = covered(told)
    # A t interval of 99 degrees of freedom misses 0.003 more often than 1.96 normal errors do.
    assert bool(abs(shares.mean() - 0.95) < SIGMAS * shares.std() / REPEATS**0.5 + 0.003) is right
