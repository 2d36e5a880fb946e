"""The denoiser of digits that `gibbs_mnist` walks with: its size, its data, its training."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.data.mnist import mnist
from unnorm.energies.base import Point
from unnorm.evaluation import median_bandwidth
from unnorm.evaluation.two_sample.mmd import GaussianSum
from unnorm.experiments.base import Job
from unnorm.networks import MLP, widened
from unnorm.noises import Gaussian
from unnorm.noises.base import Level
from unnorm.objectives import DSM
from unnorm.scores import AbstractPlainScore
from unnorm.training import fit

SIGMA, PIXELS, SIDE = 0.5, 784, 28


@dataclass(frozen=True)
class Size:
    """How much is done.

    `walked` are the numbers of probes with chains of their own, `counted` those whose variances are compared.
    """

    width: int
    depth: int
    steps: int
    batch: int
    rate: float
    chains: int
    moves: int
    from_noise: int
    moves_from_noise: int
    walked: tuple[int, ...]
    counted: tuple[int, ...]
    points: int
    rows: int


QUICK = Size(512, 3, 5000, 128, 1e-3, 600, 30, 64, 100, (1, 3, 10), (1, 3, 10, 30, 100), 24, 400)
PAPER = Size(1024, 4, 180_000, 100, 3e-4, 2000, 300, 256, 1000, (1, 10, 100), (1, 3, 10, 30, 100, 300), 64, 2000)


class Digits(AbstractPlainScore):
    """s(x~) = (D(x~) - x~) / sigma^2 with D = logistic(network): pixels lie in [0, 1], and so does their mean."""

    network: MLP

    def denoise(self, noisy: Point) -> Point:
        """D(x~), the mean of the digits that may have been x~."""
        return jax.nn.sigmoid(self.network(2 * (noisy - 0.13)))

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        return (self.denoise(x) - x) / SIGMA**2


def data_of_digits() -> dict[str, np.ndarray]:
    """Rows to learn from, to watch, to begin chains at, and to compare them with; the last two are the test digits."""
    digits = mnist(SIDE)
    train, test = (part.images.reshape(-1, PIXELS) for part in (digits.train, digits.test))
    order = np.random.default_rng(0).permutation(len(test))
    return {"train": train[:58_000], "valid": train[58_000:], "start": test[order[:5000]], "held": test[order[5000:]]}


def trained_model(job: Job, size: Size, data: dict[str, np.ndarray]) -> tuple[Digits, float]:
    """Trained by denoising, or read from the job's folder; and its held-out squared error of a pixel."""
    begin, run = jax.random.split(jax.random.key(job.seed))
    network = widened(MLP(PIXELS, PIXELS, width=size.width, depth=size.depth, key=begin))
    pixel = np.clip(data["train"].mean(axis=0), 0.01, 0.99)
    last = network.layers[-1]
    first_guess = (0 * last.weight, jnp.asarray(np.log(pixel / (1 - pixel)), float))
    network = eqx.tree_at(lambda net: (net.layers[-1].weight, net.layers[-1].bias), network, first_guess)
    fitted = fit(
        Digits(network), DSM(Gaussian(SIGMA)), data["train"], valid=data["valid"], steps=size.steps, batch=size.batch,
        rate=size.rate, evaluations=10, checkpoint=job.folder / "training", resume=True, key=run, progress=job.progress,
    )  # fmt: skip
    return fitted.model, SIGMA**2 * float(np.min(fitted.history["held_out"]))


@compiled
def seen_by(model: Digits, points: Float[Array, "n d"], key: PRNGKeyArray) -> tuple[Array, Array]:
    """Noise added, and D of it."""
    noisy = points + SIGMA * jax.random.normal(key, points.shape)
    return noisy, jax.vmap(model.denoise)(noisy)


def grey_levels(images: Any) -> list[list[int]]:
    """For a picture: grey levels from 0 to 255."""
    return np.round(255 * np.clip(np.asarray(images, np.float64), 0, 1)).astype(int).tolist()


def influence(points: np.ndarray, reference: np.ndarray) -> list[list[float]]:
    """What each point of either sample adds to MMD^2, to first order: 2 E k(x, x') - 2 E k(x, y), and -2 E k(x, y)."""
    kernel = GaussianSum(jnp.asarray(bandwidths_of(reference)))
    own, other = (np.asarray(kernel(jnp.asarray(points), jnp.asarray(b)), np.float64) for b in (points, reference))
    return [(2 * own.mean(axis=1) - 2 * other.mean(axis=1)).tolist(), (-2 * other.mean(axis=0)).tolist()]


def bandwidths_of(points: np.ndarray) -> tuple[float, ...]:
    middle = median_bandwidth(points)
    return tuple(middle * factor for factor in (0.25, 0.5, 1.0, 2.0, 4.0))
