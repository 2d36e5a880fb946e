"""Checkerboard sweeps of Gibbs sampling against PyTorch, and a Boltzmann machine against scikit-learn's.

256 chains of the 64 x 64 torus: ours through `sample`; PyTorch's as it is written for speed, each colour an array of
its own, neighbours by rolling the other, the five laws of a site in a table, with and without torch.compile. Before the
timing the energy of each side must be Kaufman's within five standard errors. The machine has 500 hidden units and
learns binarised digits by persistent chains, batches of 100 and as many chains, one sweep an update: ours through
`fit`, theirs through `partial_fit`, the same plain step on both sides.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import unnorm as un
from benchmarks.harness import Bar, Report, Side, compare, say, skipped, torch_is_missing
from unnorm.data.black_and_white import binarised_mnist
from unnorm.energies import RBM, Ising, lattice, torus_equal
from unnorm.errors import InputError
from unnorm.samplers import Gibbs

SIDE, CHAINS, COUPLING, SWEEPS, SETTLE = 64, 256, 0.7, 50, 100
HIDDEN, BATCH, UPDATES = 500, 100, 500
TOO_FAR, SWEEP_BAR, MACHINE_BAR = 5.0, 1.0, 3.0


# ----------------------------------------------------------------------------------------------------------- the torus


def _start() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (CHAINS, SIDE, SIDE)).astype(np.float32)


def _ours(sweeps: int) -> Callable[[], np.ndarray]:
    model, begin = Ising(lattice((SIDE, SIDE), periodic=True), 0.0, COUPLING), _start()

    def call() -> np.ndarray:
        return un.sample(
            model, Gibbs(), chains=CHAINS, steps=1, thin=sweeps, start=begin, key=jax.random.key(0), progress=False
        ).draws[:, 0]  # fmt: skip

    return call


def _theirs(sweeps: int, compiles: bool) -> Callable[[], np.ndarray]:
    """Spins of the sites (i, 2 j + i % 2) in one array, of the others in another."""
    import torch

    even = (torch.arange(SIDE) % 2 == 0)[:, None]
    # P(s_i = 1) at sums -4, -2, .., 4 of the neighbours' spins.
    law = torch.sigmoid(COUPLING * torch.arange(-4.0, 5.0, 2.0))

    def redrawn(other, first: bool):
        ahead, behind = torch.roll(other, -1, 2), torch.roll(other, 1, 2)
        beside = torch.where(even, behind, ahead) if first else torch.where(even, ahead, behind)
        total = other + beside + torch.roll(other, 1, 1) + torch.roll(other, -1, 1)
        share = law[(total + 4) // 2]
        return 2 * (torch.rand(share.shape) < share).to(torch.int32) - 1

    def sweep(a, b):
        a = redrawn(b, True)
        return a, redrawn(a, False)

    step: Any = torch.compile(sweep) if compiles else sweep
    shift, begin = np.arange(SIDE)[:, None] % 2, _start().astype(np.int32)
    rows, columns = np.arange(SIDE)[:, None], 2 * np.arange(SIDE // 2)[None]

    def call() -> np.ndarray:
        spins = 2 * begin - 1
        a, b = (torch.from_numpy(spins[:, rows, columns + s].copy()) for s in (shift, 1 - shift))
        with torch.inference_mode():
            for _ in range(sweeps):
                a, b = step(a, b)
        ends = np.empty_like(spins)
        ends[:, rows, columns + shift], ends[:, rows, columns + 1 - shift] = a.numpy(), b.numpy()
        return ((ends + 1) // 2).astype(np.float32)

    return call


def _require_kaufman(label: str, ends: np.ndarray) -> None:
    """The share of equal neighbours in the ends of independent chains is the known one."""
    equal = np.sum([(ends == np.roll(ends, 1, axis)).sum((1, 2)) for axis in (1, 2)], axis=0)
    off = (equal.mean() - torus_equal((SIDE, SIDE), COUPLING)) / (equal.std(ddof=1) / CHAINS**0.5)
    say(f"  {label}: {off:+.1f} standard errors from Kaufman's energy")
    if abs(off) > TOO_FAR:
        raise RuntimeError(f"{label} does not sample the Ising model: {off:+.1f} standard errors off")


def _sweeps(repeats: int) -> Report:
    name = f"a checkerboard sweep of {CHAINS} chains of the {SIDE} x {SIDE} torus"
    missing = torch_is_missing()
    if missing:
        return skipped(name, missing)
    makes = {"unnorm": _ours, "PyTorch": lambda n: _theirs(n, False), "PyTorch, compiled": lambda n: _theirs(n, True)}
    for label, make in makes.items():
        _require_kaufman(label, make(SETTLE)())
    sides = [Side(label, make(SWEEPS), SWEEPS) for label, make in makes.items()]
    return compare(name, *sides, repeats=repeats, bar=Bar(SWEEP_BAR))


# ---------------------------------------------------------------------------------------------------------- the machine


def _machine(repeats: int) -> Report:
    name = f"an update of a machine with {HIDDEN} hidden units"
    try:
        from sklearn.neural_network import BernoulliRBM

        rows = binarised_mnist().train
    except ImportError:
        return skipped(name, "scikit-learn is not installed")
    except InputError as error:
        return skipped(name, str(error))
    weights = 0.01 * jax.random.normal(jax.random.key(0), (rows.shape[1], HIDDEN))
    model = RBM(un.spaces.Binary((rows.shape[1],)), weights, jnp.zeros(rows.shape[1]), jnp.zeros(HIDDEN))
    objective, plain = un.objectives.PCD(Gibbs(), chains=BATCH, moves=1), optax.sgd(0.01)

    def ours() -> Any:
        fitted = un.fit(
            model, objective, rows, steps=UPDATES, batch=BATCH, optimiser=plain, average=0.0, evaluations=1,
            key=jax.random.key(1), progress=False,
        )  # fmt: skip
        return jax.block_until_ready(fitted.model)

    def theirs() -> Any:
        machine: Any = BernoulliRBM(HIDDEN, learning_rate=0.01, batch_size=BATCH, random_state=0)
        for k in range(UPDATES):
            machine.partial_fit(rows[k * BATCH % len(rows) :][:BATCH])
        return machine

    sides = Side("unnorm", ours, UPDATES), Side("scikit-learn", theirs, UPDATES)
    return compare(name, *sides, repeats=repeats, bar=Bar(MACHINE_BAR))


def run(*, repeats: int) -> list[Report]:
    """Both."""
    return [_sweeps(repeats), _machine(repeats)]
