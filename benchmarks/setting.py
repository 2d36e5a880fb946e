"""What every side of the objectives' benchmark has in common: data, networks and the numbers in the losses."""

from dataclasses import dataclass

import jax

import unnorm as un
from benchmarks.training import BLOCKS, DIMENSION, WIDTH

#: Noise and draws of energy discrepancy; all others take `NOISE`.
WIDE, DRAWS = 0.5, 16
#: Langevin inside training: step, moves per update, share of chains restarted, chains in the replay buffer.
STEP_SIZE, MOVES, RESTART, REPLAY = 0.01, 10, 0.05, 10_000
#: Depth of the perceptrons, width and rank of the second-order factors, floor of curvature propagation.
DEPTH, FACTOR_WIDTH, RANK, FLOOR = 3, 32, 5, 1e-4


@dataclass(frozen=True)
class _Geyer:
    chains: int = 256
    moves: int = 50
    every: int = 20
    least: float = 0.3
    burn_in: int = 20


geyer = _Geyer()
SPACE = un.spaces.Real((DIMENSION,))


def resnet() -> un.energies.NeuralEnergy:
    """The energy of most losses."""
    return un.energies.ResNetEnergy(SPACE, width=WIDTH, blocks=BLOCKS, key=jax.random.key(0))


def perceptron() -> un.energies.NeuralEnergy:
    """The energy of those that propagate curvature by hand."""
    return un.energies.MLPEnergy(SPACE, width=WIDTH, depth=DEPTH, key=jax.random.key(0))


def _factor(outputs: int, seed: int) -> un.networks.MLP:
    return un.networks.MLP(DIMENSION, outputs, width=FACTOR_WIDTH, depth=2, key=jax.random.key(seed))


def denoiser() -> un.scores.GaussianDenoiser:
    """Mean and spread from one perceptron."""
    return un.scores.GaussianDenoiser(
        un.networks.MLP(DIMENSION, 2 * DIMENSION, width=WIDTH, depth=DEPTH, key=jax.random.key(0))
    )


def low_rank() -> un.scores.LowRankSecondOrder:
    """s1 of the energy, s2 = diag(alpha) + beta beta'."""
    return un.scores.LowRankSecondOrder(resnet(), _factor(DIMENSION, 1), _factor(DIMENSION * RANK, 2), RANK)


def diagonal() -> un.scores.DiagonalSecondOrder:
    """s1 of the energy, s2 = diag(alpha)."""
    return un.scores.DiagonalSecondOrder(resnet(), _factor(DIMENSION, 1))
