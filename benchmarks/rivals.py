"""The losses and samplers of torchebm and ebmkit, called as their documentation does.

What the two have of ours (read in their source; both are written for PyTorch and run eagerly):

- torchebm 0.8.9: `ContrastiveDivergence` from the batch, `PersistentContrastiveDivergence` with a replay buffer,
  `ScoreMatching` (exact: `vmap` of `jacrev`), `SlicedScoreMatching`, `DenoisingScoreMatching`; `LangevinDynamics`,
  `HamiltonianMonteCarlo` of fixed step. No NCE, no energy discrepancy, no sliced loss of reduced variance, no NUTS.
- ebmkit 0.16.0 (imported as `ebm`): `ContrastiveDivergence` from noise (short runs) or from a `ReplayBuffer`,
  `NoiseContrastiveEstimation`, `ExactScoreMatching` (a loop over coordinates), `SlicedScoreMatching` (Gaussian
  directions, with or without `vr`), `DenoisingScoreMatching`, `EnergyDiscrepancy`; `LangevinDynamics`, `HMC`,
  `NUTS`. Each loss also reports its numbers as Python floats.

Neither has conditional NCE, finite differences, curvature propagation, MCMC maximum likelihood or second orders. Losses
that differ from ours by a constant or a factor are brought to our scale. A package that is not installed has no losses.
"""

import importlib.util
import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from benchmarks.losses import Loss
from benchmarks.setting import DRAWS, MOVES, REPLAY, RESTART, STEP_SIZE, WIDE
from benchmarks.training import DIMENSION, NOISE

#: A loss for a model and the training rows, with parameters of its own if it has some.
Make = Callable[[Any, Tensor], tuple[Loss, list[Any]]]
PACKAGES = {"torchebm": "torchebm", "ebmkit": "ebm"}
#: Theirs is a sum over coordinates of (grad E - z / sigma)^2 / 2, ours a mean of (sigma grad E - z)^2.
TO_MEAN = 2 * NOISE**2 / DIMENSION


def missing(package: str) -> str | None:
    """Why a package's sides are left out, if they are."""
    if importlib.util.find_spec(PACKAGES[package]) is None:
        return f'{package} is not installed; pip install "unnorm[bench]"'
    return None


def torchebm_model(energy: nn.Module) -> Any:
    """The same network as one of torchebm's models."""
    from torchebm.core import BaseModel

    class Wrapped(BaseModel):
        def __init__(self):
            super().__init__()
            self.energy = energy

        def forward(self, x: Tensor) -> Tensor:
            return self.energy(x)

    return Wrapped()


def torchebm_losses() -> Mapping[str, Make]:
    """By the names of `benchmarks.objectives`."""
    from torchebm import losses
    from torchebm.samplers import LangevinDynamics

    def contrastive(make: Any, **options: Any) -> Make:
        def of(energy: nn.Module, rows: Tensor) -> tuple[Loss, list[Any]]:
            model = torchebm_model(energy)
            walk = LangevinDynamics(model, step_size=STEP_SIZE, noise_scale=1.0)
            loss = make(model, walk, k_steps=MOVES, energy_reg_weight=0.0, **options)
            if options:
                # Its chains would begin at a point; ours begin at data.
                loss.initialize_buffer((DIMENSION,))
                loss.replay_buffer[:] = rows[:REPLAY]
            return lambda x: loss(x)[0], []

        return of

    def plain(make: Any, factor: float = 1.0, **options: Any) -> Make:
        def of(energy: nn.Module, rows: Tensor) -> tuple[Loss, list[Any]]:
            loss = make(torchebm_model(energy), **options)
            return lambda x: factor * loss(x), []

        return of

    return {
        "cd": contrastive(losses.ContrastiveDivergence),
        "replay": contrastive(
            losses.PersistentContrastiveDivergence, buffer_size=REPLAY, init_steps=0, new_sample_ratio=RESTART
        ),
        "sm": plain(losses.ScoreMatching, hessian_method="exact"),
        "ssm": plain(losses.SlicedScoreMatching, n_projections=1, projection_type="rademacher"),
        "dsm": plain(losses.DenoisingScoreMatching, TO_MEAN, noise_scale=NOISE),
    }


def ebmkit_losses() -> Mapping[str, Make]:
    """By the names of `benchmarks.objectives`."""
    from ebm import losses
    from ebm.buffer import ReplayBuffer
    from ebm.samplers import LangevinDynamics

    def plain(make: Callable[[Tensor], Any], factor: float = 1.0, offset: float = 0.0) -> Make:
        def of(energy: nn.Module, rows: Tensor) -> tuple[Loss, list[Any]]:
            loss = make(rows)
            return lambda x: factor * loss(energy, x).loss + offset, list(loss.parameters())

        return of

    def contrastive(rows: Tensor | None) -> Any:
        buffer = None
        if rows is not None:
            buffer = ReplayBuffer(REPLAY, (DIMENSION,), reinit_prob=RESTART)
            buffer.data = rows[:REPLAY].clone()
        return losses.ContrastiveDivergence(LangevinDynamics(STEP_SIZE, steps=MOVES), buffer)

    return {
        "short-run": plain(lambda rows: contrastive(None)),
        "replay": plain(contrastive),
        "nce": plain(lambda rows: losses.NoiseContrastiveEstimation()),
        "sm": plain(lambda rows: losses.ExactScoreMatching()),
        "ssm": plain(lambda rows: losses.SlicedScoreMatching(vr=False)),
        "ssm-vr": plain(lambda rows: losses.SlicedScoreMatching(vr=True)),
        "dsm": plain(lambda rows: losses.DenoisingScoreMatching(NOISE), TO_MEAN),
        "ed": plain(lambda rows: losses.EnergyDiscrepancy(WIDE, DRAWS), offset=-math.log(DRAWS)),
    }


def rivals() -> Mapping[str, Mapping[str, Make]]:
    """Of each package that is installed, its losses."""
    tables = {"torchebm": torchebm_losses, "ebmkit": ebmkit_losses}
    return {package: table() for package, table in tables.items() if missing(package) is None}
