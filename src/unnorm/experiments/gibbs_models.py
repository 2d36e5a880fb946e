"""The densities of the plane in Zhang et al. 2023, and the energies and denoisers trained on them."""

import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.data.shapes import Rings, SwissRoll
from unnorm.energies import AbstractEnergy, FunctionEnergy, NeuralEnergy, gaussian_mixture
from unnorm.networks import MLP, widened
from unnorm.noises import Gaussian
from unnorm.objectives import DSM, DenoisingKL
from unnorm.scores import GaussianDenoiser
from unnorm.spaces import Real
from unnorm.training import constant, fit

SIGMA = 0.2
ROWS = 10_000
DATA = ("MoG", "Rings", "Roll")
CORNERS = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [1.0, -1.0]])


@dataclass(frozen=True)
class Training:
    """Units of each layer, layers, rows of a batch, steps, and the rest of the recipe.

    `printed` is the paper's: Adam at 1e-4 throughout, no averaging of weights, layers as they come, and for an energy
    the sum of two outputs. The paper says three hidden layers; its public code has three after the first. The other
    recipe has wider first weights, a falling rate from 2e-3, averaged weights, and a quadratic in the energy.
    """

    width: int
    depth: int
    batch: int
    steps: int
    printed: bool


PRINTED = Training(400, 4, 100, 10_000, printed=True)
FURTHER = Training(128, 3, 200, 5000, printed=False)


class Summed(AbstractEnergy):
    """E(x) = sum_i f_i(x), the energy of the paper's code."""

    network: MLP
    space: Real = eqx.field(static=True, default=Real((2,)))

    def __call__(self, x: Float[Array, "2"]) -> Float[Array, ""]:
        return jnp.sum(self.network(x))


@eqx.filter_jit
def data_of(name: str, rows: int, key: PRNGKeyArray) -> Array:
    """Fresh rows of one of the three densities."""
    if name == "MoG":
        return gaussian_mixture(np.full(4, 0.25), CORNERS, 0.2).samples(rows, key=key)
    if name == "Rings":
        return Rings([0.5, 0.5], [0.65, 1.3], 0.065).samples(rows, key=key)
    return 0.5 * SwissRoll(scale=0.1).samples(rows, key=key)


def noisy_energy(name: str) -> AbstractEnergy:
    """The exact energy of those rows with noise, up to a constant: each density is blurred the more."""
    if name == "MoG":
        return gaussian_mixture(np.full(4, 0.25), CORNERS, math.hypot(0.2, SIGMA))
    if name == "Rings":
        return Rings([0.5, 0.5], [0.65, 1.3], math.hypot(0.065, SIGMA))
    roll = SwissRoll(scale=math.hypot(0.1, 2 * SIGMA))
    return FunctionEnergy(lambda x: roll(2 * x), Real((2,)))


def _network(outputs: int, training: Training, key: PRNGKeyArray) -> MLP:
    network = MLP(2, outputs, width=training.width, depth=training.depth, key=key)
    return network if training.printed else widened(network)


def _options(training: Training) -> Any:
    options = {"steps": training.steps, "batch": training.batch, "progress": False}
    return options | ({"rate": 1e-4, "schedule": constant, "average": 0.0} if training.printed else {"rate": 2e-3})


def train_energy(data: Array, training: Training, key: PRNGKeyArray) -> AbstractEnergy:
    """The energy of the noisy density, by denoising."""
    begin, run = jax.random.split(key)
    model: AbstractEnergy = (
        Summed(network=_network(2, training, begin))
        if training.printed
        else NeuralEnergy(Real((2,)), _network(1, training, begin), scale=1.5 * SIGMA)
    )
    return fit(model, DSM(Gaussian(SIGMA)), data, key=run, **_options(training)).model


def train_denoiser(data: Array, training: Training, key: PRNGKeyArray) -> GaussianDenoiser:
    """Mean and deviations of the posterior, by Kullback-Leibler divergence."""
    begin, run = jax.random.split(key)
    model = GaussianDenoiser(_network(4, training, begin))
    return fit(model, DenoisingKL(Gaussian(SIGMA)), data, key=run, **_options(training)).model
