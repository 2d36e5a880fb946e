"""The autoencoders of `implicit_vae`: what each method is, its data and its training."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

import jax
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

from unnorm.data.mnist import mnist
from unnorm.networks import Autoencoder
from unnorm.networks.autoencoder import gaussian_autoencoder, implicit_autoencoder, wasserstein_autoencoder
from unnorm.objectives import ELBO, WAE, AbstractObjective, ImplicitVAE
from unnorm.objectives.implicit import KernelVAE, KernelWAE, spectral, stein
from unnorm.scores.kernel import stein_score
from unnorm.training import Fit, fit

LATENT = 8


RATE = 1e-3


#: Of the source's Stein estimates.
RELEASED_RIDGE = 1e-3


#: Methods that only the paper's scale has: slow, or not in the source.
LATER = ("spectral", "Stein")


@dataclass(frozen=True)
class Size:
    """How much of everything; `every` is whether the slow and the additional methods are among them."""

    side: int
    width: int
    steps: int
    draws: int
    followed: int
    rows: int
    chains: int
    levels: int
    seeds: int
    every: bool


QUICK = Size(
    side=14, width=256, steps=8000, draws=100, followed=10, rows=1000, chains=16, levels=60, seeds=3, every=False
)


PAPER = Size(
    side=28, width=256, steps=100_000, draws=100, followed=100, rows=10_000, chains=16, levels=1000, seeds=3, every=True
)


class Binarised(AbstractObjective):
    """The objective on digits made black and white at random at every step, each pixel black with its grey value."""

    comparable: ClassVar[bool] = False
    objective: AbstractObjective

    def init(self, model: Any, data: Array, *, key: PRNGKeyArray) -> Any:
        """As the objective's."""
        return self.objective.init(model, data, key=key)

    def __call__(self, model: Any, state: Any, batch: Array, *, key: PRNGKeyArray) -> Any:
        drawing, key = jax.random.split(key)
        black = jax.random.bernoulli(drawing, batch).astype(batch.dtype)
        return self.objective(model, state, black, key=key)


def plain(make: Callable[..., Any], *args: Any, **options: Any) -> Autoencoder:
    """Without the score network, for the kernel estimates."""
    model = make(*args, **options)
    return Autoencoder(model.encoder, model.decoder)


def released_stein(codes: Array) -> Array:
    """The Stein estimate with the source's ridge, gradients stopped."""
    return stein_score(jax.lax.stop_gradient(codes), ridge=RELEASED_RIDGE)


def methods_of(size: Size) -> dict[str, tuple[Callable[..., Any], AbstractObjective]]:
    """How to make the model of each method, and its loss."""
    implicit, wasserstein = partial(plain, implicit_autoencoder), partial(plain, wasserstein_autoencoder)
    methods: dict[str, tuple[Callable[..., Any], AbstractObjective]] = {
        "ELBO": (gaussian_autoencoder, ELBO()),
        "VAE, SSM": (implicit_autoencoder, ImplicitVAE()),
        "VAE, Stein": (implicit, KernelVAE(stein, size.draws, size.followed)),
        "VAE, Stein as released": (implicit, KernelVAE(released_stein, size.draws, size.followed)),
        "VAE, spectral": (implicit, KernelVAE(spectral, size.draws, size.followed)),
        "WAE, SSM": (wasserstein_autoencoder, WAE()),
        "WAE, Stein": (wasserstein, KernelWAE(stein)),
        "WAE, Stein as released": (wasserstein, KernelWAE(released_stein)),
        "WAE, spectral": (wasserstein, KernelWAE(spectral)),
    }
    return {name: method for name, method in methods.items() if size.every or not name.endswith(LATER)}


@dataclass(frozen=True, eq=False)
class Digits:
    """Flat images: grey ones to train on, and some binarised once."""

    train: np.ndarray
    test: np.ndarray


def digits_of(size: Size, seed: int) -> Digits:
    """80 % of the training digits to train on, as the source has it, and some of the test digits."""
    digits = mnist(size.side)
    generator = np.random.default_rng(seed)
    train, test = (
        generator.permutation(part.images.reshape(len(part.images), -1)) for part in (digits.train, digits.test)
    )
    grey = test[: size.rows]
    return Digits(train[: len(train) * 4 // 5], (generator.uniform(size=grey.shape) < grey).astype(np.float32))


@lru_cache
def rmsprop() -> optax.GradientTransformation:
    """The source's optimiser. Cached, so that two runs share one compiled program."""
    return optax.rmsprop(RATE, decay=0.99, eps=1e-8, eps_in_sqrt=False)


def trained(
    make: Callable[..., Any], objective: AbstractObjective, digits: Digits, size: Size, key: PRNGKeyArray
) -> Fit[Any]:
    begin, run = jax.random.split(key)
    model = make(digits.train.shape[1], LATENT, width=size.width, key=begin)
    return fit(
        model, Binarised(objective), digits.train, steps=size.steps, batch=128, optimiser=rmsprop(),
        evaluations=10, key=run, progress=False,
    )  # fmt: skip
