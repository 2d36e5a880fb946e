"""Small training runs that the laws of the training loop share, and ways to end them."""

import errno
from typing import Any

import jax
import numpy as np

from unnorm.energies import MLPEnergy, gaussian_mixture
from unnorm.noises import Gaussian, Jumps
from unnorm.objectives import CNCE, DSM, PCD
from unnorm.samplers import Langevin
from unnorm.spaces import Real
from unnorm.training import checkpoint as checkpoints
from unnorm.training import fit, loop

TRUTH = gaussian_mixture([0.3, 0.7], [[-1.0, 0.0], [1.0, 0.5]], 0.4)
DATA = TRUTH.samples(128, key=jax.random.key(0))
VALID = TRUTH.samples(64, key=jax.random.key(1))
OBJECTIVES = {
    "cnce": CNCE(Jumps(0.3, 0.3)),
    "dsm": DSM(Gaussian(0.3)),
    "pcd": PCD(Langevin(0.02), chains=32, moves=2),
}


def model(width: int = 8):
    return MLPEnergy(Real((2,)), width=width, depth=1, key=jax.random.key(2))


def train(name: str = "dsm", **options):
    """48 steps in 6 chunks, each of them saved if there is a path."""
    settings = {"valid": VALID, "steps": 48, "batch": 32, "rate": 1e-2, "evaluations": 6, "checkpoint_seconds": 0.0}
    settings |= {"key": jax.random.key(3), "progress": False} | options
    return fit(model(), OBJECTIVES[name], DATA, **settings)


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    """Whether two checkpoints hold the same arrays, to the bit."""
    return first.keys() == second.keys() and all(
        a.dtype == second[name].dtype and a.shape == second[name].shape and a.tobytes() == second[name].tobytes()
        for name, a in first.items()
    )


def saved(path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    return checkpoints.load_arrays(path)


class Killed(BaseException):
    """What a kill looks like from inside: nothing catches it."""


def kill_at_save(monkeypatch, number: int, *, after: bool = True) -> None:
    """End the process at its save with this number (1, 2, ...), just after or just before it is made."""
    original, calls = loop._Run.save, []

    def save(self, *, final: bool = False):
        calls.append(final)
        if len(calls) == number and not after:
            raise Killed
        original(self, final=final)
        if len(calls) == number:
            raise Killed

    monkeypatch.setattr(loop._Run, "save", save)


def full_disk(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
